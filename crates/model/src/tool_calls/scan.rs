//! Walks through an answer, as it comes or at its end, and finds the places where calls may be.
//!
//! Marks count anywhere but in code and in quotation marks. A call without marks (JSON, a fence, Python) counts where nothing
//! stands before it or nothing behind it: in the middle of an answer it is an example.

use crate::tool_calls::body::CallReader;
use crate::tool_calls::fence::FENCE;
use crate::tool_calls::harmony;
use crate::tool_calls::json_calls::{Calls, NAME_KEYS, balanced, json_at, known};
use crate::tool_calls::marks::{Mark, Role, mark, may_become_mark};
use crate::tool_calls::python;
use crate::tool_calls::unreadable::{broken_object, unreadable};
use serde_json::Value;

/// Bytes from a possible beginning of a call in which it is looked for while it comes; beyond them the end of the answer decides.
pub const MAX_LOOKAHEAD: usize = 4096;
/// Characters of indentation before a call. A longer run is not looked through again for each of its characters.
const MAX_INDENT: usize = 256;
/// The cost of a place, in bytes that are looked at.
const PLACE: usize = 64;
/// Brackets that JSON may begin with.
const MAX_BRACKETS: usize = 8;
/// Calls in a row without marks.
pub const MAX_BLOCKS: usize = 100;
/// Other keys that a call's JSON begins with.
const OTHER_KEYS: &[&str] =
    &["arguments", "parameters", "args", "tool_calls", "tool_call", "tool_call_id", "type", "id"];
/// Before the name of a tool, in some templates.
const NAMESPACES: [&str; 2] = ["functions.", "default_api."];
/// Before a list of calls, or a fence with it: of Command R+, RWKV and HyperCLOVA X.
const HEADINGS: [&str; 3] = ["Action:", "**Tool Call:**", "-> tool/function_call"];
/// Words that begin a call at the beginning of a line.
const WORDS: [&str; 6] = ["functools", "call:", ">>>", "functions.", "default_api.", "function"];

/// A mark that was found at a place.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// So many bytes of text.
    Text(usize),
    /// The beginning of a fence with code in it: so many bytes, and the backticks that close it.
    Code(usize, usize),
    /// So many backticks, which may enclose what follows.
    Span(usize),
    /// Calls, and how long they are.
    Calls(Calls, usize),
    /// Something that is a call and cannot be read: the tool's name, and its arguments.
    Unreadable(String, String),
    /// The rest of the answer.
    Spoken(harmony::Spoken),
    /// So many bytes of a mark without a call, which nobody is to see beside calls.
    Residue(usize),
    /// So many bytes of a mark that is never a part of an answer.
    Noise(usize),
    /// The point from which on the text was invented by the model.
    Invented,
    /// It cannot be told before more of the answer has come.
    Open,
}

/// Looks for calls in `text`.
pub struct Scan<'r, 't> {
    pub reader: &'r CallReader<'r>,
    pub text: &'t str,
    /// Set if this is all of the answer.
    pub is_whole: bool,
    /// Set if calls without marks count as well.
    pub takes_unmarked: bool,
}

impl Scan<'_, '_> {
    /// The next place from `from` on that is more than text. `is_first`: nothing stands before `from`.
    pub fn next(&self, from: usize, is_first: bool) -> Option<(usize, Found)> {
        let is_first = |at: usize| is_first && self.text[from..at].trim().is_empty();
        let mut chars = self.text[from..].char_indices().map(|(at, c)| (from + at, c));
        chars.find_map(|(at, c)| self.window(at).at(at, c, &is_first).map(|found| (at, found)))
    }

    /// Returns what is examined for the place `at`.
    fn window(&self, at: usize) -> Self {
        let end = if self.is_whole { self.text.len() } else { boundary(self.text, at + MAX_LOOKAHEAD) };
        Self { text: &self.text[..end], ..*self }
    }

    fn at(&self, at: usize, c: char, is_first: &dyn Fn(usize) -> bool) -> Option<Found> {
        if matches!(c, '`' | '<' | '[' | ']' | '{') && self.reader.spend(PLACE).is_none() {
            return (!self.is_whole).then_some(Found::Open);
        }
        match c {
            '`' => Some(self.backticks(at, is_first(at))),
            '<' | ']' => self.mark(at, is_first(at)),
            '[' if !self.takes_unmarked => self.mark(at, is_first(at)),
            '[' => self.mark(at, is_first(at)).or_else(|| match self.begins(at) {
                true => self.json(at, is_first(at)),
                false => self.inline_list(at),
            }),
            _ if !self.takes_unmarked => None,
            '{' if self.begins(at) => self.json(at, is_first(at)),
            '>' | '*' | '-' if self.begins(at) => self.word(at, is_first(at)),
            c if c.is_alphabetic() && self.begins(at) => self.word(at, is_first(at)),
            _ => None,
        }
    }

    /// Returns whether a call without marks may begin at `at`: at the beginning of a line, or behind a token.
    fn begins(&self, at: usize) -> bool {
        begins_line(self.text, at) || self.text[..at].ends_with("|>")
    }

    fn mark(&self, at: usize, is_first: bool) -> Option<Found> {
        let rest = &self.text[at..];
        match harmony::begins(rest) {
            _ if !rest.starts_with('<') => {}
            Some(true) => return Some(self.spoken(rest)),
            Some(false) => {}
            None if !self.is_whole => return Some(Found::Open),
            None => {}
        }
        let Some(mark) = mark(rest) else {
            return (!self.is_whole && may_become_mark(rest)).then_some(Found::Open);
        };
        if is_quoted(&self.text[..at]) {
            return Some(Found::Text(mark.length));
        }
        let behind = &rest[mark.length..];
        match mark.role {
            Role::Result => Some(if self.is_whole { Found::Invented } else { Found::Text(mark.length) }),
            // In the middle of a line they are markup.
            Role::Weak if !mark.is_token && !self.begins(at) => None,
            Role::Weak if !self.may_open(behind) => Some(match (mark.is_token, self.is_whole) {
                (true, true) => Found::Noise(mark.length),
                (true, false) => Found::Open,
                (false, _) => Found::Text(mark.length),
            }),
            Role::Open | Role::Weak | Role::Call if self.is_whole => Some(self.marked(at, &mark, is_first)),
            Role::Open | Role::Weak | Role::Call => Some(Found::Open),
            Role::Noise if !mark.is_token && !matches!(mark.tag, "<end_of_turn>") => None,
            Role::Noise if self.is_whole => {
                let is_last = behind.trim().is_empty() || self.tail_is_calls(behind);
                Some(if is_first || is_last { Found::Noise(mark.length) } else { Found::Text(mark.length) })
            }
            Role::Noise => Some(Found::Open),
            Role::Close | Role::CallEnd if is_common(&mark) => None,
            _ if !self.is_whole => Some(Found::Open),
            _ => Some(Found::Residue(mark.length)),
        }
    }

    /// Returns whether a call may follow a mark that is common elsewhere.
    fn may_open(&self, behind: &str) -> bool {
        let body = behind.trim_start();
        let body = body.strip_prefix("print(").unwrap_or(body);
        let word = &body[..body.find(|c: char| !(python::is_name(c) || c == ':')).unwrap_or(body.len())];
        let is_open = !self.is_whole && word.len() == body.len();
        body.starts_with(['{', '['])
            || mark(body).is_some_and(|mark| mark.opens())
            || self.declares(word)
            || is_open && (word.is_empty() || self.begins_name(word))
            || may_become_mark(body) && !self.is_whole
    }

    fn begins_name(&self, word: &str) -> bool {
        self.reader.tools.iter().any(|tool| tool.name.starts_with(word))
    }

    /// The calls at a mark, in a whole answer.
    fn marked(&self, at: usize, tag: &Mark, is_first: bool) -> Found {
        let rest = &self.text[at..];
        match self.reader.marked(rest) {
            Some((calls, behind)) if tag.role == Role::Weak && self.are_of_tools(&calls) => {
                self.block(at, calls, rest.len() - behind.len(), is_first)
            }
            Some((calls, behind)) if tag.role != Role::Weak => Found::Calls(calls, rest.len() - behind.len()),
            _ if tag.role == Role::Weak => Found::Text(tag.length),
            _ => match unreadable(self.text, at, tag, self.reader.tools) {
                Some((name, arguments)) => Found::Unreadable(name, arguments),
                // Around the next mark, which decides.
                None if tag.is_token && mark(rest[tag.length..].trim_start()).is_some() => {
                    Found::Residue(tag.length)
                }
                None => Found::Text(tag.length),
            },
        }
    }

    fn spoken(&self, rest: &str) -> Found {
        if !self.is_whole {
            return Found::Open;
        }
        harmony::read(rest, self.reader).map_or(Found::Text(1), Found::Spoken)
    }

    pub fn are_of_tools(&self, calls: &Calls) -> bool {
        calls.iter().all(|(name, _)| self.reader.tools.iter().any(|tool| tool.name == *name))
    }

    /// Returns whether all calls are of existing tools, with all the arguments that are required and none that is not known.
    fn are_exact(&self, calls: &Calls) -> bool {
        calls.iter().all(|(name, arguments)| {
            let Some(tool) = self.reader.tools.iter().find(|tool| tool.name == *name) else { return false };
            let required = tool.parameters["required"].as_array().map(Vec::as_slice).unwrap_or_default();
            let properties = tool.parameters["properties"].as_object();
            let is_known = |key: &String| properties.is_none_or(|properties| properties.contains_key(key));
            let has_all = required.iter().filter_map(Value::as_str).all(|key| arguments.get(key).is_some());
            has_all && arguments.as_object().is_some_and(|arguments| arguments.keys().all(is_known))
        })
    }

    /// Calls without marks count in front of an answer or at its end.
    pub fn block(&self, at: usize, calls: Calls, length: usize, is_first: bool) -> Found {
        let behind = &self.text[at + length..];
        if !self.is_whole {
            let is_decided = !is_first && !behind.trim().is_empty() && !self.may_be_calls(behind);
            return if is_decided { Found::Text(length) } else { Found::Open };
        }
        match is_first || self.tail_is_calls(behind) {
            true => Found::Calls(calls, length),
            false => Found::Text(length),
        }
    }

    /// Returns whether nothing but calls and marks follows.
    fn tail_is_calls(&self, mut text: &str) -> bool {
        for _ in 0..MAX_BLOCKS {
            text = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '}' | ']'));
            if text.is_empty() {
                return true;
            }
            if self.reader.spend(text.len().min(1024)).is_none() {
                return false;
            }
            if let Some(mark) = mark(text) {
                match mark.role {
                    Role::Result => return true,
                    // What that comes to is decided there.
                    Role::Open | Role::Call => return true,
                    _ => text = &text[mark.length..],
                }
                continue;
            }
            if broken_object(text, self.reader.tools).is_some() {
                return true;
            }
            let Some((_, length)) = self.unmarked(text) else { return false };
            text = &text[length..];
        }
        false
    }

    /// Returns whether what came of the rest may be calls.
    fn may_be_calls(&self, text: &str) -> bool {
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '}' | ']'));
        text.starts_with(['{', '[', '<', '`', '>'])
            || WORDS.iter().any(|word| text.starts_with(word) || word.starts_with(text))
            || self
                .reader
                .tools
                .iter()
                .any(|tool| text.starts_with(&tool.name) || tool.name.starts_with(text))
    }

    /// Calls without marks at the beginning of `text`, and their length.
    fn unmarked(&self, text: &str) -> Option<(Calls, usize)> {
        match text.chars().next()? {
            '{' | '[' => {
                let (mut calls, mut rest) = self.body(text)?;
                // Llama 3 separates several by semicolons.
                while let Some(next) = rest.trim_start_matches(' ').strip_prefix(';')
                    && next.trim_start().starts_with('{')
                    && calls.len() < MAX_BLOCKS
                    && let Some((more, behind)) = self.body(next.trim_start())
                {
                    calls.extend(more);
                    rest = behind;
                }
                let is_python = text.starts_with('[') && !text[1..].trim_start().starts_with(['{', '[']);
                (!is_python || self.are_exact(&calls)).then(|| (calls, text.len() - rest.len()))
            }
            '`' => self.fenced(text),
            _ => self.named(text),
        }
    }

    /// A call that begins with the name of a tool.
    fn named(&self, text: &str) -> Option<(Calls, usize)> {
        if let Some(list) = text.strip_prefix("functools").filter(|list| list.starts_with('[')) {
            let (calls, rest) = self.body(list)?;
            return Some((calls, text.len() - rest.len()));
        }
        if let Some(list) = HEADINGS.iter().find_map(|heading| text.strip_prefix(heading)) {
            let list = list.trim_start();
            let (calls, rest) = self.body(list).filter(|_| list.starts_with(['[', '{', '`']))?;
            return Some((calls, text.len() - rest.len()));
        }
        let start = text.trim_start_matches('>');
        let name = start.strip_prefix("call:").unwrap_or(start);
        // `function` before the name is DeepSeek's, without its tokens.
        let kind = name.strip_prefix("function").filter(|name| self.declares(word(name)));
        let (start, name) = kind.map_or((start, name), |name| (name, name));
        if !self.declares(word(name)) {
            return None;
        }
        let behind = name[word(name).len()..].trim_start();
        if behind.starts_with('(') {
            let (call, rest) = self.reader.python(name)?;
            let calls = vec![call];
            return self.are_exact(&calls).then(|| (calls, text.len() - rest.len()));
        }
        let has_arguments = behind.starts_with('{')
            || behind.starts_with(FENCE)
            || mark(behind).is_some_and(|mark| matches!(mark.role, Role::Key | Role::Separator));
        let (calls, rest, is_ended) = self.reader.named(start).filter(|_| has_arguments)?;
        if !is_ended && self.reader.is_cut_off {
            return None;
        }
        self.are_exact(&calls).then(|| (calls, text.len() - rest.len()))
    }

    /// The calls at the beginning of `text`, and what follows them. They have to end where the answer was cut off.
    pub fn body<'b>(&self, text: &'b str) -> Option<(Calls, &'b str)> {
        let (calls, rest, is_ended) = self.reader.body(text)?;
        (is_ended || !self.reader.is_cut_off).then_some((calls, rest))
    }

    /// Returns whether `name` is a tool's, alone or as templates write it.
    fn declares(&self, name: &str) -> bool {
        let name = NAMESPACES.iter().find_map(|space| name.strip_prefix(space)).unwrap_or(name);
        let number = name.rsplit_once(':').filter(|(_, number)| number.chars().all(|c| c.is_ascii_digit()));
        let name = number.map_or(name, |(name, _)| name);
        self.reader.tools.iter().any(|tool| tool.name == name)
    }

    fn json(&self, at: usize, is_first: bool) -> Option<Found> {
        let rest = &self.text[at..];
        if !self.may_be_json_call(rest) {
            return None;
        }
        self.reader.spend(rest.len())?;
        if let Some((calls, length)) = self.unmarked(rest) {
            return Some(self.block(at, calls, length, is_first));
        }
        let length = balanced(rest);
        // A list of which only some parts are calls is something else.
        let is_other = rest.starts_with('[') && json_at(rest).is_some();
        let broken = || broken_object(rest, self.reader.tools).or_else(|| self.broken_list(rest));
        let broken = if is_other { None } else { broken() };
        match (broken, length) {
            (Some(_), _) if !self.is_whole => Some(Found::Open),
            (Some((name, arguments)), _) => Some(Found::Unreadable(name, arguments)),
            (None, Some(length)) => Some(Found::Text(length)),
            (None, None) => (!self.is_whole).then_some(Found::Open),
        }
    }

    /// `[f(a=…)]` of an existing tool that cannot be read, as all of the rest.
    fn broken_list(&self, text: &str) -> Option<(String, String)> {
        // What follows a list that has ended is text.
        if balanced(text).is_some_and(|end| !text[end..].trim().is_empty()) {
            return None;
        }
        let inner = text.strip_prefix('[')?.trim_start();
        let end = inner.find('(')?;
        let name =
            known(inner[..end].trim(), self.reader.tools).filter(|_| text.trim_end().ends_with(")]"))?;
        Some((name, inner[end..].trim_end().to_owned()))
    }

    /// Returns whether JSON, as far as it has come, describes a call or may come to.
    pub fn may_be_json_call(&self, text: &str) -> bool {
        let mut inner = text;
        for _ in 0..MAX_BRACKETS {
            let Some(within) = inner.strip_prefix(['{', '[']) else { break };
            inner = within.trim_start();
        }
        if inner.starts_with(['{', '[']) {
            return !self.is_whole;
        }
        let tools = self.reader.tools.iter().map(|tool| tool.name.as_str());
        let Some(quote) = inner.chars().next() else { return !self.is_whole };
        if !matches!(quote, '"' | '\'') {
            let end = inner.find(|c: char| !python::is_name(c)).unwrap_or(inner.len());
            let is_open = end == inner.len() && !self.is_whole && end > 0;
            let is_call = inner[end..].starts_with('(') && self.declares(&inner[..end]);
            return text.starts_with('[') && (is_call || is_open && self.begins_name(&inner[..end]));
        }
        let mut keys = NAME_KEYS.iter().chain(OTHER_KEYS).copied().chain(tools);
        match inner[1..].split_once(quote) {
            Some((key, _)) => keys.any(|known| known == key),
            None => !self.is_whole && keys.any(|known| known.starts_with(&inner[1..])),
        }
    }

    /// `[f(a="b")]` behind text on the same line.
    fn inline_list(&self, at: usize) -> Option<Found> {
        let rest = &self.text[at..];
        let inner = rest[1..].trim_start();
        let end = inner.find(|c: char| !python::is_name(c)).unwrap_or(inner.len());
        if end == inner.len() && !self.is_whole && (inner.is_empty() || self.begins_name(inner)) {
            return Some(Found::Open);
        }
        if !inner[end..].starts_with('(') || !self.declares(&inner[..end]) {
            return None;
        }
        self.reader.spend(rest.len())?;
        match self.unmarked(rest) {
            Some((calls, length)) => Some(self.block(at, calls, length, false)),
            None => (!self.is_whole && balanced(rest).is_none()).then_some(Found::Open),
        }
    }

    /// A word at the beginning of a line.
    fn word(&self, at: usize, is_first: bool) -> Option<Found> {
        let rest = &self.text[at..];
        match harmony::begins(rest) {
            Some(true) => return Some(self.spoken(rest)),
            None if !self.is_whole => return Some(Found::Open),
            _ => {}
        }
        let starts = |word: &str| rest.starts_with(word) || !self.is_whole && word.starts_with(rest);
        let name = word(rest);
        let is_name =
            self.declares(name) || !self.is_whole && name.len() == rest.len() && self.begins_name(name);
        if !is_name && !WORDS.iter().chain(&HEADINGS).any(|word| starts(word)) {
            return None;
        }
        self.reader.spend(rest.len().min(4096))?;
        if !self.is_whole {
            return self.may_become_named(rest).then_some(Found::Open);
        }
        let (calls, length) = self.named(rest)?;
        Some(self.block(at, calls, length, is_first && !self.declares(word(rest.trim_start_matches('>')))))
    }

    /// Returns whether a name with its arguments may come of `text`.
    fn may_become_named(&self, text: &str) -> bool {
        let mut words = WORDS.iter().chain(&HEADINGS);
        if words.any(|word| word.len() > text.len() && word.starts_with(text)) {
            return true;
        }
        let headed = HEADINGS.iter().find_map(|heading| text.strip_prefix(heading));
        if let Some(list) = text.strip_prefix("functools").or(headed) {
            return list.trim_start().is_empty() || list.trim_start().starts_with(['[', '{', '`']);
        }
        let text = text.trim_start_matches('>');
        let text = ["call:", "functions.", "default_api.", "function"]
            .iter()
            .find_map(|word| text.strip_prefix(word))
            .unwrap_or(text);
        let text = text.trim_start_matches('\n');
        let end = text.find(|c: char| !(python::is_name(c) || c == ':')).unwrap_or(text.len());
        if end == text.len() {
            return text.is_empty() || self.begins_name(text) || self.declares(text);
        }
        let behind = text[end..].trim_start();
        self.declares(&text[..end])
            && (behind.is_empty()
                || behind.starts_with(['{', '('])
                || behind.starts_with(FENCE)
                || FENCE.starts_with(behind)
                || may_become_mark(behind)
                || mark(behind).is_some_and(|mark| matches!(mark.role, Role::Key | Role::Separator)))
    }
}

/// The name at the beginning of `text`, with a namespace and a number.
fn word(text: &str) -> &str {
    &text[..text.find(|c: char| !(python::is_name(c) || c == ':')).unwrap_or(text.len())]
}

/// The last character boundary up to `at`.
pub fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns whether only white space, or a brace that a template doubled, is before `at` on its line.
pub fn begins_line(text: &str, at: usize) -> bool {
    let mut before = text[..at].chars().rev().take(MAX_INDENT);
    match before.find(|c| !matches!(c, ' ' | '\t' | '{')) {
        Some(c) => c == '\n',
        None => at < MAX_INDENT,
    }
}

/// Returns whether a mark behind `before` is quoted.
fn is_quoted(before: &str) -> bool {
    before.ends_with(['"', '\'', '“', '‘', '„', '«'])
}

/// Tags that HTML and XML have as well.
pub fn is_common(mark: &Mark) -> bool {
    !mark.is_token
        && matches!(mark.tag, "code" | "call" | "calls" | "user" | "tools" | "</tool>" | "function")
}
