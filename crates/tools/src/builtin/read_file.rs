//! `read_file`: text, by lines, and images.

use super::declared_encoding::text_file;
use super::location::{Located, locate};
use super::{describe, missing_file};
use crate::{Context, Tool, ToolResult, arguments};
use agent_base::count_text::counted;
use agent_base::error::Result;
use agent_base::file_name::Likeness;
use agent_base::text_encoding::TextFile;
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
/// The number of bytes that are fetched from the sandbox at a time.
const CHUNK: u64 = 1 << 20;
/// The number of bytes of a file in which lines are looked for. Beyond it `run_commands` with `sed` or `tail` serves
/// better.
const MAX_SCAN: u64 = 64 << 20;
/// The largest file that is decoded from another encoding than UTF-8, in bytes.
const MAX_DECODED: u64 = 16 << 20;

pub struct ReadFile;

impl Tool for ReadFile {
    describe!("read_file", READ_FILE, ReadFileArguments);

    fn only_reads(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct ReadFileArguments {
    /// The file.
    path: String,
    /// The first line to read, counting from 1.
    offset: Option<u64>,
    /// How many lines to read.
    limit: Option<u64>,
    /// The first byte of the first line to read, counting from 1: a line that is too long for one result is read on with it.
    column: Option<u64>,
}

async fn run(context: Context<'_>, arguments: ReadFileArguments) -> Result<ToolResult> {
    let part = Section {
        first: arguments.offset.unwrap_or(1).max(1),
        column: arguments.column.unwrap_or(1).max(1),
        // No lines at all is nothing to ask for: a limit of 0 is none.
        limit: arguments.limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX),
    };
    if is_image(&arguments.path)
        && let Some(result) = read_image(context, &arguments.path).await?
    {
        return Ok(result);
    }
    read_lines(context.sandbox, &arguments.path, part, context.bounds.output_chars).await
}

/// Returns whether a file of this name is one that models that see images can be sent.
fn is_image(name: &str) -> bool {
    let extension = Path::new(name).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    matches!(extension.as_str(), "png" | "jpg" | "jpeg")
}

/// The image as an artifact; `None` where the file is anything else.
async fn read_image(context: Context<'_>, name: &str) -> Result<Option<ToolResult>> {
    let Located { path, .. } = locate(context.sandbox, name, Likeness::Case).await;
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

/// A part of a file.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its first line, counting from 1.
    pub first: u64,
    /// The byte of that line where it begins, counting from 1.
    pub column: u64,
    /// The greatest number of its lines.
    pub limit: u64,
}

/// A part of a file, in at most `chars` characters.
///
/// # Errors
/// Nothing is there, it cannot be read, or it is not a regular file.
pub async fn read_lines(sandbox: &Sandbox, name: &str, part: Section, chars: usize) -> Result<ToolResult> {
    let Located { path, note } = locate(sandbox, name, Likeness::Case).await;
    let mut result = read_located(sandbox, name, &path, part, chars).await?;
    if let Some(note) = note {
        result.text = format!("[{note}]\n{}", result.text);
    }
    Ok(result)
}

async fn read_located(
    sandbox: &Sandbox,
    name: &str,
    path: &Path,
    part: Section,
    chars: usize,
) -> Result<ToolResult> {
    let mut page = Page::new(part, chars);
    let (mut position, mut size);
    position = 0;
    loop {
        let chunk = match sandbox.read_file(path, position, CHUNK).await {
            Ok(chunk) => chunk,
            Err(error) => return Err(missing_file::explain(sandbox, path, error).await),
        };
        size = chunk.size;
        if !page.is_encoded_otherwise && may_be_encoded_otherwise(&chunk.bytes, position) {
            page.is_encoded_otherwise = true;
            if let Some(file) = decoded(sandbox, path, size).await? {
                return Ok(page_of(&file, name, part, chars));
            }
        }
        position += chunk.bytes.len() as u64;
        let at_end = chunk.bytes.is_empty() || position >= size;
        page.push(&chunk.bytes);
        if at_end || page.is_full() || position >= MAX_SCAN {
            return Ok(page.finish(name, size, at_end));
        }
    }
}

/// Returns whether a chunk of a file has bytes that UTF-8 without a byte order mark has not, or escapes as of ISO-2022-JP.
fn may_be_encoded_otherwise(chunk: &[u8], position: u64) -> bool {
    if position == 0 && chunk.starts_with("\u{feff}".as_bytes()) {
        return true;
    }
    // It may begin and end within a character.
    let begin =
        if position == 0 { 0 } else { chunk.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count() };
    let is_valid =
        std::str::from_utf8(&chunk[begin..]).map_or_else(|error| error.error_len().is_none(), |_| true);
    !is_valid || chunk.contains(&0) || memchr::memmem::find(chunk, b"\x1b$").is_some()
}

/// The whole file, if it is text in another encoding than plain UTF-8.
async fn decoded(sandbox: &Sandbox, path: &Path, size: u64) -> Result<Option<TextFile>> {
    if size > MAX_DECODED {
        return Ok(None);
    }
    let file = sandbox.read_file(path, 0, MAX_DECODED).await?;
    let file = text_file(sandbox, path, file.bytes, "").await;
    Ok((!file.encoding().is_plain() && !file.is_binary()).then_some(file))
}

/// A part of a file in another encoding, as UTF-8, in which columns count too.
fn page_of(file: &TextFile, name: &str, part: Section, chars: usize) -> ToolResult {
    let text = file.text();
    let mut page = Page::new(part, chars);
    page.push(text);
    let mut result = page.finish(name, text.len() as u64, true);
    if result.ok {
        let encoding = file.encoding();
        let remark =
            if encoding.decodes(file.bytes()) { "" } else { ", of which some bytes cannot be decoded" };
        result.text = format!(
            "[{name} is {encoding}{remark}; it is shown as UTF-8, and edit_file and write_file keep its encoding]\n{}",
            result.text
        );
    }
    result
}

/// The part that was asked for, as far as it fits.
struct Page {
    part: Section,
    chars: usize,
    line: u64,
    /// Bytes of `line` that have come.
    in_line: u64,
    /// Bytes of the first line of the part that have come, without its line feed.
    first_length: u64,
    bytes: Vec<u8>,
    binary: bool,
    /// All lines that were asked for are there.
    complete: bool,
    /// More bytes are there than can be shown.
    full: bool,
    /// It has bytes that plain UTF-8 has not.
    is_encoded_otherwise: bool,
}

impl Page {
    fn new(part: Section, chars: usize) -> Self {
        Self {
            part,
            chars: chars.max(1),
            line: 1,
            in_line: 0,
            first_length: 0,
            bytes: Vec::new(),
            binary: false,
            complete: false,
            full: false,
            is_encoded_otherwise: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let Section { first, column, limit } = self.part;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.complete = self.line >= first.saturating_add(limit);
            // A character takes four bytes at most, and the last one may be cut.
            self.full = self.bytes.len() >= self.chars * 4 + 3;
            if self.complete || self.full {
                return;
            }
            self.binary |= piece.contains(&0);
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            if self.line == first {
                let skipped = (column - 1).saturating_sub(self.in_line).min(text.len() as u64);
                self.bytes.extend_from_slice(&piece[skipped as usize..]);
                self.first_length += text.len() as u64;
            } else if self.line > first {
                self.bytes.extend_from_slice(piece);
            }
            self.in_line += piece.len() as u64;
            if text.len() < piece.len() {
                (self.line, self.in_line) = (self.line + 1, 0);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.complete || self.full || self.binary
    }

    fn finish(self, path: &str, size: u64, at_end: bool) -> ToolResult {
        let is_lossy = self.is_encoded_otherwise;
        let mut result = self.shown(path, size, at_end);
        if is_lossy && result.ok && result.text.contains('\u{fffd}') {
            let remark =
                format!("[{path} has bytes that are not UTF-8, shown as U+FFFD; edit_file keeps them]\n");
            result.text.insert_str(0, &remark);
        }
        result
    }

    fn shown(self, path: &str, size: u64, at_end: bool) -> ToolResult {
        if self.binary {
            return ToolResult::failure(format!(
                "error: {path} is not a text file: it is binary, {size} bytes"
            ));
        }
        let Section { first, column, limit } = self.part;
        let is_whole = self.line > first || at_end && self.line == first && self.in_line > 0;
        if is_whole && (column > self.first_length + 1 || column > 1 && self.bytes.is_empty()) {
            return ToolResult::failure(format!(
                "error: line {first} of {path} has no column {column}: it has {}",
                counted(self.first_length, "byte")
            ));
        }
        if self.bytes.is_empty() {
            return match (size, at_end) {
                (0, _) => ToolResult::success(format!("({path} is empty)")),
                (_, true) => ToolResult::failure(format!(
                    "error: {path} has no line {first}: it has {}",
                    counted(self.line - u64::from(self.in_line == 0), "line"),
                )),
                _ => ToolResult::failure(format!(
                    "error: line {first} is too far into {path}; use sed or tail"
                )),
            };
        }
        let shown = head(&self.bytes, self.chars);
        let has_all = self.complete || at_end || self.line >= first.saturating_add(limit);
        if shown.len() == self.bytes.len() && has_all && !self.full {
            return ToolResult::success(String::from_utf8_lossy(shown));
        }
        let Some(end) = memchr::memrchr(b'\n', shown) else {
            let next = column + shown.len() as u64;
            let note = format!(
                "[shortened: {path} has {size} bytes; bytes {column} to {} of line {first} are shown; read on with offset {first} and \
                 column {next}]\n",
                next - 1,
            );
            return ToolResult {
                truncated: true,
                ..ToolResult::success(note + &String::from_utf8_lossy(shown))
            };
        };
        // Whole lines only, so that reading on from the next line misses nothing.
        let whole = &shown[..=end];
        let next = first + memchr::memchr_iter(b'\n', whole).count() as u64;
        let note = format!(
            "[shortened: {path} has {size} bytes; lines {first} to {} are shown; read on with offset {next}]\n",
            next - 1,
        );
        ToolResult { truncated: true, ..ToolResult::success(note + &String::from_utf8_lossy(whole)) }
    }
}

/// The bytes of the first `chars` characters. Where they are not UTF-8, a character is what [`String::from_utf8_lossy`] replaces.
fn head(bytes: &[u8], chars: usize) -> &[u8] {
    let (mut left, mut end) = (chars, 0);
    for chunk in bytes.utf8_chunks() {
        let mut characters = chunk.valid().char_indices();
        if let Some((at, _)) = characters.nth(left) {
            return &bytes[..end + at];
        }
        left -= chunk.valid().chars().count();
        end += chunk.valid().len();
        if chunk.invalid().is_empty() || left == 0 {
            break;
        }
        left -= 1;
        end += chunk.invalid().len();
    }
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file as a model does that follows the notes; the parts, without them.
    fn read_through(content: &[u8], chars: usize, piece: usize) -> Vec<String> {
        let mut part = Section { first: 1, column: 1, limit: u64::MAX };
        let mut parts = Vec::new();
        loop {
            let mut page = Page::new(part, chars);
            let mut chunks = content.chunks(piece);
            let at_end = loop {
                match chunks.next() {
                    Some(chunk) => page.push(chunk),
                    None => break true,
                }
                if page.is_full() {
                    break false;
                }
            };
            let result = page.finish("f", content.len() as u64, at_end);
            assert!(result.ok, "{}", result.text);
            if !result.truncated {
                parts.push(result.text);
                return parts;
            }
            let (note, text) = result.text.split_once('\n').unwrap();
            let (_, next) = note.strip_suffix(']').unwrap().split_once("read on with offset ").unwrap();
            let (first, column) = next.split_once(" and column ").unwrap_or((next, "1"));
            part = Section { first: first.parse().unwrap(), column: column.parse().unwrap(), ..part };
            parts.push(text.to_owned());
            assert!(parts.len() < 10_000, "it has an end");
        }
    }

    /// A bug: the note of a line that is too long for one result named that line again, from its beginning.
    #[test]
    fn every_file_is_read_through_in_parts() {
        let line: String = (0..60_000).map(|n| format!("{n:05}")).collect();
        let parts = read_through(line.as_bytes(), 12_000, 1 << 20);
        assert_eq!((parts.len(), parts.concat()), (25, line));
        let mixed = format!("one\n{}\n\ntwo\n{}", "ä".repeat(500), "€\n".repeat(200));
        for (chars, piece) in [(7, 3), (100, 64), (499, 1000), (500, 1), (501, 7)] {
            assert_eq!(read_through(mixed.as_bytes(), chars, piece).concat(), mixed, "{chars} {piece}");
        }
        let invalid = [0x80; 1000];
        assert_eq!(read_through(&invalid, 30, 64).concat(), "\u{fffd}".repeat(1000));
    }

    #[test]
    fn a_column_behind_the_end_of_its_line_is_refused() {
        let at = |column| {
            let mut page = Page::new(Section { first: 1, column, limit: u64::MAX }, 100);
            page.push(b"abc\nd\n");
            page.finish("f", 6, true).text
        };
        assert_eq!((at(1).as_str(), at(3).as_str(), at(4).as_str()), ("abc\nd\n", "c\nd\n", "\nd\n"));
        assert_eq!(at(5), "error: line 1 of f has no column 5: it has 3 bytes");
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_missed_or_read_twice(content in "([ab€]{0,30}\n?){0,10}", chars in 1..40usize, piece in 1..50usize) {
            let whole = if content.is_empty() { "(f is empty)" } else { &content };
            proptest::prop_assert_eq!(read_through(content.as_bytes(), chars, piece).concat(), whole);
        }
    }
}
