//! Findings in a command or a file: programs that would run, modules and built-ins that are used.

use serde::{Deserialize, Serialize};

/// A language that rules can speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Language {
    /// POSIX shell and bash: its commands are judged.
    Shell,
    /// Python.
    Python,
    /// JavaScript and TypeScript, with and without JSX.
    JavaScript,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Ruby.
    Ruby,
}

impl Language {
    /// The name as the configuration and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Language::Shell => "shell",
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::Rust => "rust",
            Language::Go => "go",
            Language::Ruby => "ruby",
        }
    }
}

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Word {
    /// The word with its quotes resolved; what only the shell can know (`$X`, `$(…)`) stands as it was written.
    pub text: String,
    /// Set if the text is all there is to it: no expansion, no glob.
    pub fixed: bool,
    /// The ways in which it changes where it is not fixed.
    #[serde(default)]
    pub becomes: Becomes,
}

/// The words that the shell may make of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Becomes {
    /// One word, and not an option.
    Plain,
    /// One word.
    #[default]
    One,
    /// At most one word, and not an option.
    Operand,
    /// Several, none of which is an option.
    Operands,
    /// Several that begin as it does: a glob, or braces.
    Alike,
    /// Any words: an expansion outside quotes is divided.
    Any,
}

impl Word {
    /// A word that the shell does not change.
    pub fn fixed(text: impl Into<String>) -> Self {
        Self { text: text.into(), fixed: true, becomes: Becomes::One }
    }

    /// A word that the shell changes.
    pub fn changed(text: impl Into<String>, becomes: Becomes) -> Self {
        Self { text: text.into(), fixed: false, becomes }
    }

    /// Returns whether it stays one word.
    pub fn is_one(&self) -> bool {
        matches!(self.becomes, Becomes::Plain | Becomes::One)
    }

    /// Returns whether it may become an option, other than the long one that it begins with (`--output=$X`). A glob may match a file that is
    /// named like one.
    pub fn may_be_option(&self) -> bool {
        let is_long = self.text.split_once('=').is_some_and(|(name, _)| {
            name.starts_with("--") && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric())
        });
        let begins = self.text.starts_with(['$', '`', '*', '?', '[', '{', '<']);
        let is_changed = begins
            || self.text.starts_with('-') && !(is_long && (self.is_one() || self.becomes == Becomes::Alike));
        let is_operand = matches!(self.becomes, Becomes::Plain | Becomes::Operand | Becomes::Operands);
        !self.fixed && !is_operand && (is_changed || self.becomes == Becomes::Any)
    }

    /// Returns whether it looks like an option: `-x`, `--long`.
    pub fn is_flag(&self) -> bool {
        self.text.len() > 1 && self.text.starts_with('-') && self.text != "--"
    }
}

/// The origin of a name: a module, or the language itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// It came in through an import.
    Module,
    /// The language has it without any import.
    Builtin,
}

/// A name with every alias resolved: `os.system`, `node:fs` as `fs`, `std::process::Command`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    /// Where it comes from.
    pub kind: Kind,
    /// The path in the language's own spelling.
    pub path: String,
}

/// A module or built-in that a piece of code uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The language of the code.
    pub language: Language,
    /// The name that is used.
    pub name: Name,
    /// Where: `a.py:3`, `the command`.
    pub place: String,
}

/// Something that could not be read, so that its effect is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The language it is written in.
    pub language: Language,
    /// The part that could not be read, and why.
    pub what: String,
}

/// Something that may run programs which nobody can name before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// The command; empty where it is an assignment, an expression or code.
    pub command: Vec<Word>,
    /// It, for the user.
    pub what: String,
    /// Set if the program runs what the project's files say, and no argument of it is meant to be code.
    pub is_project: bool,
    /// The language of code that was read: rules about names in it were applied.
    pub code: Option<Language>,
}

/// A command that was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FoundCommand {
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// The one among the commands found before it that runs it: `sudo`, `sh -c`.
    pub holder: Option<usize>,
}

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Every different command, the ones inside `sudo`, `sh -c`, pipelines and substitutions too; the program is the first word.
    pub commands: Vec<FoundCommand>,
    /// Modules and built-ins.
    pub uses: Vec<Use>,
    /// The parts that could not be read.
    pub unreadable: Vec<Unreadable>,
    /// Parts that may run programs which are not among the commands.
    pub unseen: Vec<Unseen>,
    /// Tools of MCP servers.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Set if the names of the programs do not say what runs, or what it does: variables are set, functions or aliases defined, or
    /// output goes to a file.
    #[serde(default)]
    pub is_altered: bool,
}

impl Findings {
    /// Adds what was found elsewhere.
    pub fn extend(&mut self, other: Self) {
        let before = self.commands.len();
        let moved = |command: FoundCommand| FoundCommand {
            holder: command.holder.map(|holder| before + holder),
            ..command
        };
        self.commands.extend(other.commands.into_iter().map(moved));
        self.uses.extend(other.uses);
        self.unreadable.extend(other.unreadable);
        self.unseen.extend(other.unseen);
        self.tools.extend(other.tools);
        self.is_altered |= other.is_altered;
    }
}
