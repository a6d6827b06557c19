//! `write_files`: several whole files.

use super::describe;
use super::location::targets;
use super::write_file::{self, path_and_data};
use crate::{Context, Tool, ToolResult, arguments};
use agent_base::count_text::counted;
use agent_base::error::Result;
use agent_event::FileEdit;
use agent_policy::policy::{Action, FileChange};
use agent_sandbox::Sandbox;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Files whose change is shown.
const MAX_SHOWN: usize = 10;

pub struct WriteFiles;

impl Tool for WriteFiles {
    describe!("write_files", WRITE_FILES, WriteFilesArguments);

    fn action<'a>(&self, arguments: &'a Value) -> Option<Action<'a>> {
        let files = arguments.get("files")?.as_array()?;
        let files = files.iter().filter_map(path_and_data).flat_map(|(path, data)| targets(path, data));
        Some(Action::Write { files: files.collect(), whole: true })
    }

    fn changes<'a>(&'a self, sandbox: &'a Sandbox, arguments: &'a Value) -> BoxFuture<'a, Vec<FileChange>> {
        let files =
            arguments::read(arguments).map_or_else(|_| Vec::new(), |WriteFilesArguments { files }| files);
        Box::pin(write_file::changes(sandbox, files))
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct WriteFilesArguments {
    /// The files.
    files: Vec<write_file::WriteFileArguments>,
}

async fn run(context: Context<'_>, WriteFilesArguments { files }: WriteFilesArguments) -> Result<ToolResult> {
    let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    let results = write_file::write(context, files).await?;
    let failed: Vec<String> = paths
        .iter()
        .zip(&results)
        .filter_map(|(path, result)| result.as_ref().err().map(|error| format!("{path}: {error}")))
        .collect();
    let written = results.len() - failed.len();
    let edits = results.iter().filter_map(|result| result.as_ref().ok()?.edit.clone());
    let edits: Vec<FileEdit> = edits.take(MAX_SHOWN).collect();
    if failed.is_empty() {
        let named = paths.iter().zip(&results).map(|(path, result)| match result {
            Ok(written) => format!("{path}{}", written.note),
            Err(_) => path.clone(),
        });
        let named: Vec<String> = named.collect();
        let between = if named == paths { ", " } else { "; " };
        let done = format!("wrote {}: {}", counted(written, "file"), named.join(between));
        return Ok(ToolResult { edits, ..ToolResult::success(done) });
    }
    let failed =
        format!("wrote {written} of {}\nerror: {}", counted(paths.len(), "file"), failed.join("\nerror: "));
    Ok(ToolResult { edits, ..ToolResult::failure(failed) })
}
