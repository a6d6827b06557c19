//! The arguments of a call: the model's text, parsed once.

use super::lenient_json::{self, ParseError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The arguments of a call. The text is parsed when somebody first asks what it says, and never again: clones share the
/// result.
#[derive(Clone)]
pub struct Arguments(Arc<Inner>);

struct Inner {
    text: String,
    parsed: OnceLock<Result<(Value, bool), ParseError>>,
}

impl Arguments {
    /// The text as the model wrote it.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Parses the text, and returns whether it had to be repaired: see [`lenient_json::parse`].
    ///
    /// # Errors
    /// The fault, and its position.
    pub fn parse(&self) -> Result<(&Value, bool), &ParseError> {
        let parsed = self.0.parsed.get_or_init(|| lenient_json::parse(&self.0.text));
        parsed.as_ref().map(|(value, repaired)| (value, *repaired))
    }

    /// Returns the value of the text if it is JSON as it stands.
    pub fn json(&self) -> Option<&Value> {
        let (value, repaired) = self.parse().ok()?;
        // No text at all is parsed as no arguments.
        (!repaired && !self.0.text.trim().is_empty()).then_some(value)
    }

    /// The text that an argument is; `None` if it is missing or of another type.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.object()?.get(name)?.as_str()
    }

    /// The same if it is an object, as it should be.
    pub fn object(&self) -> Option<&Map<String, Value>> {
        self.json()?.as_object()
    }
}

impl From<String> for Arguments {
    fn from(text: String) -> Self {
        Self(Arc::new(Inner { text, parsed: OnceLock::new() }))
    }
}

impl From<&str> for Arguments {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        let text = value.to_string();
        let parsed = match value {
            Value::Object(_) => OnceLock::from(Ok((value, false))),
            // A text may hold an object.
            _ => OnceLock::new(),
        };
        Self(Arc::new(Inner { text, parsed }))
    }
}

impl Deref for Arguments {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clones_share_what_was_parsed() {
        let arguments = Arguments::from(r#"{"command":"ls",}"#);
        let clone = arguments.clone();
        let (value, repaired) = clone.parse().unwrap();
        assert_eq!((value, repaired), (&json!({ "command": "ls" }), true));
        assert!(std::ptr::eq(value, arguments.parse().unwrap().0));
        assert_eq!(arguments.json(), None, "it is not JSON as it stands");
    }

    #[test]
    fn a_value_is_not_parsed_again() {
        let arguments = Arguments::from(json!({ "command": "ls" }));
        assert_eq!(arguments.as_str(), r#"{"command":"ls"}"#);
        assert!(arguments.0.parsed.get().is_some() && arguments.object().is_some());
    }
}
