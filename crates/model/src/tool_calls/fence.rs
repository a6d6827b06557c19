//! Code in an answer: fences, which may hold calls, and spans in a line, which never do.

use crate::tool_calls::json_calls::Calls;
use crate::tool_calls::marks::{mark, may_become_mark};
use crate::tool_calls::scan::{Found, MAX_BLOCKS, Scan, begins_line, boundary};
use crate::tool_calls::unreadable::broken_object;

/// The backticks that open a fence.
pub const FENCE: &str = "```";
/// The language of Gemma's fences with calls in them.
const TOOL_CODE: &str = "tool_code";
/// Bytes of code in a line.
const MAX_SPAN: usize = 4096;

impl Scan<'_, '_> {
    /// A fence, or code in a line.
    pub fn backticks(&self, at: usize, is_first: bool) -> Found {
        let rest = &self.text[at..];
        let count = rest.len() - rest.trim_start_matches('`').len();
        if begins_line(self.text, at) && (count >= FENCE.len() || count == rest.len() && !self.is_whole) {
            return self.fence(at, is_first);
        }
        let line = &rest[count..boundary(rest, count + MAX_SPAN)];
        let end = line.find("\n\n").unwrap_or(line.len());
        let mark = "`".repeat(count);
        let closing = line[..end].match_indices(&mark).find(|(close, _)| {
            let is_longer = line[close + count..].starts_with('`') || line[..*close].ends_with('`');
            !is_longer
        });
        let is_open = !self.is_whole && end == line.len() && line.len() == rest.len() - count;
        match closing {
            // More backticks may come.
            Some((close, _)) if is_open && close + count == line.len() => Found::Span(count),
            Some((close, _)) => Found::Text(count + close + count),
            None if is_open => Found::Span(count),
            None => Found::Text(count),
        }
    }

    fn fence(&self, at: usize, is_first: bool) -> Found {
        let rest = &self.text[at..];
        let Some(fence) = Fence::at(rest) else {
            return if self.is_whole { Found::Text(rest.len()) } else { Found::Open };
        };
        if !self.is_whole && fence.is_closed && fence.length == rest.len() && !rest.ends_with('\n') {
            // More may stand on its last line.
            return if self.may_hold_calls(&fence, is_first) { Found::Open } else { fence.code() };
        }
        if !self.may_hold_calls(&fence, is_first) {
            return if self.is_whole { Found::Text(fence.length) } else { fence.code() };
        }
        if !self.is_whole && !fence.is_closed {
            return Found::Open;
        }
        if self.reader.spend(fence.length).is_none() {
            return Found::Text(fence.length);
        }
        let calls = self.in_fence(&fence);
        let is_last = rest[fence.length..].trim().is_empty();
        if mark(fence.body.trim_start()).is_some() {
            // Marks in a fence are an example, unless the fence is all of the answer.
            return match calls.filter(|_| is_first && is_last) {
                Some(calls) if self.is_whole => Found::Calls(calls, fence.length),
                _ if is_last && !self.is_whole => Found::Open,
                _ => Found::Text(fence.length),
            };
        }
        match (calls, broken_object(fence.body, self.reader.tools)) {
            (Some(calls), _) => self.block(at, calls, fence.length, is_first),
            (None, None) => Found::Text(fence.length),
            (None, Some((name, arguments))) => match self.block(at, Calls::new(), fence.length, is_first) {
                Found::Calls(..) => Found::Unreadable(name, arguments),
                other => other,
            },
        }
    }

    /// Returns whether a fence may hold calls, as far as it has come.
    fn may_hold_calls(&self, fence: &Fence<'_>, is_first: bool) -> bool {
        let body = fence.body.trim_start();
        if body.is_empty() {
            return !self.is_whole && !fence.is_closed;
        }
        if fence.language == TOOL_CODE {
            return true;
        }
        match body.starts_with(['{', '[']) {
            true => self.may_be_json_call(body),
            false => {
                is_first
                    && (mark(body).is_some_and(|mark| mark.opens())
                        || !self.is_whole && may_become_mark(body))
            }
        }
    }

    /// The calls of the fence at the beginning of `text`, if it holds nothing else, and its length.
    pub fn fenced(&self, text: &str) -> Option<(Calls, usize)> {
        let fence = Fence::at(text)?;
        Some((self.in_fence(&fence)?, fence.length))
    }

    /// The calls that a fence holds, if it holds nothing else.
    fn in_fence(&self, fence: &Fence<'_>) -> Option<Calls> {
        let mut rest = fence.body.trim();
        let mut all = Calls::new();
        for _ in 0..MAX_BLOCKS {
            if rest.is_empty() {
                return (!all.is_empty()).then_some(all);
            }
            let (calls, behind) = if mark(rest).is_some_and(|mark| mark.opens()) {
                self.reader.marked(rest)?
            } else if rest.starts_with(['{', '[']) {
                self.body(rest)?
            } else {
                let (call, behind) = self.reader.python(rest).filter(|_| fence.language == TOOL_CODE)?;
                (vec![call], behind)
            };
            if fence.language == TOOL_CODE && !self.are_of_tools(&calls) {
                return None;
            }
            all.extend(calls);
            rest =
                behind.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '}' | ']'));
        }
        None
    }
}

/// A fence at the beginning of a text, whose first line has come.
struct Fence<'t> {
    language: &'t str,
    body: &'t str,
    is_closed: bool,
    length: usize,
    ticks: usize,
    body_at: usize,
}

impl<'t> Fence<'t> {
    fn at(text: &'t str) -> Option<Self> {
        let ticks = text.len() - text.trim_start_matches('`').len();
        let line_end = text.find('\n').filter(|_| ticks >= FENCE.len())?;
        let body_at = line_end + 1;
        let language = text[ticks..line_end].trim();
        let (body, length, is_closed) = match closing_fence(&text[body_at..], ticks) {
            Some((end, behind)) => (&text[body_at..body_at + end], body_at + behind, true),
            None => (&text[body_at..], text.len(), false),
        };
        Some(Self { language, body, is_closed, length, ticks, body_at })
    }

    fn code(&self) -> Found {
        Found::Code(self.body_at, self.ticks)
    }
}

/// Where the body of a fence ends, and where what follows it begins. Its last line may have the backticks at its end.
pub fn closing_fence(body: &str, ticks: usize) -> Option<(usize, usize)> {
    let mark = "`".repeat(ticks);
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let trimmed = line.trim_end();
        if trimmed.ends_with(&mark) {
            let end = trimmed.trim_end_matches('`').len();
            return Some((at + end, at + line.len()));
        }
        at += line.len();
    }
    None
}
