//! Built-ins of the shell in a script that is proven: POSIX.1-2017, Shell Command Language, 2.14, and those of bash that set variables.

use super::super::wrapping::is_assignment;
use super::proven::{RESERVED, Read, Reader, refuse};
use super::tokens::{Draft, WordPart, is_name};
use super::values::Value;
use super::variables;

/// Built-ins that change what the shell itself does; read where they stand alone, and not behind `command` and its like.
pub(super) const OF_SHELL: [&str; 20] = [
    "eval",
    "trap",
    "exec",
    "export",
    "readonly",
    "declare",
    "typeset",
    "local",
    "read",
    "unset",
    "set",
    ".",
    "source",
    "getopts",
    "mapfile",
    "readarray",
    "let",
    "printf",
    "alias",
    "wait",
];

impl<'s> Reader<'s, '_> {
    /// 2.14: built-ins that change what the shell itself does. Returns whether all that the command runs is read.
    pub(super) fn built_in(&mut self, program: &str, words: &[(Draft, &'s str)]) -> Read<bool> {
        let arguments: Vec<Option<String>> = words[1..].iter().map(|(draft, _)| draft.fixed()).collect();
        let all_fixed = || arguments.iter().cloned().collect::<Option<Vec<String>>>();
        match program {
            "eval" => {
                let code =
                    all_fixed().filter(|words| words.first().is_none_or(|first| !first.starts_with('-')));
                let Some(code) = code else { return refuse("`eval` of what is not written") };
                self.nested(&code.join(" "))?;
                Ok(true)
            }
            "trap" => {
                let Some(words) = all_fixed() else { return refuse("`trap` with what is not written") };
                self.shared.has_trap = true;
                match words.first() {
                    Some(code) if code.starts_with('-') && code != "-" => {
                        return refuse("`trap` with options");
                    }
                    Some(code) if code != "-" => self.nested(code)?,
                    _ => {}
                }
                Ok(true)
            }
            "export" | "readonly" | "declare" | "typeset" | "local" => {
                self.declaration(program, words)?;
                Ok(true)
            }
            "unset" => self.unset(&all_fixed().unwrap_or_else(|| vec![String::new()])),
            "read" | "wait" => self.sets(program, arguments.iter().flatten()),
            "mapfile" | "readarray" => {
                for name in arguments.iter().flatten().filter(|word| is_name(word)) {
                    self.bind(name, Value::Any)?;
                    self.shared.lists.insert(name.clone());
                }
                Ok(false)
            }
            "time" => {
                let is_option = |word: &&str| matches!(*word, "-p" | "--");
                let mut written = words.iter().map(|(_, written)| *written).skip(1).skip_while(is_option);
                let first = written.next();
                // As a reserved word it takes no other options, and the next word is the program.
                let is_program = words[0].1 == "time" && first.is_some_and(|word| word.starts_with('-'));
                if is_program || first.is_some_and(|word| RESERVED.contains(&word) || word.contains('=')) {
                    return refuse("`time` of more than a program");
                }
                self.wrapped(&arguments)
            }
            "command" | "builtin" | "exec" => self.wrapped(&arguments),
            _ => Ok(self.shared.functions.contains(program)),
        }
    }

    fn unset(&mut self, names: &[String]) -> Read<bool> {
        if !names.iter().all(|name| is_name(name)) {
            return refuse("`unset` of other things than variables");
        }
        for name in names {
            self.bind(name, Value::Any)?;
            self.reads(name);
            self.shared.unset.insert(name.clone());
        }
        Ok(true)
    }

    /// Notes the variables that a built-in may set, by the words that may name one.
    fn sets<'w>(&mut self, program: &str, words: impl Iterator<Item = &'w String>) -> Read<bool> {
        let mut is_list = false;
        for word in words {
            is_list |= program == "read" && word.starts_with('-') && word.contains('a');
            for name in variables::names_in(word).filter(|name| is_name(name)) {
                self.notes_encoding(name, None);
                self.shared.failures +=
                    usize::from(self.shared.has_read_only || variables::is_read_only(name));
                self.shared.values.insert(name.to_owned(), Value::Any);
                self.shared.emptied.insert(name.to_owned());
                if is_list {
                    self.shared.lists.insert(name.to_owned());
                }
            }
        }
        Ok(false)
    }

    /// Refuses built-ins behind a word that runs what follows it.
    fn wrapped(&self, arguments: &[Option<String>]) -> Read<bool> {
        let only_asks = matches!(arguments.first(), Some(Some(first)) if first == "-v" || first == "-V");
        let passes_on = ["command", "builtin", "exec", "time"];
        let mut words = arguments.iter().flatten().map(String::as_str);
        let program = words.find(|word| !word.starts_with('-') && !passes_on.contains(word));
        let is_of_shell = program.is_some_and(|program| OF_SHELL.contains(&program) && program != "printf");
        match is_of_shell && !only_asks {
            true => refuse("a built-in of the shell behind another word"),
            false => Ok(false),
        }
    }

    /// `export NAME=value`, `local NAME=value`, and the like, without options that evaluate a value.
    fn declaration(&mut self, program: &str, words: &[(Draft, &'s str)]) -> Read<()> {
        let mut is_exported = program == "export";
        let is_read_only = program == "readonly"
            || words[1..].iter().any(|(_, written)| *written != "-x" && written.starts_with('-'));
        if is_read_only {
            self.shared.has_read_only = true;
            self.shared.failures += 1;
        }
        // Other shells lack some, and outside of a function `local` fails.
        let sets = match program {
            "local" => self.is_function,
            "declare" | "typeset" => self.is_bash,
            _ => true,
        };
        for (draft, written) in &words[1..] {
            let Some(WordPart::Fixed(first)) = draft.parts.first() else {
                return refuse("a declaration of what is not written");
            };
            if first == "-x" && draft.parts.len() == 1 && program != "local" {
                is_exported = true;
                continue;
            }
            if first == "-r" && draft.parts.len() == 1 && program != "export" {
                continue;
            }
            let (name, value) = match first.split_once('=') {
                Some((name, value)) => {
                    let rest = std::iter::once(WordPart::Fixed(value.to_owned()))
                        .chain(draft.parts[1..].iter().cloned());
                    let parts = rest.filter(|part| *part != WordPart::Fixed(String::new())).collect();
                    (name, Some(Draft { parts }))
                }
                None if draft.parts.len() == 1 => (first.as_str(), None),
                None => return refuse("a declaration of what is not written"),
            };
            if !is_name(name) || is_exported && !variables::is_harmless(name) {
                return refuse("a variable of a program");
            }
            let Some(value) = value else {
                self.bind(name, Value::Any)?;
                continue;
            };
            let is_written = self.is_bash && words[0].1 == program && is_assignment(written);
            let stays_one = value.word(&|_| Value::Any, false).is_one()
                && !value.parts.iter().any(|part| matches!(part, WordPart::Alike(_)));
            if !is_written && !stays_one
                || value.parts.iter().any(|part| matches!(part, WordPart::Alike(text) if text == "{"))
            {
                return refuse("a declaration whose value becomes several words");
            }
            if value.fixed().is_none_or(|text| text.starts_with('(')) {
                self.shared.declared.insert(name.to_owned());
            }
            self.notes_encoding(name, Some(&value));
            self.bind_draft(name, &value, false)?;
            if sets {
                self.shared.set.push(name.to_owned());
            }
        }
        Ok(())
    }
}
