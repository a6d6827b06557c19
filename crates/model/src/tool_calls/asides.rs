//! Marks, names of kinds and other text around calls that says nothing about them.

use crate::tool_calls::marks::{Mark, PREFIX, Role, mark};
use crate::tool_calls::python;

/// The text that was passed over before a call.
pub struct Passed<'t> {
    pub rest: &'t str,
    /// Set if a mark that opens a call was the last of the marks.
    pub is_open: bool,
    /// Set if a mark closed the calls before, and none opened others.
    pub is_closed: bool,
    pub is_command: bool,
    /// Says of the last mark that opened calls whether a name alone is one behind it: not where the mark is common elsewhere, or
    /// a list of the tools stands behind it.
    pub takes_names: Option<bool>,
}

/// Passes marks that open and close, and the punctuation between calls. `None` where the end of a value stands alone: the
/// value was not read to its end.
pub fn pass(text: &str, is_behind_call: bool) -> Option<Passed<'_>> {
    let mut passed =
        Passed { rest: text, is_open: false, is_closed: false, is_command: false, takes_names: None };
    loop {
        let mut start = passed.rest.trim_start();
        if is_behind_call && !start.starts_with(PREFIX) {
            // A comma or semicolon between calls, a bracket too many behind them.
            let behind = start.trim_start_matches([',', ';', '}', ']']);
            if behind.len() < start.len() {
                passed.rest = behind;
                start = behind.trim_start();
            }
        }
        let Some(mark) = mark(start) else { return Some(passed) };
        match mark.role {
            Role::Open | Role::Weak => {
                (passed.is_open, passed.is_closed) = (true, false);
                passed.is_command = mark.tag.starts_with("<tool: ");
                passed.takes_names = Some(mark.role == Role::Open && (mark.is_token || mark.tag != "tools"));
            }
            Role::Close | Role::CallEnd => (passed.is_open, passed.is_closed) = (false, true),
            Role::Noise => {}
            Role::ArgumentEnd | Role::RawEnd | Role::KeyEnd => return None,
            Role::Call if passed.is_closed => {
                // The next call of the same list.
                (passed.is_open, passed.is_closed) = (true, false);
                return Some(passed);
            }
            _ => return Some(passed),
        }
        passed.rest = &start[mark.length..];
    }
}

pub fn name_end(text: &str) -> usize {
    text.find(|c: char| !(python::is_name(c) || matches!(c, ':' | '/'))).unwrap_or(text.len())
}

/// `text` without the word for the kind of the call before its name, as DeepSeek and Step write it.
pub fn without_kind(text: &str) -> &str {
    for kind in ["function call", "function"] {
        let Some(rest) = text.strip_prefix(kind) else { continue };
        if rest.starts_with('\n') {
            return rest.trim_start();
        }
        let (behind, is_separated) = without_separators(rest.trim_start());
        if is_separated {
            return behind;
        }
    }
    text
}

pub fn without_separators(mut text: &str) -> (&str, bool) {
    let mut is_separated = false;
    let separates = |mark: &Mark| mark.role == Role::Separator || mark.tag == "content_invoke_tool_json";
    while let Some(mark) = mark(text).filter(separates) {
        text = text[mark.length..].trim_start();
        is_separated = true;
    }
    (text, is_separated)
}

/// `text` without the marks before a name, and without elements that say nothing about the call.
pub fn without_asides(mut text: &str) -> Option<&str> {
    while let Some(tag) = mark(text).filter(|tag| matches!(tag.role, Role::Aside | Role::Name)) {
        text = &text[tag.length..];
        if tag.role == Role::Aside {
            let at = text.find("</")?;
            let end = mark(&text[at..]).filter(|end| end.role == Role::AsideEnd)?;
            text = &text[at + end.length..];
        }
        text = text.trim_start();
    }
    Some(text)
}

/// Mistral Small 3.2 writes the id of a call behind its name.
pub fn without_call_id(text: &str) -> &str {
    let id = text.strip_prefix("[CALL_ID]").map(|rest| rest.trim_start_matches(char::is_alphanumeric));
    id.map_or(text, str::trim_start)
}
