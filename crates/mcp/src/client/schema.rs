//! The JSON Schema of a tool's arguments as a server sends it: reduced to what every endpoint takes, because one that is refused would
//! refuse the whole conversation.

use agent_base::secret_scan;
use agent_base::visible::without_tags;
use serde_json::{Map, Value, json};

/// The greatest depth of a schema.
const MAX_DEPTH: usize = 16;
/// The greatest number of schemas that it may consist of.
const MAX_SCHEMAS: usize = 2_000;
/// The longest text in it, in bytes.
const MAX_TEXT: usize = 2_000;
/// The largest schema, in bytes.
const MAX_BYTES: usize = 32 << 10;
/// Values of an `enum`.
const MAX_VALUES: usize = 500;

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
/// Keywords whose value is a number.
const NUMBERS: [&str; 9] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];
/// Keywords whose value is a text.
const TEXTS: [&str; 4] = ["title", "description", "format", "pattern"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Keywords whose value is schemas by name.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];

/// The schema of an object. What is not a schema, or too large, becomes one that takes any object.
pub fn of_arguments(schema: &Value) -> Value {
    let any = || json!({ "type": "object", "properties": {} });
    let Value::Object(mut schema) = clean(schema, MAX_DEPTH, &mut 0) else { return any() };
    schema.insert("type".to_owned(), "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    let schema = Value::Object(schema);
    if schema.to_string().len() > MAX_BYTES { any() } else { schema }
}

/// A schema without what is not one.
fn clean(schema: &Value, depth: usize, count: &mut usize) -> Value {
    *count += 1;
    let Value::Object(given) = schema else { return json!({}) };
    if depth == 0 || *count > MAX_SCHEMAS {
        return json!({});
    }
    let mut kept = Map::new();
    for (key, value) in given {
        let value = match (key.as_str(), value) {
            ("type", value) => types(value),
            (key, Value::String(text)) if TEXTS.contains(&key) => Some(cut(text).into()),
            (key, Value::Number(_)) if NUMBERS.contains(&key) => Some(value.clone()),
            ("uniqueItems" | "additionalProperties", Value::Bool(_)) => Some(value.clone()),
            ("items" | "additionalProperties", Value::Object(_)) => Some(clean(value, depth - 1, count)),
            ("$ref", Value::String(target)) if target.starts_with("#/") => Some(cut(target).into()),
            ("required", Value::Array(names)) => {
                Some(names.iter().filter(|name| name.is_string()).take(MAX_VALUES).map(harmless).collect())
            }
            ("enum", Value::Array(values)) if !values.is_empty() => {
                Some(values.iter().filter(|value| is_plain(value)).take(MAX_VALUES).map(harmless).collect())
            }
            ("const" | "default", value) if is_plain(value) => Some(harmless(value)),
            (key, Value::Array(schemas)) if LISTS.contains(&key) && !schemas.is_empty() => {
                Some(schemas.iter().take(MAX_VALUES).map(|schema| clean(schema, depth - 1, count)).collect())
            }
            (key, Value::Object(schemas)) if NAMED.contains(&key) => {
                let named = schemas.iter().take(MAX_VALUES);
                Some(Value::Object(
                    named.map(|(name, schema)| (cut(name), clean(schema, depth - 1, count))).collect(),
                ))
            }
            _ => None,
        };
        if let Some(value) = value {
            kept.insert(key.clone(), value);
        }
    }
    Value::Object(kept)
}

fn types(value: &Value) -> Option<Value> {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(types) if !types.is_empty() && types.iter().all(is_type) => Some(value.clone()),
        value => is_type(value).then(|| value.clone()),
    }
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_TEXT,
        value => !value.is_array() && !value.is_object(),
    }
}

/// A plain value, of which a text is as [`cut`] makes it.
fn harmless(value: &Value) -> Value {
    value.as_str().map_or_else(|| value.clone(), |text| cut(text).into())
}

/// A text of the schema, without keys and without what a model reads and a user does not see, and no longer than allowed. It is sent with
/// every request, whatever the user's settings are.
fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = without_tags(text[..end].to_owned());
    secret_scan::redact(&text).map_or(text, |redacted| redacted.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_a_schema_stays() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "Where", "minLength": 1 },
                "mode": { "enum": ["a", "b", null], "default": "a" },
                "lines": { "type": ["array", "null"], "items": { "$ref": "#/$defs/Line" } },
            },
            "required": ["path"],
            "additionalProperties": false,
            "$defs": { "Line": { "anyOf": [{ "type": "integer" }, { "type": "string" }] } },
        });
        assert_eq!(of_arguments(&schema), schema);
    }

    /// A key in the description of an argument, and tags in its name and values, reached the endpoint.
    #[test]
    fn no_text_of_it_holds_keys_or_tags() {
        let key = format!("ghp_{}", "aB3dE5fG7hJ9".repeat(3));
        let tag = "\u{e0043}";
        let text = format!("x{tag} MY_{key}");
        let schema = json!({
            "title": text,
            "properties": { &text: { "description": text, "enum": [text], "default": text, "const": text, "pattern": text } },
            "required": [text],
            "$defs": { &text: { "anyOf": [{ "title": text }] } },
        });
        let sent = of_arguments(&schema).to_string();
        assert!(!sent.contains(&key) && !sent.contains(tag), "{sent}");
        assert_eq!(sent.matches("[secret: GitHub token]").count(), 10, "{sent}");
    }

    #[test]
    fn what_is_not_one_is_left_out() {
        let any = json!({ "type": "object", "properties": {} });
        for schema in
            [json!(null), json!("object"), json!([1]), json!({ "type": "string" }), json!({ "type": 7 })]
        {
            assert_eq!(of_arguments(&schema), any, "{schema}");
        }
        let odd = json!({
            "type": "object",
            "properties": { "a": 7, "b": { "type": "strin", "$ref": "https://evil.example/x" } },
            "required": "a",
            "$schema": "https://evil.example/schema",
        });
        assert_eq!(of_arguments(&odd), json!({ "type": "object", "properties": { "a": {}, "b": {} } }));
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({ "items": deep });
        }
        assert!(of_arguments(&deep).to_string().len() < 400);
        let wide = json!({ "properties": { "a": { "description": "x".repeat(1_900) }, "b": { "enum": vec!["y".repeat(1_000); 400] } } });
        assert_eq!(of_arguments(&wide), any);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z$]{0,8}".prop_map(Value::from)
        ];
        let key = prop_oneof![
            Just("properties".to_owned()),
            Just("items".to_owned()),
            Just("type".to_owned()),
            Just("anyOf".to_owned()),
            "[a-z]{0,5}"
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_a_server_sends_becomes_a_valid_schema_of_an_object(value in any_json()) {
            let schema = of_arguments(&value);
            prop_assert_eq!(&schema["type"], "object");
            prop_assert!(schema["properties"].is_object());
            prop_assert!(jsonschema::meta::is_valid(&schema), "{}", schema);
        }
    }
}
