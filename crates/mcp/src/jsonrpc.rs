//! JSON-RPC 2.0: one object a message, and on byte streams one message a line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;

/// Names a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// A number, as most programs count.
    Number(i64),
    /// A text.
    Text(String),
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// It wants an answer.
    Request {
        /// Names it in its answer.
        id: Id,
        /// The method that is asked for.
        method: String,
        /// Its parameters: an object, an array, or null where there are none.
        params: Value,
    },
    /// It wants none.
    Notification {
        /// The event that has happened.
        method: String,
        /// Its parameters.
        params: Value,
    },
    /// An answer.
    Response {
        /// The request's; `None` where that could not be read.
        id: Option<Id>,
        /// The result, or the error.
        outcome: Result<Value, ErrorObject>,
    },
}

/// The error with which a request was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// Its kind.
    pub code: i64,
    /// The message.
    #[serde(default)]
    pub message: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

/// The code for text that is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The code for JSON that is not a message.
pub const INVALID_REQUEST: i64 = -32600;
/// The code for a method that does not exist.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The code for parameters that do not fit.
pub const INVALID_PARAMS: i64 = -32602;
/// The code for a failure of the server itself.
pub const INTERNAL_ERROR: i64 = -32603;

/// The reason why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// [`PARSE_ERROR`] or [`INVALID_REQUEST`].
    pub code: i64,
    /// The reason.
    pub reason: String,
    /// The request's id, where that could be read.
    pub id: Option<Id>,
}

impl Message {
    /// Reads one message. Arrays of messages, which MCP does not have, are refused.
    ///
    /// # Errors
    /// It is not JSON, or not a message.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        match serde_json::from_slice(text) {
            Ok(value) => Self::from_value(value),
            Err(error) => Err(Malformed { code: PARSE_ERROR, reason: error.to_string(), id: None }),
        }
    }

    /// Reads one message from its JSON.
    ///
    /// # Errors
    /// It is not a message.
    pub fn from_value(value: Value) -> Result<Self, Malformed> {
        let Value::Object(mut object) = value else {
            return Err(malformed("a message is an object", None));
        };
        let id = match object.remove("id") {
            None | Some(Value::Null) => None,
            Some(id) => {
                Some(Id::deserialize(id).map_err(|_| malformed("an id is a number or a text", None))?)
            }
        };
        if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(malformed("the member \"jsonrpc\" is not \"2.0\"", id));
        }
        match object.remove("method") {
            Some(Value::String(method)) => {
                let params = object.remove("params").unwrap_or(Value::Null);
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            Some(_) => Err(malformed("a method is a text", id)),
            None => Self::response(id, object),
        }
    }

    fn response(id: Option<Id>, mut object: Map<String, Value>) -> Result<Self, Malformed> {
        let outcome = match (object.remove("result"), object.remove("error")) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => match ErrorObject::deserialize(error) {
                Ok(error) => Err(error),
                Err(_) => return Err(malformed("an error is an object with a code", id)),
            },
            _ => return Err(malformed("a message has a method, a result or an error", id)),
        };
        Ok(Self::Response { id, outcome })
    }

    /// The message as JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Map::from_iter([("jsonrpc".to_owned(), Value::from("2.0"))]);
        let mut insert = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
        match self {
            Self::Request { id, method, params } => {
                insert("id", json!(id));
                insert("method", json!(method));
                if !params.is_null() {
                    insert("params", params.clone());
                }
            }
            Self::Notification { method, params } => {
                insert("method", json!(method));
                if !params.is_null() {
                    insert("params", params.clone());
                }
            }
            Self::Response { id, outcome } => {
                insert("id", json!(id));
                match outcome {
                    Ok(result) => insert("result", result.clone()),
                    Err(error) => insert("error", json!(error)),
                }
            }
        }
        Value::Object(object)
    }

    /// The message as one line, with its end. JSON has no line breaks but those that are escaped.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = self.to_value().to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

fn malformed(reason: &str, id: Option<Id>) -> Malformed {
    Malformed { code: INVALID_REQUEST, reason: reason.to_owned(), id }
}

/// Cuts a byte stream into lines, none of which is longer than a limit.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    bytes: Vec<u8>,
    /// The beginning of the next line.
    start: usize,
    /// The end of what was searched, and has no line break.
    searched: usize,
}

/// A line is longer than the limit: what follows cannot be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTooLong {
    /// The limit, in bytes.
    pub limit: usize,
}

impl fmt::Display for LineTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message is longer than {} bytes", self.limit)
    }
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), start: 0, searched: 0 }
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line without its end; empty ones are left out. `None`: more bytes are needed.
    ///
    /// # Errors
    /// The line is longer than the limit; so is every later answer of this reader.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        loop {
            let Some(found) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.bytes.len();
                return match self.searched - self.start > self.limit {
                    true => Err(LineTooLong { limit: self.limit }),
                    false => Ok(None),
                };
            };
            let (start, end) = (self.start, self.searched + found);
            if end - start > self.limit {
                return Err(LineTooLong { limit: self.limit });
            }
            (self.start, self.searched) = (end + 1, end + 1);
            if !self.bytes[start..end].trim_ascii().is_empty() {
                return Ok(Some(self.bytes[start..end].trim_ascii()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_told_apart_by_their_members() {
        let parse = |text: &str| Message::parse(text.as_bytes());
        assert!(matches!(parse(r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#), Ok(Message::Request { .. })));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","method":"m","id":null}"#),
            Ok(Message::Notification { .. })
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            Ok(Message::Response { outcome: Ok(_), .. })
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1}}"#),
            Ok(Message::Response { id: None, outcome: Err(_) })
        ));
        for (text, code) in [
            ("{", PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            (r#"{"id":1,"method":"m"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1}}"#, INVALID_REQUEST),
        ] {
            assert_eq!(parse(text).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn a_line_over_the_limit_ends_the_stream_and_one_of_that_length_does_not() {
        let mut lines = Lines::new(4);
        lines.push(b"\n \nabcd\r\nabc");
        assert_eq!(lines.next_line(), Err(LineTooLong { limit: 4 }), "the carriage return counts");
        let mut lines = Lines::new(4);
        lines.push(b"\n \nabcd\nabc");
        assert_eq!(lines.next_line(), Ok(Some(&b"abcd"[..])));
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"de");
        assert_eq!(lines.next_line(), Err(LineTooLong { limit: 4 }));
        assert_eq!(lines.next_line(), Err(LineTooLong { limit: 4 }));
    }

    fn message() -> impl Strategy<Value = Message> {
        let id = || prop_oneof![any::<i64>().prop_map(Id::Number), ".*".prop_map(Id::Text)];
        let params = || ".*".prop_map(|text| json!({ "text": text }));
        prop_oneof![
            (id(), ".*", params()).prop_map(|(id, method, params)| Message::Request { id, method, params }),
            (".*", params()).prop_map(|(method, params)| Message::Notification { method, params }),
            (id(), params()).prop_map(|(id, result)| Message::Response { id: Some(id), outcome: Ok(result) }),
            (id(), any::<i64>(), ".*").prop_map(|(id, code, text)| Message::Response {
                id: Some(id),
                outcome: Err(ErrorObject::new(code, text)),
            }),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_lines_however_the_stream_is_cut(
            messages in prop::collection::vec(message(), 0..6),
            cut in 1usize..40,
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(Message::to_line).collect();
            let mut lines = Lines::new(1 << 20);
            let mut read = Vec::new();
            for piece in stream.chunks(cut) {
                lines.push(piece);
                while let Some(line) = lines.next_line().unwrap() {
                    read.push(Message::parse(line).unwrap());
                }
            }
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let mut lines = Lines::new(64);
            for piece in pieces {
                lines.push(&piece);
                while let Ok(Some(line)) = lines.next_line() {
                    let _ = Message::parse(line);
                }
            }
        }
    }
}
