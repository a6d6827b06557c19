//! Reads a script that is written in a small part of the shell's language, which bash, dash and busybox read alike: POSIX.1-2017, Shell
//! Command Language, 2.4 (reserved words) and 2.9 (lists and pipelines). What they are made of is read by `tokens.rs`, `redirections.rs`,
//! `simple_command.rs`, `built_ins.rs` and `constructs.rs`, and judged by `judgement.rs`.
//!
//! A script that is read to its end runs the commands that are found and no others, whatever its variables hold. Nothing here depends
//! on the order in which they run, nor on whether one fails: a variable counts as a number only where all that it is given are. Where
//! a construct is not in this part, it is named, and nothing is known about the script.

use super::heredocs::Body;
use super::shell::Run;
use super::tokens::{Draft, WordPart};
use super::values::{Link, Value};
use super::variables;
use super::wrappers::Shell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// How deep constructs may be nested.
const MAX_DEPTH: usize = 48;
/// The longest script that is read, in bytes.
const MAX_SCRIPT: usize = 1 << 20;

/// Returns what is read; or the construct that is not in the language, for the user.
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
    /// Variables that it gives values, to its programs too.
    pub assigned: HashSet<String>,
}

/// Reads a script that `shell` runs, in commands that give `outer` variables values.
pub fn read(text: &str, shell: Shell, outer: &HashSet<String>) -> Read<Proven> {
    if text.len() > MAX_SCRIPT {
        return refuse("a script that is too long");
    }
    if text.bytes().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')) {
        return refuse("a control character");
    }
    let mut shared = Shared { outer: outer.clone(), has_background: shell.has_company, ..Shared::default() };
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
        is_function: false,
    };
    reader.list(&[""])?;
    if shared.changes_encoding && !text.is_ascii() {
        return refuse("text that is not ASCII where the encoding is another one");
    }
    shared.proven()
}

/// The state that all parts of a script share.
#[derive(Default)]
pub struct Shared {
    pub(super) commands: Vec<Command>,
    pub(super) bodies: Vec<Option<Body>>,
    pub(super) values: HashMap<String, Value>,
    /// Variables that are given what others hold.
    pub(super) links: Vec<Link>,
    pub(super) functions: HashSet<String>,
    /// Names that are taken back: of variables, or else of functions.
    pub(super) unset: HashSet<String>,
    /// Variables that are given lists, and those whose value a declaration may read again as one.
    pub(super) lists: HashSet<String>,
    pub(super) declared: HashSet<String>,
    /// Texts that variables are given.
    pub(super) given: Vec<Draft>,
    /// Variables that are given what may be nothing.
    pub(super) emptied: HashSet<String>,
    /// Commands whose output is a part of words.
    pub(super) captured: Vec<Range<usize>>,
    /// Variables that the script itself reads, or takes back.
    pub(super) read: HashSet<String>,
    /// Variables that expressions evaluate.
    pub(super) numbers: Vec<String>,
    /// Variables that have been given a value for sure, so that what they hold is not from outside of the script.
    pub(super) set: Vec<String>,
    /// Variables that commands around the script give values: they may hold those wherever the script is left early.
    pub(super) outer: HashSet<String>,
    /// Variables of programs alone.
    pub(super) passed: HashSet<String>,
    /// Number of expressions and assignments so far that may fail, behind which bash passes over the rest of the line.
    pub(super) failures: usize,
    /// Set if a variable may be read-only, so that assignments may fail.
    pub(super) has_read_only: bool,
    /// Set if a trap may run between any commands.
    pub(super) has_trap: bool,
    /// Number of expansions so far.
    pub(super) expansions: usize,
    /// Number of redirections to other descriptors so far.
    pub(super) joined: usize,
    /// Set if commands may run at the same time as those that follow.
    pub(super) has_background: bool,
    pub(super) alters: bool,
    /// Set if the shell may read what follows in another encoding.
    pub(super) changes_encoding: bool,
}

/// A command before it is known what variables hold.
pub(super) struct Command {
    pub(super) words: Vec<Draft>,
    pub(super) input: Input,
    pub(super) targets: Vec<Draft>,
    /// Set if it may print errors, or what it prints may go elsewhere.
    pub(super) is_joined: bool,
    /// Set if what it runs is among the commands: functions, `eval`, and what sets variables.
    pub(super) is_read: bool,
    /// Set if more lines come after the one that it begins in.
    pub(super) has_more: bool,
    /// Set if it stands in a pipeline of which other stages may do more at the same time than print a text.
    pub(super) has_company: bool,
}

impl Command {
    /// Returns whether it writes to its standard output and nowhere else.
    fn only_prints(&self) -> bool {
        let program = self.words.first().and_then(Draft::fixed);
        program.is_some_and(|program| match program.as_str() {
            "echo" | "printf" | "cat" => true,
            "tee" => self.words.len() == 1,
            _ => false,
        })
    }
}

#[derive(Debug, Clone)]
pub(super) enum Input {
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

impl Input {
    /// The input itself, where others may read a part of it.
    pub(super) fn own(&self) -> &Self {
        match self {
            Self::Shared(input) => input.own(),
            own => own,
        }
    }
}

/// A here-document whose lines come after this one.
pub struct Waiting {
    pub(super) number: usize,
    pub(super) delimiter: String,
    pub(super) strips_tabs: bool,
    pub(super) expands: bool,
}

/// A place in a script.
pub struct Reader<'s, 'r> {
    pub(super) text: &'s str,
    pub(super) at: usize,
    pub(super) shared: &'r mut Shared,
    pub(super) is_bash: bool,
    pub(super) depth: usize,
    pub(super) waiting: Vec<Waiting>,
    /// Set if the text is the script itself, and not a text within it.
    pub(super) is_whole: bool,
    /// Set where nothing may have failed yet, so that functions are defined for sure.
    pub(super) is_beginning: bool,
    /// Set within a substitution.
    pub(super) is_nested: bool,
    /// Set within a function.
    pub(super) is_function: bool,
}

/// Words that begin or end a construct where a command begins: 2.4, and those of bash.
pub(super) const RESERVED: [&str; 22] = [
    "!", "{", "}", "case", "do", "done", "elif", "else", "esac", "fi", "for", "if", "in", "then", "until",
    "while", "[[", "]]", "function", "select", "coproc", "((",
];

impl<'s> Reader<'s, '_> {
    pub fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    pub fn peek_at(&self, offset: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + offset).copied()
    }

    /// Returns whether a word ends at this distance: at a blank, a newline, or an operator that no redirection begins with.
    pub(super) fn ends_word(&self, offset: usize) -> bool {
        self.peek_at(offset).is_none_or(|byte| b" \t\n;&|)".contains(&byte))
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
            is_function: false,
        });
        // It may run in another shell, or later.
        self.shared.set.truncate(set);
        result
    }

    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
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
    pub(super) fn blanks(&mut self) -> Read<()> {
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
    pub(super) fn lines(&mut self) -> Read<bool> {
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
    pub(super) fn reserved(&self) -> Option<&'static str> {
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
        let (mut set, mut failures) = (self.shared.set.len(), self.shared.failures);
        loop {
            if self.lines()? {
                is_separated = true;
                self.pass_line(set, failures);
                (set, failures) = (self.shared.set.len(), self.shared.failures);
            }
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
                (Some(b'&'), next) if !matches!(next, Some(b'&' | b'>')) => {
                    (is_separated, self.shared.has_background) = (true, true);
                }
                _ => continue,
            }
            self.at += 1;
        }
    }

    /// Takes back what a line has set, where it may have been left before: only that line is, and the next one runs.
    fn pass_line(&mut self, set: usize, failures: usize) {
        let shared = &mut *self.shared;
        let may_run_others = !shared.functions.is_empty() || shared.has_trap;
        if shared.failures > failures || shared.failures > 0 && may_run_others {
            shared.set.truncate(set);
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
    pub(super) fn list_and(&mut self, until: &[&'static str]) -> Read<&'static str> {
        let closer = self.list(until)?;
        self.at += closer.len();
        Ok(closer)
    }

    /// The same of one of several lists, of which another one may run instead.
    pub(super) fn branch(&mut self, until: &[&'static str]) -> Read<&'static str> {
        let set = self.shared.set.len();
        let closer = self.list_and(until);
        self.shared.set.truncate(set);
        closer
    }

    /// 2.9.3: `a && b || c`
    fn and_or(&mut self) -> Read<()> {
        let (commands, expansions) = (self.shared.commands.len(), self.shared.expansions);
        let (before, mut set, mut has_or) = (self.shared.set.len(), None, false);
        loop {
            self.pipeline()?;
            self.blanks()?;
            // What only one side sets may not be set behind them, nor behind `&&` where that side was passed over: `a || b && c`.
            let first = *set.get_or_insert(self.shared.set.len());
            has_or |= self.rest().starts_with("||");
            match self.rest() {
                rest if rest.starts_with("&&") && !has_or => {}
                rest if rest.starts_with("&&") || rest.starts_with("||") => self.shared.set.truncate(first),
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
            && !self.shared.values.keys().any(|name| variables::is_read_only(name));
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
        let (first, mut only_prints) = (self.shared.commands.len(), true);
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
                // The last stage runs beside all others.
                let accompanied = if only_prints { first..start } else { first..self.shared.commands.len() };
                self.shared.commands[accompanied].iter_mut().for_each(|command| command.has_company = true);
                break;
            }
            only_prints &= own.is_some() && self.shared.commands[start..].iter().all(Command::only_prints);
            self.at += 1;
            self.shared.set.truncate(set);
            if self.peek() == Some(b'&') {
                if !self.is_bash {
                    return refuse("an operator that only bash has");
                }
                self.at += 1;
                if let Some(own) = own {
                    self.shared.commands[own].is_joined = true;
                }
            }
            self.lines()?;
        }
        Ok(())
    }

    /// Returns what commands from `start` on read that read what they inherit; one of them is given all of it.
    pub(super) fn give(&mut self, start: usize, own: Option<usize>, input: &Input) {
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
        // It sets nothing for sure: where a redirection fails, nothing of it runs.
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
        let is_end = self.ends_word(0) || self.peek() == Some(b'#');
        if is_end { Ok(None) } else { refuse("a word behind a construct") }
    }

    /// Notes that the script reads a variable. Returns whether it holds what the script has given it for sure.
    pub fn reads(&mut self, name: &str) -> bool {
        self.shared.read.insert(name.to_owned());
        self.is_set(name)
    }

    fn is_set(&self, name: &str) -> bool {
        let is_set = self.shared.set.iter().any(|set| set == name);
        is_set && !variables::is_overwritten(name) && !self.shared.outer.contains(name)
    }

    /// Notes that an expression evaluates what a variable holds.
    pub fn evaluates(&mut self, name: String) -> Read<()> {
        if !self.reads(&name) && !variables::NUMBERS.contains(&name.as_str()) {
            return refuse("an expression that evaluates what a variable holds");
        }
        self.shared.numbers.push(name);
        Ok(())
    }

    pub fn notes_encoding(&mut self, name: &str, value: Option<&Draft>) {
        let text = value.and_then(Draft::fixed);
        self.shared.changes_encoding |= variables::changes_encoding(name, text.as_deref());
    }

    /// Notes what a variable is given, which may be nothing. One that decides what runs is refused.
    pub fn bind(&mut self, name: &str, value: Value) -> Read<()> {
        self.shared.emptied.insert(name.to_owned());
        self.bind_value(name, value)
    }

    fn bind_value(&mut self, name: &str, value: Value) -> Read<()> {
        let may_fail = self.shared.has_read_only || variables::is_read_only(name);
        self.shared.failures += usize::from(may_fail);
        let is_obeyed = variables::decides(name) && !variables::is_harmless(name);
        if is_obeyed || variables::is_integer(name) && value > Value::Number {
            return refuse("a variable that decides what runs");
        }
        self.shared.alters = true;
        let value = if variables::is_overwritten(name) { Value::Any } else { value };
        let entry = self.shared.values.entry(name.to_owned()).or_insert(value);
        *entry = value.or(*entry);
        Ok(())
    }

    /// The same of a word, or of what it is divided into.
    pub fn bind_draft(&mut self, name: &str, draft: &Draft, is_divided: bool) -> Read<()> {
        self.shared.given.push(draft.clone());
        if !draft.begins() {
            self.shared.emptied.insert(name.to_owned());
        }
        let reads = draft.parts.iter().any(|part| matches!(part, WordPart::Name { is_set: true, .. }));
        if !reads || variables::is_integer(name) {
            return self.bind_value(name, draft.value(&|_| Value::Any, is_divided));
        }
        self.bind_value(name, Value::Digits)?;
        self.shared.links.push(Link { name: name.to_owned(), draft: draft.clone(), is_divided });
        Ok(())
    }
}
