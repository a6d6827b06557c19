//! What a tool returns.

/// What a tool returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether it did what was asked.
    pub ok: bool,
    /// The command's exit code, where a command ran and exited.
    pub exit_code: Option<i32>,
    /// Whether part of the output is missing.
    pub truncated: bool,
    /// What the model reads.
    pub text: String,
}

impl ToolResult {
    /// A call that did what was asked.
    pub fn success(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), ..Self::default() }
    }

    /// A call that failed; the text explains why.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}
