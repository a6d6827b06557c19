//! Reads what stands behind the mark of a call: JSON, a name with arguments in any form, elements, Python.
//!
//! Models mix the forms, so any body is read behind any mark. What cannot be read to its end is not a call.

use crate::ToolSpec;
use crate::tool_calls::asides::{
    name_end, pass, without_asides, without_call_id, without_kind, without_separators,
};
use crate::tool_calls::assignments::pairs;
use crate::tool_calls::json_calls::{ARGUMENT_KEYS, NAME_KEYS};
use crate::tool_calls::json_calls::{
    Call, Calls, balanced, calls_in, json_at, known_or_invented, name_alone, object_of,
};
use crate::tool_calls::marks::{Role, mark};
use crate::tool_calls::typed::with_types;
use crate::tool_calls::{braces, names, python};
use serde_json::{Map, Value};
use std::cell::Cell;

/// Arguments of one call that are read.
pub const MAX_ARGUMENTS: usize = 100;
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
pub type Body<'t> = (Calls, &'t str, bool);

impl<'a> CallReader<'a> {
    /// Counts work; `None` where there was too much of it.
    pub fn spend(&self, bytes: usize) -> Option<()> {
        let left = self.budget.get().checked_sub(bytes);
        self.budget.set(left.unwrap_or(0));
        left.map(|_| ())
    }

    pub fn tool(&self, name: &str) -> Option<&'a ToolSpec> {
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
    pub fn may_follow(&self, text: &str) -> bool {
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
