//! Puts together, from the pieces of a stream, what goes back to the endpoint as it came.

use crate::client::halves::Joiner;
use serde_json::{Map, Value};

/// OpenRouter's reasoning.
pub const REASONING_DETAILS: &str = "reasoning_details";
/// The fields of a detail whose pieces are joined: <https://openrouter.ai/docs/guides/best-practices/reasoning-tokens>.
const JOINED: [&str; 2] = ["text", "summary"];

/// Adds the fields of a later piece: objects and lists grow, anything else is replaced.
pub fn merge(into: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece {
        match (into.get_mut(&name), value) {
            (_, Value::Null) => {}
            (Some(Value::Object(before)), Value::Object(more)) => merge(before, more),
            (Some(Value::Array(before)), Value::Array(more)) => before.extend(more),
            (_, value) => drop(into.insert(name, value)),
        }
    }
}

/// Adds a piece of the reasoning to `details`: it continues the last one where type and number are the same.
pub fn add_detail(details: &mut Vec<Value>, piece: Map<String, Value>) {
    let Some(Value::Object(last)) = details.last_mut().filter(|last| continues(last, &piece)) else {
        return details.push(piece.into());
    };
    for (name, value) in piece {
        match (last.get_mut(&name), value) {
            (_, Value::Null) => {}
            (Some(Value::String(before)), Value::String(more)) if JOINED.contains(&name.as_str()) => {
                before.push_str(&more);
            }
            (_, value) => drop(last.insert(name, value)),
        }
    }
}

/// Returns whether a piece continues the last one: what is encrypted comes whole.
fn continues(last: &Value, piece: &Map<String, Value>) -> bool {
    let same = |name: &str| last.get(name) == piece.get(name);
    JOINED.iter().any(|name| piece.contains_key(*name)) && same("type") && same("index")
        // A signature ends the text that it signs.
        || piece.contains_key("signature") && same("type") && same("index")
}

/// Joins the halves of surrogate pairs that the pieces had marks for.
pub fn without_marks(value: &mut Value) {
    match value {
        Value::String(text) => {
            let mut joiner = Joiner::default();
            *text = joiner.join(text, true).into_owned() + joiner.finish();
        }
        Value::Array(list) => list.iter_mut().for_each(without_marks),
        Value::Object(fields) => fields.values_mut().for_each(without_marks),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn details(pieces: &[Value]) -> Value {
        let mut details = Vec::new();
        for piece in pieces {
            add_detail(&mut details, piece.as_object().unwrap().clone());
        }
        details.into()
    }

    #[test]
    fn pieces_of_one_detail_are_joined_and_others_stay_apart() {
        let text = |index: u64, text: &str| json!({ "type": "reasoning.text", "index": index, "text": text });
        let signed = json!({ "type": "reasoning.text", "index": 0, "text": null, "signature": "SIG" });
        let secret = json!({ "type": "reasoning.encrypted", "index": 0, "data": "D", "id": "rs_1" });
        assert_eq!(
            details(&[
                text(0, "Hm, "),
                text(0, "well."),
                signed,
                text(1, "Next."),
                secret.clone(),
                secret.clone()
            ]),
            json!([
                { "type": "reasoning.text", "index": 0, "text": "Hm, well.", "signature": "SIG" },
                { "type": "reasoning.text", "index": 1, "text": "Next." },
                secret,
                secret,
            ])
        );
        let summary = |text: &str| json!({ "type": "reasoning.summary", "summary": text });
        assert_eq!(details(&[summary("a"), summary("b")]), json!([summary("ab")]));
    }

    #[test]
    fn fields_of_later_pieces_are_added() {
        let mut fields = Map::new();
        for piece in [
            json!({ "extra_content": { "google": { "a": 1 } } }),
            json!({ "extra_content": { "google": { "thought_signature": "SIG" } }, "x": null }),
        ] {
            merge(&mut fields, piece.as_object().unwrap().clone());
        }
        let whole = json!({ "extra_content": { "google": { "a": 1, "thought_signature": "SIG" } } });
        assert_eq!(Value::from(fields), whole);
    }
}
