//! `write_file`: a whole file.

use super::declared_encoding::{new_text_file, text_file};
use super::describe;
use super::location::{Located, locate, name, targets};
use super::replacement::{Replacement, replace};
use crate::{Context, Tool, ToolResult, arguments};
use agent_base::count_text::counted;
use agent_base::error::{Error, Kind, Result};
use agent_base::file_name::Likeness;
use agent_base::text_encoding::TextFile;
use agent_diff::excerpt;
use agent_event::FileEdit;
use agent_policy::policy::{Action, FileChange};
use agent_sandbox::{FileWrite, Node, Sandbox};
use futures_util::future::{BoxFuture, join_all};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::path::Path;

/// The largest file whose form a new content takes over, in bytes.
const MAX_BYTES: u64 = 16 << 20;

pub struct WriteFile;

impl Tool for WriteFile {
    describe!("write_file", WRITE_FILE, WriteFileArguments);

    fn action<'a>(&self, arguments: &'a Value) -> Option<Action<'a>> {
        let (path, data) = path_and_data(arguments)?;
        Some(Action::Write { files: targets(path, data), whole: true })
    }

    fn changes<'a>(&'a self, sandbox: &'a Sandbox, arguments: &'a Value) -> BoxFuture<'a, Vec<FileChange>> {
        Box::pin(async move { changes(sandbox, arguments::read(arguments).into_iter().collect()).await })
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct WriteFileArguments {
    /// The file.
    pub path: String,
    /// The whole content.
    data: String,
}

async fn run(context: Context<'_>, file: WriteFileArguments) -> Result<ToolResult> {
    let lines = file.data.lines().count();
    let invalid = json_error(Path::new(&file.path), &file.data)
        .map_or_else(String::new, |error| format!("; it is not valid JSON: {error}"));
    let path = file.path.clone();
    match write(context, vec![file]).await?.pop() {
        Some(Err(error)) => Err(error),
        Some(Ok(Written { bytes, note, edit })) => {
            let done = format!(
                "wrote {path}: {}, {}{note}{invalid}",
                counted(lines, "line"),
                counted(bytes, "byte")
            );
            Ok(ToolResult { edits: edit.into_iter().collect(), ..ToolResult::success(done) })
        }
        None => Err(Error::unexpected("the sandbox gave no answer about a file")),
    }
}

/// Returns what is wrong with a file that is named as JSON and is not.
pub fn json_error(path: &Path, content: &str) -> Option<String> {
    // Settings files of that name often have comments.
    let has_comments = ["//", "/*"].iter().any(|mark| content.contains(mark));
    if has_comments || path.extension().is_none_or(|extension| extension != "json") {
        return None;
    }
    serde_json::from_str::<IgnoredAny>(content).err().map(|error| error.to_string())
}

pub fn path_and_data(file: &Value) -> Option<(&str, &str)> {
    Some((file.get("path")?.as_str()?, file.get("data")?.as_str()?))
}

/// A file that was written.
pub struct Written {
    pub bytes: usize,
    /// The difference from what was asked for, in words.
    pub note: String,
    /// The change, where the former content is known.
    pub edit: Option<FileEdit>,
}

/// The changes that [`write`] would make. Those that it would refuse are left out.
pub async fn changes(sandbox: &Sandbox, files: Vec<WriteFileArguments>) -> Vec<FileChange> {
    let prepared = join_all(files.into_iter().map(|file| prepare(sandbox, file))).await;
    let change = |prepared: Result<PreparedWrite>| {
        let PreparedWrite { write, former, is_new, .. } = prepared.ok()?;
        let (path, before) = (name(sandbox, &write.path), (!is_new).then_some(former?));
        let Node::Regular(after) = write.node else { return None };
        Some(FileChange { path, before: before.map(TextFile::into_bytes), after })
    };
    prepared.into_iter().filter_map(change).collect()
}

/// A file that is about to be written.
struct PreparedWrite {
    write: FileWrite,
    written: Written,
    /// The file that it replaces, empty where there is none; `None` where that is too large to be looked at.
    former: Option<TextFile>,
    is_new: bool,
}

/// Writes each file in the form of the one that it replaces.
pub async fn write(context: Context<'_>, files: Vec<WriteFileArguments>) -> Result<Vec<Result<Written>>> {
    // What the files held is not needed any more: together that may be large.
    let prepare_one = async |file| {
        prepare(context.sandbox, file).await.map(|prepared| PreparedWrite { former: None, ..prepared })
    };
    let prepared = join_all(files.into_iter().map(prepare_one)).await;
    let mut writes = Vec::new();
    let mut done = Vec::with_capacity(prepared.len());
    for prepared in prepared {
        done.push(match prepared {
            Ok(PreparedWrite { write, written, .. }) => {
                writes.push(write);
                Ok(written)
            }
            Err(error) if error.kind() == Kind::InSandbox => Err(error),
            Err(error) => return Err(error),
        });
    }
    let mut results =
        if writes.is_empty() { Vec::new() } else { context.sandbox.write_files(writes).await? };
    let mut results = results.drain(..);
    Ok(done
        .into_iter()
        .map(|done| done.and_then(|written| results.next().unwrap_or(Ok(())).map(|()| written)))
        .collect())
}

async fn prepare(sandbox: &Sandbox, file: WriteFileArguments) -> Result<PreparedWrite> {
    let Located { path, note: meant } = locate(sandbox, &file.path, Likeness::Looks).await;
    let (former, is_new) = match sandbox.read_file(&path, 0, MAX_BYTES + 1).await {
        Ok(former) => (Some(former.bytes).filter(|bytes| bytes.len() as u64 <= MAX_BYTES), false),
        // Nothing is there, or something that the write itself reports.
        Err(error) if error.kind() == Kind::InSandbox => (Some(Vec::new()), true),
        Err(error) => return Err(error),
    };
    let mut settings_note = "";
    let (Replacement { bytes, mut note }, edit, former) = match former {
        Some(former) => {
            let (former, takes_crlf) = match is_new {
                true => new_text_file(sandbox, &path).await,
                false => (text_file(sandbox, &path, former, &file.data).await, false),
            };
            let takes_crlf = takes_crlf && file.data.contains('\n') && !file.data.contains('\r');
            let data = if takes_crlf { file.data.replace('\n', "\r\n") } else { file.data };
            if takes_crlf {
                settings_note = ", with CRLF line ends as the project's settings say";
            }
            let name = name(sandbox, &path);
            let replaced = tokio::task::spawn_blocking(move || {
                let made = replace(&former, &data)?;
                let edit = excerpt::of(&name, (!is_new).then(|| former.bytes()), &made.bytes);
                Ok((made, Some(edit), Some(former)))
            });
            let replaced: Result<_, String> = replaced
                .await
                .map_err(|error| Error::unexpected("the file could not be compared").caused_by(error))?;
            replaced
                .map_err(|why| Error::new(Kind::InSandbox, format!("{} is not written: {why}", file.path)))?
        }
        None => (Replacement { bytes: file.data.into_bytes(), note: String::new() }, None, None),
    };
    note.push_str(settings_note);
    note.extend(meant.map(|meant| format!(" ({meant})")));
    let written = Written { bytes: bytes.len(), note, edit };
    let node = Node::Regular(bytes);
    let write = FileWrite { path, node, mode: None, mtime_ns: None, follow: true };
    Ok(PreparedWrite { write, written, former, is_new })
}
