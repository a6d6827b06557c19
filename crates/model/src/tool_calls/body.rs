//! Reads what stands behind the mark of a call: JSON, a name with arguments in any form, elements, Python.
//!
//! Models mix the forms, so any body is read behind any mark. What cannot be read to its end is not a call.

use crate::ToolSpec;
use crate::tool_calls::assignments::pairs;
use crate::tool_calls::coerce::member;
use crate::tool_calls::json_calls::{ARGUMENT_KEYS, NAME_KEYS};
use crate::tool_calls::json_calls::{
    Call, Calls, balanced, calls_in, json_at, known_or_invented, name_alone, object_of,
};
use crate::tool_calls::marks::{Mark, PREFIX, Role, mark};
use crate::tool_calls::typed::{schema, typed, with_types};
use crate::tool_calls::{braces, names, python};
use serde_json::{Map, Value};
use std::cell::Cell;

/// Arguments of one call that are read.
const MAX_ARGUMENTS: usize = 100;
/// Values inside of each other.
const MAX_DEPTH: usize = 16;
/// Calls of one list.
const MAX_CALLS: usize = 1_000;

/// Words before the name of a tool: of Gemma 4, and of models that write gpt-oss's header behind another mark.
const BEFORE_NAMES: [&str; 3] = ["call:", "assistant ", "to="];
/// Between such a name and its arguments.
const KIND_OF_ARGUMENTS: &str = "json";

/// Reads calls for these tools.
pub struct CallReader<'a> {
    pub tools: &'a [ToolSpec],
    /// Set if the answer ended at the limit of its length: what has no end then is not what was meant.
    pub is_cut_off: bool,
    /// Bytes that may still be looked at.
    pub budget: Cell<usize>,
}

/// Calls, what follows them, and whether it is certain that they ended.
type Body<'t> = (Calls, &'t str, bool);

impl<'a> CallReader<'a> {
    /// Counts work; `None` where there was too much of it.
    pub fn spend(&self, bytes: usize) -> Option<()> {
        let left = self.budget.get().checked_sub(bytes);
        self.budget.set(left.unwrap_or(0));
        left.map(|_| ())
    }

    fn tool(&self, name: &str) -> Option<&'a ToolSpec> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The calls behind the mark at the beginning of `text`, and what follows them and the marks around them.
    pub fn marked<'t>(&self, text: &'t str) -> Option<(Calls, &'t str)> {
        let (mut calls, mut rest) = (Calls::new(), text);
        let mut takes_names = false;
        for _ in 0..MAX_CALLS {
            let passed = pass(rest, !calls.is_empty())?;
            rest = passed.rest;
            takes_names = passed.takes_names.unwrap_or(takes_names);
            let body = rest.trim_start();
            if !calls.is_empty() && (passed.is_closed || body.is_empty()) {
                return Some((calls, rest));
            }
            let read = match passed.is_command {
                true => self.command(body),
                false => {
                    let named = || takes_names.then(|| self.without_arguments(body)).flatten();
                    self.body(body).or_else(named)
                }
            };
            let Some((new, behind, is_whole)) = read else {
                // Something else follows the calls, or the next one cannot be read.
                return (!calls.is_empty() && !passed.is_open).then_some((calls, rest));
            };
            let next = behind.trim_start();
            let is_ended = is_whole || mark(next).is_some();
            if !is_ended && self.is_cut_off || !self.may_follow(next) {
                return None;
            }
            calls.extend(new);
            rest = behind;
        }
        None
    }

    /// Returns whether a call may end here. Something between a call and the mark that closes it belongs to the call.
    fn may_follow(&self, text: &str) -> bool {
        if text.is_empty() || text.starts_with([',', ';', '}', ']', '{', '[']) || mark(text).is_some() {
            return true;
        }
        let next =
            text.match_indices('<').chain(text.match_indices('[')).find_map(|(at, _)| mark(&text[at..]));
        !next.is_some_and(|next| !next.opens() && next.role != Role::Noise) || self.body(text).is_some()
    }

    /// The calls at the beginning of `text`, whose form its first character tells.
    pub fn body<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        self.spend(1)?;
        match text.chars().next()? {
            '{' => self.json(text),
            '[' if json_at(text).is_some() => self.json(text),
            '[' => self.python_list(text).or_else(|| self.without_bracket(text)),
            '`' => self.fenced(text),
            _ => match mark(text) {
                Some(tag) if tag.role == Role::Call => self.element(text, tag),
                Some(tag) if !matches!(tag.role, Role::Name | Role::Aside) => None,
                _ => self.named(text),
            },
        }
    }

    /// JSON, whose first brace a template may have doubled.
    fn json<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let read = |text: &'t str| {
            let (value, length) = json_at(text)?;
            let calls = calls_in(&value, self.tools)?;
            let is_whole = balanced(text).is_some();
            Some((calls, &text[length..], is_whole))
        };
        self.spend(text.len())?;
        let doubled = text.strip_prefix("{{").map(|_| &text[1..]);
        read(text).or_else(|| doubled.and_then(read)).or_else(|| self.unended(text))
    }

    /// JSON behind a mark in which a call may be the name of a tool and nothing else.
    fn without_arguments<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let (value, length) = json_at(text).filter(|_| balanced(text).is_some())?;
        let list = match value {
            Value::Array(list) => list,
            alone => vec![alone],
        };
        let read = |value: &Value| calls_in(value, self.tools).or_else(|| name_alone(value, self.tools));
        let calls: Option<Vec<Calls>> = list.iter().map(read).collect();
        Some((calls?.concat(), &text[length..], true)).filter(|(calls, ..)| !calls.is_empty())
    }

    /// JSON without its last brackets, before the mark that closes the call.
    fn unended<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let closes =
            |(at, _): (usize, &str)| mark(&text[at..]).is_some_and(|mark| mark.closes()).then_some(at);
        let end = text.match_indices('<').find_map(closes)?;
        let (value, _) = json_at(text[..end].trim_end())?;
        Some((calls_in(&value, self.tools)?, &text[end..], true))
    }

    /// `[{…} {…}]`: a list whose commas are missing. The brackets are passed over.
    fn without_bracket<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        self.json(text.strip_prefix('[')?.trim_start()).filter(|(calls, ..)| !calls.is_empty())
    }

    fn fenced<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let inner = text.strip_prefix("```")?;
        let body = &inner[inner.find('\n')? + 1..];
        let (calls, rest, is_whole) = self.json(body.trim_start())?;
        Some((calls, rest.trim_start().strip_prefix("```").unwrap_or(rest), is_whole))
    }

    /// `[f(a="b"), g()]`.
    pub fn python_list<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let mut rest = text.strip_prefix('[')?.trim_start();
        let mut calls = Calls::new();
        while calls.len() < MAX_CALLS {
            let (call, behind) = self.python(rest).or_else(|| self.loose_python(rest))?;
            calls.push(call);
            rest = behind.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None => return Some((calls, rest.strip_prefix(']')?, true)),
            };
            if let Some(rest) = rest.strip_prefix(']') {
                return Some((calls, rest, true));
            }
        }
        None
    }

    /// `f(a="b")`. Arguments without a name are not those of a tool.
    pub fn python<'t>(&self, text: &'t str) -> Option<(Call, &'t str)> {
        self.spend(text.len().min(64))?;
        self.called(python::call(text)?)
    }

    /// The same with quotes inside of quotes. Of a text that was cut off, the end of a value may be missing.
    fn loose_python<'t>(&self, text: &'t str) -> Option<(Call, &'t str)> {
        self.spend(text.len()).filter(|()| !self.is_cut_off)?;
        self.called(python::loose_call(text)?)
    }

    fn called<'t>(&self, (written, rest): (python::Written<'t>, &'t str)) -> Option<(Call, &'t str)> {
        let name = known_or_invented(written.name, self.tools)?;
        (!written.is_positional).then(|| ((name, Value::Object(written.arguments)), rest))
    }

    /// CWM: a name, and behind it the text of the only required argument, or JSON.
    fn command<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let end = text.find(char::is_whitespace)?;
        let tool = names::meant(&text[..end], self.tools)?;
        let argument = text[end..].trim_start();
        if argument.starts_with('{') {
            return self.named(text);
        }
        let close = argument.match_indices("</").find(|(at, _)| mark(&argument[*at..]).is_some())?.0;
        let [only] = tool.parameters["required"].as_array()?.as_slice() else { return None };
        let arguments = Map::from_iter([(only.as_str()?.to_owned(), argument[..close].trim_end().into())]);
        Some((vec![(tool.name.clone(), Value::Object(arguments))], &argument[close..], true))
    }

    /// A name, the marks behind it, and its arguments.
    pub fn named<'t>(&self, text: &'t str) -> Option<Body<'t>> {
        let mut rest = without_kind(text);
        if rest.starts_with('{') {
            return self.json(rest);
        }
        let is_gemma = rest.trim_start_matches(':').starts_with("call:");
        rest = rest.trim_start_matches(':');
        rest = without_asides(
            BEFORE_NAMES.iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest)),
        )?;
        if let Some(tag) = mark(rest).filter(|tag| tag.role == Role::Call) {
            return self.element(rest, tag);
        }
        let mut end = name_end(rest);
        if let Some(tag) = mark(rest[end..].trim_start()).filter(|tag| tag.role == Role::Name) {
            // What stood before is the number of the call.
            rest = rest[end..].trim_start()[tag.length..].trim_start();
            end = name_end(rest);
        }
        let name = known_or_invented(&rest[..end], self.tools)?;
        let (arguments, behind, is_whole) = self.arguments_of(&name, rest, end, is_gemma)?;
        Some((vec![(name, arguments)], behind, is_whole))
    }

    /// The arguments behind a name that ends at `end` of `text`.
    fn arguments_of<'t>(
        &self,
        name: &str,
        text: &'t str,
        end: usize,
        is_gemma: bool,
    ) -> Option<(Value, &'t str, bool)> {
        let tool = self.tool(name);
        let rest = without_call_id(text[end..].trim_start());
        let kind =
            rest.strip_prefix(KIND_OF_ARGUMENTS).map(str::trim_start).filter(|rest| rest.starts_with('{'));
        let (rest, is_separated) = without_separators(kind.unwrap_or(rest));
        self.spend(rest.len().min(4096))?;
        match rest.chars().next() {
            Some('{') => {
                // Without its quotes, a text that was cut off ends anywhere.
                let tool = tool.filter(|_| is_gemma && !self.is_cut_off);
                let braces = || {
                    let (arguments, behind) = braces::arguments(rest, tool)?;
                    Some((Value::Object(arguments), behind, true))
                };
                match is_gemma {
                    true => braces().or_else(|| self.json_object(name, rest)),
                    false => self.json_object(name, rest).or_else(braces),
                }
            }
            Some('"') => {
                let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
                let json = texts.next()?.ok()?;
                Some((object_of(&json.into())?, &rest[texts.byte_offset()..], true))
            }
            Some('`') => {
                let inner = rest.strip_prefix("```")?;
                let (arguments, rest, is_whole) =
                    self.json_object(name, inner[inner.find('\n')? + 1..].trim_start())?;
                Some((arguments, rest.trim_start().strip_prefix("```").unwrap_or(rest), is_whole))
            }
            Some('(') if !is_separated => self.parenthesised(&text[..end], rest, tool),
            None => (tool.is_some() && text.len() == end).then(|| (Value::Object(Map::new()), rest, false)),
            Some(_) => match mark(rest) {
                Some(tag) if tag.role == Role::Call => {
                    let (calls, rest, is_whole) = self.element(rest, tag)?;
                    // Behind another word it is a call of its own.
                    let (_, arguments) = calls.into_iter().next().filter(|(named, _)| named == name)?;
                    Some((arguments, rest, is_whole))
                }
                Some(tag)
                    if matches!(tag.role, Role::Key | Role::Argument) || self.is_mistaken_key(rest, &tag) =>
                {
                    let (arguments, rest) = self.arguments(rest, tool)?;
                    Some((Value::Object(arguments), rest, false))
                }
                Some(tag) if tag.closes() => {
                    Some((Value::Object(Map::new()), rest, true)).filter(|_| tool.is_some())
                }
                Some(_) => None,
                None => self.assigned(rest, tool?),
            },
        }
    }

    /// The object at the beginning of `text`: the arguments of a call of `name`.
    pub fn json_object<'t>(&self, name: &str, text: &'t str) -> Option<(Value, &'t str, bool)> {
        self.spend(text.len())?;
        let is_whole = balanced(text).is_some();
        let read = json_at(text).map(|(value, length)| (value, &text[length..], is_whole));
        let close =
            || text.match_indices('<').find(|(at, _)| mark(&text[*at..]).is_some_and(|mark| mark.closes()));
        let read = read.or_else(|| {
            let end = close()?.0;
            Some((json_at(text[..end].trim_end())?.0, &text[end..], true))
        });
        let (value, rest, is_whole) = read.filter(|(value, ..)| value.is_object())?;
        // Inkling writes the whole call once more.
        let is_call = NAME_KEYS.iter().any(|key| value.get(*key).and_then(Value::as_str) == Some(name));
        let inner = ARGUMENT_KEYS.iter().find_map(|key| value.get(*key)).filter(|_| is_call);
        Some((inner.and_then(object_of).unwrap_or(value), rest, is_whole))
    }

    /// `(key="value")` as in Python, or with words in place of literals.
    fn parenthesised<'t>(
        &self,
        name: &str,
        text: &'t str,
        tool: Option<&ToolSpec>,
    ) -> Option<(Value, &'t str, bool)> {
        // The name may be one that Python has not (`functions.f:0`).
        let with_name = format!("f{text}");
        if let Some((written, rest)) = python::call(&with_name).filter(|(written, _)| !written.is_positional)
        {
            let behind = &text[text.len() - rest.len()..];
            return Some((Value::Object(written.arguments), behind, true));
        }
        names::meant(name, self.tools)?;
        let (pairs, rest) = pairs(text.strip_prefix('(')?)?;
        let rest = rest.strip_prefix(')')?;
        Some((Value::Object(with_types(pairs, tool)), rest, true))
    }

    /// `key="value", key=value` on the rest of the line.
    fn assigned<'t>(&self, text: &'t str, tool: &ToolSpec) -> Option<(Value, &'t str, bool)> {
        let (pairs, rest) = pairs(text)?;
        let ends_here = rest.is_empty() || rest.starts_with(['\n', '<', ',', ';']);
        (ends_here && !pairs.is_empty()).then(|| (Value::Object(with_types(pairs, Some(tool))), rest, true))
    }

    /// The call of the element whose tag is at the beginning of `text`.
    fn element<'t>(&self, text: &'t str, tag: Mark) -> Option<Body<'t>> {
        let name = known_or_invented(tag.name.as_deref()?, self.tools)?;
        let tool = self.tool(&name);
        let mut rest = &text[tag.length..];
        let attributes = || -> Option<Value> {
            let mut attributes = tag.attributes.clone();
            match ARGUMENT_KEYS.iter().find_map(|key| attributes.shift_remove(*key)) {
                Some(Value::String(json)) => object_of(&json.into()),
                Some(whole) => object_of(&whole),
                // The number of a call is not an argument.
                None => {
                    attributes.retain(|key, _| !matches!(key.as_str(), "id" | "index" | "type"));
                    Some(Value::Object(with_types(attributes, tool)))
                }
            }
        };
        if tag.is_empty {
            return Some((vec![(name, attributes()?)], rest, true));
        }
        let body = rest.trim_start();
        let arguments;
        if body.starts_with('{') {
            (arguments, rest, _) = self.json_object(&name, body)?;
        } else {
            let (read, behind) = self.arguments(rest, tool)?;
            rest = behind;
            arguments = if read.is_empty() { attributes()? } else { Value::Object(read) };
        }
        let end = rest.trim_start();
        match mark(end) {
            Some(close) if close.role == Role::CallEnd => {
                Some((vec![(name, arguments)], &end[close.length..], true))
            }
            Some(close) if matches!(close.role, Role::Close | Role::Open | Role::Call | Role::Noise) => {
                Some((vec![(name, arguments)], rest, true))
            }
            // Without arguments this may be the beginning of anything.
            None if end.is_empty() && arguments.as_object().is_some_and(|object| !object.is_empty()) => {
                Some((vec![(name, arguments)], end, false))
            }
            _ => None,
        }
    }

    /// The arguments as tags at the beginning of `text`, and what follows them.
    fn arguments<'t>(&self, text: &'t str, tool: Option<&ToolSpec>) -> Option<(Map<String, Value>, &'t str)> {
        let (mut arguments, mut rest) = (Map::new(), text);
        let mut written: Vec<(String, &str, Mark)> = Vec::new();
        for _ in 0..MAX_ARGUMENTS {
            let start = rest.trim_start();
            if let Some(inner) = start.strip_prefix(PREFIX)
                && let Some(key) = nested_key(inner)
            {
                let schema = schema(tool, key);
                let (value, behind) = self.nested(inner, key, schema, 0)?;
                arguments.insert(key.to_owned(), value);
                rest = behind;
                continue;
            }
            match mark(start) {
                Some(tag) if tag.role == Role::Argument => {
                    let name = tag.name.clone()?;
                    let (value, behind) = self.raw(&start[tag.length..], &tag, tool)?;
                    // It keeps its place; the others tell how it is read.
                    arguments.insert(name.clone(), Value::Null);
                    written.push((name, value, tag));
                    rest = behind;
                }
                Some(tag) if tag.role == Role::Key || self.is_mistaken_key(start, &tag) => {
                    let behind = &start[tag.length..];
                    let end = behind.find('<')?;
                    let name = behind[..end].trim();
                    let (tag, value) = behind_key(&behind[end..])?;
                    let (value, behind) = self.raw(value, &tag, tool)?;
                    arguments.insert(name.to_owned(), typed(value, schema(tool, name), is_text(&tag)));
                    rest = behind;
                }
                _ => {
                    let is_set_off = written.iter().any(|(_, value, tag)| has_own_lines(value, tag));
                    for (name, value, tag) in written {
                        let value = bare(value, is_set_off && !tag.is_token);
                        let value = typed(value, schema(tool, &name), is_text(&tag));
                        arguments.insert(name, value);
                    }
                    return Some((arguments, rest));
                }
            }
        }
        None
    }

    /// GLM has been seen to write `<tool_call>` for `<arg_key>`.
    fn is_mistaken_key(&self, text: &str, tag: &Mark) -> bool {
        let behind = &text[tag.length..];
        let end = behind.find('<').unwrap_or(behind.len());
        tag.role == Role::Open && mark(&behind[end..]).is_some_and(|mark| mark.role == Role::KeyEnd)
    }

    /// The raw value at the beginning of `text`, whose tag is `tag`, and what follows its end. A value may hold the mark that
    /// ends it: then what follows that is neither another argument nor the end of the call.
    fn raw<'t>(&self, text: &'t str, tag: &Mark, tool: Option<&ToolSpec>) -> Option<(&'t str, &'t str)> {
        let is_alike = |other: &Mark| other.tag == tag.tag && other.is_token == tag.is_token;
        let is_known = |name: &str| {
            let properties = tool.and_then(|tool| tool.parameters["properties"].as_object());
            properties.is_none_or(|properties| properties.contains_key(name))
        };
        let (mut at, mut depth, mut last_resort) = (0, 0usize, None);
        while let Some(found) = text[at..].find(['<', ']']) {
            let place = at + found;
            self.spend(found + 1)?;
            let Some(inner) = mark(&text[place..]) else {
                at = place + 1;
                continue;
            };
            match inner.role {
                Role::Argument | Role::Raw if is_alike(&inner) => {
                    if inner.name.as_deref().is_none_or(is_known) {
                        last_resort.get_or_insert(place);
                    }
                    depth += 1;
                }
                Role::Key | Role::CallEnd | Role::Close if inner.is_token == tag.is_token => {
                    last_resort.get_or_insert(place);
                }
                Role::ArgumentEnd | Role::RawEnd if is_end(tag, &inner) => {
                    let rest = &text[place + inner.length..];
                    if depth > 0 {
                        depth -= 1;
                    } else if continues(rest) {
                        return Some((&text[..place], rest));
                    }
                }
                _ => {}
            }
            at = place + inner.length;
        }
        // The mark at its end is missing.
        let end = last_resort.filter(|_| !self.is_cut_off)?;
        let value = &text[..end];
        let close = value.rfind("</").filter(|at| {
            mark(&value[*at..])
                .is_some_and(|inner| is_end(tag, &inner) && value[at + inner.length..].trim().is_empty())
        });
        Some((&value[..close.unwrap_or(value.len())], &text[end..]))
    }

    /// MiniMax M3: the tag of an argument is its name, and values may be elements again. `text` begins with the tag.
    fn nested<'t>(&self, text: &'t str, key: &str, schema: &Value, depth: usize) -> Option<(Value, &'t str)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let close = format!("{PREFIX}</{key}>");
        let mut rest = &text[key.len() + 2..];
        let first = rest.trim_start().strip_prefix(PREFIX);
        if first.is_none_or(|inner| nested_key(inner).is_none()) {
            self.spend(rest.len())?;
            let (value, rest) = rest.split_once(&close)?;
            return Some((typed(value, schema, None), rest));
        }
        let mut children: Vec<(&str, Value)> = Vec::new();
        loop {
            let start = rest.trim_start();
            if let Some(rest) = start.strip_prefix(&close) {
                return Some((collected(children, schema), rest));
            }
            let inner = start.strip_prefix(PREFIX)?;
            let key = nested_key(inner)?;
            let schema = if schema["items"].is_object() { &schema["items"] } else { member(schema, key) };
            let (value, behind) = self.nested(inner, key, schema, depth + 1)?;
            children.push((key, value));
            rest = behind;
        }
    }
}

/// Elements inside of an element: a list by the schema or by their names, or an object.
fn collected(children: Vec<(&str, Value)>, schema: &Value) -> Value {
    let is_list = schema["type"] == "array" || children.iter().all(|(key, _)| *key == "item");
    if is_list {
        return Value::Array(children.into_iter().map(|(_, value)| value).collect());
    }
    let mut object = Map::new();
    for (key, value) in children {
        match object.get_mut(key) {
            None => {
                object.insert(key.to_owned(), value);
            }
            Some(Value::Array(list)) => list.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Value::Object(object)
}

/// The name in `<name>` at the beginning of `text`.
fn nested_key(text: &str) -> Option<&str> {
    let (key, _) = text.strip_prefix('<')?.split_once('>')?;
    let is_name = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    (is_name && key != "tool_call").then_some(key)
}

/// The text that was passed over before a call.
struct Passed<'t> {
    rest: &'t str,
    /// Set if a mark that opens a call was the last of the marks.
    is_open: bool,
    /// Set if a mark closed the calls before, and none opened others.
    is_closed: bool,
    is_command: bool,
    /// Says of the last mark that opened calls whether a name alone is one behind it: not where the mark is common elsewhere, or
    /// a list of the tools stands behind it.
    takes_names: Option<bool>,
}

/// Passes marks that open and close, and the punctuation between calls. `None` where the end of a value stands alone: the
/// value was not read to its end.
fn pass(text: &str, is_behind_call: bool) -> Option<Passed<'_>> {
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

fn name_end(text: &str) -> usize {
    text.find(|c: char| !(python::is_name(c) || matches!(c, ':' | '/'))).unwrap_or(text.len())
}

/// `text` without the word for the kind of the call before its name, as DeepSeek and Step write it.
fn without_kind(text: &str) -> &str {
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

fn without_separators(mut text: &str) -> (&str, bool) {
    let mut is_separated = false;
    let separates = |mark: &Mark| mark.role == Role::Separator || mark.tag == "content_invoke_tool_json";
    while let Some(mark) = mark(text).filter(separates) {
        text = text[mark.length..].trim_start();
        is_separated = true;
    }
    (text, is_separated)
}

/// `text` without the marks before a name, and without elements that say nothing about the call.
fn without_asides(mut text: &str) -> Option<&str> {
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
fn without_call_id(text: &str) -> &str {
    let id = text.strip_prefix("[CALL_ID]").map(|rest| rest.trim_start_matches(char::is_alphanumeric));
    id.map_or(text, str::trim_start)
}

/// The tag of a value, and the value, behind the name of an argument.
fn behind_key(mut text: &str) -> Option<(Mark, &str)> {
    let mut kind = None;
    loop {
        match mark(text) {
            Some(mut tag) if tag.role == Role::Raw => {
                let behind = &text[tag.length..];
                tag.attributes.extend(kind.map(|kind: &str| ("type".to_owned(), kind.into())));
                return Some((tag, behind));
            }
            // It may be doubled.
            Some(tag) if tag.role == Role::KeyEnd => text = text[tag.length..].trim_start(),
            Some(tag) if tag.role == Role::Aside => {
                let inner = &text[tag.length..];
                kind = Some(inner[..inner.find('<')?].trim());
                text = without_asides(text)?;
            }
            Some(_) => return None,
            None => {
                // The tag of the value is missing; its end tells which one.
                let at = text.match_indices("</").find(|(at, _)| mark(&text[*at..]).is_some())?.0;
                let end = mark(&text[at..]).filter(|end| end.role == Role::RawEnd)?;
                return Some((Mark { role: Role::Raw, ..end }, text));
            }
        }
    }
}

fn is_end(tag: &Mark, end: &Mark) -> bool {
    match (tag.role, end.role) {
        (Role::Argument, Role::ArgumentEnd) => tag.tag == end.tag && tag.is_token == end.is_token,
        // Tokens have different names.
        (Role::Raw, Role::RawEnd) => tag.is_token == end.is_token,
        _ => false,
    }
}

/// Returns whether a value may have ended before `text`.
fn continues(text: &str) -> bool {
    let text = text.trim_start();
    let is_next = |mark: Mark| {
        matches!(mark.role, Role::Argument | Role::Key | Role::Open | Role::Call | Role::Noise)
            || mark.closes()
    };
    text.is_empty() || text.starts_with(PREFIX) || mark(text).is_some_and(is_next)
}

/// Returns whether a value stands on lines of its own, as Qwen3-Coder writes all of a call. Seed-OSS writes them between
/// their tags; then every line end is the model's.
fn has_own_lines(value: &str, tag: &Mark) -> bool {
    !tag.is_token && value.starts_with('\n') && (tag.has_own_lines || value.ends_with('\n'))
}

/// A value without the line ends that belong to the format (`is_set_off`: as many as the other values of the call have, so that
/// what an edit replaces and what it puts there end alike), and without XML's quotation.
fn bare(value: &str, is_set_off: bool) -> &str {
    let value = match is_set_off {
        true => {
            let value = value.strip_prefix('\n').unwrap_or(value);
            value.strip_suffix('\n').unwrap_or(value)
        }
        false => value,
    };
    let quoted = value.trim().strip_prefix("<![CDATA[").and_then(|inner| inner.strip_suffix("]]>"));
    quoted.unwrap_or(value)
}

/// Returns what the tag of an argument says about its type.
fn is_text(tag: &Mark) -> Option<bool> {
    let attribute = |key: &str| tag.attributes.get(key).and_then(Value::as_str);
    match (attribute("string"), attribute("type")) {
        (Some(is_text), _) => Some(is_text == "true"),
        (None, Some("string" | "raw" | "str")) => Some(true),
        (None, Some(_)) => Some(false),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_calls::recover::{Recovered, RecoveredCall, recover};
    use agent_event::lenient_json;
    use serde_json::json;

    fn tools() -> Vec<ToolSpec> {
        let text = json!({ "type": "string" });
        let tool = |name: &str, properties: Value| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": properties }).into(),
        };
        vec![
            tool("run_commands", json!({ "command": text, "timeout_s": { "type": "integer" } })),
            tool("write_file", json!({ "path": text, "data": text })),
        ]
    }

    fn calls(text: &str) -> Option<Vec<(String, Value)>> {
        let Recovered { calls, .. } = recover(text, &tools(), false)?;
        let read = |call: RecoveredCall| (call.name, lenient_json::parse(&call.arguments).unwrap().0);
        Some(calls.into_iter().map(read).collect())
    }

    #[test]
    fn elements_and_assignments_are_calls() {
        let ls = || vec![("run_commands".to_owned(), json!({ "command": "ls" }))];
        let timed = || vec![("run_commands".to_owned(), json!({ "command": "12", "timeout_s": 5 }))];
        for (text, expected) in [
            (r#"<function name="run_commands" arguments='{"command": "ls"}'/>"#, ls()),
            (r#"<function name="run_commands" arguments="{"command": "ls"}"/>"#, ls()),
            (r#"<function name="run_commands" arguments="{&quot;command&quot;: &quot;ls&quot;}" />"#, ls()),
            (r#"<function name="run_commands" command="ls"/>"#, ls()),
            (r#"<function name="run_commands">{"command": "ls"}</function>"#, ls()),
            ("<invoke name=\"run_commands\">\n<parameter name=\"command\">ls</parameter>\n</invoke>", ls()),
            ("<tools>\nrun_commands command=\"ls\"\n</tools>", ls()),
            ("<tools>\nrun_commands(command='ls')\n</tools>", ls()),
            ("<tool_call>run_commands {\"command\": \"ls\"}</tool_call>", ls()),
            ("<tools>run_commands command=\"12\", timeout_s=5</tools>", timed()),
            (
                "<function=run_commands><parameter=command>12</parameter><parameter=timeout_s>5</parameter></function>",
                timed(),
            ),
            (
                "<tools>\nwrite_file path=a.txt data=\"one\\ntwo\"\nrun_commands command=\"ls\"\n</tools>",
                vec![
                    ("write_file".to_owned(), json!({ "path": "a.txt", "data": "one\ntwo" })),
                    ls().remove(0),
                ],
            ),
            (
                "<function=list_files>{\"path\": \".\"}</function>",
                vec![("list_files".to_owned(), json!({ "path": "." }))],
            ),
        ] {
            assert_eq!(calls(text).as_ref(), Some(&expected), "{text}");
        }
    }

    #[test]
    fn a_name_alone_is_a_call_behind_a_mark_of_calls_only() {
        let ping = || Some(vec![("run_commands".to_owned(), json!({}))]);
        for (text, expected) in [
            (r#"<tool_call>{"name": "run_commands"}</tool_call>"#, ping()),
            (r#"<tool_call>{"type": "function", "name": "run_commands"}</tool_call>"#, ping()),
            (r#"[TOOL_CALLS][{"name": "run_commands"}]"#, ping()),
        ] {
            assert_eq!(calls(text), expected, "{text}");
        }
        for text in [
            r#"<tools>[{"name": "run_commands"}]</tools>"#,
            r#"<tools>{"name": "run_commands"}</tools>"#,
            r#"<tool_call>{"name": "runCommands"}</tool_call>"#,
            r#"<tool_call>{"name": "run_commands", "type": "script"}</tool_call>"#,
            r#"<code>{"name": "run_commands"}</code>"#,
            r#"<calls>[{"name": "run_commands"}]</calls>"#,
        ] {
            let recovered = recover(text, &tools(), false).unwrap_or_default();
            let runs =
                |call: &RecoveredCall| call.arguments.parse().is_ok_and(|(value, _)| *value == json!({}));
            assert!(!recovered.calls.iter().any(runs), "{text}: {recovered:?}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_not_run_in_part() {
        for text in [
            "<tools>\nrun_commands command='it's here'\n</tools>",
            "<tools>\nrun_commands command=\"ls\nwrite_file path=\"a\"\n</tools>",
            r#"<function name="run_commands" arguments='{"command": "ls'/>"#,
        ] {
            let recovered = recover(text, &tools(), false).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(recovered.calls.len(), 1, "{text}");
            assert!(lenient_json::parse(&recovered.calls[0].arguments).is_err(), "{text}: {recovered:?}");
        }
        for text in ["<function is a word here>", "<invoke >", "```python\nmain()\n```", "```sh\nls\n```"] {
            assert_eq!(recover(text, &tools(), false), None, "{text}");
        }
    }
}
