//! The pictures and files that the tools of a session produced: found, listed, copied, drawn and opened.

use crate::cli::ui::host_programs::HostPrograms;
use crate::cli::ui::pictures::{ArtifactFiles, Pictures, is_drawable, path_line};
use crate::cli::ui::stderr;
use crate::cli::ui::style::Colours;
use crate::cli::unreviewed::check_destination;
use crate::error::{Error, Result};
use crate::event::Artifact;
use crate::log::report::{Produced, Report};
use crate::log::{ArtifactLimits, Artifacts, SessionId, Store, read_records};
use crate::machine::Machine;
use crate::paths;
use crate::sanitise::one_line;
use crate::visible::visible_name;
use crate::workspace::risks;
use crate::workspace::tree_path::TreePath;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Directories above a file that decide together with its name what obeys it.
const MAX_DEPTH: usize = 6;

/// The artifacts of the user's sessions, for the screen.
pub struct StoredArtifacts(Arc<Machine>);

impl StoredArtifacts {
    pub fn new(machine: Arc<Machine>) -> Self {
        Self(machine)
    }

    fn of(&self, session: &str) -> Option<Artifacts> {
        let directory = Store::open(&self.0).ok()?.dir(&SessionId::parse(session).ok()?);
        Some(Artifacts::of_session(&directory, ArtifactLimits::default()))
    }
}

impl ArtifactFiles for StoredArtifacts {
    fn path(&self, session: &str, artifact: &Artifact) -> Option<PathBuf> {
        self.of(session)?.path(artifact)
    }

    fn read(&self, session: &str, artifact: &Artifact) -> Result<Vec<u8>, String> {
        let artifacts = self.of(session).ok_or("its session keeps no artifacts")?;
        artifacts.read(artifact).map_err(|error| error.to_string())
    }
}

/// The artifacts of one session.
pub struct SessionArtifacts {
    pub id: SessionId,
    pub produced: Vec<Produced>,
    artifacts: Artifacts,
}

impl SessionArtifacts {
    /// Those of a session, which may be running.
    pub fn read(store: &Store, id: SessionId) -> Result<Self> {
        let mut produced = Report::on(&read_records(&store.events(&id))?).artifacts;
        // The same file under the same name, shown twice, is one.
        let mut seen = HashSet::new();
        produced.retain(|Produced { artifact, .. }| {
            seen.insert((artifact.name.clone(), artifact.sha256.clone()))
        });
        let artifacts = Artifacts::of_session(&store.dir(&id), ArtifactLimits::default());
        Ok(Self { id, produced, artifacts })
    }

    /// One line each, the oldest first.
    pub fn list(&self) -> String {
        let line = |Produced { artifact, time }: &Produced| {
            let Artifact { id, name, media_type, bytes, .. } = artifact;
            let time = time.get(..19).unwrap_or(time).replace('T', " ");
            format!(
                "{}  {}  {bytes:>9}  {media_type:<16}  {}\n",
                one_line(id, 12),
                one_line(&time, 19),
                one_line(name, 100)
            )
        };
        self.produced.iter().map(line).collect()
    }

    /// For `--json`.
    pub fn to_json(&self) -> Value {
        json!({ "session": self.id, "artifacts": self.produced })
    }

    /// The artifacts that `names` names, each once; all where it is empty.
    pub fn chosen(&self, names: &[String]) -> Result<Vec<&Artifact>> {
        if names.is_empty() {
            return Ok(self.produced.iter().map(|produced| &produced.artifact).collect());
        }
        let mut chosen: Vec<&Artifact> = Vec::new();
        for name in names {
            let artifact = self.find(name)?;
            if !chosen.contains(&artifact) {
                chosen.push(artifact);
            }
        }
        Ok(chosen)
    }

    /// The newest artifact of this name, or the one whose id begins so.
    fn find(&self, name: &str) -> Result<&Artifact> {
        let all = || self.produced.iter().rev().map(|produced| &produced.artifact);
        if let Some(artifact) = all().find(|artifact| artifact.name == name || artifact.id == name) {
            return Ok(artifact);
        }
        let of_id: Vec<&Artifact> = all().filter(|artifact| artifact.id.starts_with(name)).collect();
        let hashes: HashSet<&str> = of_id.iter().map(|artifact| artifact.sha256.as_str()).collect();
        match (of_id.first(), hashes.len()) {
            (Some(artifact), 1) => Ok(artifact),
            (Some(_), count) => {
                Err(Error::usage(format!("{count} artifacts have ids that begin with {name}"))
                    .hint("use more of the id"))
            }
            (None, _) => Err(Error::usage(format!("session {} has no artifact {name:?}", self.id))
                .hint(format!("see `agent artifacts {}`", self.id))),
        }
    }

    /// Copies the artifacts that `names` names. Nothing is written if one of the files is there already, or has a name that the user
    /// has to ask for.
    pub fn get(&self, names: &[String], output: Option<&Path>, force: bool) -> Result<Vec<PathBuf>> {
        let chosen = self.chosen(names)?;
        let targets = match output {
            Some(file) if !file.is_dir() && !file.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                if chosen.len() != 1 {
                    return Err(Error::usage(format!("{} artifacts do not fit into one file", chosen.len()))
                        .hint("name an existing directory, or end the name with /"));
                }
                vec![file.to_owned()]
            }
            directory => {
                let directory = directory.unwrap_or(Path::new("."));
                let targets = within(directory, &chosen);
                for (artifact, path) in chosen.iter().zip(&targets) {
                    check_target(path, names.contains(&artifact.name))?;
                }
                targets
            }
        };
        if !force && let Some(there) = targets.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(exists(there));
        }
        for (artifact, path) in chosen.iter().zip(&targets) {
            write_file(path, &self.artifacts.read(artifact)?, force)?;
        }
        Ok(targets)
    }

    /// The picture and the line with its file.
    pub fn draw(&self, artifact: &Artifact, pictures: &mut Pictures) -> String {
        let Some(path) = self.artifacts.path(artifact) else { return String::new() };
        let read = || self.artifacts.read(artifact).map_err(|error| error.to_string());
        let drawn = match is_drawable(artifact) {
            true => read().and_then(|bytes| pictures.draw(bytes)),
            false => Ok(None),
        };
        let name = one_line(&artifact.name, 100);
        let picture = match drawn {
            Ok(picture) => format!("{name}\n{}", picture.unwrap_or_default()),
            Err(why) => format!("{name} is not shown: {}\n", one_line(&why, 200)),
        };
        picture + &path_line(&path, Colours::of(&std::io::stdout()))
    }

    /// Opens a copy, whose ending says the type that was found out here, not the one that the program gave its file.
    pub fn open(&self, name: &str, machine: &Machine, programs: &HostPrograms) -> Result<PathBuf> {
        let artifact = self.find(name)?;
        let Some((_, ending)) = OPENED.iter().find(|(known, _)| *known == artifact.media_type) else {
            return Err(Error::usage(format!("{} is of an unknown type", artifact.name))
                .hint(format!("copy it with `agent artifacts {} get {}`", self.id, artifact.id)));
        };
        let directory = machine.cache_dir()?.join("artifacts");
        paths::make_dir(&directory)?;
        let hash = artifact.sha256.get(..16).unwrap_or_default();
        let path = directory.join(format!("{hash}.{ending}"));
        write_file(&path, &self.artifacts.read(artifact)?, true)?;
        if RUNS_SCRIPTS.contains(ending) {
            stderr::write("A program in the sandbox wrote this page; a browser runs the scripts in it.\n");
        }
        start(&path, programs)?;
        Ok(path)
    }
}

const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
/// The time for which the opener is waited for; where it is the viewer itself, it keeps running.
const OPENING: Duration = Duration::from_secs(3);
/// Media types that are opened, and their endings.
const OPENED: [(&str, &str); 9] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/svg+xml", "svg"),
    ("text/html", "html"),
    ("application/pdf", "pdf"),
    ("application/json", "json"),
    ("application/vnd.plotly.v1+json", "json"),
    ("text/csv", "csv"),
    ("text/plain", "txt"),
];
const RUNS_SCRIPTS: [&str; 2] = ["html", "svg"];

fn start(path: &Path, programs: &HostPrograms) -> Result<()> {
    let place = path.display();
    let Some(mut command) = programs.command(OPENER) else {
        return Err(Error::usage(format!("there is no {OPENER} to open it with"))
            .hint(format!("the file is {place}")));
    };
    let null = Stdio::null;
    let spawned = command.arg(path).stdin(null()).stdout(null()).stderr(null()).process_group(0).spawn();
    let failed = |why: String| Error::usage(format!("{OPENER} {why}")).hint(format!("the file is {place}"));
    let mut child = spawned.map_err(|error| failed(format!("could not be started: {error}")))?;
    let deadline = Instant::now() + OPENING;
    while Instant::now() < deadline {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(format!("failed ({status})"))),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}

/// A path for each artifact. Where two have the same name, the id of the later ones is in theirs.
fn within(directory: &Path, artifacts: &[&Artifact]) -> Vec<PathBuf> {
    let mut taken = HashSet::new();
    let mut path = |artifact: &&Artifact| {
        let name = match taken.insert(artifact.name.clone()) {
            true => artifact.name.clone(),
            false => format!("{}-{}", artifact.id, artifact.name),
        };
        directory.join(name)
    };
    artifacts.iter().map(&mut path).collect()
}

/// Checks that a file may be written whose name a program in the sandbox chose: no review shows it. `is_named`: the user has asked for
/// this name.
///
/// # Errors
/// Other programs would execute or obey the file, it would be part of a repository, or not all of its name is seen.
pub fn check_target(path: &Path, is_named: bool) -> Result<()> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let shown = visible_name(name);
    let refused = |why: &str| {
        Error::usage(format!("{shown} is not written: {why}"))
            .hint("name the files to write, or write this one as a file whose name you choose")
    };
    let name = TreePath::new(name).map_err(refused)?;
    if shown.as_bytes() != name.as_bytes() {
        return Err(refused("not all characters of its name are seen"));
    }
    if !is_named && is_control_file(path) {
        return Err(refused("other programs execute or obey a file of this name"));
    }
    // A directory that is not there yet holds no part of a repository, but may be below one.
    let there = path.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("."));
    check_destination(&there.join(name.as_path()), &name)
}

/// Returns whether a file would be obeyed at its place, whatever directory is the top for a program.
fn is_control_file(path: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = parent
        .canonicalize()
        .unwrap_or_else(|_| parent.to_owned())
        .join(path.file_name().unwrap_or_default());
    let names: Vec<&[u8]> = place.iter().map(OsStrExt::as_bytes).collect();
    let ends = (1..=names.len().min(MAX_DEPTH)).map(|count| names[names.len() - count..].join(&b'/'));
    ends.filter_map(|end| TreePath::new(&end).ok()).any(|end| risks::is_control_file(&end))
}

fn exists(path: &Path) -> Error {
    Error::usage(format!("{} exists already", path.display())).hint("--force overwrites it")
}

/// Writes a whole file or none.
pub fn write_file(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => Error::usage(format!("{} could not be written", path.display())).caused_by(error),
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(failed)?;
    let mut builder = tempfile::Builder::new();
    // Less what the umask takes away.
    builder.permissions(Permissions::from_mode(0o666));
    let mut file = builder.tempfile_in(parent).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    let kept = if force { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map(drop).map_err(|error| failed(error.error))
}

#[cfg(test)]
mod tests {
    use super::check_target;

    /// Settings of agents and builds that a program in the sandbox had shown were written beside the user's files.
    #[test]
    fn what_other_programs_obey_is_written_only_by_its_name_and_gits_own_never() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in ["bare/objects", "bare/refs", ".git/hooks"] {
            std::fs::create_dir_all(directory.path().join(path)).expect("a directory");
        }
        for (path, is_written, is_written_if_named) in [
            ("plot.png", true, true),
            ("new/é.csv", true, true),
            (".mcp.json", false, true),
            ("new/CMakeLists.txt", false, true),
            ("requirements.txt", false, true),
            ("\u{202e}txt.x.json", false, false),
            ("a\u{200b}.txt", false, false),
            (".git", false, false),
            (".git/hooks/x.txt", false, false),
            ("bare/HEAD", false, false),
        ] {
            let path = directory.path().join(path);
            assert_eq!(check_target(&path, false).is_ok(), is_written, "{path:?}");
            assert_eq!(check_target(&path, true).is_ok(), is_written_if_named, "{path:?}");
        }
    }
}
