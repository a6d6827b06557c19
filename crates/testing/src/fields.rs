//! The fields that a made-up provider takes in the JSON of a request: those that the vendor's own description names, and no others.

use serde_json::Value;

/// A field of an object.
pub struct Field {
    name: &'static str,
    kind: Kind,
    is_required: bool,
}

/// The type of a field.
pub enum Kind {
    Any,
    Text,
    Flag,
    Integer,
    Number,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A UUID that begins with the time.
    Uuid7,
    /// A list of these.
    List(&'static Kind),
    /// An object whose values are texts.
    Texts,
    Object(&'static [Field]),
}

/// A field that may be left out, or be null.
pub const fn optional(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, is_required: false }
}

/// A field that has to be there.
pub const fn required(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, is_required: true }
}

/// Why an object is refused.
pub fn check(object: &Value, fields: &[Field]) -> Result<(), String> {
    let Some(object) = object.as_object() else { return Err(format!("{object} is not an object")) };
    if let Some(name) = object.keys().find(|name| !fields.iter().any(|field| field.name == **name)) {
        return Err(format!("unrecognized field \"{name}\""));
    }
    for Field { name, kind, is_required } in fields {
        match object.get(*name).filter(|value| !value.is_null()) {
            None if *is_required => return Err(format!("{name} is required")),
            None => {}
            Some(value) => kind.check(value).map_err(|why| format!("{name}: {why}"))?,
        }
    }
    Ok(())
}

impl Kind {
    fn check(&self, value: &Value) -> Result<(), String> {
        let is_right = match self {
            Self::Any => true,
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Integer => value.is_i64(),
            Self::Number => value.is_number(),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Uuid7 => value.as_str().is_some_and(is_uuid_of_time),
            Self::List(kind) => {
                let list = value.as_array().ok_or(format!("{value} is not a list"))?;
                return list.iter().try_for_each(|value| kind.check(value));
            }
            Self::Texts => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
            Self::Object(fields) => return check(value, fields),
        };
        if is_right { Ok(()) } else { Err(format!("{value} is not a valid value")) }
    }
}

fn is_uuid_of_time(id: &str) -> bool {
    let groups: Vec<&str> = id.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    lengths == [8, 4, 4, 4, 12]
        && groups.concat().bytes().all(|byte| byte.is_ascii_hexdigit())
        && groups[2].starts_with('7')
}
