//! Schemas against the subsets that providers publish, as validators.

use super::*;

/// Google: <https://ai.google.dev/api/caching#Schema>.
const GOOGLE_KEYS: [&str; 18] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "anyOf",
    "items",
    "minimum",
    "maximum",
];
const TYPES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];

fn children(schema: &Map<String, Value>) -> Vec<&Value> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.map(|(_, value)| value).chain(schema.get("items")).chain(list("anyOf")).collect()
}

/// Visits each schema.
fn each(schema: &Value, check: &dyn Fn(&Map<String, Value>)) {
    let schema = schema.as_object().unwrap_or_else(|| panic!("a schema is an object: {schema}"));
    check(schema);
    children(schema).into_iter().for_each(|child| each(child, check));
}

fn google(schema: &Value) {
    each(schema, &|fields| {
        let unknown: Vec<_> = fields.keys().filter(|key| !GOOGLE_KEYS.contains(&key.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(!fields.contains_key("format"), "{fields:?}");
        match fields.get("type") {
            Some(name) => assert!(name.as_str().is_some_and(|name| TYPES.contains(&name)), "{fields:?}"),
            None => assert!(fields.contains_key("anyOf"), "{fields:?}"),
        }
        if let Some(Value::Array(values)) = fields.get("enum") {
            assert!(fields["type"] == "string" && !values.is_empty(), "{fields:?}");
            assert!(
                values.iter().all(|value| value.as_str().is_some_and(|text| !text.is_empty())),
                "{fields:?}"
            );
        }
        for name in fields.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(fields["properties"].get(name.as_str().unwrap()).is_some(), "{fields:?}");
        }
        assert_eq!(fields.get("type").is_some_and(|name| name == "array"), fields.contains_key("items"));
    });
}

/// OpenAI without `strict`, and Anthropic: an object at the top, and nothing there that chooses between schemas.
fn top_is_an_object(schema: &Value) {
    assert_eq!(schema["type"], "object");
    assert!(schema["properties"].is_object());
    for key in ["anyOf", "oneOf", "allOf", "enum", "not"] {
        assert!(schema.get(key).is_none(), "{schema}");
    }
}

/// Mistral reads any JSON Schema, but references only where they can be resolved.
fn references_nothing(schema: &Value) {
    each(schema, &|fields| assert!(!fields.contains_key("$ref") && !fields.contains_key("$defs")));
}

/// Moonshot: "At path 'properties.X': type is not defined", and with `anyOf` the type stands in its branches.
fn moonshot(schema: &Value) {
    each(schema, &|fields| {
        assert!(fields.contains_key("type") != fields.contains_key("anyOf"), "{fields:?}");
    });
}

fn every_provider(schema: &Value) {
    google(schema);
    top_is_an_object(schema);
    references_nothing(schema);
    moonshot(schema);
}

/// As servers of tools in the field have them.
fn of_servers() -> Vec<Value> {
    vec![
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
            "properties": { "path": { "type": "string" }, "head": { "type": "number", "description": "lines" } },
            "required": ["path"] }),
        json!({ "type": "object", "properties": { "limit": { "anyOf": [{ "type": "integer" }, { "type": "null" }], "default": null,
            "title": "Limit" } }, "title": "searchArguments" }),
        json!({ "type": "object", "properties": { "state": { "type": ["string", "null"], "enum": ["open", "closed", null] } } }),
        json!({ "type": "object", "properties": { "id": { "type": ["string", "integer"] }, "when": { "type": "string",
            "format": "date-time" }, "url": { "type": "string", "format": "uri" } }, "required": ["id", "missing"] }),
        json!({ "type": "object", "properties": { "level": { "type": "integer", "enum": [1, 2, 3], "description": "How deep" },
            "on": { "const": true }, "kind": { "const": "page" } } }),
        json!({ "type": "object", "properties": { "parent": { "$ref": "#/$defs/Parent" } }, "$defs": {
            "Parent": { "oneOf": [{ "$ref": "#/$defs/Page" }, { "$ref": "#/$defs/Database" }] },
            "Page": { "type": "object", "properties": { "page_id": { "type": "string" } }, "required": ["page_id"] },
            "Database": { "type": "object", "properties": { "database_id": { "type": "string" } } } } }),
        json!({ "type": "object", "properties": { "tree": { "$ref": "#/definitions/Node" } }, "definitions": { "Node": {
            "type": "object", "properties": { "value": { "type": "string" }, "children": { "type": "array", "items": {
            "$ref": "#/definitions/Node" } } } } } }),
        json!({ "type": "object", "properties": { "env": { "type": "object", "additionalProperties": { "type": "string" },
            "propertyNames": { "pattern": "^[A-Z]+$" } }, "args": { "type": "array" }, "pair": { "type": "array",
            "prefixItems": [{ "type": "number" }, { "type": "string" }] } } }),
        json!({ "allOf": [{ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] },
            { "properties": { "b": { "type": "integer", "exclusiveMinimum": 0 } }, "required": ["b"] }] }),
        json!({ "type": "object", "properties": { "query": {}, "any": true, "list": { "items": { "type": "string" } } } }),
        json!({ "type": "object", "properties": { "filter": { "anyOf": [{ "type": "string" }, { "type": "array", "items": {
            "type": "string" } }, { "type": "object", "properties": {}, "patternProperties": { "^x-": {} } }] } },
            "oneOf": [{ "required": ["filter"] }, { "required": ["other"] }] }),
        json!({ "$ref": "#/$defs/Arguments", "$defs": { "Arguments": { "type": "object", "properties": { "self": {
            "$ref": "#/$defs/Arguments" }, "gone": { "$ref": "#/$defs/Missing" } } } } }),
        json!({}),
        json!({ "type": "object" }),
        json!({ "type": "string" }),
        json!(null),
    ]
}

#[test]
fn schemas_of_servers_are_written_as_every_provider_takes_them() {
    for schema in of_servers() {
        every_provider(&plain(&schema));
    }
}

#[test]
fn what_a_schema_says_stays_where_it_can_be_said() {
    let of = |property: Value| {
        plain(&json!({ "type": "object", "properties": { "p": property } }))["properties"]["p"].clone()
    };
    assert_eq!(
        of(json!({ "type": ["integer", "null"], "description": "d", "minimum": 1 })),
        json!({ "description": "d", "type": "integer", "nullable": true, "minimum": 1 })
    );
    assert_eq!(of(json!({ "const": "page" })), json!({ "type": "string", "enum": ["page"] }));
    assert_eq!(
        of(json!({ "type": "integer", "enum": [1, 2], "description": "d" })),
        json!({ "description": "d (one of 1, 2)", "type": "integer" })
    );
    assert_eq!(
        of(json!({ "type": ["string", "integer"] })),
        json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] })
    );
    assert_eq!(
        of(json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] })),
        json!({ "type": "string", "nullable": true })
    );
}

#[test]
fn references_that_multiply_end() {
    let mut defs = Map::new();
    for level in 0..12 {
        let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
        let properties: Map<String, Value> = (0..10).map(|n| (format!("p{n}"), next.clone())).collect();
        defs.insert(format!("l{level}"), json!({ "type": "object", "properties": properties }));
    }
    let schema = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/l0" } }, "$defs": defs });
    assert!(plain(&schema).to_string().len() < 1 << 20);
    let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } });
    every_provider(&plain(&circle));
}
