//! Calls that cannot be read: told from sentences about calls, and from examples.

use crate::ToolSpec;
use crate::tool_calls::json_calls::{ARGUMENT_KEYS, NAME_KEYS, is_definition, json_at, known};
use crate::tool_calls::marks::{Mark, mark};
use crate::tool_calls::scan::{begins_line, boundary, is_common};
use crate::tool_calls::{names, python};

/// Bytes in which an example shows that it is one.
const LONGEST_EXAMPLE: usize = 200;

/// Tool and arguments at a mark that opens something which cannot be read, if that is a call.
pub fn unreadable(text: &str, at: usize, tag: &Mark, tools: &[ToolSpec]) -> Option<(String, String)> {
    let body = &text[at + tag.length..];
    if let Some(broken) = broken_object(body, tools) {
        return Some(broken);
    }
    // In the middle of a sentence a mark may be what the sentence is about.
    let is_set_off = tag.is_token || begins_line(text, at);
    if !is_set_off || is_placeholder(body) {
        return None;
    }
    let is_call = match &tag.name {
        Some(name) => names::is_identifier(name) && (tag.is_empty || is_begun(body)),
        None => {
            is_like_a_call(body, tools) || !is_common(tag) && is_closed_at_end(body, begins_line(text, at))
        }
    };
    let named = || {
        let places =
            tools.iter().filter_map(|tool| Some((body.find(tool.name.as_str())?, tool.name.clone())));
        places.min().map(|(_, name)| name)
    };
    let name = tag.name.as_deref().map(|name| known(name, tools).unwrap_or_else(|| name.to_owned()));
    let arguments = if body.trim().is_empty() { &text[at..] } else { body.trim() };
    is_call.then(|| (name.or_else(named).unwrap_or_default(), arguments.to_owned()))
}

/// Returns whether anything but a sentence stands behind the tag of a call.
fn is_begun(body: &str) -> bool {
    let body = body.trim_start();
    body.starts_with(['{', '[', '<']) || body.contains("</")
}

/// Returns whether a mark closes what was opened, and the next call or nothing but marks follows. At the beginning of a line
/// nothing at all may follow.
fn is_closed_at_end(body: &str, begins_line: bool) -> bool {
    let places = body.match_indices('<').chain(body.match_indices('[')).chain(body.match_indices(']'));
    let closes = |(at, _): (usize, &str)| mark(&body[at..]).filter(Mark::closes).map(|_| at);
    let Some(end) = places.filter_map(closes).min() else { return begins_line && body.trim().is_empty() };
    let mut rest = &body[end..];
    while let Some(mark) = mark(rest.trim_start()) {
        if mark.opens() {
            return true;
        }
        rest = &rest.trim_start()[mark.length..];
    }
    rest.trim().is_empty()
}

/// Returns whether a call is only shown as an example.
fn is_placeholder(body: &str) -> bool {
    let head = body[..boundary(body, LONGEST_EXAMPLE)].trim_start();
    let line = head.lines().next().unwrap_or_default();
    let begins = ["…", "...", "$", "<function-name>"].iter().any(|sign| head.starts_with(sign));
    begins || ["{...}", "{…}", ": ...", ": …"].iter().any(|sign| line.contains(sign))
}

/// Tool and arguments of `{"name": "…", "arguments": …}` that is not valid JSON, with the name of an existing tool.
pub fn broken_object(text: &str, tools: &[ToolSpec]) -> Option<(String, String)> {
    let text = text.trim_start().trim_start_matches('[').trim_start();
    let text = text.strip_prefix('{')?.trim_start_matches('{').trim_start();
    let (key, rest) = quoted(text)?;
    let (name, rest) = quoted(rest.trim_start().strip_prefix(':')?.trim_start())?;
    let name = known(name, tools).filter(|_| NAME_KEYS.contains(&key))?;
    let rest = rest.trim_start().strip_prefix(',')?.trim_start();
    let (key, rest) = quoted(rest)?;
    let arguments = rest.trim_start().strip_prefix(':')?.trim();
    let is_definition = json_at(arguments).is_some_and(|(value, _)| is_definition(&value));
    let is_example = is_definition
        || is_placeholder(arguments)
        || arguments.trim_start_matches('{').trim_start().starts_with(['…', '.']);
    (ARGUMENT_KEYS.contains(&key) && !is_example).then(|| (name, arguments.to_owned()))
}

/// Returns whether what follows a mark is code, not a sentence.
fn is_like_a_call(body: &str, tools: &[ToolSpec]) -> bool {
    let body = body.trim_start();
    let body = body.strip_prefix("call:").unwrap_or(body);
    let end = body.find(|c: char| !python::is_name(c)).unwrap_or(body.len());
    match (&body[..end], body[end..].trim_start().chars().next()) {
        ("", next) => matches!(next, Some('{' | '[')) && body.contains(['"', '\'', ':']),
        (name, next) => {
            known(name, tools).is_some() && next.is_some() || matches!(next, Some('{' | '(' | '='))
        }
    }
}

/// The string at the beginning of `text` and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    text[1..].split_once(quote)
}
