//! Judgement before execution: rules about commands and code, and the questions to the user.
//!
//! The sandbox is what keeps the machine safe; a rule keeps a well-meaning model from what the user does not want, and
//! shows what it tried. Commands and code are read with grammars, through
//! wrappers, substitutions, here-documents and aliases; what a program computes while it runs is out of reach:
//! `$(which rm)`, `X=rm; $X`, base64, a script fetched from somewhere. That is *unreadable*, which is a
//! reason to ask with [`Approve::Risky`] and never one to deny.

mod arguments;
pub mod findings;
mod implied;
mod kubernetes;
mod likeness;
mod modes;
mod name_pattern;
mod operands;
mod other_names;
mod pathspecs;
mod pattern;
mod program;
#[cfg(feature = "grammars")]
pub mod reading;
#[cfg(feature = "grammars")]
pub mod subprocess;
/// Without the grammars nothing is read; rules are refused then, so nothing is missed.
#[cfg(not(feature = "grammars"))]
mod reading {
    use super::findings::Findings;

    pub fn command(_: &str) -> Findings {
        Findings::default()
    }

    pub fn files<'a>(_: impl Iterator<Item = (&'a str, &'a str)>, _: bool) -> Findings {
        Findings::default()
    }

    pub fn code(_: &str, _: &str, _: &str) -> Findings {
        Findings::default()
    }
}
mod rule_words;
pub mod rules;
mod simple_pattern;
mod spellings;
mod usual_words;
mod wrapping;

pub use rules::Rules;

use crate::Question as AskUser;
use crate::{Answer, Approve, Approver};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::visible::{visible, visible_name, with_counted_blanks, without_blanks};
use findings::{Findings, Unseen};
use rules::{Match, shortened};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the commands of one call may be compared with rules.
const COMPARING_TIME: Duration = Duration::from_secs(1);
/// The longest call that a user is asked about, in bytes.
const MAX_ASKED: usize = 4 << 20;
/// Lines of a question from which on its middle is shown before the question, and not in it.
const MAX_LINES: usize = 30;
/// Characters of a question, likewise.
const MAX_CHARS: usize = 4_000;
/// Things that `always` would allow which are named.
const MAX_KEYS: usize = 20;
/// Lines of a long question that stand in it, from its beginning and its end.
const EDGE_LINES: usize = 8;
/// Characters of a line at an edge.
const EDGE_CHARS: usize = 400;

/// Stands before every tool call.
#[derive(Default)]
pub struct Gate {
    rules: Rules,
    approve: Approve,
    approver: Option<Arc<dyn Approver>>,
    /// The keys of each [`Question`] that the user has answered with `always`.
    allowed: Arc<Lock<HashSet<String>>>,
}

/// The verdict on a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It runs.
    Allow,
    /// The user decides.
    Ask(CallQuestion),
    /// It does not run.
    Deny(Denial),
}

/// Why a tool call did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The attempt, for the `denied` event.
    pub what: String,
    /// The rule against it, for the `denied` event: `no-push (git push)`.
    pub rule: String,
    /// The result that the model reads.
    pub message: String,
}

/// The change that a call would make to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file, relative to the workspace where it is in it.
    pub path: String,
    /// Its present content; `None` where it does not exist.
    pub before: Option<Vec<u8>>,
    /// The content that it would have.
    pub after: Vec<u8>,
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallQuestion {
    /// The program that would run, or the file that would be written.
    pub what: String,
    /// The changes of files that it is about, where they are known.
    pub changes: Vec<FileChange>,
    /// Why there is a question; empty where every call is asked about.
    pub reasons: Vec<Match>,
    /// The scope of `always` for the rest of the session.
    pub always: String,
    keys: Vec<String>,
}

/// The effect of a tool call, as far as the rules are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<'a> {
    /// Run a shell command.
    Command(&'a str),
    /// Write files.
    Write {
        /// Paths and texts.
        files: Vec<(&'a str, &'a str)>,
        /// Set if the texts are whole files.
        whole: bool,
    },
    /// Run code.
    Code {
        /// The language.
        language: &'a str,
        /// A name for it whose extension is the language's.
        file: &'static str,
        /// The code.
        code: &'a str,
        /// The command that installs its libraries, where it has any.
        install: Option<String>,
    },
    /// Call a tool of an MCP server.
    Tool {
        /// Its name: `mcp__server__tool`.
        name: &'a str,
        /// Its arguments.
        arguments: &'a Value,
        /// Set if the server runs on this machine.
        is_on_host: bool,
    },
}

impl Gate {
    /// A gate that keeps `rules`. Without an `approver` a question becomes a denial with that reason.
    pub fn new(rules: Rules, approve: Approve, approver: Option<Arc<dyn Approver>>) -> Result<Self> {
        rules.check()?;
        if !cfg!(feature = "grammars") && approve == Approve::Risky {
            return Err(Error::config(
                "this `agent` was built without the feature `policy`, so --approve risky cannot judge anything",
            )
            .hint("build it with its default features, or use --approve always"));
        }
        Ok(Self { rules, approve, approver, allowed: Arc::default() })
    }

    /// One with the same rules and the same answers so far, which asks `approver`.
    pub fn asking(&self, approver: Option<Arc<dyn Approver>>) -> Self {
        Self {
            rules: self.rules.clone(),
            approve: self.approve,
            approver,
            allowed: Arc::clone(&self.allowed),
        }
    }

    /// Judges what a tool call would do and asks where that is needed. `None` means that it may run.
    pub async fn check(&self, action: Option<Action<'_>>) -> Result<Option<Denial>> {
        self.check_with(action, std::future::ready(Vec::new())).await
    }

    /// As [`Gate::check`]; `changes`, which is awaited if there is a question, are those of files that the user is shown.
    pub async fn check_with(
        &self,
        action: Option<Action<'_>>,
        changes: impl Future<Output = Vec<FileChange>>,
    ) -> Result<Option<Denial>> {
        let mut question = match self.judge(action) {
            Judgement::Allow => return Ok(None),
            Judgement::Deny(denial) => return Ok(Some(denial)),
            Judgement::Ask(question) => question,
        };
        let Some(approver) = &self.approver else {
            return Ok(Some(
                question.denial("it needs the user's approval, and nobody can be asked in this run"),
            ));
        };
        question.changes = changes.await;
        let answer = approver.ask(&AskUser::ToolCall(&question)).await?;
        match answer {
            Answer::Once => Ok(None),
            Answer::No | Answer::Never | Answer::Project | Answer::Said(_) => {
                let reason = answer.reason();
                Ok(Some(question.denial(reason.as_deref().unwrap_or("the user was asked and refused"))))
            }
            Answer::Always => {
                self.allowed.lock().extend(question.keys);
                Ok(None)
            }
        }
    }

    /// The verdict of the rules and of the user's earlier answers on a tool call.
    pub fn judge(&self, action: Option<Action<'_>>) -> Judgement {
        let Some(action) = action else { return Judgement::Allow };
        let asks_rules = self.approve != Approve::Never && !self.rules.ask.is_empty();
        if self.approve != Approve::Always && self.rules.deny.is_empty() && !asks_rules {
            return Judgement::Allow;
        }
        let findings = action.read();
        let deadline = Instant::now() + COMPARING_TIME;
        if let Some(found) = rules::matches(&self.rules.deny, &findings, deadline).into_iter().next() {
            return Judgement::Deny(Denial::by_rule(found));
        }
        match self.approve {
            Approve::Never => Judgement::Allow,
            Approve::Risky => self.question(&action, &findings, Vec::new(), deadline),
            Approve::Always => self.question(&action, &findings, action.keys(&findings), deadline),
        }
    }

    /// The question, if there is one: what the rules ask about, and `keys` where everything is asked about. What the
    /// user has already answered `always` to is left out.
    fn question(
        &self,
        action: &Action<'_>,
        findings: &Findings,
        keys: Vec<String>,
        deadline: Instant,
    ) -> Judgement {
        let mut reasons = rules::matches(&self.rules.ask, findings, deadline);
        reasons.extend(self.unreadable(action, findings, deadline));
        reasons.extend(self.unseen(action, findings));
        let allowed = self.allowed.lock();
        reasons.retain(|reason| !allowed.contains(&reason.key));
        let keys: Vec<String> = keys.into_iter().filter(|key| !allowed.contains(key)).collect();
        if reasons.is_empty() && keys.is_empty() {
            return Judgement::Allow;
        }
        let what = action.shown();
        let question = CallQuestion::new(what, reasons, keys);
        match question.what.len() > MAX_ASKED {
            true => Judgement::Deny(
                question.denial("it is too long for a user to look at: divide it into smaller steps"),
            ),
            false => Judgement::Ask(question),
        }
    }

    /// Returns what could not be read, where a rule could have spoken of it.
    fn unreadable(&self, action: &Action<'_>, findings: &Findings, deadline: Instant) -> Vec<Match> {
        let relevant = findings.unreadable.iter().filter(|part| self.rules.speak_of(part.language));
        let undecided = rules::undecided(&self.rules, findings, deadline);
        let parts = relevant.map(|part| part.what.clone()).chain(undecided);
        let found = |what: String| Match {
            rule: "unreadable".to_owned(),
            pattern: "what cannot be read".to_owned(),
            key: action.very_key().unwrap_or_else(|| format!("unreadable {what}")),
            what,
            because: None,
        };
        parts.map(found).collect()
    }

    /// Returns what may run programs that the rules are not applied to.
    fn unseen(&self, action: &Action<'_>, findings: &Findings) -> Vec<Match> {
        let relevant = findings.unseen.iter().filter(|part| self.rules.are_passed_by(part));
        let found = |part: &Unseen| {
            let name = part.command.first().map_or(part.what.as_str(), |program| &program.text);
            let as_a_whole =
                (part.is_project && !findings.is_altered).then(|| format!("whatever {name} runs"));
            Match {
                rule: "unseen".to_owned(),
                pattern: "what may run other programs".to_owned(),
                key: as_a_whole
                    .or_else(|| action.very_key())
                    .unwrap_or_else(|| format!("unseen {}", part.what)),
                what: part.what.clone(),
                because: None,
            }
        };
        relevant.map(found).collect()
    }
}

impl Action<'_> {
    fn read(&self) -> Findings {
        match self {
            Action::Command(command) => reading::command(command),
            Action::Write { files, whole } => reading::files(files.iter().copied(), *whole),
            Action::Code { language, file, code, install } => {
                let mut findings = reading::code(language, file, code);
                if let Some(install) = install {
                    findings.extend(reading::command(install));
                }
                findings
            }
            Action::Tool { name, .. } => Findings { tools: vec![(*name).to_owned()], ..Findings::default() },
        }
    }

    /// Returns what `always` remembers where everything is asked about: the programs where all of them are known, else the
    /// very command; the files.
    fn keys(&self, findings: &Findings) -> Vec<String> {
        match self {
            Action::Command(_)
                if findings.unreadable.is_empty()
                    && findings.unseen.iter().all(|part| part.is_project)
                    && !findings.commands.is_empty()
                    && !findings.is_altered =>
            {
                let programs = findings.commands.iter().filter_map(|command| command.words.first());
                let mut keys: Vec<String> =
                    programs.map(|program| format!("program {}", program.text)).collect();
                keys.sort_unstable();
                keys.dedup();
                keys
            }
            Action::Command(_) => self.very_key().into_iter().collect(),
            Action::Write { files, .. } => files.iter().map(|(path, _)| format!("writing {path}")).collect(),
            Action::Code { language, .. } => vec![format!("{language} code")],
            Action::Tool { name, .. } => vec![format!("tool {name}")],
        }
    }

    /// Returns what `always` remembers where it is for this command alone.
    fn very_key(&self) -> Option<String> {
        match self {
            Action::Command(command) => Some(format!("command {command}")),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        match self {
            Action::Command(command) => (*command).to_owned(),
            Action::Write { files, whole } => {
                let verb = if *whole { "write" } else { "change" };
                let file = |(path, text): &(&str, &str)| {
                    format!("{verb} {}:\n{text}", visible_name(path.as_bytes()))
                };
                files.iter().map(file).collect::<Vec<_>>().join("\n")
            }
            Action::Code { language, code, install, .. } => {
                let install = install.iter().map(|command| format!("{command}\n")).collect::<String>();
                format!("{install}{language}: {code}")
            }
            Action::Tool { name, arguments, .. } => format!("{name} {arguments}"),
        }
    }
}

impl Match {
    fn named(&self) -> String {
        format!("{} ({})", self.rule, self.pattern)
    }
}

impl Denial {
    fn by_rule(found: Match) -> Self {
        let because = found.because.as_deref().map(|why| format!("\nthe reason: {why}")).unwrap_or_default();
        let message = format!(
            "error: denied by the rule {} of the user's policy: {}{because}\nNothing was run or written. Do not \
             look for a way around the rule: do it differently, or say in your answer what the user has to do.",
            found.named(),
            found.what
        );
        Self { rule: found.named(), what: found.what, message }
    }
}

impl CallQuestion {
    fn new(what: String, reasons: Vec<Match>, keys: Vec<String>) -> Self {
        let mut keys: Vec<String> = reasons.iter().map(|reason| reason.key.clone()).chain(keys).collect();
        keys.dedup();
        let what = without_blanks(&visible(&what));
        Self { what, changes: Vec::new(), always: in_words(&keys), reasons, keys }
    }

    /// A question about something else than a call, in which `always` covers nothing but this.
    pub fn about(what: &str, always: &str) -> Self {
        let what = without_blanks(&visible(what));
        let (changes, reasons, keys) = (Vec::new(), Vec::new(), Vec::new());
        Self { what, changes, reasons, always: always.to_owned(), keys }
    }

    /// Returns whether the question itself has only the beginning and the end of [`CallQuestion::what`], which is to be shown before it.
    pub fn is_cut(&self) -> bool {
        self.what.lines().count() > MAX_LINES || self.what.chars().count() > MAX_CHARS
    }

    /// Why there is a question, and what `always` would allow: a line each.
    pub fn terms(&self) -> String {
        let mut text = String::new();
        for reason in &self.reasons {
            let what = with_counted_blanks(&visible(&reason.what).replace('\n', "␊"));
            text += &format!("rule {}: {what}", reason.named());
            if let Some(because) = &reason.because {
                text += &format!(" – {because}");
            }
            text.push('\n');
        }
        text + &format!("always: {}, for the rest of this session\n", self.always)
    }

    /// The beginning and the end of what is too long, and how much is between them.
    fn edges(&self) -> String {
        let lines: Vec<&str> = self.what.lines().collect();
        let edge = EDGE_LINES.min(lines.len().div_ceil(2));
        let (head, rest) = lines.split_at(edge);
        let (middle, tail) = rest.split_at(rest.len().saturating_sub(edge));
        let between = format!("… {} lines between these are shown above …", middle.len());
        let edge = |line: &&str| shortened(line, EDGE_CHARS);
        let mut shown: Vec<String> = head.iter().map(edge).collect();
        shown.push(if middle.is_empty() { "… all of it is shown above …".to_owned() } else { between });
        shown.extend(tail.iter().map(edge));
        shown.join("\n")
    }

    fn denial(&self, why: &str) -> Denial {
        let named: Vec<String> = self.reasons.iter().map(Match::named).collect();
        let rule = if named.is_empty() { "--approve always".to_owned() } else { named.join(", ") };
        let what =
            self.reasons.first().map_or_else(|| shortened(&self.what, 200), |reason| reason.what.clone());
        let message = format!(
            "error: not allowed: {why}\nthe rule: {rule}\nit is about: {what}\nNothing was run or written. Do it \
             differently, or say in your answer what the user has to do."
        );
        Denial { what, rule, message }
    }
}

/// Returns what `always` would allow. A whole command is not repeated.
fn in_words(keys: &[String]) -> String {
    let word = |key: &String| match key.strip_prefix("command ") {
        Some(_) => "this very command".to_owned(),
        None => visible(key).replace('\n', "␊"),
    };
    let words: Vec<String> = keys.iter().map(word).collect();
    match words.len() > MAX_KEYS {
        true => format!("{} and {} more", words[..MAX_KEYS].join(", "), words.len() - MAX_KEYS),
        false => words.join(", "),
    }
}

/// The question as the user reads it: what would run, and why that is a question.
impl fmt::Display for CallQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_cut() {
            true => writeln!(f, "{}", self.edges())?,
            false => writeln!(f, "{}", self.what)?,
        }
        self.terms().lines().try_for_each(|line| writeln!(f, "  {line}"))?;
        write!(f, "Allow?")
    }
}
