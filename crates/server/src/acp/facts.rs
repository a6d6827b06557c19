//! The facts that a client tells about itself, and those that it learns of this agent.

use serde_json::{Value, json};

/// The version of the protocol that is spoken here.
pub const VERSION: u64 = 1;

/// The abilities of the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientFacts {
    /// It hands out the text of a file with what is not saved yet.
    pub reads_files: bool,
    /// It writes files, and shows their changes by hunk.
    pub writes_files: bool,
    /// It shows the output of commands by the extension `terminal_output`.
    pub has_terminals: bool,
    /// It shows forms with a question.
    pub has_forms: bool,
}

impl ClientFacts {
    /// Those of the parameters of `initialize`.
    pub fn of(params: &Value) -> Self {
        let is = |pointer: &str| params.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
        Self {
            reads_files: is("/clientCapabilities/fs/readTextFile"),
            writes_files: is("/clientCapabilities/fs/writeTextFile"),
            has_forms: params.pointer("/clientCapabilities/elicitation/form").is_some_and(Value::is_object),
            has_terminals: is("/clientCapabilities/_meta/terminal_output"),
        }
    }
}

/// The answer to `initialize`.
pub fn initialized() -> Value {
    json!({
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true },
            "mcpCapabilities": { "http": false, "sse": false },
            "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "delete": {} },
        },
        "authMethods": [],
        "agentInfo": { "name": "agent", "title": "agent", "version": env!("CARGO_PKG_VERSION") },
    })
}
