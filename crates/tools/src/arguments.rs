//! From a call's JSON arguments to a tool's own type, and that type's JSON Schema.

use agent_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How many mistakes in a call's arguments are reported to the model at once.
const MAX_MISTAKES: usize = 5;

/// The arguments in the tool's own type; the error names what does not fit, so that the model can correct it.
pub fn read<A: DeserializeOwned + JsonSchema>(arguments: &Value) -> Result<A> {
    A::deserialize(arguments).map_err(|error| {
        let mistakes = mistakes(&schema::<A>(), arguments).unwrap_or_else(|| error.to_string());
        Error::usage(format!("the arguments do not fit the tool: {mistakes}"))
    })
}

/// Where the arguments differ from the schema, without repeating them: they may be long.
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
