//! The pattern of a rule about names: a module or built-in of a language, or tools of an MCP server.

use serde::Deserialize;

/// A module or built-in: itself and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NamePattern(String);

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // `node:fs` and `fs` are one module, `env!` is the macro `env`.
        let name = text.strip_prefix("node:").unwrap_or(&text).trim_end_matches('!');
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("{text:?} is not the name of a module or built-in"));
        }
        Ok(Self(name.to_owned()))
    }
}

impl NamePattern {
    /// The name as it is compared.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns whether `path` is this name or lies below it: `os` covers `os.system`, `fs` covers `fs/promises`.
    pub fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.0.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/', ':']))
    }
}

/// A tool of an MCP server, or with a `*` at its end all whose names begin so.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ToolPattern {
    text: String,
}

impl TryFrom<String> for ToolPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        match name.starts_with("mcp_") && !name.contains('*') {
            true => Ok(Self { text }),
            false => Err(format!("{text:?}: a tool in a rule is one of an MCP server: \"mcp__github__*\"")),
        }
    }
}

impl ToolPattern {
    /// The pattern as the rule has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether it names this tool.
    pub fn covers(&self, tool: &str) -> bool {
        match self.text.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => tool == self.text,
        }
    }
}
