//! Values that a format writes as plain text, in the type that the tool's schema says.

use crate::ToolSpec;
use crate::tool_calls::coerce::{coerced, is_type};
use agent_event::lenient_json;
use serde_json::{Map, Value};

/// The schema of a parameter; null where nothing is said of it.
pub fn schema<'a>(tool: Option<&'a ToolSpec>, name: &str) -> &'a Value {
    tool.map_or(&Value::Null, |tool| &tool.parameters["properties"][name])
}

/// `text` as the schema wants it. `is_text` is what the format itself says, where it does.
pub fn typed(text: &str, schema: &Value, is_text: Option<bool>) -> Value {
    let takes_text = schema["type"].is_null() || is_type(schema, "string");
    match is_text {
        Some(true) => return text.into(),
        None if takes_text => return text.into(),
        _ => {}
    }
    let given = Value::String(text.to_owned());
    let json = || lenient_json::parse(text.trim()).ok().map(|(value, _)| value);
    coerced(&given, schema).or_else(|| json().filter(|_| !text.trim().is_empty())).unwrap_or(given)
}

/// The same for values that are not texts already.
pub fn with_types(pairs: Map<String, Value>, tool: Option<&ToolSpec>) -> Map<String, Value> {
    let typed = |(name, value): (String, Value)| {
        let value = match &value {
            Value::String(text) => typed(text, schema(tool, &name), None),
            _ => value,
        };
        (name, value)
    };
    pairs.into_iter().map(typed).collect()
}
