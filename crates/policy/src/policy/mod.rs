//! Judgement before execution: rules about commands and code, and the questions to the user.
//!
//! The sandbox is what keeps the machine safe; a rule keeps a well-meaning model from what the user does not want, and
//! shows what it tried. Commands and code are read with grammars, through
//! wrappers, substitutions, here-documents and aliases; what a program computes while it runs is out of reach:
//! `$(which rm)`, `X=rm; $X`, base64, a script fetched from somewhere. That is *unreadable*, which is a
//! reason to ask with [`Approve::Risky`] and never one to deny.

pub mod findings;
mod pattern;
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
pub mod rules;

pub use rules::Rules;

use crate::Question as AskUser;
use crate::{Answer, Approve, Approver};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use findings::Findings;
use rules::{Match, shortened};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// How much of a command the user is shown, in characters.
const SHOWN_CHARS: usize = 2_000;

/// Stands before every tool call.
#[derive(Default)]
pub struct Gate {
    rules: Rules,
    approve: Approve,
    approver: Option<Arc<dyn Approver>>,
    /// What the user has answered `always` to, by the keys of [`Question`].
    allowed: Arc<Lock<HashSet<String>>>,
}

/// The verdict on a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It runs.
    Allow,
    /// The user decides.
    Ask(Question),
    /// It does not run.
    Deny(Denial),
}

/// Why a tool call did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What was tried, for the `denied` event.
    pub what: String,
    /// The rule against it, for the `denied` event: `no-push (git push)`.
    pub rule: String,
    /// The result that the model reads.
    pub message: String,
}

/// What the user is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What would run or be written.
    pub what: String,
    /// Why there is a question; empty where every call is asked about.
    pub reasons: Vec<Match>,
    /// What `always` would allow for the rest of the session.
    pub always: String,
    keys: Vec<String>,
}

/// What a tool call would do, as far as the rules are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<'a> {
    /// Run a shell command.
    Command(&'a str),
    /// Write files.
    Write {
        /// Paths and texts.
        files: Vec<(&'a str, &'a str)>,
        /// Whether the texts are whole files.
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
        /// Whether the server runs on this machine.
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
        let question = match self.judge(action) {
            Judgement::Allow => return Ok(None),
            Judgement::Deny(denial) => return Ok(Some(denial)),
            Judgement::Ask(question) => question,
        };
        let Some(approver) = &self.approver else {
            return Ok(Some(
                question.denial("it needs the user's approval, and nobody can be asked in this run"),
            ));
        };
        match approver.ask(&AskUser::ToolCall(&question)).await? {
            Answer::Once => Ok(None),
            Answer::No | Answer::Never | Answer::Each | Answer::Project => {
                Ok(Some(question.denial("the user was asked and refused")))
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
        if let Some(found) = rules::matches(&self.rules.deny, &findings).into_iter().next() {
            return Judgement::Deny(Denial::by_rule(found));
        }
        match self.approve {
            Approve::Never => Judgement::Allow,
            Approve::Risky => self.question(&action, &findings, Vec::new()),
            Approve::Always => self.question(&action, &findings, action.keys(&findings)),
        }
    }

    /// The question, if there is one: what the rules ask about, and `keys` where everything is asked about. What the
    /// user has already answered `always` to is left out.
    fn question(&self, action: &Action<'_>, findings: &Findings, keys: Vec<String>) -> Judgement {
        let mut reasons = rules::matches(&self.rules.ask, findings);
        reasons.extend(self.unreadable(findings));
        let allowed = self.allowed.lock();
        reasons.retain(|reason| !allowed.contains(&reason.key()));
        let keys: Vec<String> = keys.into_iter().filter(|key| !allowed.contains(key)).collect();
        if reasons.is_empty() && keys.is_empty() {
            return Judgement::Allow;
        }
        Judgement::Ask(Question::new(action.shown(), reasons, keys))
    }

    /// What could not be read, where a rule could have spoken of it.
    fn unreadable(&self, findings: &Findings) -> Vec<Match> {
        let relevant = findings.unreadable.iter().filter(|part| self.rules.speak_of(part.language));
        let undecided = rules::undecided(&self.rules, findings);
        let parts = relevant.map(|part| part.what.clone()).chain(undecided);
        parts.map(Match::unreadable).collect()
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

    /// What `always` remembers where everything is asked about: the programs where all of them are known, else the
    /// very command; the files.
    fn keys(&self, findings: &Findings) -> Vec<String> {
        match self {
            Action::Command(_) if findings.unreadable.is_empty() && !findings.commands.is_empty() => {
                let programs = findings.commands.iter().filter_map(|command| command.first());
                let mut keys: Vec<String> =
                    programs.map(|program| format!("program {}", program.text)).collect();
                keys.sort_unstable();
                keys.dedup();
                keys
            }
            Action::Command(command) => vec![format!("command {command}")],
            Action::Write { files, .. } => files.iter().map(|(path, _)| format!("writing {path}")).collect(),
            Action::Code { language, .. } => vec![format!("{language} code")],
            Action::Tool { name, .. } => vec![format!("tool {name}")],
        }
    }

    fn shown(&self) -> String {
        match self {
            Action::Command(command) => shortened(command, SHOWN_CHARS),
            Action::Write { files, .. } => {
                let files: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
                shortened(&format!("write {}", files.join(", ")), SHOWN_CHARS)
            }
            Action::Code { language, code, install, .. } => {
                let install = install.iter().map(|command| format!("{command}\n")).collect::<String>();
                shortened(&format!("{install}{language}: {code}"), SHOWN_CHARS)
            }
            Action::Tool { name, arguments, .. } => shortened(&format!("{name} {arguments}"), SHOWN_CHARS),
        }
    }
}

impl Match {
    /// The rule that is not in the configuration: what cannot be read cannot be judged.
    fn unreadable(what: String) -> Self {
        Self { rule: "unreadable".to_owned(), pattern: "what cannot be read".to_owned(), what, because: None }
    }

    /// What `always` remembers: the rule; of what could not be read, only this very thing.
    fn key(&self) -> String {
        match self.rule.as_str() {
            "unreadable" => format!("unreadable {}", self.what),
            rule => format!("rule {rule}"),
        }
    }

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

impl Question {
    fn new(what: String, reasons: Vec<Match>, keys: Vec<String>) -> Self {
        let keys: Vec<String> = reasons.iter().map(Match::key).chain(keys).collect();
        Self { what, always: shortened(&keys.join(", "), 200), reasons, keys }
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

/// The question as the user reads it: what would run, and why that is a question.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        for reason in &self.reasons {
            write!(f, "  rule {}: {}", reason.named(), reason.what)?;
            if let Some(because) = &reason.because {
                write!(f, " – {because}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  always: {}, for the rest of this session", self.always)?;
        write!(f, "Allow?")
    }
}
