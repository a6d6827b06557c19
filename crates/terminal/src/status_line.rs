//! The line under the prompt.

use serde::Deserialize;
use unicode_width::UnicodeWidthStr;

const BETWEEN: &str = " · ";
/// Its text stands under the prompt's.
const INDENT: &str = "  ";

/// An item of the line; `[ui] status` lists them in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StatusItem {
    /// The model's name.
    Model,
    /// How full its context window is.
    Context,
    /// The session's cost, where prices are configured.
    Cost,
    /// The branch of the workspace's repository.
    Branch,
    /// Files with changes that are not applied.
    Changes,
    /// The backend of the sandbox.
    Sandbox,
    /// The hosts that it may reach.
    Network,
}

/// The content of the line, sanitised.
#[derive(Debug, Clone, Default)]
pub struct StatusLine {
    pub parts: Vec<String>,
}

impl StatusLine {
    /// As many parts as fit into so many columns, the first ones first; `None` if there are none.
    pub fn fitted(&self, columns: usize) -> Option<String> {
        let mut line = String::new();
        for part in &self.parts {
            let between = if line.is_empty() { INDENT } else { BETWEEN };
            if line.width() + between.width() + part.width() <= columns {
                line = line + between + part;
            }
        }
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::StatusLine;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let line = StatusLine { parts: ["model", "12 % of 128k", "main"].map(str::to_owned).into() };
        assert_eq!(line.fitted(80).as_deref(), Some("  model · 12 % of 128k · main"));
        assert_eq!(line.fitted(15).as_deref(), Some("  model · main"));
        assert_eq!(line.fitted(3), None);
    }
}
