//! `edit_file`: one exact replacement.

use super::{Context, ToolResult};
use crate::error::Result;
use crate::sandbox::{FileWrite, Node};
use schemars::JsonSchema;
use serde::Deserialize;
use similar::TextDiff;
use std::path::{Path, PathBuf};

/// The largest file that is edited, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// How many windows of lines are compared when looking for the nearest miss.
const MAX_WINDOWS: usize = 5_000;

#[derive(Deserialize, JsonSchema)]
pub struct Arguments {
    /// The file.
    path: String,
    /// What stands there now, exactly.
    old: String,
    /// What shall stand there.
    new: String,
}

pub async fn run(context: Context<'_>, arguments: Arguments) -> Result<ToolResult> {
    let Arguments { path, old, new } = arguments;
    if old.is_empty() {
        return Ok(ToolResult::failure("error: old is empty; use write_file for a new file"));
    }
    let file = context.sandbox.read_file(Path::new(&path), 0, MAX_BYTES + 1).await?;
    if file.bytes.len() as u64 > MAX_BYTES {
        return Ok(ToolResult::failure(format!("error: {path} is too large to edit: {} bytes", file.size)));
    }
    let found: Vec<usize> = positions(&file.bytes, old.as_bytes());
    let [at] = found[..] else {
        return Ok(ToolResult::failure(explain(&path, &file.bytes, &old, &found)));
    };
    let content = [&file.bytes[..at], new.as_bytes(), &file.bytes[at + old.len()..]].concat();
    let line = line_of(&file.bytes, at);
    let write = FileWrite {
        path: PathBuf::from(&path),
        node: Node::Regular(content),
        mode: None,
        mtime_ns: None,
        follow: true,
    };
    match context.sandbox.write_files(vec![write]).await?.pop() {
        Some(Err(error)) => Err(error),
        _ => Ok(ToolResult::success(format!("edited {path} at line {line}"))),
    }
}

/// Where `needle` begins, without overlaps.
fn positions(haystack: &[u8], needle: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&haystack[from..], needle) {
        found.push(from + at);
        from += at + needle.len();
    }
    found
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// Why nothing was replaced: how often `old` is there, and where the nearest miss is.
fn explain(path: &str, content: &[u8], old: &str, found: &[usize]) -> String {
    if !found.is_empty() {
        let lines: Vec<String> = found.iter().take(10).map(|at| line_of(content, *at).to_string()).collect();
        return format!(
            "error: old is in {path} {} times (lines {}); it must be there exactly once: add lines around it",
            found.len(),
            lines.join(", ")
        );
    }
    match nearest(&String::from_utf8_lossy(content), old) {
        Some((line, window)) => format!(
            "error: old is in {path} 0 times; the nearest is at line {line}, look at white space and spelling:\n{window}"
        ),
        None => format!("error: old is in {path} 0 times and nothing there is like it"),
    }
}

/// The lines most like `old`, if any are at all.
fn nearest(text: &str, old: &str) -> Option<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let height = old.lines().count().clamp(1, lines.len().max(1));
    let first = old.lines().find(|line| !line.trim().is_empty())?.trim();
    let likeness = |a: &str, b: &str| TextDiff::from_chars(a, b).ratio();
    let (start, _) = lines
        .iter()
        .take(MAX_WINDOWS)
        .enumerate()
        .map(|(start, line)| (start, likeness(line.trim(), first)))
        .filter(|(_, ratio)| *ratio > 0.6)
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
    let skipped = old.lines().take_while(|line| line.trim().is_empty()).count();
    let start = start.saturating_sub(skipped);
    let end = (start + height).min(lines.len());
    Some((start + 1, lines[start..end].join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_how_often_and_where() {
        let text = "a\nb\na\n";
        let message = explain("f", text.as_bytes(), "a", &positions(text.as_bytes(), b"a"));
        assert_eq!(
            message,
            "error: old is in f 2 times (lines 1, 3); it must be there exactly once: add lines around it"
        );
    }

    #[test]
    fn the_nearest_miss_is_named() {
        let text = "fn main() {\n    let total = 1;\n    print(total);\n}\n";
        let message = explain("f", text.as_bytes(), "  let totle = 1;\n  print(total);", &[]);
        assert!(message.contains("0 times; the nearest is at line 2"), "{message}");
        assert!(message.ends_with("    let total = 1;\n    print(total);"), "{message}");
    }

    #[test]
    fn nothing_alike_is_said() {
        assert_eq!(
            explain("f", b"x\n", "entirely different", &[]),
            "error: old is in f 0 times and nothing there is like it"
        );
    }
}
