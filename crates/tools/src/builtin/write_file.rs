//! `write_file`: a whole file.

use super::{describe, resolve, targets};
use crate::{Context, Tool, ToolResult, arguments};
use agent_base::error::Result;
use agent_policy::policy::Action;
use agent_sandbox::{FileWrite, Node};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::path::{Path, PathBuf};

pub struct WriteFile;

impl Tool for WriteFile {
    describe!("write_file", WRITE_FILE, Arguments);

    fn action<'a>(&self, arguments: &'a Value) -> Option<Action<'a>> {
        let (path, data) = path_and_data(arguments)?;
        Some(Action::Write { files: targets(path, data), whole: true })
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct Arguments {
    /// The file.
    pub path: String,
    /// The whole content.
    data: String,
}

async fn run(context: Context<'_>, mut file: Arguments) -> Result<ToolResult> {
    let (lines, bytes) = (file.data.lines().count(), file.data.len());
    let invalid = json_error(Path::new(&file.path), &file.data)
        .map_or_else(String::new, |error| format!("; it is not valid JSON: {error}"));
    let target = resolve(context.sandbox, &file.path).await.display().to_string();
    let path = std::mem::replace(&mut file.path, target);
    match write(context, vec![file]).await?.pop() {
        Some(Err(error)) => Err(error),
        _ => Ok(ToolResult::success(format!("wrote {path}: {lines} lines, {bytes} bytes{invalid}"))),
    }
}

/// What is wrong with a file that is named as JSON and is not.
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

pub async fn write(context: Context<'_>, files: Vec<Arguments>) -> Result<Vec<Result<()>>> {
    let files = files.into_iter().map(|file| FileWrite {
        path: PathBuf::from(file.path),
        node: Node::Regular(file.data.into_bytes()),
        mode: None,
        mtime_ns: None,
        follow: true,
    });
    context.sandbox.write_files(files.collect()).await
}
