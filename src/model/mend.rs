//! Arguments whose names are slightly off, put right by the tool's schema.
//!
//! `{"commands": ["ls"]}` for a tool that takes `{command}` means what it says. A name is put right only where a
//! required text is missing and what stands for it is certain.

use crate::event::ToolCall;
use crate::model::ToolSpec;
use crate::model::arguments;
use serde_json::{Map, Value};

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

/// Puts a call's arguments right where that is certain, and says what was done.
pub fn mend(call: &mut ToolCall, tools: &[ToolSpec]) -> Option<String> {
    let tool = tools.iter().find(|tool| tool.name == call.name)?;
    let (Value::Object(mut arguments), _) = arguments::parse(&call.arguments).ok()? else { return None };
    let notes: Vec<String> =
        required_texts(tool).filter_map(|name| mend_one(&mut arguments, name, tool)).collect();
    if notes.is_empty() {
        return None;
    }
    call.arguments = Value::Object(arguments).to_string();
    Some(format!("the model called {} with {}", tool.name, notes.join(" and ")))
}

/// The required parameters that are strings.
fn required_texts(tool: &ToolSpec) -> impl Iterator<Item = &str> {
    let required = tool.parameters["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    required
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| tool.parameters["properties"][*name]["type"] == "string")
}

fn mend_one(arguments: &mut Map<String, Value>, name: &str, tool: &ToolSpec) -> Option<String> {
    if let Some(given) = arguments.get(name) {
        let text = joined(given, name).filter(|_| given.is_array())?;
        arguments.insert(name.to_owned(), text.into());
        return Some(format!("a list as {name:?}, taken as one text"));
    }
    let other = stand_in(arguments, name, tool)?;
    let text = joined(arguments.get(&other)?, name)?;
    // In place of the other name, so that the order stays.
    let renamed = std::mem::take(arguments).into_iter().map(|(key, value)| match key == other {
        true => (name.to_owned(), Value::String(text.clone())),
        false => (key, value),
    });
    *arguments = renamed.collect();
    Some(format!("{other:?}, taken as {name:?}"))
}

/// The one argument that can stand for the missing `name`.
fn stand_in(arguments: &Map<String, Value>, name: &str, tool: &ToolSpec) -> Option<String> {
    let properties = &tool.parameters["properties"];
    let unknown = || arguments.keys().filter(|key| properties.get(key.as_str()).is_none());
    let aliases =
        ALIASES.iter().find(|(parameter, _)| *parameter == name).map_or(&[][..], |(_, aliases)| aliases);
    if let Some(alias) = unknown().find(|key| aliases.contains(&key.to_lowercase().as_str())) {
        return Some(alias.clone());
    }
    let missing = required_texts(tool).filter(|name| !arguments.contains_key(*name)).count();
    let mut unknown = unknown();
    let only = unknown.next().filter(|_| missing == 1)?;
    unknown.next().is_none().then(|| only.clone())
}

/// A text, or a list of texts that can be one: several commands run one after the other, several paths do not.
fn joined(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            match texts?.as_slice() {
                [] => None,
                [only] => Some((*only).to_owned()),
                several => (name == "command").then(|| several.join("\n")),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mended(name: &str, arguments: Value) -> Option<Value> {
        let text = json!({ "type": "string" });
        let tool = |name: &str, properties: Value, required: Value| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": properties, "required": required }),
        };
        let tools = [
            tool(
                "run_commands",
                json!({ "command": text, "timeout_s": { "type": "integer" } }),
                json!(["command"]),
            ),
            tool("write_file", json!({ "path": text, "data": text }), json!(["path", "data"])),
        ];
        let mut call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.to_string() };
        mend(&mut call, &tools).map(|_| serde_json::from_str(&call.arguments).unwrap())
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
            ("run_commands", json!({ "what_to_run": "ls" }), json!({ "command": "ls" })),
            ("write_file", json!({ "file_path": "a", "content": "b" }), json!({ "path": "a", "data": "b" })),
            ("write_file", json!({ "path": "a", "stuff": "b" }), json!({ "path": "a", "data": "b" })),
        ] {
            assert_eq!(mended(name, arguments), Some(expected));
        }
    }

    #[test]
    fn what_is_right_or_in_doubt_is_left_alone() {
        for (name, arguments) in [
            ("run_commands", json!({ "command": "ls", "commands": ["rm"] })),
            ("run_commands", json!({ "this": "ls", "that": "rm" })),
            ("run_commands", json!({ "commands": [1, 2] })),
            ("run_commands", json!({ "commands": [] })),
            ("run_commands", json!({})),
            ("write_file", json!({ "this": "a", "that": "b" })),
            ("write_file", json!({ "paths": ["a", "b"], "data": "c" })),
            ("unknown", json!({ "commands": ["ls"] })),
        ] {
            assert_eq!(mended(name, arguments.clone()), None, "{arguments}");
        }
    }
}
