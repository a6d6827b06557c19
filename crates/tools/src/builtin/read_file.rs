//! `read_file`: text, by lines, and images.

use super::{describe, missing_file, resolve};
use crate::{Context, Tool, ToolResult, arguments};
use agent_base::error::Result;
use agent_event::Event;
use agent_picture::Header;
use agent_sandbox::Sandbox;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// The largest image, in bytes.
const MAX_IMAGE: u64 = 4 << 20;
/// How much is fetched from the sandbox at a time, in bytes.
const CHUNK: u64 = 1 << 20;
/// How far into a file lines are looked for, in bytes. Beyond it `run_commands` with `sed` or `tail` serves better.
const MAX_SCAN: u64 = 64 << 20;

pub struct ReadFile;

impl Tool for ReadFile {
    describe!("read_file", READ_FILE, Arguments);

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The file.
    path: String,
    /// The first line to read, counting from 1.
    offset: Option<u64>,
    /// How many lines to read.
    limit: Option<u64>,
}

async fn run(context: Context<'_>, arguments: Arguments) -> Result<ToolResult> {
    let first = arguments.offset.unwrap_or(1).max(1);
    // No lines at all is nothing to ask for: a limit of 0 is none.
    let limit = arguments.limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX);
    if is_image(&arguments.path)
        && let Some(result) = read_image(context, &arguments.path).await?
    {
        return Ok(result);
    }
    read_lines(context.sandbox, &arguments.path, first, limit, context.bounds.output_chars).await
}

/// Whether a file of this name is one that models that see images can be sent.
fn is_image(name: &str) -> bool {
    let extension = Path::new(name).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    matches!(extension.as_str(), "png" | "jpg" | "jpeg")
}

/// The image as an artifact; `None` where the file is anything else.
async fn read_image(context: Context<'_>, name: &str) -> Result<Option<ToolResult>> {
    let path = resolve(context.sandbox, name).await;
    let file = match context.sandbox.read_file(&path, 0, MAX_IMAGE + 1).await {
        Ok(file) => file,
        Err(error) => return Err(missing_file::explain(context.sandbox, &path, error).await),
    };
    if file.bytes.len() as u64 > MAX_IMAGE {
        let text = format!("error: {name} has more than {MAX_IMAGE} bytes: make a smaller copy of the image");
        return Ok(Some(ToolResult::failure(text)));
    }
    let Ok(header) = Header::of(&file.bytes) else { return Ok(None) };
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let artifact = context.artifacts.add(&file_name, header.format.media_type(), &file.bytes)?;
    context
        .events
        .emit(Event::Artifact { artifact: artifact.clone(), tool_call: context.call.to_owned() })?;
    let size = format!("{name} has {}×{} pixels", header.width, header.height);
    Ok(Some(ToolResult::success(size).with_image(artifact)))
}

/// At most `limit` lines of a file from line `first` on, in at most `chars` characters.
///
/// # Errors
/// Nothing is there, it cannot be read, or it is not a regular file.
pub async fn read_lines(
    sandbox: &Sandbox,
    name: &str,
    first: u64,
    limit: u64,
    chars: usize,
) -> Result<ToolResult> {
    let mut page = Page::new(first, limit, chars);
    let path = resolve(sandbox, name).await;
    let (mut position, mut size);
    position = 0;
    loop {
        let chunk = match sandbox.read_file(&path, position, CHUNK).await {
            Ok(chunk) => chunk,
            Err(error) => return Err(missing_file::explain(sandbox, &path, error).await),
        };
        size = chunk.size;
        position += chunk.bytes.len() as u64;
        let at_end = chunk.bytes.is_empty() || position >= size;
        page.push(&chunk.bytes);
        if at_end || page.is_full() || position >= MAX_SCAN {
            return Ok(page.finish(name, size, at_end));
        }
    }
}

/// The lines that were asked for, as far as they fit.
struct Page {
    first: u64,
    limit: u64,
    chars: usize,
    line: u64,
    /// Whether nothing of `line` has come yet.
    at_line_start: bool,
    bytes: Vec<u8>,
    binary: bool,
    full: bool,
}

impl Page {
    fn new(first: u64, limit: u64, chars: usize) -> Self {
        Self {
            first,
            limit,
            chars,
            line: 1,
            at_line_start: true,
            bytes: Vec::new(),
            binary: false,
            full: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line >= self.first.saturating_add(self.limit) || self.bytes.len() >= self.chars * 4 {
                self.full = true;
                return;
            }
            self.binary |= line.contains(&0);
            if self.line >= self.first {
                self.bytes.extend_from_slice(line);
            }
            self.at_line_start = line.ends_with(b"\n");
            self.line += u64::from(self.at_line_start);
        }
    }

    fn is_full(&self) -> bool {
        self.full || self.binary
    }

    fn finish(self, path: &str, size: u64, at_end: bool) -> ToolResult {
        if self.binary {
            return ToolResult::failure(format!(
                "error: {path} is not a text file: it is binary, {size} bytes"
            ));
        }
        let text = String::from_utf8_lossy(&self.bytes);
        if text.is_empty() {
            return match (size, at_end) {
                (0, _) => ToolResult::success(format!("({path} is empty)")),
                (_, true) => ToolResult::failure(format!(
                    "error: {path} has no line {}: it has {} line(s)",
                    self.first,
                    self.line - u64::from(self.at_line_start),
                )),
                _ => ToolResult::failure(format!(
                    "error: line {} is too far into {path}; use sed or tail",
                    self.first
                )),
            };
        }
        let shown: String = text.chars().take(self.chars).collect();
        if shown.len() == text.len() && (at_end && !self.full || self.limit != u64::MAX) {
            return ToolResult::success(text);
        }
        // Whole lines only, so that reading on from the next line misses nothing.
        let whole = shown.rfind('\n').map_or(shown.as_str(), |end| &shown[..=end]);
        let next = self.first + whole.matches('\n').count() as u64;
        let note = format!(
            "[shortened: {path} has {size} bytes; lines {} to {} are shown; read on with offset {next}]\n",
            self.first,
            next.saturating_sub(1).max(self.first),
        );
        ToolResult { truncated: true, ..ToolResult::success(note + whole) }
    }
}
