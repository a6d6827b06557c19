//! The syntax of programs' arguments: which words are operands, and what these are.

use super::other_names;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds of operands and options that take values, by program and subcommand.
const ARGUMENTS: &str = include_str!("arguments.txt");

/// The operands of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// They are not known.
    Unknown,
    /// They are alike: one may stand in any place.
    Alike,
    /// The first one is a subcommand.
    Commands,
    /// The first one is a type.
    Typed,
    /// What follows the first one belongs to another program.
    Runs,
}

/// A row: the operands, and the options that take a value, with the marks `?` (there are more) and `!` before those that take none.
struct ArgumentRow {
    operands: Operands,
    valued: Vec<&'static str>,
}

#[derive(Default)]
struct Table {
    rows: HashMap<&'static str, ArgumentRow>,
    /// Options with a value that may stand behind every subcommand, by program.
    everywhere: HashMap<&'static str, Vec<&'static str>>,
    /// Programs with the same arguments as another one.
    like: HashMap<&'static str, &'static str>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::default();
    for line in ARGUMENTS.lines() {
        table.add(line);
    }
    table
});

impl Table {
    fn add(&mut self, line: &'static str) -> Option<()> {
        let (names, options) = line.split_once(':').filter(|_| !line.starts_with('#'))?;
        let (kind, names) = names.split_once(' ')?;
        let valued: Vec<&str> = options.split_whitespace().collect();
        let operands = match kind {
            "alike" => Operands::Alike,
            "commands" => Operands::Commands,
            "typed" => Operands::Typed,
            "runs" => Operands::Runs,
            "everywhere" => return self.everywhere.insert(names, valued).map(drop),
            _ => {
                let others = options.split([',', ' ']).filter(|other| !other.is_empty());
                self.like.extend(others.map(|other| (other, names)));
                return Some(());
            }
        };
        for name in names.split(", ") {
            self.rows.insert(name, ArgumentRow { operands, valued: valued.clone() });
        }
        Some(())
    }
}

/// The program that has the same arguments as `program` and is in the tables.
pub fn usual_name(program: &str) -> &str {
    TABLE.like.get(program).copied().unwrap_or(program)
}

/// The place that a reader of arguments has reached: the program, with the subcommands so far.
pub struct ArgumentSyntax {
    program: &'static str,
    path: String,
    row: Option<&'static ArgumentRow>,
    is_known: bool,
    /// Set if it may have more options than the program that it is like.
    has_more: bool,
}

impl ArgumentSyntax {
    pub fn of(program: &str) -> Self {
        let (named, program) = (program, usual_name(program));
        let known = TABLE.rows.get_key_value(program);
        Self {
            program: known.map_or("", |(name, _)| name),
            path: program.to_owned(),
            row: known.map(|(_, row)| row),
            is_known: known.is_some(),
            has_more: named != program,
        }
    }

    /// Returns whether it may have more options than are known.
    pub fn has_more(&self) -> bool {
        self.has_more || !self.is_known
    }

    /// What the next operands are. Those of a subcommand that is not known are taken for alike.
    pub fn operands(&self) -> Operands {
        let otherwise = if self.is_known { Operands::Alike } else { Operands::Unknown };
        self.row.map_or(otherwise, |row| row.operands)
    }

    /// The place behind a subcommand.
    pub fn behind(&self, subcommand: &str) -> Self {
        let mut behind = Self { path: self.path.clone(), ..*self };
        behind.below(subcommand);
        behind
    }

    /// Goes on behind a subcommand.
    pub fn below(&mut self, subcommand: &str) {
        let usual = other_names::of(self.program, &[subcommand]).map(|(_, names)| names[0].as_slice());
        let name = usual.filter(|name| name.len() == 1).map_or(subcommand, |name| name[0]);
        self.path = format!("{} {name}", self.path);
        self.row = TABLE.rows.get(self.path.as_str());
    }

    /// The options of the row and those that may stand behind every subcommand.
    fn options(&self) -> impl Iterator<Item = &'static str> {
        let everywhere = TABLE.everywhere.get(self.program).into_iter().flatten();
        self.row.into_iter().flat_map(|row| &row.valued).chain(everywhere).copied()
    }

    /// Returns whether the option of one letter takes a value.
    fn is_valued(&self, letter: char) -> bool {
        let option = format!("-{letter}");
        self.options().any(|known| known == option)
    }

    /// The letters of a group of options up to the first one that takes a value: the rest is that value.
    pub fn letters<'w>(&self, group: &'w str) -> &'w str {
        let first = group.char_indices().find(|(_, letter)| self.is_valued(*letter));
        first.map_or(group, |(at, letter)| &group[..at + letter.len_utf8()])
    }

    /// Returns whether an option takes the next word as its value; nothing where that is not known.
    pub fn takes_next(&self, option: &str) -> Option<bool> {
        if option.contains('=') {
            return Some(false);
        }
        if self.options().any(|known| known == option) {
            return Some(true);
        }
        let is_switch = |option: &str| self.options().any(|known| known.strip_prefix('!') == Some(option));
        let is_letters = !option.starts_with("--") && option.len() > 1;
        if is_switch(option)
            || is_letters && option[1..].chars().all(|letter| is_switch(&format!("-{letter}")))
        {
            return Some(false);
        }
        let is_complete = !self.has_more && self.row.is_some_and(|row| !row.valued.contains(&"?"));
        let otherwise = is_complete.then_some(false);
        if option.starts_with("--") {
            let is_beginning = self.options().any(|known| known.starts_with(option));
            return otherwise.filter(|_| !is_beginning);
        }
        // The first letter that takes a value has it joined, or in the next word.
        match option[1..].char_indices().find(|(_, letter)| self.is_valued(*letter)) {
            Some((at, letter)) => Some(1 + at + letter.len_utf8() == option.len()),
            None => otherwise,
        }
    }
}
