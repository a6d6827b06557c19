//! JSON Schemas in the subset that every endpoint takes: Google's, which is the smallest one.
//!
//! One type each, properties, items, alternatives, enumerations of text. References are written out; what cannot be said is left
//! out, so that a schema allows more than it did, and never less.

use serde_json::{Map, Value, json};

/// Levels that references are written out to. A recursive schema is any object below.
const MAX_DEPTH: usize = 12;
/// Nodes of one schema: references that multiply are any object from there on.
const MAX_NODES: usize = 2_000;
/// Keys that stay as they are.
const KEPT: [&str; 7] = ["title", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"];

/// `schema` in the subset. The schema of a tool's arguments is an object in any case.
pub fn plain(schema: &Value) -> Value {
    written(schema, true)
}

/// The same without a word about null: what is optional is left out.
pub fn plain_without_null(schema: &Value) -> Value {
    written(schema, false)
}

/// Returns whether every object of `schema` has exactly the properties that it names, which OpenAI wants before it holds a model to them.
pub fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            let required = fields.get("required").and_then(Value::as_array);
            let is_object = properties.is_some() || fields.get("type").is_some_and(|name| name == "object");
            let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false))
                && properties.is_none_or(|properties| {
                    properties
                        .keys()
                        .all(|name| required.is_some_and(|list| list.contains(&name.as_str().into())))
                });
            (!is_object || is_closed) && fields.values().all(is_strict)
        }
        Value::Array(list) => list.iter().all(is_strict),
        _ => true,
    }
}

/// Keys of JSON Schema that Anthropic takes in the schema of an answer, and the formats:
/// <https://docs.claude.com/en/docs/build-with-claude/structured-outputs>.
const KEYS_OF_ANSWERS: [&str; 16] = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "format",
    "additionalProperties",
];
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// `schema` with closed objects and without bounds: what it allows beside that is checked here.
pub fn closed(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let is_object =
        fields.contains_key("properties") || fields.get("type").is_some_and(|name| name == "object");
    let mut written = Map::new();
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.iter().map(|(name, schema)| (name.clone(), closed(schema))).collect()
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(schemas)) => schemas.iter().map(closed).collect(),
            ("items", schema) => closed(schema),
            ("format", format) if !FORMATS.iter().any(|known| format == known) => continue,
            ("additionalProperties", _) => continue,
            (_, value) => value.clone(),
        };
        match name.as_str() {
            "oneOf" => drop(written.insert("anyOf".to_owned(), value)),
            name if KEYS_OF_ANSWERS.contains(&name) => drop(written.insert(name.to_owned(), value)),
            _ => {}
        }
    }
    if is_object {
        written.insert("additionalProperties".to_owned(), false.into());
    }
    written.into()
}

fn written(schema: &Value, has_null: bool) -> Value {
    let mut writer = Writer { root: schema, nodes: 0, has_null };
    let mut plain = writer.node(schema, 0);
    if plain.get("type").and_then(Value::as_str) != Some("object") {
        plain = any_object();
    }
    plain
}

fn any_object() -> Value {
    json!({ "type": "object", "properties": {} })
}

struct Writer<'a> {
    root: &'a Value,
    nodes: usize,
    has_null: bool,
}

impl Writer<'_> {
    fn node(&mut self, schema: &Value, depth: usize) -> Value {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return any_object();
        }
        let Some(fields) = self.resolved(schema) else { return json!({ "type": "string" }) };
        let mut plain = Map::new();
        if let Some(description) = fields.get("description").filter(|text| text.is_string()) {
            plain.insert("description".to_owned(), description.clone());
        }
        let types = types(&fields);
        let is_nullable = types.contains(&"null") || fields.get("nullable") == Some(&Value::Bool(true));
        let types: Vec<&str> = types.into_iter().filter(|name| *name != "null").collect();
        if let Some(alternatives) = alternatives(&fields) {
            return self.one_of(alternatives, plain, is_nullable, depth);
        }
        if let [_, _, ..] = types[..] {
            let one = |name: &&str| Value::from(with(&fields, "type", (*name).into()));
            let alternatives: Vec<Value> = types.iter().map(one).collect();
            return self.one_of(&alternatives, plain, is_nullable, depth);
        }
        let name = types.first().copied().unwrap_or_else(|| implied_type(&fields));
        plain.insert("type".to_owned(), name.into());
        if is_nullable && self.has_null {
            plain.insert("nullable".to_owned(), true.into());
        }
        self.fill(&fields, name, &mut plain, depth);
        plain.into()
    }

    /// Fills in what belongs to the type.
    fn fill(
        &mut self,
        fields: &Map<String, Value>,
        name: &str,
        plain: &mut Map<String, Value>,
        depth: usize,
    ) {
        for key in KEPT {
            let fits = match key {
                "minimum" | "maximum" => matches!(name, "integer" | "number"),
                "minItems" | "maxItems" => name == "array",
                "minLength" | "maxLength" => name == "string",
                _ => true,
            };
            if let Some(value) = fields.get(key).filter(|value| fits && (value.is_number() || key == "title"))
            {
                plain.insert(key.to_owned(), value.clone());
            }
        }
        match name {
            "object" => self.properties(fields, plain, depth),
            "array" => {
                let items = fields.get("items").or_else(|| fields.get("prefixItems"));
                // A list of schemas, one for each item, is the schema of its first one.
                let items =
                    items.map(|items| items.get(0).unwrap_or(items)).filter(|items| items.is_object());
                let items =
                    items.map_or_else(|| json!({ "type": "string" }), |items| self.node(items, depth + 1));
                plain.insert("items".to_owned(), items);
            }
            _ => enumeration(fields, name, plain),
        }
    }

    fn properties(&mut self, fields: &Map<String, Value>, plain: &mut Map<String, Value>, depth: usize) {
        let properties = fields.get("properties").and_then(Value::as_object);
        let written: Map<String, Value> = properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), self.node(schema, depth + 1)))
            .collect();
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<Value> = required
            .filter(|name| name.as_str().is_some_and(|name| written.contains_key(name)))
            .cloned()
            .collect();
        plain.insert("properties".to_owned(), written.into());
        if !required.is_empty() {
            plain.insert("required".to_owned(), required.into());
        }
    }

    /// One of several schemas. Those that say nothing but that the value may be null are said by `nullable`.
    fn one_of(
        &mut self,
        alternatives: &[Value],
        mut plain: Map<String, Value>,
        mut is_nullable: bool,
        depth: usize,
    ) -> Value {
        let is_null = |schema: &&Value| schema.get("type").is_some_and(|name| name == "null");
        is_nullable |= alternatives.iter().any(|schema| is_null(&schema));
        let mut written: Vec<Value> = Vec::new();
        for schema in alternatives.iter().filter(|schema| !is_null(schema)) {
            let schema = self.node(schema, depth + 1);
            if !written.contains(&schema) {
                written.push(schema);
            }
        }
        if let Some(values) = enumerations(&written) {
            plain.insert("type".to_owned(), "string".into());
            plain.insert("enum".to_owned(), values.into());
        } else if written.len() > 1 {
            plain.insert("anyOf".to_owned(), written.into());
        } else if let Some(Value::Object(only)) = written.pop() {
            for (name, value) in only {
                plain.entry(name).or_insert(value);
            }
        } else {
            plain.insert("type".to_owned(), "string".into());
        }
        if is_nullable && self.has_null {
            plain.insert("nullable".to_owned(), true.into());
        }
        plain.into()
    }

    /// The fields of a schema with its references and the schemas that all apply written into it. `None` for what is none.
    fn resolved(&self, schema: &Value) -> Option<Map<String, Value>> {
        let mut fields = schema.as_object()?.clone();
        for _ in 0..MAX_DEPTH {
            let Some(Value::String(reference)) = fields.remove("$ref") else { break };
            let target = reference.strip_prefix('#').and_then(|path| self.root.pointer(path));
            add(&mut fields, target.and_then(Value::as_object)?);
        }
        if fields.contains_key("$ref") {
            return None;
        }
        if let Some(Value::Array(all)) = fields.remove("allOf") {
            for part in all {
                let part =
                    match part.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#')) {
                        Some(path) => self.root.pointer(path).and_then(Value::as_object).cloned(),
                        None => part.as_object().cloned(),
                    };
                add(&mut fields, &part.unwrap_or_default());
            }
        }
        fields.remove("allOf");
        Some(fields)
    }
}

/// Adds the fields that are missing, and all properties and requirements.
fn add(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in more {
        match (name.as_str(), fields.get_mut(name), value) {
            ("properties", Some(Value::Object(before)), Value::Object(more)) => {
                for (name, value) in more {
                    before.entry(name).or_insert_with(|| value.clone());
                }
            }
            ("required", Some(Value::Array(before)), Value::Array(more)) => {
                before.extend(more.iter().cloned())
            }
            (_, Some(_), _) => {}
            (_, None, value) => drop(fields.insert(name.clone(), value.clone())),
        }
    }
}

fn with(fields: &Map<String, Value>, name: &str, value: Value) -> Map<String, Value> {
    let mut fields = fields.clone();
    fields.remove("description");
    fields.insert(name.to_owned(), value);
    fields
}

fn types(fields: &Map<String, Value>) -> Vec<&str> {
    const KNOWN: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
    let known = |name: &'_ Value| KNOWN.into_iter().find(|known| name == known);
    match fields.get("type") {
        Some(Value::Array(list)) => list.iter().filter_map(known).collect(),
        Some(name) => known(name).into_iter().collect(),
        None => Vec::new(),
    }
}

fn alternatives(fields: &Map<String, Value>) -> Option<&[Value]> {
    let lists = ["anyOf", "oneOf"].into_iter().filter_map(|name| fields.get(name)?.as_array());
    // Beside properties they say which of them belong together, which cannot be said here.
    lists.map(Vec::as_slice).find(|list| !list.is_empty() && !fields.contains_key("properties"))
}

/// The values of several enumerations of text together.
fn enumerations(schemas: &[Value]) -> Option<Vec<Value>> {
    let values = schemas.iter().map(|schema| schema.get("enum").and_then(Value::as_array));
    let values: Option<Vec<&Vec<Value>>> = values.collect();
    values.filter(|values| values.len() > 1).map(|values| values.into_iter().flatten().cloned().collect())
}

/// The type of a schema that names none.
fn implied_type(fields: &Map<String, Value>) -> &'static str {
    let of_value = |value: &Value| match value {
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) | Value::Null => "string",
    };
    let example = fields.get("const").or_else(|| fields.get("enum")?.get(0));
    match example {
        Some(value) => of_value(value),
        None if ["properties", "required", "additionalProperties"]
            .iter()
            .any(|key| fields.contains_key(*key)) =>
        {
            "object"
        }
        None if ["items", "prefixItems", "minItems"].iter().any(|key| fields.contains_key(*key)) => "array",
        None if ["minimum", "maximum", "multipleOf"].iter().any(|key| fields.contains_key(*key)) => "number",
        None => "string",
    }
}

/// The values of text that are allowed. Those of other types are named in the description.
fn enumeration(fields: &Map<String, Value>, name: &str, plain: &mut Map<String, Value>) {
    let one = fields.get("const").map(std::slice::from_ref);
    let Some(values) = fields.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one) else {
        return;
    };
    let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
    if values.is_empty() {
        return;
    }
    if name == "string" && values.iter().all(|value| value.as_str().is_some_and(|text| !text.is_empty())) {
        plain.insert("enum".to_owned(), values.into_iter().cloned().collect());
        return;
    }
    let listed: Vec<String> = values.iter().map(ToString::to_string).collect();
    let before =
        plain.get("description").and_then(Value::as_str).map(|text| format!("{text} ")).unwrap_or_default();
    plain.insert("description".to_owned(), format!("{before}(one of {})", listed.join(", ")).into());
}

#[cfg(test)]
mod tests;
