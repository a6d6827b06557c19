//! `write_file` and `write_files`: whole files.

use super::{Context, ToolResult};
use crate::error::Result;
use crate::sandbox::{FileWrite, Node};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize, JsonSchema)]
pub struct Arguments {
    /// The file.
    path: String,
    /// The whole content.
    data: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct ManyArguments {
    /// The files.
    files: Vec<Arguments>,
}

pub async fn run(context: Context<'_>, file: Arguments) -> Result<ToolResult> {
    let (path, lines, bytes) = (file.path.clone(), file.data.lines().count(), file.data.len());
    match write(context, vec![file]).await?.pop() {
        Some(Err(error)) => Err(error),
        _ => Ok(ToolResult::success(format!("wrote {path}: {lines} lines, {bytes} bytes"))),
    }
}

pub async fn run_many(context: Context<'_>, arguments: ManyArguments) -> Result<ToolResult> {
    let paths: Vec<String> = arguments.files.iter().map(|file| file.path.clone()).collect();
    let results = write(context, arguments.files).await?;
    let failed: Vec<String> = paths
        .iter()
        .zip(&results)
        .filter_map(|(path, result)| result.as_ref().err().map(|error| format!("{path}: {error}")))
        .collect();
    let written = results.len() - failed.len();
    if failed.is_empty() {
        return Ok(ToolResult::success(format!("wrote {written} files: {}", paths.join(", "))));
    }
    Ok(ToolResult::failure(format!(
        "wrote {written} of {} files\nerror: {}",
        paths.len(),
        failed.join("\nerror: ")
    )))
}

async fn write(context: Context<'_>, files: Vec<Arguments>) -> Result<Vec<Result<()>>> {
    let files = files.into_iter().map(|file| FileWrite {
        path: PathBuf::from(file.path),
        node: Node::Regular(file.data.into_bytes()),
        mode: None,
        mtime_ns: None,
        follow: true,
    });
    context.sandbox.write_files(files.collect()).await
}
