//! Simple commands of a script that is proven: POSIX.1-2017, Shell Command Language, 2.9.1. Words, assignments and redirections.

use super::super::findings::Becomes;
use super::proven::{Command, Input, Read, Reader, refuse};
use super::tokens::{Draft, WordPart, is_name};
use super::values::Value;
use super::variables;

/// Commands of a script.
const MAX_RUNS: usize = 10_000;

/// The parts of a simple command; the words with how they are written.
#[derive(Default)]
struct Simple<'s> {
    words: Vec<(Draft, &'s str)>,
    /// Variables, and what they are given where that is known.
    assigned: Vec<(&'s str, Option<Draft>)>,
    inputs: Vec<Input>,
    targets: Vec<Draft>,
}

impl<'s> Reader<'s, '_> {
    /// 2.9.1: a command of words, assignments and redirections.
    pub(super) fn simple(&mut self) -> Read<Option<usize>> {
        let (start, joined) = (self.at, self.shared.joined);
        let mut simple = self.parts()?;
        let is_joined = self.shared.joined > joined;
        let program = simple.words.first().map(|(draft, written)| match *written {
            "[" => "[".to_owned(),
            _ => draft.fixed().unwrap_or_default(),
        });
        let set = self.shared.set.len();
        self.assign(&simple.assigned, program.as_deref())?;
        // Where a redirection fails, nothing may be assigned.
        if !simple.inputs.is_empty() || !simple.targets.is_empty() {
            self.shared.set.truncate(set);
        }
        let Some(program) = program else {
            return Ok(None);
        };
        if simple.words[0].1 == "[" {
            simple.words[0].0 = Draft { parts: vec![WordPart::Fixed("[".to_owned())] };
        } else if simple.words[0].1.contains('[') && simple.words[0].1.contains('=') {
            return refuse("an assignment to a part of a list");
        }
        let is_read = self.built_in(&program, &simple.words)?;
        if !simple.inputs.is_empty() || !simple.targets.is_empty() {
            self.shared.set.truncate(set);
        }
        if program == "exec" && simple.words.len() == 1 && !simple.inputs.is_empty() {
            return refuse("`exec` with another input");
        }
        let last = simple.inputs.pop();
        let input = match last {
            Some(last) if simple.inputs.is_empty() => last,
            Some(last) => Input::Shared(Box::new(last)),
            None => Input::Inherited,
        };
        if self.shared.commands.len() >= MAX_RUNS {
            return refuse("more commands than are read");
        }
        let after = self.text[start..].split_once('\n').map_or("", |(_, rest)| rest);
        let has_more = !self.is_whole || !after.trim().is_empty();
        let words = simple.words.into_iter().map(|(draft, _)| draft).collect();
        let targets = simple.targets;
        self.shared.commands.push(Command {
            words,
            input,
            targets,
            is_joined,
            is_read,
            has_more,
            has_company: false,
        });
        Ok(Some(self.shared.commands.len() - 1))
    }

    /// The parts of a simple command, in any order but for assignments, which come before the words.
    fn parts(&mut self) -> Read<Simple<'s>> {
        let mut simple = Simple::default();
        loop {
            self.blanks()?;
            let at = self.at;
            match self.peek() {
                None | Some(b'\n' | b';' | b'|' | b')' | b'#') => break,
                Some(b'&') if self.peek_at(1) != Some(b'>') => break,
                Some(b'(') => return refuse("a parenthesis within a command"),
                _ if self.redirect(&mut simple.inputs, &mut simple.targets)? => {}
                Some(b'<') if self.rest().starts_with("<(") => {
                    let draft = self.process_substitution()?;
                    simple.words.push((draft, ""));
                }
                _ if simple.words.is_empty() && self.assignment(&mut simple.assigned)? => {}
                _ => {
                    let draft = self.word()?;
                    simple.words.push((draft, &self.text[at..self.at]));
                }
            }
        }
        let is_empty = simple.words.is_empty() && simple.assigned.is_empty();
        match is_empty && simple.inputs.is_empty() && simple.targets.is_empty() {
            true => refuse("an operator without a command"),
            false => Ok(simple),
        }
    }

    /// `<( … )`, which is a word of its own.
    pub(super) fn process_substitution(&mut self) -> Read<Draft> {
        let start = self.at;
        let is_word = matches!(self.text.as_bytes().get(start.wrapping_sub(1)), Some(b' ' | b'\t'));
        if !self.is_bash || !is_word {
            return refuse("a process substitution outside of bash, or within a word");
        }
        self.at += 2;
        self.shared.has_background = true;
        self.substitution()?;
        if !self.ends_word(0) {
            return refuse("a process substitution within a word");
        }
        let written = self.text[start..self.at].to_owned();
        Ok(Draft { parts: vec![WordPart::Changed { written, becomes: Becomes::One }] })
    }

    /// Notes what a command assigns: to variables of the shell, or to those of the program that it runs.
    fn assign(&mut self, assigned: &[(&'s str, Option<Draft>)], program: Option<&str>) -> Read<()> {
        let is_for_program = |name: &str, value: Option<String>| {
            variables::is_harmless(name)
                || name == "IFS" && program == Some("read")
                || matches!(name, "PAGER" | "GIT_PAGER") && value.as_deref() == Some("cat")
        };
        for (name, value) in assigned {
            if program.is_none() {
                match value {
                    Some(value) => self.bind_draft(name, value, false)?,
                    None => self.bind(name, Value::Any)?,
                }
                self.shared.set.push((*name).to_owned());
            } else if !is_for_program(name, value.as_ref().and_then(Draft::fixed)) {
                return refuse("a variable of a program");
            } else {
                self.shared.passed.insert((*name).to_owned());
            }
            self.shared.alters = true;
        }
        Ok(())
    }

    /// `NAME=value`, `NAME+=value`, and in bash `NAME=(…)`. Returns whether there is one.
    fn assignment(&mut self, assigned: &mut Vec<(&'s str, Option<Draft>)>) -> Read<bool> {
        let start = self.at;
        let name = self.name();
        let adds = self.rest().starts_with("+=");
        if !is_name(name) || !adds && self.peek() != Some(b'=') {
            if is_name(name) && self.peek() == Some(b'[') {
                return refuse("an assignment to a part of a list");
            }
            self.at = start;
            return Ok(false);
        }
        if adds && !self.is_bash {
            return refuse("an assignment that only bash has");
        }
        self.at += if adds { 2 } else { 1 };
        let value = match self.peek() {
            Some(b'(') if self.is_bash => {
                self.at += 1;
                self.items()?;
                self.shared.lists.insert(name.to_owned());
                None
            }
            _ => {
                let draft = self.value()?;
                self.notes_encoding(name, draft.as_ref());
                draft
            }
        };
        assigned.push((name, value.filter(|_| !adds)));
        Ok(true)
    }

    /// The value of an assignment; nothing where it is empty.
    fn value(&mut self) -> Read<Option<Draft>> {
        let is_empty = self.peek().is_none_or(|byte| b" \t\n;&|<>()".contains(&byte));
        if is_empty || self.rest().starts_with("\\\n") {
            return Ok(None);
        }
        self.word().map(Some)
    }

    /// The items of a list, none of which names its place.
    fn items(&mut self) -> Read<()> {
        loop {
            self.lines()?;
            match self.peek() {
                Some(b')') => break,
                Some(b'[') => return refuse("an assignment to a part of a list"),
                _ => {
                    let item = self.word()?;
                    self.shared.given.push(item);
                }
            }
        }
        self.at += 1;
        if self.ends_word(0) { Ok(()) } else { refuse("a word behind a list") }
    }
}
