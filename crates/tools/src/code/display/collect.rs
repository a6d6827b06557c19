//! Taking what a run showed out of its directory. All of it is hostile: names, sizes, links, pipes, what a file claims to be.

use super::{BEGUN, Run, absent_is_fine};
use crate::Context;
use agent_base::error::{Kind, Result};
use agent_base::sanitise::one_line;
use agent_event::{Artifact, Content, Event};
use agent_picture::Header;
use agent_sandbox::{Entry, EntryKind, WalkOptions};
use std::path::{Path, PathBuf};

/// More entries than this in a run's directory, and nothing is taken.
const MAX_ENTRIES: u64 = 1_000;
/// The most files that are taken from one run.
const MAX_FILES: usize = 20;
/// The largest file, in bytes.
const MAX_FILE: u64 = 8 << 20;
/// The most bytes that are taken from one run.
const MAX_RUN: u64 = 32 << 20;
/// A workspace with more entries than this is not searched for what a run wrote; its changes are in the diff as ever.
const MAX_WORKSPACE: u64 = 2_000;
/// Directories of the workspace that hold what tools made, not what a snippet did.
const NOT_SEARCHED: [&str; 6] = [".git", "node_modules", "target", ".venv", "venv", "__pycache__"];
/// The most files of the workspace that are named.
const MAX_NAMED: usize = 20;

/// The output that a run showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownOutput {
    /// Images and files, in the order in which they were made.
    pub content: Vec<Content>,
    /// A line for each of them, for each that was not taken, and for the files that the run wrote: for models that take text only.
    pub lines: String,
}

/// Stores what a run showed, emits an `artifact` event for each file, and names the files that the run wrote into the workspace.
///
/// # Errors
/// The connection or the session file is broken. What is wrong with a single file is a line.
pub async fn collect(context: Context<'_>, run: &Run) -> Result<ShownOutput> {
    let mut collector = ShownCollector { context, run, taken: ShownOutput::default(), bytes: 0 };
    let options = WalkOptions { hash: false, exclude: Vec::new(), max_entries: MAX_ENTRIES };
    let entries = match context.sandbox.walk(&run.directory, options).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == Kind::InSandbox => {
            // Most often nothing is there; if something is, there is too much of it.
            if absent_is_fine(context.sandbox.stat(&run.directory).await)?.is_some() {
                collector.note(&format!("nothing of {} was taken: {error}", run.directory.display()));
            }
            return Ok(collector.taken);
        }
        Err(error) => return Err(error),
    };
    let begun = entries.iter().find(|entry| entry.path == Path::new(BEGUN)).map(|entry| entry.ctime_ns);
    collector.take_all(entries).await?;
    if let Some(begun) = begun {
        collector.name_written(begun).await?;
    }
    Ok(collector.taken)
}

struct ShownCollector<'a> {
    context: Context<'a>,
    run: &'a Run,
    taken: ShownOutput,
    /// Bytes taken so far.
    bytes: u64,
}

impl ShownCollector<'_> {
    async fn take_all(&mut self, mut entries: Vec<Entry>) -> Result<()> {
        entries.retain(|entry| entry.kind == EntryKind::File && media_type(&entry.path).is_some());
        entries.sort_by(|a, b| (a.mtime_ns, &a.path).cmp(&(b.mtime_ns, &b.path)));
        let rest = entries.split_off(MAX_FILES.min(entries.len()));
        for (number, entry) in (1..).zip(&entries) {
            self.take(number, entry).await?;
        }
        if !rest.is_empty() {
            let directory = self.run.directory.display();
            self.note(&format!("{} more files in {directory} were not taken", rest.len()));
        }
        Ok(())
    }

    async fn take(&mut self, number: usize, entry: &Entry) -> Result<()> {
        let path = self.run.directory.join(&entry.path);
        let limit = MAX_FILE.min(MAX_RUN.saturating_sub(self.bytes));
        let refused = |why: &str| format!("{} was not taken: {why}", path.display());
        if entry.size > limit {
            self.note(&refused(&format!("{} bytes are more than the limit of {limit}", entry.size)));
            return Ok(());
        }
        let read = match self.context.sandbox.read_file(&path, 0, limit + 1).await {
            Ok(read) if read.bytes.len() as u64 > limit => Err("it grew meanwhile".to_owned()),
            Ok(read) => Ok(read.bytes),
            Err(error) if error.kind() == Kind::InSandbox => Err(error.to_string()),
            Err(error) => return Err(error),
        };
        match read {
            Ok(bytes) => self.store(number, &path, &bytes),
            Err(why) => {
                self.note(&refused(&why));
                Ok(())
            }
        }
    }

    fn store(&mut self, number: usize, path: &Path, bytes: &[u8]) -> Result<()> {
        let claimed = media_type(path).unwrap_or(UNKNOWN);
        let header = Header::of(bytes);
        let media_type = match &header {
            Ok(header) => header.format.media_type(),
            Err(_) if claimed.starts_with("image/") && claimed != SVG => UNKNOWN,
            Err(_) => claimed,
        };
        let artifact = match self.context.artifacts.add(&shown_name(number, path), media_type, bytes) {
            Ok(artifact) => artifact,
            Err(error) if error.kind() == Kind::Usage => {
                self.note(&format!("{} was not taken: {error}", path.display()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.bytes += bytes.len() as u64;
        self.context
            .events
            .emit(Event::Artifact { artifact: artifact.clone(), tool_call: self.context.call.to_owned() })?;
        let what = match (&header, media_type) {
            (Ok(header), _) => format!("{media_type}, {}×{} pixels", header.width, header.height),
            (Err(why), UNKNOWN) => format!("not shown as an image: {why}"),
            _ => media_type.to_owned(),
        };
        self.line(if header.is_ok() { "image" } else { "file" }, &artifact, &what, path);
        self.taken.content.push(match header {
            Ok(_) => Content::Image { artifact },
            Err(_) => Content::Artifact { artifact },
        });
        Ok(())
    }

    /// Names the regular files of the workspace that have changed since `begun`.
    async fn name_written(&mut self, begun: i64) -> Result<()> {
        let exclude = NOT_SEARCHED.iter().map(PathBuf::from).collect();
        let options = WalkOptions { hash: false, exclude, max_entries: MAX_WORKSPACE };
        let sandbox = &self.context.sandbox;
        let Some(entries) = absent_is_fine(sandbox.walk(sandbox.workspace(), options).await)? else {
            return Ok(());
        };
        // The clock that stamps files ticks every few milliseconds: what an earlier call wrote in the same tick is named too.
        let is_new = |entry: &&Entry| entry.kind == EntryKind::File && entry.ctime_ns >= begun;
        let mut written: Vec<&Entry> = entries.iter().filter(is_new).collect();
        written.sort_by(|a, b| a.path.cmp(&b.path));
        let name = |entry: &&Entry| one_line(&entry.path.to_string_lossy(), 200);
        let names: Vec<String> = written.iter().take(MAX_NAMED).map(name).collect();
        match written.len() {
            0 => {}
            count if count > MAX_NAMED => {
                self.note(&format!("files written: {} and {} more", names.join(", "), count - MAX_NAMED));
            }
            _ => self.note(&format!("files written: {}", names.join(", "))),
        }
        Ok(())
    }

    fn line(&mut self, kind: &str, artifact: &Artifact, what: &str, path: &Path) {
        self.note(&format!("{kind} {}: {what}, {} bytes: {}", artifact.name, artifact.bytes, path.display()));
    }

    fn note(&mut self, text: &str) {
        self.taken.lines.push_str(&format!("[{}]\n", one_line(text, 1_000)));
    }
}

const UNKNOWN: &str = "application/octet-stream";
const SVG: &str = "image/svg+xml";

/// Returns what a file of this name should be; `None` for what is not taken.
fn media_type(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let types = [
        (".png", "image/png"),
        (".jpg", "image/jpeg"),
        (".jpeg", "image/jpeg"),
        (".svg", SVG),
        (".html", "text/html"),
        (".plotly.json", "application/vnd.plotly.v1+json"),
        (".json", "application/json"),
        (".pdf", "application/pdf"),
        (".csv", "text/csv"),
        (".txt", "text/plain"),
    ];
    types.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, media_type)| media_type)
}

/// The name under which a file is kept: its own, or a number in place of the process id in those that the capture modules and
/// the kept interpreter (`d`) give.
fn shown_name(number: usize, path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, ending) = name.split_once('.').unwrap_or((&name, ""));
    let is_ours = stem.split_once('-').is_some_and(|(process, count)| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(process) && is_number(count.strip_prefix('d').unwrap_or(count))
    });
    let is_picture = media_type(path).is_some_and(|kind| kind.starts_with("image/"));
    match is_ours {
        true => format!("{}-{number}.{ending}", if is_picture { "figure" } else { "output" }),
        false => name.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_capture_modules_become_numbers() {
        for (path, name) in [
            ("d/4711-0001.png", "figure-3.png"),
            ("d/4711-0002.plotly.json", "output-3.plotly.json"),
            ("d/4711-d0001.html", "output-3.html"),
            ("d/sales.png", "sales.png"),
            ("d/a-b.png", "a-b.png"),
            ("d/-1.png", "-1.png"),
        ] {
            assert_eq!(shown_name(3, Path::new(path)), name);
        }
    }

    #[test]
    fn files_of_other_kinds_are_not_taken() {
        for path in [".begun", "1-0001.png.partial", "core", "a.py", "png"] {
            assert_eq!(media_type(Path::new(path)), None, "{path}");
        }
        assert_eq!(media_type(Path::new("A.PNG")), Some("image/png"));
    }
}
