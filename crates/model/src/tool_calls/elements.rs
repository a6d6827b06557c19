//! Calls and arguments that are written as elements: `<function=NAME><parameter=KEY>…`, and those of other formats.

use crate::ToolSpec;
use crate::tool_calls::asides::without_asides;
use crate::tool_calls::body::{Body, CallReader, MAX_ARGUMENTS};
use crate::tool_calls::coerce::member;
use crate::tool_calls::json_calls::{ARGUMENT_KEYS, known_or_invented, object_of};
use crate::tool_calls::marks::{Mark, PREFIX, Role, mark};
use crate::tool_calls::typed::{schema, typed, with_types};
use serde_json::{Map, Value};

/// Values inside of each other.
const MAX_DEPTH: usize = 16;

impl CallReader<'_> {
    /// The call of the element whose tag is at the beginning of `text`.
    pub fn element<'t>(&self, text: &'t str, tag: Mark) -> Option<Body<'t>> {
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
    pub fn arguments<'t>(
        &self,
        text: &'t str,
        tool: Option<&ToolSpec>,
    ) -> Option<(Map<String, Value>, &'t str)> {
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
    pub fn is_mistaken_key(&self, text: &str, tag: &Mark) -> bool {
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
