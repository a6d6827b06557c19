//! `/upload` and `/download`: single files and whole directories, in and out of the sandbox.

use super::{Flow, Repl};
use crate::cli::unreviewed::check_destination;
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::plain_file::{self, Links};
use crate::sandbox::{Entry, EntryKind, FileWrite, Node, Sandbox, WalkOptions};
use crate::visible::visible_name;
use crate::workspace::bare_repository::{self, repositories};
use crate::workspace::entries::{Rejected, validate};
use crate::workspace::host_dir::{HostDir, Observed};
use crate::workspace::risks;
use crate::workspace::tree_path::TreePath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The largest file that is copied, in bytes: it passes through memory.
const MAX_FILE: u64 = 1 << 30;
/// Files of a directory that are copied at most.
const MAX_FILES: usize = 100_000;
/// Bytes, and files, that go into the sandbox in one request.
const BATCH: (usize, usize) = (16 << 20, 256);
/// Bytes that come out of the sandbox in one request.
const CHUNK: u64 = 4 << 20;
/// Files of a directory that are read together, in bytes.
const SMALL: u64 = 64 << 10;
/// Excluded files that are named.
const MAX_NAMED: usize = 20;

impl Repl<'_> {
    pub(super) async fn upload(&mut self, arguments: &str) -> Result<Flow> {
        let (path, destination) = two_paths("/upload", arguments)?;
        let name = path.file_name().ok_or_else(|| Error::usage(format!("{} has no name", shown(&path))))?;
        let destination = below(destination, name);
        self.screen.progress().show(&format!("uploading {}", shown(&path)));
        let sandbox = self.session.startup().ready().await?.sandbox.clone();
        let mut batch = UploadBatch { sandbox: &sandbox, files: Vec::new(), bytes: 0, sent: 0 };
        let mut open = vec![(path, destination.clone())];
        while let Some((from, to)) = open.pop() {
            let failed = |error| unreadable(&from, error);
            let found = fs::symlink_metadata(&from).map_err(failed)?;
            let node = if found.is_symlink() {
                Node::Symlink(fs::read_link(&from).map_err(failed)?)
            } else if found.is_dir() {
                for entry in fs::read_dir(&from).map_err(failed)? {
                    let name = entry.map_err(failed)?.file_name();
                    open.push((from.join(&name), to.join(&name)));
                }
                Node::Directory
            } else if found.is_file() && found.len() <= MAX_FILE {
                Node::Regular(plain_file::read(&from, MAX_FILE, Links::Refuse).map_err(failed)?)
            } else {
                self.remark(&format!(
                    "excluded: {} (not a regular file, or larger than 1 GiB)",
                    shown(&from)
                ));
                // There is nothing else to upload.
                if to == destination {
                    self.screen.progress().clear();
                    return Ok(Flow::Continue);
                }
                continue;
            };
            let mode = (!found.is_symlink()).then(|| found.permissions().mode() & 0o777);
            batch.add(FileWrite { path: to, node, mode, mtime_ns: None, follow: false }).await?;
        }
        let sent = batch.finish().await?;
        self.screen.progress().clear();
        self.remark(&format!("uploaded as {} ({})", shown(&destination), counted(sent, "file")));
        self.note(&format!(
            "The user copied {} into the sandbox, as {}.",
            counted(sent, "file"),
            shown(&destination)
        ))?;
        Ok(Flow::Continue)
    }

    /// Nothing that exists is overwritten.
    pub(super) async fn download(&mut self, arguments: &str) -> Result<Flow> {
        let (path, destination) = two_paths("/download", arguments)?;
        let name = path.file_name().ok_or_else(|| Error::usage(format!("{} has no name", shown(&path))))?;
        let destination = match destination {
            Some(directory) if directory.is_dir() => directory.join(name),
            other => below(other, name),
        };
        let name = TreePath::new(destination.file_name().unwrap_or(name).as_bytes()).map_err(Error::usage)?;
        check_destination(&destination, &name)?;
        if destination.symlink_metadata().is_ok() {
            return Err(
                Error::usage(format!("{} exists already", shown(&destination))).hint("name another DEST")
            );
        }
        self.screen.progress().show(&format!("downloading {}", shown(&path)));
        let sandbox = self.session.startup().ready().await?.sandbox.clone();
        let written = match sandbox.stat(&path).await?.kind {
            EntryKind::Directory => {
                let written = self.download_directory(&sandbox, &path, &destination).await?;
                let in_directory =
                    |path: TreePath| TreePath::new(&[name.as_bytes(), b"/", path.as_bytes()].concat()).ok();
                written.into_iter().filter_map(in_directory).collect()
            }
            _ => {
                let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
                let host =
                    HostDir::open(parent.unwrap_or(Path::new("."))).map_err(unwritable(&destination))?;
                fetch(&sandbox, &path, &host, &name).await?;
                vec![name]
            }
        };
        self.screen.progress().clear();
        self.remark(&format!("downloaded as {} ({})", shown(&destination), counted(written.len(), "file")));
        if let Some(risks) = risks::of_new_files(written) {
            self.remark(&risks);
        }
        Ok(Flow::Continue)
    }

    /// Regular files and directories, as far as they are safe. The files.
    async fn download_directory(&self, sandbox: &Sandbox, from: &Path, to: &Path) -> Result<Vec<TreePath>> {
        let options = WalkOptions { max_entries: MAX_FILES as u64, ..WalkOptions::default() };
        let mut excluded = Rejected::default();
        let entries = validate(sandbox.walk(from, options).await?, &mut excluded);
        let entries = safe_entries(entries, &mut excluded).ok_or_else(|| {
            Error::usage(format!("{} is not downloaded: {}", shown(from), bare_repository::REASON))
                .hint("pack it inside the sandbox, and download the archive")
        })?;
        fs::create_dir(to).map_err(unwritable(to))?;
        let host = HostDir::open(to).map_err(unwritable(to))?;
        let (directories, files): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(_, entry)| entry.kind == EntryKind::Directory);
        for (path, _) in directories {
            host.make_directory(&path).map_err(unwritable(to))?;
        }
        let written = files.iter().map(|(path, _)| path.clone()).collect();
        let (small, large): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, entry)| entry.size <= SMALL);
        for group in small.chunks(BATCH.1) {
            let paths = group.iter().map(|(path, _)| from.join(path.as_path())).collect();
            for ((path, _), content) in group.iter().zip(sandbox.read_files(paths, MAX_FILE).await?) {
                let content = content?;
                if is_head(path, &content.bytes) {
                    excluded.reject(path.clone(), bare_repository::HEAD_REASON.to_owned());
                    continue;
                }
                let is_executable = content.mode & 0o111 != 0;
                host.write_plain_file(
                    path,
                    &mut content.bytes.as_slice(),
                    is_executable,
                    &Observed::nothing(),
                )
                .map_err(unwritable(&to.join(path.as_path())))?;
            }
        }
        for (path, _) in large {
            fetch(sandbox, &from.join(path.as_path()), &host, &path).await?;
        }
        for (name, reason) in excluded.names.iter().take(MAX_NAMED) {
            self.remark(&format!("excluded: {name} ({reason})"));
        }
        if excluded.names.len() > MAX_NAMED {
            self.remark("excluded: … and more");
        }
        Ok(written)
    }
}

/// The entries that may be written to the host: no symlinks, because the sandbox chooses their targets, and nothing that
/// configures git. `None` if the directory itself is a repository.
fn safe_entries(
    mut entries: Vec<(TreePath, Entry)>,
    excluded: &mut Rejected,
) -> Option<Vec<(TreePath, Entry)>> {
    let mut blocked = repositories(entries.iter().map(|(path, _)| path), |_| false);
    if blocked.contains(&b""[..]) {
        return None;
    }
    for directory in blocked.iter().filter_map(|directory| TreePath::new(directory).ok()) {
        excluded.reject(directory, bare_repository::REASON.to_owned());
    }
    entries.retain(|(path, entry)| {
        if path.ancestors().any(|directory| blocked.contains(directory.as_bytes())) {
            return false;
        }
        let reason = match entry.kind {
            _ if path.is_git_internal() => "belongs to git, whose settings run programs",
            EntryKind::Symlink(_) => "a symlink",
            _ => return true,
        };
        // A directory precedes its contents.
        blocked.insert(path.as_bytes().to_vec());
        excluded.reject(path.clone(), reason.to_owned());
        false
    });
    Some(entries)
}

/// Returns whether git would accept a file as the `HEAD` of a repository.
fn is_head(path: &TreePath, content: &[u8]) -> bool {
    bare_repository::is_named_head(path) && bare_repository::is_head(content)
}

/// Files to be uploaded together.
struct UploadBatch<'s> {
    sandbox: &'s Sandbox,
    files: Vec<FileWrite>,
    bytes: usize,
    sent: usize,
}

impl UploadBatch<'_> {
    async fn add(&mut self, file: FileWrite) -> Result<()> {
        if let Node::Regular(content) = &file.node {
            self.bytes += content.len();
            self.sent += 1;
        }
        self.files.push(file);
        if self.sent > MAX_FILES {
            return Err(Error::usage(format!("more than {MAX_FILES} files")));
        }
        if self.bytes >= BATCH.0 || self.files.len() >= BATCH.1 { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let files = std::mem::take(&mut self.files);
        self.sandbox.put_tree(files).await?.results.into_iter().collect()
    }

    async fn finish(mut self) -> Result<usize> {
        self.flush().await?;
        Ok(self.sent)
    }
}

/// Copies one regular file out of the sandbox, through memory. Of its permission bits only the executable one is kept.
async fn fetch(sandbox: &Sandbox, from: &Path, host: &HostDir, to: &TreePath) -> Result<()> {
    let mut content = Vec::new();
    let executable = loop {
        let piece = sandbox.read_file(from, content.len() as u64, CHUNK).await?;
        content.extend_from_slice(&piece.bytes);
        if content.len() as u64 > MAX_FILE || piece.size > MAX_FILE {
            return Err(Error::usage(format!("{} is larger than 1 GiB", shown(from))));
        }
        if piece.bytes.is_empty() || content.len() as u64 >= piece.size {
            break piece.mode & 0o111 != 0;
        }
    };
    if is_head(to, &content) {
        return Err(Error::usage(format!("{to} is not written: {}", bare_repository::HEAD_REASON)));
    }
    host.write_plain_file(to, &mut content.as_slice(), executable, &Observed::nothing())
        .map_err(unwritable(to.as_path()))
}

/// `PATH [DEST]`, quoted as in a shell.
fn two_paths(command: &str, arguments: &str) -> Result<(PathBuf, Option<PathBuf>)> {
    let usage = || Error::usage(format!("{command} takes PATH [DEST]")).hint("quote names with spaces");
    let mut words = shell_words::split(arguments).map_err(|_| usage())?.into_iter().map(PathBuf::from);
    match (words.next(), words.next(), words.next()) {
        (Some(path), destination, None) => Ok((path, destination)),
        _ => Err(usage()),
    }
}

/// The destination: `name` if none is given, `name` inside of one that ends in a slash.
fn below(destination: Option<PathBuf>, name: &OsStr) -> PathBuf {
    match destination {
        None => PathBuf::from(name),
        Some(directory) if directory.as_os_str().as_bytes().ends_with(b"/") => directory.join(name),
        Some(destination) => destination,
    }
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::usage(format!("{} could not be read", shown(path))).caused_by(error)
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Error {
    let shown = shown(path);
    move |error| Error::usage(format!("{shown} could not be written")).caused_by(error)
}

fn shown(path: &Path) -> String {
    visible_name(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_as_in_a_shell() {
        let (path, destination) = two_paths("/upload", "'a b' c\\ d").unwrap();
        assert_eq!((path.as_path(), destination.as_deref()), (Path::new("a b"), Some(Path::new("c d"))));
        assert!(two_paths("/upload", "").is_err() && two_paths("/upload", "a b c").is_err());
    }

    #[test]
    fn a_destination_with_a_slash_is_a_directory() {
        assert_eq!(below(None, OsStr::new("f")), Path::new("f"));
        assert_eq!(below(Some(PathBuf::from("d/")), OsStr::new("f")), Path::new("d/f"));
        assert_eq!(below(Some(PathBuf::from("g")), OsStr::new("f")), Path::new("g"));
    }
}
