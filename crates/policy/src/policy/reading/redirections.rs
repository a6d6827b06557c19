//! Redirections of a script that is proven: POSIX.1-2017, Shell Command Language, 2.7.

use super::proven::{Input, Read, Reader, Waiting, refuse};
use super::tokens::Draft;
use super::values::Value;

/// Devices that may be written to and read from.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/zero",
    "/dev/full",
    "/dev/urandom",
    "/dev/random",
];

impl Reader<'_, '_> {
    /// 2.7: a redirection, if one begins here.
    pub(super) fn redirect(&mut self, inputs: &mut Vec<Input>, targets: &mut Vec<Draft>) -> Read<bool> {
        let Some(kind) = self.redirection()? else { return Ok(false) };
        match kind {
            "<<" | "<<-" => inputs.push(Input::Document(self.here_document(kind == "<<-")?)),
            "<&" | ">&" => {
                self.descriptor(kind)?;
                inputs.extend((kind == "<&").then_some(Input::File));
            }
            _ => {
                self.blanks()?;
                if kind == "<" && self.rest().starts_with("<(") {
                    self.process_substitution()?;
                    inputs.push(Input::Pipe(None));
                    return Ok(true);
                }
                let target = self.word()?;
                if kind == "<<<" {
                    inputs.push(Input::Text(target));
                    return Ok(true);
                }
                check_target(&target)?;
                if kind == "<" {
                    inputs.push(Input::File);
                } else {
                    self.shared.alters |= !target.fixed().is_some_and(|text| text.starts_with("/dev/"));
                    targets.push(target);
                }
            }
        }
        Ok(true)
    }

    /// The operator of a redirection, and the descriptor in front of it, which are passed over.
    fn redirection(&mut self) -> Read<Option<&'static str>> {
        let rest = self.rest();
        let operator = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let descriptor = &rest[..rest.len() - operator.len()];
        let operators = ["&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<(", "<", ">>", ">&", ">|", ">(", ">"];
        let Some(kind) = operators.into_iter().find(|kind| operator.starts_with(*kind)) else {
            return Ok(None);
        };
        if kind == "<(" && descriptor.is_empty() {
            return Ok(None);
        }
        let (is_input, is_both) = (kind.starts_with('<'), kind.starts_with('&'));
        let is_usual = match descriptor {
            "" => true,
            "0" => is_input,
            "1" | "2" => !is_input && !is_both,
            _ => false,
        };
        if !is_usual || matches!(kind, "<>" | "<(" | ">(") {
            return refuse("a redirection of another descriptor");
        }
        if (is_both || kind == "<<<") && !self.is_bash {
            return refuse("a redirection that only bash has");
        }
        self.at += descriptor.len() + kind.len();
        Ok(Some(kind))
    }

    /// `>&1`, `>&2`, `>&-`, `<&-`
    fn descriptor(&mut self, kind: &str) -> Read<()> {
        let is_known = self.peek() == Some(b'-') || kind == ">&" && matches!(self.peek(), Some(b'1' | b'2'));
        if !is_known || !self.ends_word(1) {
            return refuse("a redirection of another descriptor");
        }
        self.at += 1;
        self.shared.joined += 1;
        Ok(())
    }

    /// 2.7.4: `<<WORD`, whose word is a name, or one in quotes.
    fn here_document(&mut self, strips_tabs: bool) -> Read<usize> {
        self.blanks()?;
        let quote = self.peek().filter(|byte| matches!(byte, b'\'' | b'"'));
        self.at += usize::from(quote.is_some());
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += length;
        let is_closed = quote.is_none() || self.peek() == quote;
        self.at += usize::from(quote.is_some());
        let is_end = self.peek().is_some_and(|byte| b" \t\n;&|<>)".contains(&byte));
        if length == 0 || !is_closed || !is_end {
            return refuse("a here-document whose end is not a plain word");
        }
        let number = self.shared.bodies.len();
        self.shared.bodies.push(None);
        let delimiter = rest[..length].to_owned();
        self.waiting.push(Waiting { number, delimiter, strips_tabs, expands: quote.is_none() });
        Ok(number)
    }
}

/// Refuses files through which a process, or the shell itself, is written to.
fn check_target(target: &Draft) -> Read<()> {
    let word = target.word(&|_| Value::Any, false);
    let leads_there = match word.fixed {
        true => word.text.starts_with('/') && word.text.trim_start_matches(['/', '.']).starts_with("dev/"),
        false => word.text.contains("/dev"),
    };
    let is_device = leads_there && !DEVICES.contains(&word.text.as_str());
    if is_device || matches!(word.text.as_str(), "stdin" | "mem" | "fd") || word.text.starts_with("fd/") {
        return refuse("a redirection to a device");
    }
    Ok(())
}
