//! Repairs calls that are slightly wrong, by the names and schemas of the tools.
//!
//! `{"commands": ["ls"]}` for a tool that takes `{command}` means what it says. A name is put right only where a
//! required text is missing and what stands for it is certain, a value only where it can mean nothing else.

use crate::ToolSpec;
use crate::tool_calls::coerce::{coerced, is_type};
use crate::tool_calls::json_calls::{ARGUMENT_KEYS, NAME_KEYS};
use crate::tool_calls::{escapes, names};
use agent_event::ToolCall;
use serde_json::{Map, Value};

/// Repairs of one call that a notice lists; the others are like them.
const MOST_NOTES: usize = 5;
/// Bytes of a value that a notice quotes.
const LONGEST_SHOWN: usize = 32;

/// The built-in tools for files: what others mean by a path is theirs to say.
const FILE_TOOLS: [&str; 4] = ["read_file", "write_file", "write_files", "edit_file"];

/// Other names under which models send a parameter.
const ALIASES: &[(&str, &[&str])] = &[
    ("command", &["commands", "cmd", "cmds", "script", "shell_command", "bash_command", "code", "input"]),
    (
        "path",
        &["file_path", "filepath", "file", "filename", "file_name", "relative_path", "target_file", "paths"],
    ),
    ("data", &["content", "contents", "text", "body", "file_content", "file_text"]),
    ("old", &["old_string", "old_str", "old_text", "search"]),
    ("new", &["new_string", "new_str", "new_text", "replace", "replacement"]),
];

/// Puts a call right where that is certain, and says what was done.
pub fn repair(call: &mut ToolCall, tools: &[ToolSpec], is_cut_off: bool) -> Option<String> {
    let tool = names::meant(&call.name, tools)?;
    let mut notes = Vec::new();
    if call.name != tool.name {
        notes.push(format!("{} as its name", shown(&Value::from(call.name.as_str()))));
        call.name.clone_from(&tool.name);
    }
    if let Some((arguments, done)) = repaired(call, tool, is_cut_off) {
        call.arguments = Value::Object(arguments).into();
        notes.extend(done);
    }
    (!notes.is_empty()).then(|| format!("the model called {} with {}", tool.name, notes.join(" and ")))
}

/// The arguments put right, and what was done. Those that were cut off are left as they are.
fn repaired(call: &ToolCall, tool: &ToolSpec, is_cut_off: bool) -> Option<(Map<String, Value>, Vec<String>)> {
    let (value, repaired) = call.arguments.parse().ok()?;
    let mut notes = Vec::new();
    let mut arguments = match value {
        _ if repaired && is_cut_off => return None,
        Value::Object(object) => object.clone(),
        Value::Array(list) if list.len() == 1 => {
            notes.push("a list of one as its arguments".to_owned());
            list[0].as_object()?.clone()
        }
        _ => return None,
    };
    let mut calls = 0;
    while let Some(inner) = unwrapped(&arguments, tool) {
        (arguments, calls) = (inner, calls + 1);
    }
    if calls > 0 {
        notes.push("a whole call as its arguments".to_owned());
    }
    if let Some(values) = values_in_schema(&arguments, tool) {
        notes.push("its schema around the values".to_owned());
        arguments = values;
    }
    repair_object(&mut arguments, &tool.parameters, &mut notes);
    if FILE_TOOLS.contains(&tool.name.as_str()) {
        trim_paths(&mut arguments, &mut notes);
    }
    if tool.name == "write_file" {
        unescape_program(&mut arguments, &mut notes);
    }
    // Repaired ones are kept as they were read: they go back to the endpoint, which has to read them as well.
    (repaired || !notes.is_empty()).then_some((arguments, notes))
}

/// Returns what is inside of `{"arguments": {…}}`, also as a text, beside which the tool's name may stand.
fn unwrapped(object: &Map<String, Value>, tool: &ToolSpec) -> Option<Map<String, Value>> {
    let names_tool = |key: &str, value: &Value| {
        NAME_KEYS.contains(&key) && value.as_str().is_some_and(|name| name == tool.name)
    };
    let (key, inner) = object.iter().find(|(key, value)| !names_tool(key, value))?;
    let is_all = object.iter().all(|(other, value)| other == key || names_tool(other, value));
    let is_wrapper =
        ARGUMENT_KEYS.contains(&key.as_str()) && tool.parameters["properties"].get(key).is_none();
    match inner {
        _ if !is_all || !is_wrapper => None,
        Value::Object(object) => Some(object.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// The values of `{"type": "object", "properties": {"command": "ls"}}`, a copy of the schema that was filled in.
fn values_in_schema(object: &Map<String, Value>, tool: &ToolSpec) -> Option<Map<String, Value>> {
    let schema = tool.parameters["properties"].as_object()?;
    let filled = object.get("properties").filter(|_| !schema.contains_key("properties"))?.as_object()?;
    let value = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::Object(described) => {
                ["value", "const", "default"].iter().find_map(|key| described.get(*key))?
            }
            value => value,
        };
        schema.contains_key(name).then(|| (name.clone(), value.clone()))
    };
    filled.iter().map(value).collect::<Option<Map<_, _>>>().filter(|values| !values.is_empty())
}

fn repair_object(arguments: &mut Map<String, Value>, schema: &Value, notes: &mut Vec<String>) {
    let mut note = |text: String| {
        if notes.len() < MOST_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    };
    for name in required_texts(schema) {
        if let Some(text) = repair_name(arguments, name, schema) {
            note(text);
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let Some(value) = arguments.get_mut(name) else { continue };
        if let Some(better) = coerced(value, property) {
            note(format!("{} as {name:?}, taken as {}", shown(value), shown(&better)));
            *value = better;
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(Value::Array(list)) = arguments.get_mut(name).filter(|_| property["items"].is_object()) {
            let objects = list.iter_mut().filter_map(Value::as_object_mut);
            objects.for_each(|object| repair_object(object, &property["items"], notes));
        }
    }
}

/// Takes the line ends around the paths of files off, which formats with tags leave there.
fn trim_paths(arguments: &mut Map<String, Value>, notes: &mut Vec<String>) {
    let mut trim = |path: &mut Value| {
        let bare = path.as_str().map(|text| text.trim_matches(['\n', '\r'])).filter(|bare| !bare.is_empty());
        let Some(bare) = bare.map(Value::from).filter(|bare| bare != path) else { return };
        let note = format!("{} as \"path\", taken as {}", shown(path), shown(&bare));
        if notes.len() < MOST_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
        *path = bare;
    };
    for (name, value) in arguments {
        match name.as_str() {
            "path" => trim(value),
            "files" => {
                let files = value.as_array_mut().into_iter().flatten();
                files.filter_map(|file| file.get_mut("path")).for_each(&mut trim);
            }
            _ => {}
        }
    }
}

/// Puts the text of a program right that was escaped once too often.
fn unescape_program(arguments: &mut Map<String, Value>, notes: &mut Vec<String>) {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let Some(meant) = text("path").zip(text("data")).and_then(|(path, data)| escapes::meant(path, data))
    else {
        return;
    };
    notes.push("a program that was escaped twice".to_owned());
    arguments.insert("data".to_owned(), meant.into());
}

/// A value in a notice.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "nothing".to_owned(),
        short if short.to_string().len() <= LONGEST_SHOWN => short.to_string(),
        _ => "a text".to_owned(),
    }
}

/// The required parameters that are strings.
fn required_texts(schema: &Value) -> impl Iterator<Item = &str> {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = required.iter().filter_map(Value::as_str);
    names.filter(|name| is_type(&schema["properties"][*name], "string"))
}

fn repair_name(arguments: &mut Map<String, Value>, name: &str, schema: &Value) -> Option<String> {
    if let Some(given) = arguments.get(name) {
        let text = joined(given, name, name).filter(|_| given.is_array())?;
        arguments.insert(name.to_owned(), text.into());
        return Some(format!("a list as {name:?}, taken as one text"));
    }
    let other = stand_in(arguments, name, schema)?;
    let text = joined(arguments.get(&other)?, name, &other)?;
    // In place of the other name, so that the order stays.
    let renamed = std::mem::take(arguments).into_iter().map(|(key, value)| match key == other {
        true => (name.to_owned(), Value::String(text.clone())),
        false => (key, value),
    });
    *arguments = renamed.collect();
    Some(format!("{other:?}, taken as {name:?}"))
}

/// The argument that stands for the missing `name`. Only names that are known to: any other may be an explanation.
fn stand_in(arguments: &Map<String, Value>, name: &str, schema: &Value) -> Option<String> {
    let (_, aliases) = ALIASES.iter().find(|(parameter, _)| *parameter == name)?;
    let mut unknown = arguments.keys().filter(|key| schema["properties"].get(key.as_str()).is_none());
    unknown.find(|key| aliases.contains(&key.to_lowercase().as_str())).cloned()
}

/// A text, or a list of texts that can be one. Several commands can; several paths cannot.
fn joined(value: &Value, name: &str, given_as: &str) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            match texts?.as_slice() {
                [] => None,
                [only] => Some((*only).to_owned()),
                several if name == "command" => command(several, given_as.ends_with('s')),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A list as one command: the lines of a script, or the words of one program's call. `None` where it may be either.
fn command(texts: &[&str], is_plural: bool) -> Option<String> {
    let is_word = |text: &str| !text.contains(char::is_whitespace);
    let (first, rest) = texts.split_first()?;
    let has_option = rest.first().is_some_and(|second| second.starts_with('-'));
    if !is_word(first) || is_plural && !has_option {
        return Some(texts.join("\n"));
    }
    // `["ls", "cat a"]` are two commands, `["echo", "two words"]` is one.
    let is_clear = has_option || rest.iter().all(|text| is_word(text));
    // Words that only a shell understands do not belong to a program's call.
    let is_operator = |text: &&str| {
        text.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['|', '&', ';', '<', '>'])
    };
    (is_clear && !texts.iter().any(is_operator)).then(|| shell_words::join(texts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tools() -> [ToolSpec; 2] {
        let text = json!({ "type": "string" });
        let tool = |name: &str, properties: Value, required: Value| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": properties, "required": required }).into(),
        };
        [
            tool(
                "run_commands",
                json!({ "command": text, "timeout_s": { "type": "integer" } }),
                json!(["command"]),
            ),
            tool("write_file", json!({ "path": text, "data": text }), json!(["path", "data"])),
        ]
    }

    fn fixed(name: &str, arguments: Value) -> Option<Value> {
        let mut call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() };
        repair(&mut call, &tools(), false).map(|_| call.arguments.json().unwrap().clone())
    }

    #[test]
    fn names_that_are_slightly_off() {
        for (name, arguments, expected) in [
            ("run_commands", json!({ "commands": ["ls"] }), json!({ "command": "ls" })),
            ("run_commands", json!({ "commands": ["cd src", "ls"] }), json!({ "command": "cd src\nls" })),
            (
                "run_commands",
                json!({ "cmd": "ls", "timeout_s": 5 }),
                json!({ "command": "ls", "timeout_s": 5 }),
            ),
            ("run_commands", json!({ "command": ["ls"] }), json!({ "command": "ls" })),
            ("run_commands", json!({ "command": ["ls", "-l", "a b"] }), json!({ "command": "ls -l 'a b'" })),
            ("run_commands", json!({ "command": ["git", "status"] }), json!({ "command": "git status" })),
            (
                "run_commands",
                json!({ "cmd": ["bash", "-c", "a && b"] }),
                json!({ "command": "bash -c 'a && b'" }),
            ),
            ("run_commands", json!({ "commands": ["ls", "-l"] }), json!({ "command": "ls -l" })),
            ("run_commands", json!({ "commands": ["ls", "pwd"] }), json!({ "command": "ls\npwd" })),
            ("run_commands", json!([{ "command": "ls" }]), json!({ "command": "ls" })),
            ("run_commands", json!({ "input": { "cmd": "ls" } }), json!({ "command": "ls" })),
            (
                "run_commands",
                json!({ "name": "run_commands", "arguments": { "command": "ls" } }),
                json!({ "command": "ls" }),
            ),
            (
                "functions.run_commands",
                json!({ "command": "ls", "timeout_s": "5" }),
                json!({ "command": "ls", "timeout_s": 5 }),
            ),
            ("run_commands", json!({ "Script": "ls" }), json!({ "command": "ls" })),
            (
                "run_commands",
                json!({ "type": "object", "properties": { "command": "ls" }, "required": ["command"] }),
                json!({ "command": "ls" }),
            ),
            (
                "run_commands",
                json!({ "properties": { "command": { "type": "string", "value": "ls" } } }),
                json!({ "command": "ls" }),
            ),
            ("run_commands", json!({ "arguments": "{\"command\": \"ls\"}" }), json!({ "command": "ls" })),
            ("write_file", json!({ "file_path": "a", "content": "b" }), json!({ "path": "a", "data": "b" })),
            ("write_file", json!({ "path": "a", "text": "b" }), json!({ "path": "a", "data": "b" })),
            (
                "write_file",
                json!({ "path": "\na b\n", "data": "b\n" }),
                json!({ "path": "a b", "data": "b\n" }),
            ),
        ] {
            assert_eq!(fixed(name, arguments), Some(expected));
        }
    }

    #[test]
    fn what_is_right_or_in_doubt_is_left_alone() {
        for (name, arguments) in [
            ("run_commands", json!({ "command": "ls", "commands": ["rm"] })),
            ("run_commands", json!({ "this": "ls", "that": "rm" })),
            ("run_commands", json!({ "description": "rm main.rs" })),
            ("run_commands", json!({ "arguments": "ls" })),
            ("write_file", json!({ "path": "a", "description": "Rewrites the parser" })),
            ("run_commands", json!({ "commands": [1, 2] })),
            ("run_commands", json!({ "commands": [] })),
            ("run_commands", json!({})),
            ("run_commands", json!({ "command": ["ls", "cat a"] })),
            ("run_commands", json!({ "command": ["ls", "-l", "|", "wc"] })),
            ("run_commands", json!({ "command": ["make", "2>&1"] })),
            ("run_commands", json!([{ "command": "ls" }, { "command": "pwd" }])),
            ("run_commands", json!({ "name": "write_file", "arguments": { "path": "a", "data": "b" } })),
            ("write_file", json!({ "this": "a", "that": "b" })),
            ("run_commands", json!({ "type": "object", "properties": { "command": { "type": "string" } } })),
            ("write_file", json!({ "paths": ["a", "b"], "data": "c" })),
            ("unknown", json!({ "commands": ["ls"] })),
            ("write_file", json!({ "path": " it's 'a' file", "data": "b" })),
            ("write_file", json!({ "path": "a\nb", "data": "b" })),
            ("write_file", json!({ "path": "'a' and 'b'", "data": "b" })),
            ("write_file", json!({ "path": "`a.rs`", "data": "`b`" })),
        ] {
            assert_eq!(fixed(name, arguments.clone()), None, "{arguments}");
        }
    }

    /// Bugs: a file whose name has quotation marks could not be named, and a program in `path` of an MCP tool was changed.
    #[test]
    fn the_path_of_another_tool_is_what_it_is() {
        let parameters = json!({ "properties": { "path": { "type": "string" } }, "required": ["path"] });
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: parameters.clone().into(),
        };
        for path in ["\"name\"", "'x'", "`a`", "\n.a\n"] {
            let arguments = json!({ "path": path }).into();
            let mut call = ToolCall { id: "1".into(), name: "mcp__jq__query".into(), arguments };
            assert_eq!(repair(&mut call, &[tool("mcp__jq__query")], false), None, "{path}");
            assert_eq!(call.arguments.text("path"), Some(path));
        }
    }

    #[test]
    fn what_lists_hold_is_put_right_and_reported_once() {
        let item =
            json!({ "type": "object", "required": ["path"], "properties": { "path": { "type": "string" } } });
        let files = json!({ "files": { "type": "array", "items": item } });
        let parameters = json!({ "type": "object", "properties": files, "required": ["files"] });
        let tools = [ToolSpec {
            name: "write_files".into(),
            description: String::new(),
            parameters: parameters.into(),
        }];
        let arguments = r#"{"files": "[{\"file\": \"a\"}, {\"file\": \"b\"}]"}"#.into();
        let mut call = ToolCall { id: "1".into(), name: "write_files".into(), arguments };
        let note = repair(&mut call, &tools, false).unwrap();
        assert_eq!(call.arguments.as_str(), r#"{"files":[{"path":"a"},{"path":"b"}]}"#);
        let expected = "the model called write_files with a text as \"files\", taken as a list and \"file\", taken as \"path\"";
        assert_eq!(note, expected);
    }

    proptest! {
        #[test]
        fn a_repair_is_final_and_changes_nothing_that_fits(
            keys in proptest::collection::vec("(command|commands|cmd|path|file|data|content|text|properties|arguments|name|x)", 0..4),
            values in proptest::collection::vec(value(), 4),
            name in "(run_commands|write_file|functions.write_file|Write-File|other)",
        ) {
            let arguments: Map<String, Value> = keys.into_iter().zip(values).collect();
            let before = Value::Object(arguments);
            let mut call = ToolCall { id: "1".into(), name, arguments: before.to_string().into() };
            let note = repair(&mut call, &tools(), false);
            let after: Value = serde_json::from_str(&call.arguments).unwrap();
            prop_assert!(note.is_some() || after == before, "{before} became {after} without a notice");
            // What was repaired needs no further repair.
            let again = call.arguments.clone();
            prop_assert_eq!(repair(&mut call, &tools(), false), None);
            prop_assert_eq!(again, call.arguments);
        }

        #[test]
        fn no_text_is_lost_or_invented(text in "[a-z \\n'\"{}\\\\]{0,30}", alias in "(content|contents|text|body)") {
            let arguments = json!({ "path": "a", alias: text });
            let mut call = ToolCall { id: "1".into(), name: "write_file".into(), arguments: arguments.to_string().into() };
            repair(&mut call, &tools(), false);
            let after: Value = serde_json::from_str(&call.arguments).unwrap();
            prop_assert_eq!(after, json!({ "path": "a", "data": text }));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            "[a-z -]{0,8}".prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("(command|data|path|arguments|properties)", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn a_program_that_was_escaped_twice_is_written_as_it_was_meant() {
        // Small models write the docstrings of Python like this, and each such file was a syntax error.
        let sent = json!({ "path": "a.py", "content": "def f():\\n    \\\"\\\"\\\"One.\\\"\\\"\\\"\\n" });
        let written = json!({ "path": "a.py", "data": "def f():\n    \"\"\"One.\"\"\"\n" });
        assert_eq!(fixed("write_file", sent), Some(written));
    }

    #[test]
    fn what_was_cut_off_is_not_put_right() {
        let parameters =
            json!({ "properties": { "command": { "type": "string" } }, "required": ["command"] });
        let tools = [ToolSpec {
            name: "run_commands".into(),
            description: String::new(),
            parameters: parameters.into(),
        }];
        let arguments = r#"{"cmd": "ls""#.into();
        let mut call = ToolCall { id: "1".into(), name: "run_commands".into(), arguments };
        assert_eq!(repair(&mut call, &tools, true), None);
        assert!(repair(&mut call, &tools, false).is_some());
    }
}
