//! `/export` and `/save`: the conversation as a document, and the session's events, as files outside of the project unless a
//! path is named.

use super::{Flow, Repl};
use crate::cli::ui::trace::call_text;
use crate::error::{Error, Result};
use crate::event::{Event, Record};
use crate::log::{Store, read_records};
use crate::paths::make_dir;
use crate::sanitise::{one_line, plain};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directory of exports, beside the sessions.
const DIRECTORY: &str = "exports";

impl Repl<'_> {
    /// Writes the conversation as Markdown, or as HTML where the argument asks for that.
    pub(super) fn export(&mut self, argument: &str) -> Result<Flow> {
        let (name, is_html) = match argument {
            "html" => ("", true),
            "" | "md" | "markdown" => ("", false),
            name => (name, name.ends_with(".html") || name.ends_with(".htm")),
        };
        let records = read_records(&Store::open(&self.config.machine)?.events(self.session.id()))?;
        let entries = entries(&records);
        let title = format!("Session {}", self.session.id());
        let text = if is_html { to_html(&title, &entries) } else { to_markdown(&title, &entries) };
        let (path, mut file) = self.create(name, if is_html { "html" } else { "md" })?;
        file.write_all(text.as_bytes()).map_err(|error| failed(&path, error))?;
        self.remark(&format!("exported to {}", one_line(&path.display().to_string(), 200)));
        Ok(Flow::Continue)
    }

    /// Writes the session's events.
    pub(super) fn save(&mut self, name: &str) -> Result<Flow> {
        let events = Store::open(&self.config.machine)?.events(self.session.id());
        let mut from = File::open(&events).map_err(|error| failed(&events, error))?;
        let (path, mut to) = self.create(name, "jsonl")?;
        io::copy(&mut from, &mut to).map_err(|error| failed(&path, error))?;
        self.remark(&format!("saved as {}", one_line(&path.display().to_string(), 200)));
        Ok(Flow::Continue)
    }

    /// A new file: this never overwrites anything. Without a name it is outside of the project.
    fn create(&self, name: &str, extension: &str) -> Result<(PathBuf, File)> {
        if !name.is_empty() {
            let path = PathBuf::from(name);
            let file = File::create_new(&path).map_err(|error| failed(&path, error))?;
            return Ok((path, file));
        }
        let directory = self.config.machine.data_dir()?.join(DIRECTORY);
        make_dir(&directory)?;
        let id = self.session.id();
        for number in 1_u32.. {
            let again = if number == 1 { String::new() } else { format!("-{number}") };
            let path = directory.join(format!("{id}{again}.{extension}"));
            match File::create_new(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(Error::usage("there are too many exports of this session"))
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::usage(format!("{} could not be written", path.display())).caused_by(error)
}

/// A part of a conversation.
enum Entry {
    Prompt(String),
    Answer(String),
    Call(String),
    Result(String),
}

fn entries(records: &[Record]) -> Vec<Entry> {
    let entry = |record: &Record| match &record.event {
        Event::UserMessage { text } => Some(Entry::Prompt(text.clone())),
        Event::AssistantMessage { text, .. } | Event::AnswerStopped { text, .. }
            if !text.trim().is_empty() =>
        {
            Some(Entry::Answer(text.clone()))
        }
        Event::ToolStarted { name, arguments, .. } => Some(Entry::Call(call_text(name, arguments))),
        Event::ToolFinished { result, .. } => Some(Entry::Result(result.clone())),
        _ => None,
    };
    records.iter().filter_map(entry).collect()
}

fn to_markdown(title: &str, entries: &[Entry]) -> String {
    let mut text = format!("# {title}\n");
    for entry in entries {
        text += &match entry {
            Entry::Prompt(prompt) => format!("\n## Prompt\n\n{}\n", plain(prompt).trim()),
            Entry::Answer(answer) => format!("\n{}\n", plain(answer).trim()),
            Entry::Call(call) => format!("\n{}", fenced(&plain(call))),
            Entry::Result(result) => format!("\n{}", fenced(&plain(result))),
        };
    }
    text
}

/// A code block whose fence is longer than any in the text.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end())
}

const STYLE: &str = "body{max-width:50rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif}\
pre{white-space:pre-wrap;overflow-wrap:anywhere}pre.call,pre.result{background:#8881;padding:.5rem}";

/// One page without programs, that needs no network.
fn to_html(title: &str, entries: &[Entry]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>{0}</title>\n<style>{STYLE}</style>\n<h1>{0}</h1>\n",
        escaped(title)
    );
    for entry in entries {
        text += &match entry {
            Entry::Prompt(prompt) => format!("<h2>Prompt</h2>\n<pre>{}</pre>\n", escaped(prompt.trim())),
            Entry::Answer(answer) => format!("<pre>{}</pre>\n", escaped(answer.trim())),
            Entry::Call(call) => format!("<pre class=\"call\">{}</pre>\n", escaped(call)),
            Entry::Result(result) => format!(
                "<details><summary>result</summary><pre class=\"result\">{}</pre></details>\n",
                escaped(result.trim_end())
            ),
        };
    }
    text
}

fn escaped(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Entry; 4] {
        [
            Entry::Prompt("Why <b>?".to_owned()),
            Entry::Call("run  ls".to_owned()),
            Entry::Result("```\n\u{1b}[31m<script>".to_owned()),
            Entry::Answer("Because **so**.".to_owned()),
        ]
    }

    #[test]
    fn markdown_keeps_what_is_in_it_apart() {
        let text = to_markdown("S", &all());
        assert!(text.starts_with("# S\n\n## Prompt\n\nWhy <b>?\n"), "{text}");
        assert!(
            text.contains("\n````\n```\n<script>\n````\n") && text.ends_with("\nBecause **so**.\n"),
            "{text}"
        );
    }

    #[test]
    fn html_holds_text_and_nothing_else() {
        let text = to_html("S", &all());
        assert!(text.contains("<pre>Why &lt;b&gt;?</pre>") && !text.contains("<script"), "{text}");
    }
}
