//! Reads a script that is written in a small part of the shell's language, which bash, dash and busybox read alike: POSIX.1-2017, Shell
//! Command Language, 2.4 (reserved words), 2.7 (redirection), 2.9 (commands) and 2.14 (special built-ins); `tokens.rs` reads its words.
//!
//! A script that is read to its end runs the commands that are found and no others, whatever its variables hold. Nothing here depends
//! on the order in which they run, nor on whether one fails: a variable counts as a number only where all that it is given are. Where
//! a construct is not in this part, it is named, and nothing is known about the script.

use super::super::findings::{Becomes, Word};
use super::heredocs::Body;
use super::plain;
use super::shell::{Run, Stdin};
use super::tokens::{Draft, Part, Value, is_name};
use super::variables;
use super::wrappers::{Shell, is_assignment};
use std::collections::{HashMap, HashSet};

/// How deep constructs may be nested.
const MAX_DEPTH: usize = 48;
/// The longest script that is read, in bytes.
const MAX_SCRIPT: usize = 1 << 20;
/// Commands of a script.
const MAX_RUNS: usize = 10_000;
/// Stages between a text and the command that reads it.
const MAX_STAGES: usize = 16;

/// What is read; or the construct that is not in the language, for the user.
pub type Read<T> = Result<T, &'static str>;

pub fn refuse<T>(what: &'static str) -> Read<T> {
    Err(what)
}

/// A script that is proven.
#[derive(Debug)]
pub struct Proven {
    /// Its commands.
    pub runs: Vec<Run>,
    /// Set if it sets variables, defines functions or writes to files.
    pub alters: bool,
}

/// Reads a script that `shell` runs.
pub fn read(text: &str, shell: Shell) -> Read<Proven> {
    if text.len() > MAX_SCRIPT {
        return refuse("a script that is too long");
    }
    if text.bytes().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')) {
        return refuse("a control character");
    }
    let mut shared = Shared::default();
    let mut reader = Reader {
        text,
        at: 0,
        shared: &mut shared,
        is_bash: !shell.may_be_another,
        depth: 0,
        waiting: Vec::new(),
        is_whole: true,
        is_beginning: true,
        is_nested: false,
    };
    reader.list(&[""])?;
    if shared.changes_encoding && !text.is_ascii() {
        return refuse("text that is not ASCII where the encoding is another one");
    }
    shared.proven()
}

/// What all parts of a script have in common.
#[derive(Default)]
pub struct Shared {
    commands: Vec<Command>,
    bodies: Vec<Option<Body>>,
    values: HashMap<String, Value>,
    functions: HashSet<String>,
    /// Names that are taken back: of variables, or else of functions.
    unset: HashSet<String>,
    /// Variables that are given lists, and those whose value a declaration may read again as one.
    lists: HashSet<String>,
    declared: HashSet<String>,
    /// Variables that expressions evaluate.
    numbers: Vec<String>,
    /// Variables that have been given a value for sure, so that what they hold is not from outside of the script.
    pub(super) set: Vec<String>,
    /// Number of expansions so far.
    pub(super) expansions: usize,
    alters: bool,
    /// Set if the shell may read what follows in another encoding.
    changes_encoding: bool,
}

/// A command before it is known what variables hold.
struct Command {
    words: Vec<Draft>,
    input: Input,
    targets: Vec<Draft>,
    /// Set if what it runs is among the commands: functions, `eval`, and what sets variables.
    is_read: bool,
    /// Set if more lines come after the one that it begins in.
    has_more: bool,
}

#[derive(Debug, Clone)]
enum Input {
    Inherited,
    /// The here-document of this number.
    Document(usize),
    Text(Draft),
    /// The output of a command, of this number where it is a simple one.
    Pipe(Option<usize>),
    File,
    /// The same, of which others may read a part, or in place of which something else may be read.
    Shared(Box<Input>),
}

/// The parts of a simple command; the words with how they are written.
#[derive(Default)]
struct Simple<'s> {
    words: Vec<(Draft, &'s str)>,
    assigned: Vec<(&'s str, Value)>,
    inputs: Vec<Input>,
    targets: Vec<Draft>,
}

/// A here-document whose lines come after this one.
pub struct Waiting {
    number: usize,
    delimiter: String,
    strips_tabs: bool,
    expands: bool,
}

/// A place in a script.
pub struct Reader<'s, 'r> {
    pub(super) text: &'s str,
    pub(super) at: usize,
    pub(super) shared: &'r mut Shared,
    pub(super) is_bash: bool,
    depth: usize,
    pub(super) waiting: Vec<Waiting>,
    /// Set if the text is the script itself, and not a text within it.
    is_whole: bool,
    /// Set where nothing may have failed yet, so that functions are defined for sure.
    is_beginning: bool,
    /// Set within a substitution.
    is_nested: bool,
}

/// Words that begin or end a construct where a command begins: 2.4, and those of bash.
const RESERVED: [&str; 22] = [
    "!", "{", "}", "case", "do", "done", "elif", "else", "esac", "fi", "for", "if", "in", "then", "until",
    "while", "[[", "]]", "function", "select", "coproc", "((",
];
/// Built-ins that change what the shell itself does; read where they stand alone, and not behind `command` and its like.
const OF_SHELL: [&str; 20] = [
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
/// Files whose text tells about the machine, below `/proc`.
const ABOUT_MACHINE: [&str; 9] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/version",
    "/proc/mounts",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/self/status",
    "/proc/self/cgroup",
    "/proc/sys/kernel/osrelease",
];
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

impl<'s> Reader<'s, '_> {
    pub fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    pub fn peek_at(&self, offset: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + offset).copied()
    }

    pub fn rest(&self) -> &'s str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The longest name at this place.
    pub fn name(&mut self) -> &'s str {
        let rest = self.rest();
        let length = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let length = if rest.starts_with(|c: char| c.is_ascii_digit()) { 0 } else { length };
        self.at += length;
        &rest[..length]
    }

    /// `$( … )`, after its opening.
    pub fn substitution(&mut self) -> Read<()> {
        if self.peek() == Some(b'\\') {
            return refuse("a line that is continued at the beginning of a substitution");
        }
        let (start, waiting) = (self.at, std::mem::take(&mut self.waiting));
        let (was_nested, was_beginning) = (self.is_nested, self.is_beginning);
        (self.is_nested, self.is_beginning) = (true, false);
        self.deeper(|reader| reader.list(&[")"]))?;
        self.at += 1;
        if !self.waiting.is_empty() || !waiting.is_empty() && self.text[start..self.at].contains('\n') {
            return refuse("a here-document that begins and ends in different substitutions");
        }
        (self.waiting, self.is_nested, self.is_beginning) = (waiting, was_nested, was_beginning);
        Ok(())
    }

    /// Reads a text within the script as commands.
    pub fn nested(&mut self, code: &str) -> Read<()> {
        self.within(code, |reader| reader.list(&[""]).map(drop))
    }

    fn within(&mut self, text: &str, read: impl FnOnce(&mut Reader<'_, '_>) -> Read<()>) -> Read<()> {
        if self.depth >= MAX_DEPTH {
            return refuse("code that is nested too deep");
        }
        let (is_bash, depth, set) = (self.is_bash, self.depth + 1, self.shared.set.len());
        let result = read(&mut Reader {
            text,
            at: 0,
            shared: &mut *self.shared,
            is_bash,
            depth,
            waiting: Vec::new(),
            is_whole: false,
            is_beginning: false,
            is_nested: false,
        });
        // It may run in another shell, or later.
        self.shared.set.truncate(set);
        result
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return refuse("code that is nested too deep");
        }
        self.depth += 1;
        let set = self.shared.set.len();
        let result = read(self);
        self.shared.set.truncate(set);
        self.depth -= 1;
        result
    }

    /// Passes over blanks, and over lines that are continued where all shells see the same words.
    fn blanks(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => {
                    let before = self.at.checked_sub(1).map(|at| self.text.as_bytes()[at]);
                    let after = self.peek_at(2);
                    let is_divided =
                        matches!(before, Some(b' ' | b'\t')) || matches!(after, Some(b' ' | b'\t'));
                    let joins = after.is_some_and(|byte| b"&|;<>()#\\\n".contains(&byte));
                    let is_operator = matches!(before, Some(b'&' | b'|')) && !joins;
                    if !is_divided && !is_operator || after == Some(b'#') {
                        return refuse("a line that is continued within a word");
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Passes over blanks, remarks and newlines. Returns whether there was a newline.
    fn lines(&mut self) -> Read<bool> {
        let mut has_newline = false;
        loop {
            self.blanks()?;
            match self.peek() {
                Some(b'#') => self.remark()?,
                Some(b'\n') => {
                    self.newline()?;
                    has_newline = true;
                }
                _ => return Ok(has_newline),
            }
        }
    }

    /// 2.3, rule 9.
    fn remark(&mut self) -> Read<()> {
        let before = self.at.checked_sub(1).map(|at| self.text.as_bytes()[at]);
        if !before.is_none_or(|byte| b" \t\n;".contains(&byte)) {
            return refuse("a remark directly behind an operator");
        }
        let end = self.rest().find('\n').unwrap_or(self.rest().len());
        // Older versions of bash look for the end of a substitution in its remarks.
        if self.is_nested && self.rest()[..end].contains(['\'', '"', '(', ')', '`', '$', '\\', '<']) {
            return refuse("a remark with quotes or parentheses in a substitution");
        }
        self.at += end;
        Ok(())
    }

    /// 2.7.4: at the end of a line come the texts of its here-documents.
    fn newline(&mut self) -> Read<()> {
        self.at += 1;
        for waiting in std::mem::take(&mut self.waiting) {
            let mut text = String::new();
            loop {
                let rest = self.rest();
                if rest.is_empty() {
                    return refuse("a here-document that does not end");
                }
                let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
                self.at += rest.len() - after.len();
                let line = if waiting.strips_tabs { line.trim_start_matches('\t') } else { line };
                if line == waiting.delimiter {
                    break;
                }
                text += line;
                text.push('\n');
            }
            if waiting.expands {
                self.within(&text, |reader| reader.document())?;
            }
            self.shared.bodies[waiting.number] = Some(Body { text, expands: waiting.expands });
        }
        Ok(())
    }

    /// The reserved word at this place: 2.4. Quoted, or a part of another word, it is none.
    fn reserved(&self) -> Option<&'static str> {
        if self.peek() == Some(b'(') {
            return Some(if self.peek_at(1) == Some(b'(') { "((" } else { "(" });
        }
        let rest = self.rest();
        let end = rest.find(|c: char| " \t\n;&|<>()".contains(c)).unwrap_or(rest.len());
        RESERVED.into_iter().find(|word| *word == &rest[..end])
    }

    /// 2.9.3: commands up to one of these words, which is left where it is: `""` is the end of the text.
    fn list(&mut self, until: &[&'static str]) -> Read<&'static str> {
        let (mut is_empty, mut is_separated) = (true, true);
        loop {
            is_separated |= self.lines()?;
            let closer = self.closer(until);
            if let Some(closer) = closer {
                let may_follow = is_separated || matches!(closer, "" | ")" | ";;");
                let may_be_empty = matches!(closer, "" | ";;" | "esac") || closer == ")" && self.is_nested;
                if !may_follow || is_empty && !may_be_empty {
                    return refuse("a part of a command without the word before or behind it");
                }
                if closer.is_empty() && !self.waiting.is_empty() {
                    return refuse("a here-document that does not end");
                }
                return Ok(closer);
            }
            if !is_separated {
                return refuse("two commands that nothing divides");
            }
            (is_empty, is_separated) = (false, false);
            if !self.function()? {
                self.and_or()?;
            }
            self.blanks()?;
            match (self.peek(), self.peek_at(1)) {
                (Some(b';'), next) if next != Some(b';') => is_separated = true,
                (Some(b'&'), next) if !matches!(next, Some(b'&' | b'>')) => is_separated = true,
                _ => continue,
            }
            self.at += 1;
        }
    }

    fn closer(&self, until: &[&'static str]) -> Option<&'static str> {
        until.iter().copied().find(|word| match *word {
            "" => self.peek().is_none(),
            ")" => self.peek() == Some(b')'),
            ";;" => self.rest().starts_with(";;") && !self.rest().starts_with(";;&"),
            word => self.reserved() == Some(word),
        })
    }

    /// Reads up to a reserved word, which is passed over.
    fn list_and(&mut self, until: &[&'static str]) -> Read<&'static str> {
        let closer = self.list(until)?;
        self.at += closer.len();
        Ok(closer)
    }

    /// The same of one of several lists, of which another one may run instead.
    fn branch(&mut self, until: &[&'static str]) -> Read<&'static str> {
        let set = self.shared.set.len();
        let closer = self.list_and(until);
        self.shared.set.truncate(set);
        closer
    }

    /// 2.9.3: `a && b || c`
    fn and_or(&mut self) -> Read<()> {
        let (commands, expansions) = (self.shared.commands.len(), self.shared.expansions);
        let (before, mut set) = (self.shared.set.len(), None);
        loop {
            self.pipeline()?;
            self.blanks()?;
            // What only one side sets may not be set behind them.
            let first = *set.get_or_insert(self.shared.set.len());
            match self.rest() {
                rest if rest.starts_with("&&") => {}
                rest if rest.starts_with("||") => self.shared.set.truncate(first),
                rest => {
                    let in_background = rest.starts_with('&');
                    self.shared.set.truncate(if in_background { before } else { first });
                    break;
                }
            }
            self.at += 2;
            self.lines()?;
        }
        // A fixed value, or an option of the shell, never keeps what comes next from running and leaves the shell alive.
        let is_set =
            |command: &Command| command.words.first().and_then(Draft::fixed).as_deref() == Some("set");
        self.is_beginning &= self.shared.commands[commands..].iter().all(is_set)
            && expansions == self.shared.expansions
            && !["UID", "EUID", "PPID"].iter().any(|name| self.shared.values.contains_key(*name));
        Ok(())
    }

    /// 2.9.2: `! a | b`
    fn pipeline(&mut self) -> Read<()> {
        if self.reserved() == Some("!") {
            self.at += 1;
            self.blanks()?;
            if self.reserved() == Some("!") {
                return refuse("a command that is negated twice");
            }
        }
        let (mut before, set) = (None, self.shared.set.len());
        for stage in 0.. {
            let start = self.shared.commands.len();
            let own = self.command()?;
            if stage > 0 {
                self.shared.set.truncate(set);
                self.give(start, own, &Input::Pipe(before));
            }
            before = own;
            self.blanks()?;
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                break;
            }
            self.at += 1;
            self.shared.set.truncate(set);
            if self.peek() == Some(b'&') {
                if !self.is_bash {
                    return refuse("an operator that only bash has");
                }
                self.at += 1;
            }
            self.lines()?;
        }
        Ok(())
    }

    /// What commands from `start` on read that read what they inherit; one of them is given all of it.
    fn give(&mut self, start: usize, own: Option<usize>, input: &Input) {
        for (at, command) in self.shared.commands.iter_mut().enumerate().skip(start) {
            if matches!(command.input, Input::Inherited) {
                let is_own = own == Some(at);
                command.input = if is_own { input.clone() } else { Input::Shared(Box::new(input.clone())) };
            }
        }
    }

    /// Reads a command. Returns its number where it is a simple one.
    fn command(&mut self) -> Read<Option<usize>> {
        let start = self.shared.commands.len();
        let Some(word) = self.reserved() else { return self.simple() };
        self.is_beginning = false;
        self.at += word.len();
        self.deeper(|reader| reader.compound(word))?;
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        loop {
            self.blanks()?;
            if !self.redirect(&mut inputs, &mut targets)? {
                break;
            }
        }
        if let Some(input) = inputs.pop() {
            self.give(start, None, &input);
        }
        for command in &mut self.shared.commands[start..] {
            command.targets.extend(targets.iter().cloned());
        }
        let is_end = self.peek().is_none_or(|byte| b" \t\n;&|)".contains(&byte)) || self.peek() == Some(b'#');
        if is_end { Ok(None) } else { refuse("a word behind a construct") }
    }

    /// 2.9.4, after its first word.
    fn compound(&mut self, word: &str) -> Read<()> {
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
            for end in [";", ";", "))"] {
                self.arithmetic(end)?;
            }
        } else {
            let name = self.name();
            if !is_name(name) {
                return refuse("a loop without a variable");
            }
            self.blanks()?;
            let mut value = Value::Any;
            if self.lines()? && self.reserved() != Some("do") {
                return refuse("a loop whose words are on another line");
            }
            if self.reserved() == Some("in") {
                self.at += 2;
                value = Value::Number;
                loop {
                    self.blanks()?;
                    if self.peek().is_none_or(|byte| matches!(byte, b';' | b'\n' | b'#')) {
                        break;
                    }
                    value = value.max(self.word()?.value());
                }
                if self.peek() == Some(b'#') {
                    return refuse("a remark behind the words of a loop");
                }
            }
            self.notes_encoding(name, None);
            self.bind(name, value)?;
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
            "=" | "==" | "!=" | "-nt" | "-ot" | "-ef" => return Ok(()),
            "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" => {}
            _ => return refuse("a test that may evaluate what it is about"),
        }
        for operand in operands {
            match operand.parts.as_slice() {
                _ if operand.value() == Value::Number => {}
                [Part::Name { name, .. }] => self.evaluates(name.clone())?,
                _ => return refuse("an expression of other things than numbers"),
            }
        }
        Ok(())
    }

    /// 2.9.5: a function that is defined before anything can fail, outside of every construct. No other command has its name.
    fn function(&mut self) -> Read<bool> {
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
        let is_known = RESERVED.contains(&name) || plain::is_command(name) || OF_SHELL.contains(&name);
        if !self.is_whole || !self.is_beginning || self.depth > 0 || is_known || variables::decides(name) {
            return refuse("a function that is defined behind other commands, or has the name of one");
        }
        self.shared.functions.insert(name.to_owned());
        self.shared.alters = true;
        self.lines()?;
        if !matches!(self.reserved(), Some("{" | "(")) {
            return refuse("a function without braces");
        }
        let (before, braces) = (self.shared.commands.len(), self.reserved().unwrap_or_default());
        self.at += braces.len();
        self.deeper(|reader| reader.compound(braces))?;
        // What a function reads is what its calls read.
        self.give(before, None, &Input::File);
        self.blanks()?;
        self.is_beginning = true;
        match self.peek() {
            None | Some(b'\n' | b';' | b'#') => Ok(true),
            _ => refuse("a function that is defined within a list"),
        }
    }

    /// 2.9.1: a command of words, assignments and redirections.
    fn simple(&mut self) -> Read<Option<usize>> {
        let start = self.at;
        let mut simple = self.parts()?;
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
            simple.words[0].0 = Draft { parts: vec![Part::Fixed("[".to_owned())] };
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
        self.shared.commands.push(Command { words, input, targets: simple.targets, is_read, has_more });
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
    fn process_substitution(&mut self) -> Read<Draft> {
        let start = self.at;
        let is_word = matches!(self.text.as_bytes().get(start.wrapping_sub(1)), Some(b' ' | b'\t'));
        if !self.is_bash || !is_word {
            return refuse("a process substitution outside of bash, or within a word");
        }
        self.at += 2;
        self.substitution()?;
        if self.peek().is_some_and(|byte| !b" \t\n;&|)".contains(&byte)) {
            return refuse("a process substitution within a word");
        }
        let written = self.text[start..self.at].to_owned();
        Ok(Draft { parts: vec![Part::Changed { written, becomes: Becomes::One }] })
    }

    /// Notes what a command assigns: to variables of the shell, or to those of the program that it runs.
    fn assign(&mut self, assigned: &[(&'s str, Value)], program: Option<&str>) -> Read<()> {
        let is_for_program =
            |name: &str| variables::is_harmless(name) || name == "IFS" && program == Some("read");
        for (name, value) in assigned {
            if program.is_none() {
                self.bind(name, *value)?;
                self.shared.set.push((*name).to_owned());
            } else if !is_for_program(name) {
                return refuse("a variable of a program");
            }
            self.shared.alters = true;
        }
        Ok(())
    }

    /// `NAME=value`, `NAME+=value`, and in bash `NAME=(…)`. Returns whether there is one.
    fn assignment(&mut self, assigned: &mut Vec<(&'s str, Value)>) -> Read<bool> {
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
                Value::Any
            }
            _ => {
                let draft = self.value()?;
                self.notes_encoding(name, draft.as_ref());
                draft.map_or(Value::Any, |draft| draft.value())
            }
        };
        assigned.push((name, if adds { Value::Any } else { value }));
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
                _ => drop(self.word()?),
            }
        }
        self.at += 1;
        let is_end = self.peek().is_none_or(|byte| b" \t\n;&|)".contains(&byte));
        if is_end { Ok(()) } else { refuse("a word behind a list") }
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.shared.set.iter().any(|set| set == name)
    }

    /// Notes that an expression evaluates what a variable holds.
    pub fn evaluates(&mut self, name: String) -> Read<()> {
        if !self.is_set(&name) && !variables::NUMBERS.contains(&name.as_str()) {
            return refuse("an expression that evaluates what a variable holds");
        }
        self.shared.numbers.push(name);
        Ok(())
    }

    pub fn notes_encoding(&mut self, name: &str, value: Option<&Draft>) {
        let text = value.and_then(Draft::fixed);
        self.shared.changes_encoding |= variables::changes_encoding(name, text.as_deref());
    }

    /// Notes what a variable is given. One that decides what runs is refused.
    pub fn bind(&mut self, name: &str, value: Value) -> Read<()> {
        let is_obeyed = variables::decides(name) && !variables::is_harmless(name);
        if is_obeyed || variables::is_integer(name) && value != Value::Number {
            return refuse("a variable that decides what runs");
        }
        self.shared.alters = true;
        let entry = self.shared.values.entry(name.to_owned()).or_insert(value);
        *entry = value.max(*entry);
        Ok(())
    }

    /// 2.14: built-ins that change what the shell itself does. Returns whether all that the command runs is read.
    fn built_in(&mut self, program: &str, words: &[(Draft, &'s str)]) -> Read<bool> {
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
            "read" | "wait" => self.reads(program, arguments.iter().flatten()),
            "time" => {
                let mut written = words.iter().skip(1).map(|(_, written)| *written);
                let first = written.find(|word| !word.starts_with('-'));
                if first.is_some_and(|word| RESERVED.contains(&word) || word.contains('=')) {
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
            self.shared.unset.insert(name.clone());
        }
        Ok(true)
    }

    /// Notes the variables that a built-in may set, by the words that may name one.
    fn reads<'w>(&mut self, program: &str, words: impl Iterator<Item = &'w String>) -> Read<bool> {
        for word in words {
            if program == "read" && word.starts_with('-') && word.contains('a') && !word.starts_with("--") {
                return refuse("`read` of a list");
            }
            for name in variables::names_in(word).filter(|name| is_name(name)) {
                self.notes_encoding(name, None);
                self.shared.values.insert(name.to_owned(), Value::Any);
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
        for (draft, written) in &words[1..] {
            let Some(Part::Fixed(first)) = draft.parts.first() else {
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
                    let rest = std::iter::once(Part::Fixed(value.to_owned()))
                        .chain(draft.parts[1..].iter().cloned());
                    let parts = rest.filter(|part| *part != Part::Fixed(String::new())).collect();
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
                && !value.parts.iter().any(|part| matches!(part, Part::Alike(_)));
            if !is_written && !stays_one
                || value.parts.iter().any(|part| matches!(part, Part::Alike(text) if text == "{"))
            {
                return refuse("a declaration whose value becomes several words");
            }
            if value.fixed().is_none_or(|text| text.starts_with('(')) {
                self.shared.declared.insert(name.to_owned());
            }
            self.notes_encoding(name, Some(&value));
            self.bind(name, value.value())?;
            self.shared.set.push(name.to_owned());
        }
        Ok(())
    }

    /// 2.7: a redirection, if one begins here.
    fn redirect(&mut self, inputs: &mut Vec<Input>, targets: &mut Vec<Draft>) -> Read<bool> {
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
                self.shared.is_file(&target)?;
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
        if !is_known || self.peek_at(1).is_some_and(|byte| !b" \t\n;&|)".contains(&byte)) {
            return refuse("a redirection of another descriptor");
        }
        self.at += 1;
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

impl Shared {
    /// Refuses files through which a process, or the shell itself, is written to.
    fn is_file(&self, target: &Draft) -> Read<()> {
        let word = target.word(&|_| Value::Any, false);
        let is_device = word.text.contains("/dev") && !DEVICES.contains(&word.text.as_str());
        if is_device || matches!(word.text.as_str(), "stdin" | "mem" | "fd") || word.text.starts_with("fd/") {
            return refuse("a redirection to a device");
        }
        Ok(())
    }

    /// Judges what waited for the whole script: the values of variables.
    fn proven(self) -> Read<Proven> {
        let value_of = |name: &str| match self.values.get(name) {
            _ if name == "!" => Value::Number,
            _ if variables::is_harmless(name) => Value::Any,
            Some(value) => *value,
            None if variables::NUMBERS.contains(&name) => Value::Number,
            None => Value::Any,
        };
        if self.numbers.iter().any(|name| value_of(name) != Value::Number) {
            return refuse("an expression that evaluates what a variable holds");
        }
        if self.functions.intersection(&self.unset).next().is_some() {
            return refuse("a function that is taken back");
        }
        if self.lists.intersection(&self.declared).next().is_some() {
            return refuse("a list whose value is read again");
        }
        let words = |drafts: &[Draft]| -> Vec<Word> {
            let (program, arguments) = match drafts.split_first() {
                Some((program, arguments)) => (Some(program.program(&value_of)), arguments),
                None => (None, drafts),
            };
            let takes_numbers = program.as_ref().is_some_and(|program| plain::takes_numbers(&program.text));
            program
                .into_iter()
                .chain(arguments.iter().map(|draft| draft.word(&value_of, takes_numbers)))
                .collect()
        };
        let all: Vec<Vec<Word>> = self.commands.iter().map(|command| words(&command.words)).collect();
        let output = Output { shared: &self, words: &all, value_of: &value_of };
        let mut runs = Vec::new();
        for (at, command) in self.commands.iter().enumerate() {
            let targets: Vec<Word> =
                command.targets.iter().map(|draft| draft.word(&value_of, false)).collect();
            if all[at].iter().chain(&targets).any(is_of_process) {
                return refuse("a file of a process");
            }
            runs.push(Run {
                has_more: command.has_more,
                words: all[at].clone(),
                stdin: output.stdin(&command.input, 0),
                written: output.written(at, &targets),
                targets,
                is_read: command.is_read,
            });
        }
        Ok(Proven { runs, alters: self.alters })
    }
}

/// Returns whether a word names a file of `/proc` through which a process can be written to, or may do so.
fn is_of_process(word: &Word) -> bool {
    let text = word.text.as_str();
    let at_root = ["/", "//", "/./", "../", "=/", ":/"];
    let is_there = at_root.iter().any(|before| {
        text.match_indices(before).any(|(at, _)| {
            let rest = &text[at + before.len()..];
            let begins = at == 0 || *before == "../" || before.starts_with(['=', ':']);
            begins && (rest == "proc" || rest.starts_with("proc/"))
        })
    });
    let is_glob_at_root = !word.fixed && text.starts_with('/') && {
        let first = text.trim_start_matches('/').split('/').next().unwrap_or_default();
        first.contains(['*', '?', '[', '{'])
    };
    let is_memory = text == "mem" || text.ends_with("/mem") || text.ends_with("=mem");
    (is_there && !ABOUT_MACHINE.contains(&text))
        || is_glob_at_root
        || is_memory
        || text == "proc"
        || text.starts_with("proc/")
}

/// What commands read and print, where that stands in the script.
struct Output<'o> {
    shared: &'o Shared,
    words: &'o [Vec<Word>],
    value_of: &'o dyn Fn(&str) -> Value,
}

impl Output<'_> {
    fn stdin(&self, input: &Input, depth: usize) -> Stdin {
        match input {
            Input::Inherited | Input::File => Stdin::Inherited,
            Input::Document(number) => match &self.shared.bodies[*number] {
                Some(body) => Stdin::Text {
                    text: body.text.clone(),
                    is_exact: !body.expands || !body.text.contains(['$', '`', '\\']),
                },
                None => Stdin::Pipe,
            },
            Input::Text(draft) => {
                let word = draft.word(self.value_of, false);
                Stdin::Text { is_exact: draft.fixed().is_some(), text: word.text }
            }
            Input::Pipe(before) => {
                let before = before.filter(|_| depth < MAX_STAGES);
                before.and_then(|at| self.of(at, depth + 1)).unwrap_or(Stdin::Pipe)
            }
            Input::Shared(input) => self.stdin(input, depth).inexact(),
        }
    }

    /// What a simple command prints.
    fn of(&self, at: usize, depth: usize) -> Option<Stdin> {
        let command = &self.shared.commands[at];
        let input = || self.stdin(&command.input, depth);
        let output = super::shell::printed(&self.words[at], &input)?;
        // A redirection may take it elsewhere.
        Some(if command.targets.is_empty() { output } else { output.inexact() })
    }

    /// The file that a command writes, and its text.
    fn written(&self, at: usize, targets: &[Word]) -> Option<(String, String)> {
        let Stdin::Text { text, .. } = self.of(at, 0)? else { return None };
        let words = &self.words[at];
        let is_tee = words.first().is_some_and(|program| program.text == "tee");
        let file = if is_tee { words.iter().skip(1).find(|word| !word.is_flag()) } else { targets.first() };
        Some((file?.text.clone(), text))
    }
}
