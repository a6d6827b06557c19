//! Colours and attributes, and when they may be used.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::io::IsTerminal;

/// Traces, hints, reasoning.
pub const DIM: Style = Style::new().dimmed();
/// Strong text and table heads.
pub const BOLD: Style = Style::new().bold();
/// Headings and the prompt.
pub const HEADING: Style = AnsiColor::Cyan.on_default().bold();
/// Code, in a line or in a block.
pub const CODE: Style = AnsiColor::Yellow.on_default();
/// The address of a link.
pub const LINK: Style = AnsiColor::Blue.on_default().underline();
/// Success, and added lines.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Warnings.
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// Failure, and removed lines.
pub const BAD: Style = AnsiColor::Red.on_default();

/// Set if a stream gets colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colours(pub bool);

impl Colours {
    /// Decides for a stream: no with `NO_COLOR` (<https://no-color.org>), yes with `CLICOLOR_FORCE`
    /// (<https://bixense.com/clicolors>), else yes for a terminal that is not `dumb`.
    pub fn of(stream: &impl IsTerminal) -> Self {
        Self::decide(stream.is_terminal(), |name| std::env::var(name).ok())
    }

    fn decide(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
        if is_set("NO_COLOR") {
            return Self(false);
        }
        let forced = variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
        Self(forced || (is_terminal && variable("TERM").as_deref() != Some("dumb")))
    }

    /// `text` in `style`; unchanged without colours.
    pub fn paint(self, style: Style, text: impl Display) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::Colours;

    fn decide(is_terminal: bool, variables: &[(&str, &str)]) -> bool {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        };
        Colours::decide(is_terminal, find).0
    }

    #[test]
    fn a_terminal_gets_colours_and_a_file_does_not() {
        assert!(decide(true, &[]));
        assert!(!decide(false, &[]));
        assert!(!decide(true, &[("TERM", "dumb")]));
    }

    #[test]
    fn the_variables_override_the_terminal_and_no_color_overrides_all() {
        assert!(!decide(true, &[("NO_COLOR", "1")]));
        assert!(decide(true, &[("NO_COLOR", "")]));
        assert!(decide(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!decide(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!decide(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }
}
