//! Asking before something happens: the rules that judge a tool call, and the user who decides.

pub mod policy;
pub mod syntax;

use agent_base::error::Result;
use agent_base::sanitise::plain;
use futures_util::future::BoxFuture;
use std::fmt;

/// When the user is asked before a tool runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// Never: the sandbox is the protection.
    #[default]
    Never,
    /// Where a policy rule says `ask`.
    Risky,
    /// Before every command and every write.
    Always,
}

/// The one way to ask a user. A closure is one too.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer. An error (Ctrl-C, for example) ends the turn; a connection that is asked about is
    /// refused.
    fn ask<'a>(&'a self, question: &'a Question<'a>) -> BoxFuture<'a, Result<Answer>>;
}

impl<F> Approver for F
where
    F: Fn(&Question<'_>) -> BoxFuture<'static, Result<Answer>> + Send + Sync,
{
    fn ask<'a>(&'a self, question: &'a Question<'a>) -> BoxFuture<'a, Result<Answer>> {
        self(question)
    }
}

/// A question to the user.
pub enum Question<'a> {
    /// May this tool call run?
    ToolCall(&'a policy::CallQuestion),
    /// May a program in the sandbox connect to a host that is not on the list?
    Connect {
        /// The host, a name or an address.
        host: &'a str,
        /// The port.
        port: u16,
        /// A remark about the address: it is one of this machine's own network, for example.
        remark: Option<&'a str>,
    },
    /// May programs in the sandbox connect to these hosts for the rest of the session?
    Reach {
        /// The purpose: `install numpy (python)`.
        purpose: &'a str,
        /// The hosts.
        hosts: &'a [&'a str],
    },
    /// May programs in the sandbox use a credential that is configured for a host, which has refused a request without one?
    Credential {
        /// The credential's name.
        name: &'a str,
        /// The host and the port.
        host: &'a str,
    },
    /// May a program in the sandbox push with a credential?
    Push {
        /// The credential's name.
        name: &'a str,
        /// The host, the port and the repository.
        repository: &'a str,
        /// The branches and tags, and the number of commits.
        changes: &'a str,
    },
}

/// Characters of an answer in words that the model gets.
const MAX_SAID: usize = 2_000;

/// The user's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this once.
    Once,
    /// Yes, and do not ask again in this session.
    Always,
    /// Yes, and do not ask again in any session of this project: only for [`Question::Connect`] and [`Question::Credential`].
    Project,
    /// Not this time.
    No,
    /// No, and do not ask again in this session.
    Never,
    /// Not this time, with what the user says instead, which the model gets.
    Said(String),
}

impl Answer {
    /// The answer that is given in words, as one line.
    pub fn said(words: &str) -> Self {
        let line = plain(words).split_whitespace().collect::<Vec<_>>().join(" ");
        let words: String = line.chars().take(MAX_SAID).collect();
        if words.is_empty() { Self::No } else { Self::Said(words) }
    }

    /// The reason of a refusal, where the user has given one.
    pub fn reason(&self) -> Option<String> {
        let Self::Said(words) = self else { return None };
        Some(format!("the user refused it and said: {words}"))
    }
}

impl Question<'_> {
    /// The answers that can be chosen, beside one in words; any other one counts as [`Answer::No`].
    pub fn answers(&self) -> &'static [Answer] {
        match self {
            Question::ToolCall(_) => &[Answer::Once, Answer::No, Answer::Always],
            Question::Connect { .. } | Question::Credential { .. } => {
                &[Answer::Once, Answer::Always, Answer::Project, Answer::Never]
            }
            Question::Push { .. } => &[Answer::Once, Answer::Always, Answer::Never],
            Question::Reach { .. } => &[Answer::Once, Answer::No],
        }
    }

    /// Returns whether a connection of a program waits for the answer.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Question::Connect { .. } | Question::Credential { .. } | Question::Push { .. })
    }
}

/// The question in plain text.
impl fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::ToolCall(question) => question.fmt(f),
            Question::Connect { host, port, remark } => {
                write!(f, "A program in the sandbox wants to connect to {host}:{port}")?;
                remark.iter().try_for_each(|remark| write!(f, ", {remark}"))?;
                write!(f, ". Allow it?")
            }
            Question::Credential { name, host } => write!(
                f,
                "{host} refuses a program in the sandbox that does not log in (401). Use your credential {name} there?"
            ),
            Question::Push { name, repository, changes } => write!(
                f,
                "A program in the sandbox wants to push to {repository} with your credential {name}: {changes}. Allow it?"
            ),
            Question::Reach { purpose, hosts } => {
                write!(
                    f,
                    "To {purpose}, programs in the sandbox have to connect to {}. Allow it for this session?",
                    hosts.join(", ")
                )
            }
        }
    }
}
