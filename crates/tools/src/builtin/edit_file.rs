//! `edit_file`: one exact replacement.

use super::declared_encoding::text_file;
use super::location::{Located, locate, name, targets};
use super::nearest::{Nearest, nearest};
use super::{describe, missing_file};
use crate::Context;
use crate::Tool;
use crate::ToolResult;
use crate::arguments;
use agent_base::alike_text;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::file_name::Likeness;
use agent_base::text_encoding::TextFile;
use agent_diff::excerpt;
use agent_event::FileEdit;
use agent_policy::policy::{Action, FileChange};
use agent_sandbox::FileWrite;
use agent_sandbox::Node;
use agent_sandbox::Sandbox;
use futures_util::future::BoxFuture;
use memchr::memmem;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

/// The largest file that is edited, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// The greatest number of places of `old` that are looked for; a file of nothing but its letters must not cost for ever.
const MOST_PLACES: usize = 100;
/// Characters that a note names.
const MAX_NAMED: usize = 5;
/// The longest file that is shown where nothing in it is like `old`, in bytes.
const MAX_SHOWN: usize = 1_500;

pub struct EditFile;

impl Tool for EditFile {
    describe!("edit_file", EDIT_FILE, EditFileArguments);

    fn action<'a>(&self, arguments: &'a Value) -> Option<Action<'a>> {
        let text = |name: &str| arguments.get(name)?.as_str();
        Some(Action::Write { files: targets(text("path")?, text("new")?), whole: false })
    }

    fn changes<'a>(&'a self, sandbox: &'a Sandbox, arguments: &'a Value) -> BoxFuture<'a, Vec<FileChange>> {
        Box::pin(async move {
            let Ok(arguments) = arguments::read(arguments) else { return Vec::new() };
            let prepared = prepare(sandbox, arguments).await.ok().and_then(std::result::Result::ok);
            let change = |PreparedEdit { path, file, content, .. }| FileChange {
                path: name(sandbox, &path),
                before: Some(file.into_bytes()),
                after: content,
            };
            prepared.map(change).into_iter().collect()
        })
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { run(context, arguments::read(&arguments)?).await })
    }
}

#[derive(Deserialize, JsonSchema)]
struct EditFileArguments {
    /// The file.
    path: String,
    /// The exact text that stands there now.
    old: String,
    /// The text that shall stand there.
    new: String,
}

async fn run(context: Context<'_>, arguments: EditFileArguments) -> Result<ToolResult> {
    let PreparedEdit { path, content, done, shown, .. } = match prepare(context.sandbox, arguments).await? {
        Ok(prepared) => prepared,
        Err(why) => return Ok(ToolResult::failure(why)),
    };
    let write = FileWrite { path, node: Node::Regular(content), mode: None, mtime_ns: None, follow: true };
    match context.sandbox.write_files(vec![write]).await?.pop() {
        Some(Err(error)) => Err(error),
        _ => Ok(ToolResult::success(done).with_edit(shown)),
    }
}

/// An edit that is about to be written.
struct PreparedEdit {
    path: PathBuf,
    file: TextFile,
    content: Vec<u8>,
    /// The result for the model.
    done: String,
    shown: FileEdit,
}

/// Reads the file and makes the edit; or why that is not possible, for the model.
async fn prepare(sandbox: &Sandbox, arguments: EditFileArguments) -> Result<Result<PreparedEdit, String>> {
    let EditFileArguments { path, old, new } = arguments;
    if old.is_empty() {
        let why =
            "error: old is empty: it must be text that stands in the file; use write_file for a whole file";
        return Ok(Err(why.to_owned()));
    }
    let Located { path: target, note } = locate(sandbox, &path, Likeness::Case).await;
    let file = match sandbox.read_file(&target, 0, MAX_BYTES + 1).await {
        Ok(file) => file,
        Err(error) => return Err(missing_file::explain(sandbox, &target, error).await),
    };
    if file.bytes.len() as u64 > MAX_BYTES {
        return Ok(Err(format!("error: {path} is too large to edit: {} bytes", file.size)));
    }
    let file = text_file(sandbox, &target, file.bytes, &new).await;
    // Where its work may take a while, it holds nothing else up, and the end of the turn does not wait for it.
    let name = name(sandbox, &target);
    let meant = note.map(|note| format!(" ({note})")).unwrap_or_default();
    let edit = tokio::task::spawn_blocking(move || match edit(&path, &file, old, new) {
        Ok((content, done)) => {
            let shown = excerpt::of(&name, Some(file.bytes()), &content);
            Ok(PreparedEdit { path: target, file, content, done: done + &meant, shown })
        }
        Err(why) => Err(why + &meant),
    });
    edit.await.map_err(|error| Error::unexpected("the edit could not be made").caused_by(error))
}

/// Returns what the file becomes, and what was done; or why nothing is changed.
fn edit(path: &str, file: &TextFile, old: String, new: String) -> Result<(Vec<u8>, String), String> {
    let content = file.text();
    let (old, new, note) = in_line_ends_of(content, old, new);
    if old == new {
        return Err(format!("error: old and new are the same{note}: nothing would change"));
    }
    let found = positions(content, old.as_bytes());
    let (place, new, likeness) = match found[..] {
        [at] => (at..at + old.len(), new.as_str(), String::new()),
        [] => match already_done(path, content, &new) {
            Some(done) => return Err(done),
            None => alike(content, &old, &new).ok_or_else(|| explain(path, content, &old, &found))?,
        },
        _ => return Err(explain(path, content, &old, &found)),
    };
    let at = place.start;
    let edited =
        file.replaced(place, new).map_err(|refusal| format!("error: {path} is not changed: {refusal}"))?;
    let encoding = match file.encoding() {
        encoding if encoding.is_plain() => String::new(),
        encoding => format!(", in {encoding}"),
    };
    Ok((edited, format!("edited {path} at line {}{note}{likeness}{encoding}", line_of(content, at))))
}

/// The edit at the only place that looks like `old` and has other characters: what is replaced there, by what of `new`, and a note. What
/// `old` and `new` have in common stays as the file has it.
fn alike<'n>(content: &[u8], old: &str, new: &'n str) -> Option<(Range<usize>, &'n str, String)> {
    let content = std::str::from_utf8(content).ok()?;
    let place = alike_text::only_place(content, old)?;
    let there = &content[place.clone()];
    let start = alike_text::common_start(old, new);
    let start_there = alike_text::length_of_start(there, &old[..start])?;
    let is_end = |(one, other): &(char, char)| one == other && one.is_ascii();
    let ends = old[start..].chars().rev().zip(new[start..].chars().rev());
    let end = ends.take_while(is_end).count();
    let end_there = there[start_there..]
        .len()
        .checked_sub(alike_text::length_of_start(&there[start_there..], &old[start..old.len() - end])?)?;
    let (place, new) = (place.start + start_there..place.end - end_there, &new[start..new.len() - end]);
    if alike_text::loses_letters(&content[place.clone()], new) || content[place.clone()] == *new {
        return None;
    }
    let others: BTreeSet<char> = there.chars().filter(|c| !c.is_ascii() && !old.contains(*c)).collect();
    let others: Vec<String> =
        others.iter().take(MAX_NAMED).map(|c| format!("U+{:04X}", u32::from(*c))).collect();
    let note = match others.is_empty() {
        true => ", where the letters are composed in another way".to_owned(),
        false => format!(", which has {} where old has other characters", others.join(", ")),
    };
    Some((place, new, note))
}

/// `old` and `new` with the line ends of the file, and a note where that changed them: most models write LF. Where a file
/// has both, `old` is taken as it is if it is there, and `new` goes along.
fn in_line_ends_of(content: &[u8], old: String, new: String) -> (String, String, &'static str) {
    let (all, crlf) =
        (memchr::memchr_iter(b'\n', content).count(), memmem::find_iter(content, "\r\n").count());
    let is_there = || memmem::find(content, old.as_bytes()).is_some();
    if crlf == 0 && old.contains("\r\n") && !is_there() {
        let as_there = |text: &str| text.replace("\r\n", "\n");
        return (as_there(&old), as_there(&new), ", with LF line ends as they are there");
    }
    if crlf == 0 || crlf < all && (!old.contains('\n') || is_there()) {
        return (old, new, "");
    }
    let changed = (with_crlf(&old), with_crlf(&new));
    let note = if changed == (old, new) { "" } else { ", with CRLF line ends as they are there" };
    (changed.0, changed.1, note)
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Returns the positions of `needle`, overlaps included: `aa` is in `aaa` twice. The first [`MOST_PLACES`].
fn positions(haystack: &[u8], needle: &[u8]) -> Vec<usize> {
    let finder = memmem::Finder::new(needle);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = finder.find(&haystack[from..]).filter(|_| found.len() < MOST_PLACES) {
        found.push(from + at);
        from += at + 1;
    }
    found
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &bytes[..at]).count()
}

/// That `old` is gone because `new` stands there: the same edit was made before.
fn already_done(path: &str, content: &[u8], new: &str) -> Option<String> {
    let at = memmem::find(content, new.as_bytes()).filter(|_| !new.trim().is_empty())?;
    let line = line_of(content, at);
    Some(format!(
        "error: old is in {path} 0 times, and new is there already, at line {line}: nothing is left to change"
    ))
}

/// Explains why nothing was replaced: how often `old` is there, and where the nearest miss is.
fn explain(path: &str, content: &[u8], old: &str, found: &[usize]) -> String {
    if !found.is_empty() {
        let lines = found.iter().take(10).scan((1, 0), |(line, from), at| {
            *line += line_of(&content[*from..], at - *from) - 1;
            *from = *at;
            Some(line.to_string())
        });
        let lines: Vec<String> = lines.collect();
        let more = if found.len() == MOST_PLACES { " or more" } else { "" };
        return format!(
            "error: old is in {path} {} times{more} (lines {}); it must be there exactly once: add lines around it",
            found.len(),
            lines.join(", ")
        );
    }
    match nearest(content, old) {
        Some(Nearest { line, column, shown }) => {
            let place = column.map_or_else(
                || format!("line {line}"),
                |column| {
                    format!("line {line}, column {column} (read_file shows more with this offset and column)")
                },
            );
            format!(
                "error: old is in {path} 0 times; the nearest is at {place}, look at white space and spelling:\n{shown}"
            )
        }
        None => {
            let content = String::from_utf8_lossy(content);
            let content = content.trim_end();
            let shown = match content.len() <= MAX_SHOWN {
                true => format!("; it holds:\n{content}"),
                false => String::new(),
            };
            format!("error: old is in {path} 0 times and nothing there is like it{shown}")
        }
    }
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
    fn an_edit_that_was_made_before_is_recognised() {
        let text = b"a\nlet x = 2;\n";
        let message = already_done("f", text, "let x = 2;").unwrap();
        assert!(message.ends_with("new is there already, at line 2: nothing is left to change"), "{message}");
        assert_eq!(already_done("f", text, "let x = 3;"), None);
        assert_eq!(already_done("f", text, "\n"), None);
    }

    #[test]
    fn what_looks_like_old_is_edited_and_keeps_its_characters() {
        let made = |content: &str, old: &str, new: &str| {
            let file = TextFile::new(content.as_bytes().to_vec(), None);
            let (made, done) = edit("f", &file, old.to_owned(), new.to_owned())?;
            Ok::<_, String>((String::from_utf8(made).unwrap(), done))
        };
        for (content, old, new, expected) in [
            ("x\nsay “hi” – now\n", "say \"hi\" - now", "say \"ho\" - now", "x\nsay “ho” – now\n"),
            ("un cafe\u{301} noir\n", "un café noir", "un café vert", "un cafe\u{301} vert\n"),
            ("a\u{a0}b\n", "a b", "a b c", "a\u{a0}b c\n"),
            ("it’s\n", "it's", "", "\n"),
            ("un\ndeux\n", "un\r\ndeux", "un\r\ndeux\r\ntrois", "un\ndeux\ntrois\n"),
        ] {
            let (text, done) = made(content, old, new).unwrap();
            assert_eq!(text, expected, "{done}");
        }
        let (_, done) = made("say “hi”\n", "\"hi\"", "\"ho\"").unwrap();
        assert_eq!(done, "edited f at line 1, which has U+201C, U+201D where old has other characters");
        assert!(made("“a” “a”\n", "\"a\"", "b").is_err(), "two places");
        for (content, old, new) in [
            ("say(\"hi\");\n", "say(“hi”);", "say(“ho”);"),
            ("“a” and “b” and “c”\n", "\"a\" and \"b\" and \"c\"", "\"A\" and \"b\" and \"C\""),
            ("x – y z\n", "x - y", "x – y z"),
            ("a – b\n", "a - b", "a – b"),
        ] {
            assert!(made(content, old, new).is_err(), "{content}: mixed, or made twice");
        }
        assert_eq!(made("\"a\" “a”\n", "\"a\"", "b").unwrap().0, "b “a”\n", "the exact one first");
    }

    #[test]
    fn overlaps_are_counted_and_counting_ends() {
        assert_eq!(positions(b"aaa", b"aa"), [0, 1]);
        assert_eq!(positions("ää".as_bytes(), "ä".as_bytes()), [0, 2]);
        let many = "a".repeat(1000);
        let message = explain("f", many.as_bytes(), "aa", &positions(many.as_bytes(), b"aa"));
        assert!(message.contains("100 times or more (lines 1,"), "{message}");
    }

    #[test]
    fn line_ends_are_those_of_the_file() {
        for (content, old, new, expected) in [
            ("a\r\nb\r\n", "a\nb", "c\nd", ("a\r\nb", "c\r\nd")),
            ("a\r\nb\r\n", "a\r\nb", "c\nd", ("a\r\nb", "c\r\nd")),
            ("a\r\nb\r\n", "a", "c\nd", ("a", "c\r\nd")),
            ("a\nb\n", "a\nb", "c\r\nd", ("a\nb", "c\r\nd")),
            ("a\nb\r\nc\n", "b\nc", "d\ne", ("b\r\nc", "d\r\ne")),
            ("a\nb\r\nc\n", "a\nb", "d\ne", ("a\nb", "d\ne")),
            ("a\nb\r\nc\n", "c", "d\ne", ("c", "d\ne")),
            ("no line end", "line", "row\n", ("line", "row\n")),
        ] {
            let (old, new, note) = in_line_ends_of(content.as_bytes(), old.into(), new.into());
            assert_eq!((old.as_str(), new.as_str()), expected, "{content:?} {note}");
        }
    }

    #[test]
    fn the_nearest_miss_is_named() {
        let text = "fn main() {\n    let total = 1;\n    print(total);\n}\n";
        let message = explain("f", text.as_bytes(), "  let totle = 1;\n  print(total);", &[]);
        assert!(message.contains("0 times; the nearest is at line 2"), "{message}");
        assert!(message.ends_with("    let total = 1;\n    print(total);"), "{message}");
    }

    #[test]
    fn where_nothing_is_alike_a_short_file_is_shown() {
        assert_eq!(
            explain("f", b"x\n", "entirely different", &[]),
            "error: old is in f 0 times and nothing there is like it; it holds:\nx"
        );
        let long = "x\n".repeat(MAX_SHOWN);
        assert_eq!(
            explain("f", long.as_bytes(), "entirely different", &[]),
            "error: old is in f 0 times and nothing there is like it"
        );
    }
}
