//! Harmony, gpt-oss's form of a whole answer: messages with a channel, of which those with a recipient are calls.
//!
//! `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>`; a server may have left out the tokens.

use crate::tool_calls::body::CallReader;
use crate::tool_calls::json_calls::Calls;
use crate::tool_calls::marks::mark;
use crate::tool_calls::names;
use crate::tool_calls::scan::boundary;

/// Bytes between the beginning of a message and its text.
const LONGEST_HEADER: usize = 256;
const MESSAGE: &str = "<|message|>";
/// Marks that end a message.
const ENDS: [&str; 8] =
    ["<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>", "<|eom|>", "<|eot|>", "<|message|>"];
/// Marks that the first message of an answer begins with. The prompt may hold the first of them.
const BEGINNINGS: [&str; 7] = [
    "<|channel|>",
    "<|start|>assistant",
    "assistantcommentary to=",
    "assistant to=",
    "commentary to=",
    "analysis to=",
    "to=",
];
/// Recipients that are not tools.
const NOT_TOOLS: [&str; 5] = ["assistant", "user", SELF, "all", "commentary"];
/// The recipient of Muse Glimmer's reasoning.
const SELF: &str = "self";
const CHANNELS: [&str; 3] = ["analysis", "commentary", "final"];

/// An answer in this form, taken apart.
#[derive(Debug, Default, PartialEq)]
pub struct Spoken {
    pub calls: Calls,
    /// A call that cannot be read: the name, and what was to be its arguments.
    pub unreadable: Option<(String, String)>,
    pub text: String,
}

/// Returns whether the form begins here; `None` where that is not known yet.
pub fn begins(text: &str) -> Option<bool> {
    let Some(beginning) = BEGINNINGS.iter().find(|beginning| text.starts_with(**beginning)) else {
        let may = BEGINNINGS.iter().any(|beginning| beginning.starts_with(text));
        return if may { None } else { Some(false) };
    };
    let rest = &text[beginning.len()..];
    if *beginning == "<|channel|>" {
        let may = CHANNELS.iter().any(|channel| channel.starts_with(rest));
        let is = CHANNELS.iter().any(|channel| rest.starts_with(channel));
        return if is || !may { Some(is) } else { None };
    }
    if beginning.starts_with('<') {
        return if rest.is_empty() { None } else { Some(rest.starts_with([' ', '<', '\n'])) };
    }
    let end = rest.find(|c: char| c.is_whitespace() || c == '<');
    let Some(end) = end else { return if rest.len() <= LONGEST_HEADER { None } else { Some(false) } };
    if end == 0 {
        return Some(false);
    }
    // A token, or the name of the form and the arguments.
    let behind = rest[end..].trim_start();
    let behind = behind.strip_prefix("json").map_or(behind, str::trim_start);
    if behind.is_empty() || "<|".starts_with(behind) || "json".starts_with(behind) {
        return None;
    }
    Some(behind.starts_with("<|") || behind.starts_with('{') && rest.starts_with("functions."))
}

/// The answer that begins with `text`.
pub fn read(text: &str, reader: &CallReader<'_>) -> Option<Spoken> {
    let (mut spoken, mut rest) = (Spoken::default(), text);
    while !rest.trim().is_empty() {
        reader.spend(rest.len().min(4096))?;
        let Some((header, body)) = message(rest) else {
            spoken.text.push_str(rest);
            break;
        };
        let channel = CHANNELS.iter().max_by_key(|channel| header.rfind(**channel));
        let recipient = header.rfind("to=").map(|at| {
            let name = &header[at + 3..];
            &name[..name.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(name.len())]
        });
        if let Some(name) = recipient.filter(|name| !NOT_TOOLS.contains(name)) {
            rest = match call(name, body, &mut spoken, reader) {
                Some(rest) => rest,
                None => {
                    let name = names::meant(name, reader.tools).map_or(name, |tool| tool.name.as_str());
                    spoken.unreadable = Some((name.to_owned(), until_end(body).0.trim().to_owned()));
                    return Some(spoken);
                }
            };
            continue;
        }
        let (said, behind) = until_end(body);
        if channel != Some(&"analysis") && recipient != Some(SELF) {
            spoken.text.push_str(said);
        }
        rest = behind;
    }
    Some(spoken)
}

/// The header and the text of the message at the beginning of `text`.
fn message(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let window = &text[..boundary(text, LONGEST_HEADER)];
    if let Some(at) = window.find(MESSAGE) {
        return Some((&text[..at], &text[at + MESSAGE.len()..]));
    }
    let at = window.find('{').filter(|_| window.contains("to="))?;
    Some((text[..at].trim_end().trim_end_matches("json"), &text[at..]))
}

/// Reads a call of `name`, and returns what follows it.
fn call<'t>(name: &str, body: &'t str, spoken: &mut Spoken, reader: &CallReader<'_>) -> Option<&'t str> {
    let body = body.trim_start();
    let (calls, rest) = match mark(body).is_some_and(|mark| mark.opens()) {
        // Muse Glimmer writes elements in this form.
        true => reader.marked(body)?,
        false => {
            let (arguments, rest, is_whole) = reader.json_object(name, body)?;
            let is_ended = is_whole && (rest.trim().is_empty() || end_of(rest.trim_start()).is_some());
            if !is_ended && (reader.is_cut_off || !rest.trim().is_empty()) {
                return None;
            }
            let name = names::meant(name, reader.tools).map_or(name, |tool| tool.name.as_str());
            (vec![(name.to_owned(), arguments)], rest)
        }
    };
    spoken.calls.extend(calls);
    Some(without_ends(rest))
}

fn end_of(text: &str) -> Option<&'static str> {
    ENDS.into_iter().find(|end| text.starts_with(end))
}

fn until_end(text: &str) -> (&str, &str) {
    let end = ENDS.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    (&text[..end], without_ends(&text[end..]))
}

/// `text` without the tokens that end a message; those that begin the next one stay.
fn without_ends(mut text: &str) -> &str {
    while let Some(end) = end_of(text.trim_start()).filter(|end| !matches!(*end, "<|start|>" | "<|channel|>"))
    {
        text = &text.trim_start()[end.len()..];
    }
    text
}
