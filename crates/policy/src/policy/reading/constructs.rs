//! Constructs of a script that is proven: POSIX.1-2017, Shell Command Language, 2.9.4 (compound commands) and 2.9.5 (functions), and of bash
//! what evaluates nothing.

use super::built_ins::OF_SHELL;
use super::plain;
use super::proven::{Input, RESERVED, Read, Reader, refuse};
use super::tokens::{Draft, WordPart, is_name, is_number};
use super::values::Value;
use super::variables;

/// Functions that a shell calls in the place of a program that it does not find.
const OF_MISSING: [&str; 2] = ["command_not_found_handle", "command_not_found_handler"];

impl Reader<'_, '_> {
    /// 2.9.4, after its first word.
    pub(super) fn compound(&mut self, word: &str) -> Read<()> {
        match word {
            "(" => self.list_and(&[")"]).map(drop),
            "{" if self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) => {
                self.list_and(&["}"]).map(drop)
            }
            "if" => loop {
                self.list_and(&["then"])?;
                match self.branch(&["elif", "else", "fi"])? {
                    "elif" => {}
                    "else" => return self.list_and(&["fi"]).map(drop),
                    _ => return Ok(()),
                }
            },
            "while" | "until" => {
                self.list_and(&["do"])?;
                self.list_and(&["done"]).map(drop)
            }
            "for" => self.for_loop(),
            "case" => self.case(),
            "[[" if self.is_bash => self.test(),
            "((" if self.is_bash => self.arithmetic("))"),
            "[[" | "((" => refuse("a command that only bash has"),
            "function" | "select" | "coproc" => refuse("a construct that only some shells have"),
            _ => refuse("a reserved word in another place than its own"),
        }
    }

    /// `for NAME in WORD…; do …; done`, and in bash `for ((…))`.
    fn for_loop(&mut self) -> Read<()> {
        self.blanks()?;
        if self.rest().starts_with("((") {
            self.at += 2;
            let start = self.at;
            self.arithmetic(";")?;
            // An expression within a word may be passed over, and this one never is.
            if let Some((name, value)) = self.text[start..self.at - 1].split_once('=')
                && is_name(name.trim())
                && is_number(value.trim())
            {
                self.shared.set.push(name.trim().to_owned());
            }
            self.arithmetic(";")?;
            // What comes last is evaluated behind the first turn.
            let set = self.shared.set.len();
            self.arithmetic("))")?;
            self.shared.set.truncate(set);
        } else {
            let name = self.name();
            if !is_name(name) {
                return refuse("a loop without a variable");
            }
            self.blanks()?;
            let mut words = None;
            if self.lines()? && self.reserved() != Some("do") {
                return refuse("a loop whose words are on another line");
            }
            if self.reserved() == Some("in") {
                self.at += 2;
                let words = words.insert(Vec::new());
                loop {
                    self.blanks()?;
                    if self.peek().is_none_or(|byte| matches!(byte, b';' | b'\n' | b'#')) {
                        break;
                    }
                    words.push(self.word()?);
                }
                if self.peek() == Some(b'#') {
                    return refuse("a remark behind the words of a loop");
                }
            }
            self.notes_encoding(name, None);
            match words {
                Some(words) => words.iter().try_for_each(|word| self.bind_draft(name, word, true))?,
                None => self.bind(name, Value::Any)?,
            }
            self.shared.set.push(name.to_owned());
        }
        self.blanks()?;
        let has_newline = self.lines()?;
        if !has_newline && self.peek() == Some(b';') {
            self.at += 1;
            self.lines()?;
        }
        if self.reserved() != Some("do") {
            return refuse("a loop without `do`");
        }
        self.at += 2;
        self.list_and(&["done"]).map(drop)
    }

    /// `case WORD in PATTERN) …;; esac`
    fn case(&mut self) -> Read<()> {
        if self.is_nested {
            return refuse("`case` within a substitution");
        }
        self.blanks()?;
        self.word()?;
        self.lines()?;
        if self.reserved() != Some("in") {
            return refuse("`case` without `in`");
        }
        self.at += 2;
        loop {
            self.lines()?;
            if self.reserved() == Some("esac") {
                self.at += 4;
                return Ok(());
            }
            if self.peek() == Some(b'(') {
                self.at += 1;
            }
            loop {
                self.blanks()?;
                if self.reserved() == Some("esac") {
                    return refuse("a reserved word in another place than its own");
                }
                self.word()?;
                self.blanks()?;
                let end = self.peek();
                self.at += 1;
                match end {
                    Some(b'|') => {}
                    Some(b')') => break,
                    _ => return refuse("a pattern that does not end"),
                }
            }
            if self.branch(&[";;", "esac"])? == "esac" {
                return Ok(());
            }
        }
    }

    /// `[[ … ]]` of bash, without regular expressions and what evaluates an operand.
    fn test(&mut self) -> Read<()> {
        loop {
            self.blanks()?;
            if self.reserved() == Some("!") {
                self.at += 1;
                self.blanks()?;
            }
            let first = self.word()?;
            self.blanks()?;
            let is_last = |reader: &Self| {
                reader.reserved() == Some("]]")
                    || ["&&", "||"].iter().any(|end| reader.rest().starts_with(end))
            };
            if !is_last(self) {
                let operator = first.fixed().unwrap_or_default();
                let second = self.word()?;
                self.blanks()?;
                match (is_last(self), second.fixed()) {
                    (true, _) => {
                        if operator.len() != 2
                            || !operator.starts_with('-')
                            || ["-v", "-R", "-o"].contains(&operator.as_str())
                        {
                            return refuse("a test that may evaluate what it is about");
                        }
                    }
                    (false, Some(operator)) => {
                        let third = self.word()?;
                        self.compared(&operator, [first, third])?;
                        self.blanks()?;
                    }
                    _ => return refuse("a test that may evaluate what it is about"),
                }
            }
            if self.reserved() == Some("]]") {
                self.at += 2;
                return Ok(());
            }
            if !is_last(self) {
                return refuse("a test of more than its words");
            }
            self.at += 2;
        }
    }

    /// Numbers are compared as expressions, and all else as texts.
    fn compared(&mut self, operator: &str, operands: [Draft; 2]) -> Read<()> {
        match operator {
            "=" | "==" | "!=" | "=~" | "-nt" | "-ot" | "-ef" => return Ok(()),
            "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" => {}
            _ => return refuse("a test that may evaluate what it is about"),
        }
        for operand in operands {
            match operand.parts.as_slice() {
                _ if operand.value(&|_| Value::Any, false) <= Value::Count => {}
                [WordPart::Name { name, .. }] => self.evaluates(name.clone())?,
                _ => return refuse("an expression of other things than numbers"),
            }
        }
        Ok(())
    }

    /// 2.9.5: a function that is defined before anything can fail, outside of every construct. No other command has its name.
    pub(super) fn function(&mut self) -> Read<bool> {
        let start = self.at;
        let name = self.name();
        self.blanks()?;
        if name.is_empty() || !self.rest().starts_with('(') {
            self.at = start;
            return Ok(false);
        }
        self.at += 1;
        self.blanks()?;
        if self.peek() != Some(b')') {
            self.at = start;
            return Ok(false);
        }
        self.at += 1;
        let is_known = [&RESERVED[..], &OF_SHELL, &OF_MISSING].iter().any(|names| names.contains(&name))
            || plain::is_command(name);
        if !self.is_whole || !self.is_beginning || self.depth > 0 || is_known || variables::decides(name) {
            return refuse("a function that is defined behind other commands, or whose name the shell knows");
        }
        self.shared.functions.insert(name.to_owned());
        self.shared.alters = true;
        self.lines()?;
        if !matches!(self.reserved(), Some("{" | "(")) {
            return refuse("a function without braces");
        }
        let (before, braces) = (self.shared.commands.len(), self.reserved().unwrap_or_default());
        self.at += braces.len();
        self.is_function = true;
        self.deeper(|reader| reader.compound(braces))?;
        self.is_function = false;
        // What a function reads is what its calls read.
        self.give(before, None, &Input::File);
        self.blanks()?;
        self.is_beginning = true;
        match self.peek() {
            None | Some(b'\n' | b';' | b'#') => Ok(true),
            _ => refuse("a function that is defined within a list"),
        }
    }
}
