//! Reads commands and code with real grammars, as deep as they are nested: a shell command in a Python string in a
//! here-document. What a script runs beside what it names is another question, which no grammar answers (`proven.rs`).
//!
//! What is read comes from the model, so it is read in a subprocess (`subprocess.rs`) and everything is bounded: the time, the size of
//! one text, how many there are and how deep. What lies beyond a bound counts as unreadable, which is an answer of its
//! own.

mod awk;
mod built_ins;
mod clients;
mod code;
mod constructs;
mod go;
mod heredocs;
mod javascript;
mod judgement;
mod kernel;
mod names;
mod outputs;
mod places;
mod plain;
mod proven;
mod python;
mod redirections;
mod ruby;
mod rust;
mod sed;
mod shell;
mod simple_command;
mod tokens;
pub mod tree;
mod values;
mod variables;
mod wrappers;

use super::findings::{Findings, FoundCommand, Language, Name, Unreadable, Unseen, Use, Word};
use super::subprocess;
use names::Reading;
use plain::Known;
use shell::{Run, ScriptPart, Stdin};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tree::{Dialect, Source};
use wrappers::{Inside, Shell};

/// How long one call may be read.
const TIME: Duration = Duration::from_secs(1);
/// How many texts and wrapped commands one call may hold.
const MAX_PIECES: usize = 256;
const MORE_CODE: &str = "more code inside the command than is read";
/// How deep they may be nested.
const MAX_DEPTH: usize = 12;
/// How many commands one call may hold.
const MAX_COMMANDS: usize = 10_000;

/// Something to read.
struct Piece {
    content: Content,
    place: Origin,
    depth: usize,
    /// Set if it runs, so that what it runs unseen counts. It does not for a file that is written, and where what it is in is unseen.
    runs: bool,
    /// Set if it is a part of a script that was refused, so that it is asked about already.
    is_refused: bool,
    /// The shell that runs it.
    shell: Shell,
    /// Variables that the commands around it give values.
    assigned: Rc<HashSet<String>>,
    /// The command that runs it, among those that were found.
    holder: Option<usize>,
}

impl Piece {
    /// The same place, in commands that give these variables values too.
    fn within(&self, names: HashSet<String>) -> Self {
        let (content, place) = (Content::of(Language::Shell, String::new()), self.place.clone());
        let assigned = match names.is_empty() {
            true => Rc::clone(&self.assigned),
            false => Rc::new(self.assigned.iter().cloned().chain(names).collect()),
        };
        Self { content, place, assigned, ..*self }
    }
}

enum Content {
    Code { language: Language, dialect: Dialect, text: String, is_whole: bool },
    Command(Vec<Word>, Stdin),
}

/// Where a piece of code stands.
#[derive(Clone)]
enum Origin {
    Command,
    File(String),
}

/// Reads the text of a shell command.
pub fn command(text: &str) -> Findings {
    let content = Content::Code {
        language: Language::Shell,
        dialect: Dialect::Usual,
        text: text.to_owned(),
        is_whole: true,
    };
    subprocess::read(|| {
        let (place, shell) = (Origin::Command, Shell::default());
        read(vec![Piece {
            content,
            place,
            depth: 0,
            runs: true,
            is_refused: false,
            shell,
            assigned: Rc::default(),
            holder: None,
        }])
    })
}

/// Reads files that are about to be written: paths and texts. Parts of files (`is_whole` is false) may begin and end
/// anywhere, so that they do not parse says nothing.
pub fn files<'a>(files: impl Iterator<Item = (&'a str, &'a str)>, is_whole: bool) -> Findings {
    let pieces: Vec<Piece> = files.filter_map(|(path, text)| file(path, text, is_whole, 0)).collect();
    if pieces.is_empty() { Findings::default() } else { subprocess::read(|| read(pieces)) }
}

/// Reads code that is about to run, as the file `path` of its language. Of a language without a grammar it is unreadable.
pub fn code(language: &str, path: &str, text: &str) -> Findings {
    if let Some(piece) = file(path, text, true, 0) {
        return subprocess::read(|| read(vec![Piece { runs: true, ..piece }]));
    }
    let what = format!("{language} code, which there is no grammar for");
    Findings { unreadable: vec![Unreadable { language: Language::Shell, what }], ..Findings::default() }
}

fn file(path: &str, text: &str, is_whole: bool, depth: usize) -> Option<Piece> {
    let (language, dialect) = language_of(path).or_else(|| language_of_shebang(text))?;
    let text = if is_whole { text.to_owned() } else { dedented(text) };
    let content = Content::Code { language, dialect, text, is_whole };
    let (place, shell) = (Origin::File(path.to_owned()), Shell::default());
    let (assigned, holder) = (Rc::default(), None);
    Some(Piece { content, place, depth, runs: false, is_refused: false, shell, assigned, holder })
}

fn read(pieces: Vec<Piece>) -> Findings {
    let mut reader = CommandReader {
        waiting: pieces.into(),
        findings: Findings::default(),
        places: HashMap::new(),
        deadline: Instant::now() + TIME,
    };
    for _ in 0..MAX_PIECES {
        let Some(piece) = reader.waiting.pop_front() else { return reader.findings };
        if piece.depth > MAX_DEPTH {
            reader.unreadable(Language::Shell, "code nested too deep");
            continue;
        }
        match &piece.content {
            Content::Code { language: Language::Shell, text, .. } => reader.script(text, &piece),
            Content::Code { .. } => reader.code(&piece),
            Content::Command(words, stdin) => reader.run(words.clone(), stdin, false, &piece),
        }
    }
    if !reader.waiting.is_empty() {
        reader.unreadable(Language::Shell, MORE_CODE);
    }
    reader.findings
}

struct CommandReader {
    waiting: VecDeque<Piece>,
    findings: Findings,
    /// Where each of the commands stands in the findings.
    places: HashMap<FoundCommand, usize>,
    deadline: Instant,
}

impl CommandReader {
    fn unreadable(&mut self, language: Language, what: impl Into<String>) {
        let unreadable = Unreadable { language, what: what.into() };
        if !self.findings.unreadable.contains(&unreadable) && self.findings.unreadable.len() < MAX_PIECES {
            self.findings.unreadable.push(unreadable);
        }
    }

    fn unseen(&mut self, unseen: Unseen) {
        if self.findings.unseen.contains(&unseen) {
            return;
        }
        match self.findings.unseen.len() < MAX_PIECES {
            true => self.findings.unseen.push(unseen),
            false => self.unreadable(Language::Shell, "more programs that may run others than are read"),
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_PIECES
    }

    fn nest(&mut self, content: Content, runs: bool, piece: &Piece) {
        self.nest_in(piece.shell, content, runs, piece);
    }

    fn nest_in(&mut self, shell: Shell, content: Content, runs: bool, piece: &Piece) {
        let (place, depth) = (piece.place.clone(), piece.depth + 1);
        if self.is_full() {
            return self.unreadable(Language::Shell, MORE_CODE);
        }
        let assigned = Rc::clone(&piece.assigned);
        self.waiting.push_back(Piece { content, place, depth, runs, shell, assigned, ..*piece });
    }

    /// Reads what a script runs. Of one that is not proven, what the grammar finds is for rules.
    fn script(&mut self, text: &str, piece: &Piece) {
        if !piece.runs {
            return self.find(text, piece);
        }
        match proven::read(text, piece.shell, &piece.assigned) {
            Ok(script) => {
                self.findings.is_altered |= script.alters;
                let mut piece = piece.within(script.assigned);
                for run in script.runs {
                    piece.shell.has_company = run.has_company;
                    self.proven(run, &piece);
                }
            }
            Err(why) => {
                self.unreadable(Language::Shell, format!("a script that is not read whole: {why}"));
                self.find(text, &Piece { runs: false, is_refused: true, ..piece.within(HashSet::new()) });
            }
        }
    }

    fn proven(&mut self, run: Run, piece: &Piece) {
        if piece.shell.reads_input && !leaves_input(&run) {
            let what =
                format!("a command that may reach the script itself: {}", super::rules::shown(&run.words));
            self.unreadable(Language::Shell, what);
        }
        if let Some((path, text)) = run.written {
            self.waiting.extend(file(&path, &text, true, piece.depth + 1));
        }
        self.run(run.words, &run.stdin, run.is_read, piece);
    }

    /// Finds commands by the grammar.
    fn find(&mut self, text: &str, piece: &Piece) {
        let heredocs = heredocs::extract(text);
        let source = Source::parse(Language::Shell, Dialect::Usual, &heredocs.script, self.deadline);
        let Some(source) = source else {
            return self
                .unreadable(Language::Shell, "a shell script that is too long or takes too long to read");
        };
        if !piece.is_refused && (source.has_error() || heredocs.is_doubtful) {
            self.unreadable(Language::Shell, "a part that does not parse as shell");
        }
        let in_time = shell::read(&source, &heredocs, &mut |part| match part {
            ScriptPart::Alteration => self.findings.is_altered = true,
            ScriptPart::Run(run) => {
                if let Some((path, text)) = run.written {
                    self.waiting.extend(file(&path, &text, true, piece.depth + 1));
                }
                self.run(run.words, &run.stdin, false, piece);
            }
        });
        if !in_time {
            self.unreadable(Language::Shell, "a shell script that takes too long to read");
        }
        for script in shell::expanded(&heredocs) {
            match script {
                Some(script) => self.nest(Content::of(Language::Shell, script), false, piece),
                None if piece.is_refused => {}
                None => self.unreadable(Language::Shell, "a here-document that is not understood"),
            }
        }
    }

    /// Notes a command once, and returns where it stands.
    fn found(&mut self, words: Vec<Word>, holder: Option<usize>) -> usize {
        let command = FoundCommand { words, holder };
        let commands = &mut self.findings.commands;
        *self.places.entry(command).or_insert_with_key(|command| {
            commands.push(command.clone());
            commands.len() - 1
        })
    }

    fn run(&mut self, words: Vec<Word>, stdin: &Stdin, is_read: bool, piece: &Piece) {
        let Some(program) = words.first() else { return };
        if self.findings.commands.len() >= MAX_COMMANDS {
            return self.unreadable(Language::Shell, "more commands than are read");
        }
        if !program.fixed && !piece.is_refused {
            self.unreadable(
                Language::Shell,
                format!("a program that is known only when it runs: {}", super::rules::shown(&words)),
            );
        }
        if is_read {
            self.findings.is_altered |= program.text == "export";
            self.found(words, piece.holder);
            return;
        }
        let inside = wrappers::look_inside(&words, stdin);
        let known = plain::known(&words);
        let is_seen = program.fixed && is_seen(&words, &known, &inside);
        if piece.runs && program.fixed && !is_seen && inside.unreadable.is_none() {
            self.unseen(unseen(&words, &known, &inside));
        }
        let defines =
            matches!(program.text.as_str(), "alias" | "export" | "hash" | "enable" | "source" | ".");
        let given = words.iter().filter(|word| super::wrapping::is_assignment(&word.text));
        let given = given.filter_map(|word| word.text.split_once('=')).map(|(name, _)| name.to_owned());
        // Nothing more is read where too much waits.
        let is_read = !inside.commands.is_empty() && !self.is_full();
        let given: HashSet<String> = given.filter(|_| is_read).collect();
        self.findings.is_altered |= defines || !given.is_empty();
        let holder = Some(self.found(words.clone(), piece.holder));
        let piece = &Piece { holder, ..piece.within(given) };
        if let Some(what) = inside.unreadable.filter(|_| !piece.is_refused) {
            self.unreadable(Language::Shell, format!("{what}: {}", super::rules::shown(&words)));
        }
        let runs = piece.runs && is_seen;
        let executes = super::program::base_name(&program.text) == "find";
        let has_company = piece.shell.has_company;
        let shell = inside.shell.map_or(piece.shell, |shell| Shell { has_company, ..shell });
        for (language, text) in inside.code {
            self.nest_in(shell, Content::of(language, text), runs, piece);
        }
        for (language, module) in inside.modules {
            self.note(language, names::module(module), 1, piece);
        }
        let wrapped = match known {
            Known::Wraps(at) => Some(plain::wrapped_words(&words, at)),
            _ => None,
        };
        for command in inside.commands {
            // Other ways to read the wrapper's options are only of interest to rules. What `find` executes has one way.
            let is_it = wrapped.as_ref().is_none_or(|wrapped| wrapped.len() == command.len());
            let is_known = command.first().is_some_and(|program| program.fixed);
            if wrapped.is_none() || !is_it && is_known {
                self.nest(Content::Command(command, stdin.clone()), runs && executes, piece);
            }
        }
        if let Some(command) = wrapped {
            // `sudo bash` reads what `sudo` is given.
            self.nest(Content::Command(command, stdin.clone()), runs, piece);
        }
    }

    fn code(&mut self, piece: &Piece) {
        let Content::Code { language, dialect, text, is_whole } = &piece.content else { return };
        let (language, place) = (*language, piece.place.at(1));
        let Some(source) = Source::parse(language, *dialect, text, self.deadline) else {
            return self.unreadable(language, format!("{} in {place}: too long to read", language.name()));
        };
        let mut reading = Reading::default();
        if *is_whole && source.has_error() {
            reading.unreadable.push("a part of it does not parse");
        }
        let in_time = match language {
            Language::Shell => true,
            Language::Python => python::read(&source, &mut reading),
            Language::JavaScript => javascript::read(&source, &mut reading),
            Language::Rust => rust::read(&source, &mut reading),
            Language::Go => go::read(&source, &mut reading),
            Language::Ruby => ruby::read(&source, &mut reading),
        };
        if !in_time || reading.uses.is_full() {
            reading.unreadable.push("it is too long to read");
        }
        if piece.is_refused {
            reading.unreadable.clear();
        }
        for why in reading.unreadable {
            self.unreadable(language, format!("{} in {place}: {why}", language.name()));
        }
        for (name, line) in reading.uses {
            self.note(language, name, line, piece);
        }
        for (language, text) in reading.nested.into_iter().take(MAX_PIECES) {
            self.nest(Content::of(language, text), false, piece);
        }
        if piece.runs {
            let what = format!("{} code", language.name());
            self.unseen(Unseen { command: Vec::new(), what, is_project: true, code: Some(language) });
        }
    }

    fn note(&mut self, language: Language, name: Name, line: usize, piece: &Piece) {
        self.findings.uses.push(Use { language, name, place: piece.place.at(line) });
    }
}

impl Content {
    fn of(language: Language, text: String) -> Self {
        Self::Code { language, dialect: Dialect::Usual, text, is_whole: true }
    }
}

/// Returns whether a command takes nothing from the input that the script itself comes from, and writes nothing there. Any file may be that
/// input by another name: a link to `/dev/stdin` may have been made long before.
fn leaves_input(run: &Run) -> bool {
    let program = run.words.first().map_or("", |program| program.text.as_str());
    let is_given = run.stdin != Stdin::Inherited;
    let is_exec = run.words.iter().any(|word| word.text == "exec");
    let leaves = run.is_read
        || plain::reads_no_file(&run.words)
        || !run.has_more && plain::writes_nothing(program)
        || is_given && plain::is_filter(&run.words);
    !is_exec && leaves && run.targets.iter().all(judgement::is_nowhere)
}

/// Returns whether all that a command runs is read.
fn is_seen(words: &[Word], known: &Known, inside: &Inside) -> bool {
    let program = words.first().map_or("", |program| program.text.as_str());
    match known {
        Known::Plain | Known::Wraps(_) => true,
        Known::Project => false,
        Known::Nothing => match program {
            "sh" | "bash" | "dash" | "ash" => inside.is_all() && !inside.code.is_empty(),
            _ => false,
        },
    }
}

/// A command of which not all that it runs is read.
fn unseen(words: &[Word], known: &Known, inside: &Inside) -> Unseen {
    let is_of_file = words.first().is_some_and(|program| program.text.contains('/')) || inside.has_script;
    let is_read = inside.is_all() && !inside.code.is_empty();
    Unseen {
        command: words.to_vec(),
        what: super::rules::shown(words),
        is_project: *known == Known::Project || (is_of_file && inside.code.is_empty() && !inside.is_inexact),
        code: inside.interprets.filter(|language| is_read && *language != Language::Shell),
    }
}

impl Origin {
    fn at(&self, line: usize) -> String {
        match self {
            Origin::Command => "the command".to_owned(),
            Origin::File(path) => format!("{path}:{line}"),
        }
    }
}

fn language_of(path: &str) -> Option<(Language, Dialect)> {
    let name = path.rsplit('/').next().unwrap_or(path);
    // A name that differs from a file's in case alone may be taken for it.
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    let language = match extension.as_str() {
        "py" | "pyi" | "pyw" => Language::Python,
        "ts" | "mts" | "cts" => return Some((Language::JavaScript, Dialect::TypeScript)),
        "js" | "mjs" | "cjs" | "jsx" | "tsx" => Language::JavaScript,
        "rs" => Language::Rust,
        "go" => Language::Go,
        "rb" | "rake" | "gemspec" => Language::Ruby,
        "sh" | "bash" | "zsh" | "ksh" => Language::Shell,
        _ if ["Rakefile", "Gemfile"].iter().any(|known| name.eq_ignore_ascii_case(known)) => Language::Ruby,
        _ => return None,
    };
    Some((language, Dialect::Usual))
}

/// `#!/usr/bin/env -S python3 -u`: the first word that names an interpreter.
fn language_of_shebang(text: &str) -> Option<(Language, Dialect)> {
    let line = text.strip_prefix("#!")?.lines().next()?;
    let language = line.split_whitespace().find_map(wrappers::language_of)?;
    Some((language, Dialect::Usual))
}

/// Without the indentation that all lines share: a part of a Python file may stand anywhere in it.
fn dedented(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let shared = text.lines().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    text.lines().map(|line| line.get(shared..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}
