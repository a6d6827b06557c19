//! The output of programs, as far as their arguments say what it looks like.

use super::proven::{Input, Reader};
use super::tokens::{Draft, is_number};
use super::values::Value;

impl Reader<'_, '_> {
    /// Returns what is known of the output of a substitution whose commands are those from `start` on, as a whole and of each word of it.
    pub(super) fn printed(&self, start: usize, code: &str) -> (Value, Value) {
        let commands = &self.shared.commands[start..];
        let is_pipeline = (start + 1..)
            .zip(commands.iter().skip(1))
            .all(|(at, command)| matches!(command.input, Input::Pipe(Some(before)) if before + 1 == at));
        let words =
            commands.last().and_then(|last| last.words.iter().map(Draft::fixed).collect::<Option<Vec<_>>>());
        match words {
            // It may run several times, and errors may be a part of it.
            Some(words) if is_pipeline && !code.contains(['&', ';', '\n', '`']) && keeps_errors_out(code) => {
                prints(&words.iter().map(String::as_str).collect::<Vec<_>>())
            }
            _ => (Value::Any, Value::Any),
        }
    }
}

/// Returns whether nothing is redirected but errors, and those to nowhere: a file may be the output by another name.
fn keeps_errors_out(code: &str) -> bool {
    let mut parts = code.split("2>/dev/null");
    let ends_target = |part: &str| part.is_empty() || part.starts_with([' ', '\t', '|', ')']);
    parts.next().is_some_and(|first| !first.contains('>'))
        && parts.all(|part| ends_target(part) && !part.contains('>'))
}

/// A program that fails prints less of it, or nothing.
fn prints(words: &[&str]) -> (Value, Value) {
    let is_revision = |text: &&&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./~^-".contains(&byte);
        text.bytes().all(is_plain)
            && !text.starts_with(['-', '^'])
            && !["..", "^-"].iter().any(|several| text.contains(several))
    };
    match words {
        ["wc", "-l" | "-c" | "-w" | "-m"] | ["nproc"] | ["date", "+%s"] | ["id", "-u" | "-g"] => {
            (Value::Count, Value::Digits)
        }
        ["seq", bounds @ ..] if bounds.iter().all(|bound| is_number(bound) && bound.len() < 10) => {
            (Value::Text, Value::Digits)
        }
        ["date", format] if is_date(format) => (Value::Plain, Value::Plain),
        ["pwd"] | ["mktemp"] | ["mktemp", "-d"] => (Value::Text, Value::Any),
        ["git", "rev-parse", "--show-toplevel" | "--git-dir" | "--absolute-git-dir"] => {
            (Value::Text, Value::Any)
        }
        ["git", "rev-parse", flags @ .., revision]
            if flags.iter().all(|flag| matches!(*flag, "--short" | "--verify" | "-q" | "--quiet"))
                && is_revision(&revision) =>
        {
            (Value::Plain, Value::Plain)
        }
        ["git", "merge-base", first, second] if is_revision(&first) && is_revision(&second) => {
            (Value::Plain, Value::Plain)
        }
        _ => (Value::Any, Value::Any),
    }
}

/// Returns whether `date` prints digits and what divides them, digits first.
fn is_date(format: &str) -> bool {
    let Some(directives) = format.strip_prefix("+%") else { return false };
    directives.split('%').all(|directive| {
        directive.starts_with(|c| "YmdHMSsFTj".contains(c))
            && directive[1..].bytes().all(|byte| b"-_:.T".contains(&byte))
    })
}
