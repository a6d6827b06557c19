//! Values that a format writes as plain text, in the type that the tool's schema says.

use crate::ToolSpec;
use crate::tool_calls::coerce::{coerced, has_reference, has_type, is_type, of_text};
use agent_event::lenient_json;
use serde_json::{Map, Value};

/// References of a schema that are followed.
const MAX_REFERENCES: usize = 8;

/// The schema of a parameter, also where it stands elsewhere in that of the tool; null where nothing is said of it.
pub fn schema<'a>(tool: Option<&'a ToolSpec>, name: &str) -> &'a Value {
    let Some(tool) = tool else { return &Value::Null };
    let mut schema = &tool.parameters["properties"][name];
    for _ in 0..MAX_REFERENCES {
        let place = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
        let Some(place) = place else { break };
        schema = tool.parameters.pointer(place).unwrap_or(&Value::Null);
    }
    schema
}

/// `text` as the schema wants it. `is_text` is what the format itself says, where it does.
pub fn typed(text: &str, schema: &Value, is_text: Option<bool>) -> Value {
    let takes_text = !has_type(schema) || is_type(schema, "string") || has_reference(schema);
    match is_text {
        Some(true) if takes_text => return text.into(),
        None if takes_text => return other_than_text(text, schema).unwrap_or_else(|| text.into()),
        // The only type that is taken is meant, whatever the format says.
        Some(false)
            if takes_text && text.trim() == "null" && !is_type(schema, "null") && has_type(schema) =>
        {
            return text.into();
        }
        _ => {}
    }
    let given = Value::String(text.to_owned());
    let json = || lenient_json::parse(text.trim()).ok().map(|(value, _)| value);
    // Models have been seen to escape JSON as for a text.
    let escaped = || {
        let inner: String = serde_json::from_str(&format!("\"{}\"", text.trim())).ok()?;
        of_text(&inner, schema)
    };
    coerced(&given, schema)
        .or_else(|| json().filter(|_| !text.trim().is_empty()))
        .or_else(escaped)
        .unwrap_or(given)
}

/// Null, a list or an object, where a schema takes it beside text.
fn other_than_text(text: &str, schema: &Value) -> Option<Value> {
    let value = of_text(text.trim(), schema)
        .filter(|_| text.trim() == "null" || text.trim().starts_with(['{', '[']))?;
    let is_taken = value.is_null() || is_type(schema, if value.is_array() { "array" } else { "object" });
    is_taken.then_some(value)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_may_be_text_elsewhere_in_the_schema_stays_text() {
        let reference = json!({ "anyOf": [{ "$ref": "#/$defs/E" }, { "type": "null" }] });
        assert_eq!(typed("1", &reference, None), "1");
        assert_eq!(typed("null", &reference, None), Value::Null);
        let number = json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] });
        assert_eq!(typed("1", &number, None), 1);
    }
}
