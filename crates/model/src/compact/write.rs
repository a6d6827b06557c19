//! Writes the model's own messages as it writes them: one JSON object a line, with the spaces that the prompt's examples
//! have. Then the server finds what the model wrote in its cache, and the model keeps to one style.

use agent_event::ToolCall;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value, json};
use std::io::{Result, Write};

/// A message of the model as this form writes it.
pub fn written(text: &str, calls: &[ToolCall]) -> String {
    if calls.is_empty() {
        return object_line(&json!({ "tool": "answer", "text": text }));
    }
    let lines: Vec<String> = calls.iter().map(written_call).collect();
    lines.join("\n")
}

fn written_call(call: &ToolCall) -> String {
    let mut object = Map::from_iter([("tool".to_owned(), Value::from(call.name.as_str()))]);
    match call.arguments.object() {
        Some(arguments) => {
            for (name, value) in arguments {
                let name = if call.name == "write_file" && name == "data" { "content" } else { name };
                object.insert(name.to_owned(), value.clone());
            }
        }
        // It was not valid, and the model has read that in the result.
        None => drop(object.insert("arguments".to_owned(), call.arguments.as_str().into())),
    }
    object_line(&object.into())
}

/// JSON in one line with a space behind each comma and colon.
pub fn object_line(value: &Value) -> String {
    let mut line = Vec::new();
    match value.serialize(&mut Serializer::with_formatter(&mut line, Spaced)) {
        Ok(()) => String::from_utf8(line).unwrap_or_else(|_| value.to_string()),
        Err(_) => value.to_string(),
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;
    use crate::compact::{PROMPT, read};

    #[test]
    fn a_message_is_written_as_the_prompt_shows_it() {
        let registry = crate::compact::builtin_tools();
        let examples: Vec<&str> = PROMPT.lines().filter(|line| line.starts_with('{')).collect();
        assert!(examples.len() > 4);
        for example in examples {
            let mut reply = Reply { text: example.to_owned(), ..Reply::default() };
            read(&mut reply, &registry);
            assert_eq!(written(&reply.text, &reply.tool_calls), example);
        }
    }

    #[test]
    fn lists_have_spaces_as_well_and_texts_stay() {
        assert_eq!(
            object_line(&json!({ "a": [1, { "b": "x:y,z" }], "c": {} })),
            r#"{"a": [1, {"b": "x:y,z"}], "c": {}}"#
        );
    }
}
