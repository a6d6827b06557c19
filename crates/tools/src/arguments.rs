//! From a call's JSON arguments to a tool's own type, and that type's JSON Schema.

use agent_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;

/// The number of mistakes in a call's arguments that are reported to the model at once.
const MAX_MISTAKES: usize = 5;

/// The arguments in the tool's own type; the error names what does not fit, so that the model can correct it.
pub fn read<A: DeserializeOwned + JsonSchema>(arguments: &Value) -> Result<A> {
    let error = match A::deserialize(arguments) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let schema = full_schema::<A>();
    if let Some(read) = without_nothing(&schema, arguments).and_then(|less| A::deserialize(&less).ok()) {
        return Ok(read);
    }
    Err(misfit(mistakes(&schema, arguments).unwrap_or_else(|| error.to_string())))
}

fn misfit(mistakes: impl Display) -> Error {
    Error::usage(format!("the arguments do not fit the tool: {mistakes}"))
}

/// The arguments without optional ones that say nothing, such as `"None"` in place of a number. `None` where there are none.
fn without_nothing(schema: &Value, arguments: &Value) -> Option<Value> {
    let mut less = arguments.as_object()?.clone();
    less.retain(|name, value| {
        let types = schema["properties"][name]["type"].as_array().map(Vec::as_slice).unwrap_or_default();
        let takes = |name: &str| types.iter().any(|one| one == name);
        let is_nothing = value.as_str().is_some_and(|text| {
            ["", "null", "none"].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
        });
        !(is_nothing && takes("null") && !takes("string"))
    });
    (less.len() < arguments.as_object()?.len()).then(|| less.into())
}

/// Returns the places where the arguments differ from the schema, without repeating them: they may be long.
fn mistakes(schema: &Value, arguments: &Value) -> Option<String> {
    let validator = jsonschema::validator_for(schema).ok()?;
    let mistakes: Vec<String> = validator
        .iter_errors(arguments)
        .take(MAX_MISTAKES)
        .map(|mistake| match mistake.instance_path().as_str().trim_start_matches('/') {
            "" => mistake.masked_with("it").to_string(),
            place => mistake.masked_with(place).to_string(),
        })
        .collect();
    (!mistakes.is_empty()).then(|| mistakes.join("; "))
}

/// The JSON Schema of `A`, in the plain form that small models and strict servers understand.
pub fn schema<A: JsonSchema>() -> Value {
    agent_model::plain_without_null(&full_schema::<A>())
}

fn full_schema<A: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07().with(|settings| {
        // Some servers reject `$ref` and `$schema`.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Arguments {
        /// Where.
        path: String,
        lines: Option<u32>,
        name: Option<String>,
        kind: Option<Kind>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        /// The first.
        One,
        /// The second.
        Two,
    }

    #[test]
    fn a_schema_has_single_types_and_what_is_optional_is_not_required() {
        let expected = json!({ "type": "object", "required": ["path"], "properties": {
            "path": { "description": "Where.", "type": "string" },
            "lines": { "type": "integer", "minimum": 0 },
            "name": { "type": "string" },
            "kind": { "type": "string", "enum": ["one", "two"] },
        } });
        assert_eq!(schema::<Arguments>(), expected);
    }

    #[test]
    fn an_optional_argument_that_says_nothing_counts_as_left_out() {
        let arguments = |lines: Value| json!({ "path": "a", "lines": lines, "name": "" });
        for lines in [json!(null), json!("None"), json!("")] {
            let read = read::<Arguments>(&arguments(lines)).unwrap();
            assert_eq!((read.lines, read.name.as_deref()), (None, Some("")));
        }
        assert!(read::<Arguments>(&arguments(json!("many"))).is_err());
    }
}
