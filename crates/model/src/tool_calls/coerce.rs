//! Values whose type is slightly off, put right by the schema: `"5"` for a number says what it means.

use serde_json::{Number, Value};

/// `value` in the type that `schema` wants, where it can mean nothing else; `None` where it is right, or in doubt.
pub fn coerced(value: &Value, schema: &Value) -> Option<Value> {
    let wants = |name: &str| is_type(schema, name);
    match value {
        Value::String(_) if wants("string") => None,
        Value::String(text) => of_text(text.trim(), schema),
        Value::Number(number) if wants("integer") && !wants("number") => whole(number),
        // A fraction may have been written with digits that are lost by now.
        Value::Number(number) if wants("string") && !number.is_f64() => Some(number.to_string().into()),
        Value::Bool(_) if wants("string") => Some(value.to_string().into()),
        Value::Object(_) if wants("array") && is_type(&schema["items"], "object") => {
            Some(Value::Array(vec![value.clone()]))
        }
        _ => None,
    }
}

/// Returns what a text says that stands for something else.
pub fn of_text(text: &str, schema: &Value) -> Option<Value> {
    let says = |word: &str| text.eq_ignore_ascii_case(word);
    if is_type(schema, "null") && (text.is_empty() || says("null") || says("none")) {
        return Some(Value::Null);
    }
    if is_type(schema, "boolean") && (says("true") || says("false")) {
        return Some(Value::Bool(says("true")));
    }
    if is_type(schema, "integer")
        && let Ok(whole) = text.parse::<i64>()
    {
        // JSON has no zeros in front.
        return Some(whole.into());
    }
    let value = serde_json::from_str(text).ok()?;
    match &value {
        Value::Number(number) if is_type(schema, "integer") => match number.is_f64() {
            true => whole(number),
            false => Some(value),
        },
        Value::Number(_) if is_type(schema, "number") => Some(value),
        Value::Array(_) if is_type(schema, "array") => Some(value),
        Value::Object(_) if is_type(schema, "object") => Some(value),
        Value::Object(_) => coerced(&value, schema),
        _ => None,
    }
}

/// `5` for `5.0`; `None` for a fraction, and for what is whole already.
fn whole(number: &Number) -> Option<Value> {
    /// Up to here every whole number is exactly one float.
    const EXACT: f64 = (1u64 << 53) as f64;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    (float.fract() == 0.0 && float.abs() <= EXACT).then(|| Value::from(float as i64))
}

/// Returns whether a schema takes values of that type, by itself or by one of its alternatives.
pub fn is_type(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(several) => several.iter().any(|one| one == name),
        _ => alternatives(schema).any(|one| is_type(one, name)),
    }
}

/// Returns whether a schema says of which type its values are.
pub fn has_type(schema: &Value) -> bool {
    !schema["type"].is_null() || alternatives(schema).any(has_type)
}

/// Returns whether an alternative stands elsewhere, so that nothing is known of its type.
pub fn has_reference(schema: &Value) -> bool {
    alternatives(schema).any(|one| one.get("$ref").is_some() || has_reference(one))
}

/// The schemas, or alternatives of one, for a member of an object.
pub fn member<'a>(schema: &'a Value, name: &str) -> &'a Value {
    let of = |schema: &'a Value| Some(&schema["properties"][name]).filter(|member| !member.is_null());
    of(schema).or_else(|| alternatives(schema).find_map(of)).unwrap_or(&Value::Null)
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let keys = ["anyOf", "oneOf", "allOf"];
    keys.into_iter().filter_map(|key| schema[key].as_array()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_can_mean_one_thing_only_is_taken_as_that() {
        let files = json!({ "type": "array", "items": { "type": "object" } });
        let integer = json!({ "type": ["integer", "null"] });
        for (value, schema, expected) in [
            (json!("5"), integer.clone(), json!(5)),
            (json!(" 5.0 "), integer.clone(), json!(5)),
            (json!("007"), integer.clone(), json!(7)),
            (json!("5"), json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), json!(5)),
            (json!(1.0), integer.clone(), json!(1)),
            (json!(-1.0), integer.clone(), json!(-1)),
            (json!(""), integer.clone(), json!(null)),
            (json!("None"), integer, json!(null)),
            (json!("0.5"), json!({ "type": ["number", "null"] }), json!(0.5)),
            (json!("False"), json!({ "type": ["boolean", "null"] }), json!(false)),
            (json!(42), json!({ "type": "string" }), json!("42")),
            (json!(true), json!({ "type": "string" }), json!("true")),
            (json!({ "path": "a" }), files.clone(), json!([{ "path": "a" }])),
            (json!("[{\"path\": \"a\"}]"), files.clone(), json!([{ "path": "a" }])),
            (json!("{\"path\": \"a\"}"), files, json!([{ "path": "a" }])),
        ] {
            assert_eq!(coerced(&value, &schema), Some(expected), "{value}");
        }
    }

    #[test]
    fn what_is_right_or_in_doubt_stays() {
        for (value, kind) in [
            (json!("5"), "string"),
            (json!(5), "integer"),
            (json!(1.5), "integer"),
            (json!(1e300), "integer"),
            (json!(1.5), "number"),
            (json!("five"), "integer"),
            (json!("5 s"), "number"),
            (json!(1), "boolean"),
            (json!("yes"), "boolean"),
            (json!(1.10), "string"),
            (json!(null), "string"),
            (json!({ "a": 1 }), "string"),
            (json!("a"), "array"),
        ] {
            assert_eq!(coerced(&value, &json!({ "type": kind })), None, "{value} as {kind}");
        }
    }
}
