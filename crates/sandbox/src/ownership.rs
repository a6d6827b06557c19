//! Who a sandbox belongs to, and when it may be removed: written down with every sandbox, read by every later process.

use super::Spec;
use agent_base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::State;
pub use agent_base::process_id::{ProcessId, this_host};

/// The label that holds the session's id.
pub const SESSION: &str = "agent.session";
/// The label that holds [`this_host`].
pub const HOST: &str = "agent.host";
const PID: &str = "agent.pid";
/// Process numbers are reused: this tells two processes with the same number apart.
const PID_START: &str = "agent.pid_start";
const EXPIRES: &str = "agent.expires";

/// The prefix of the names of sandboxes and of what belongs to them.
pub const PREFIX: &str = "agent-";

/// The name of the sandbox of `session` on its backend.
///
/// # Errors
/// `session` is not a session id. Names become parts of paths and requests.
pub fn sandbox_name(session: &str) -> Result<String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if session.is_empty() || session.len() > 64 || !session.bytes().all(fits) {
        return Err(Error::usage(format!("`{}` is not a valid session id", session.escape_debug())));
    }
    Ok(format!("{PREFIX}{session}"))
}

/// The owner of a sandbox, and the time from which it may be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// The session's id.
    pub session: String,
    /// The machine and user, as [`this_host`] names them.
    pub host: String,
    /// The process that made the sandbox; `None` where it is not known.
    pub owner: Option<ProcessId>,
    /// The time from which it may be removed.
    pub expires: Expiry,
}

/// The time from which a sandbox may be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Expiry {
    /// From when it has stopped, or its owner is gone.
    WithOwner,
    /// On this date, RFC 3339.
    On(String),
    Never,
}

impl Ownership {
    /// The ownership of a sandbox that this process makes.
    pub fn of(spec: &Spec) -> Self {
        let expires = match spec.ephemeral {
            true => Expiry::WithOwner,
            false => spec.delete_after.and_then(date).map_or(Expiry::Never, Expiry::On),
        };
        Self { session: spec.session.clone(), host: this_host(), owner: ProcessId::this(), expires }
    }

    /// As labels or other metadata of the sandbox.
    pub fn labels(&self) -> HashMap<String, String> {
        let mut labels = vec![
            (SESSION, self.session.clone()),
            (HOST, self.host.clone()),
            (EXPIRES, self.expires.to_string()),
        ];
        if let Some(owner) = self.owner {
            labels.push((PID, owner.pid.to_string()));
            labels.extend(owner.start.map(|start| (PID_START, start.to_string())));
        }
        labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Reads labels; `None` where they are not of a sandbox of ours.
    pub fn from_labels(labels: &HashMap<String, String>) -> Option<Self> {
        let pid = labels.get(PID).and_then(|pid| pid.parse().ok());
        let start = labels.get(PID_START).and_then(|start| start.parse().ok());
        Some(Self {
            session: labels.get(SESSION)?.clone(),
            host: labels.get(HOST)?.clone(),
            owner: pid.map(|pid| ProcessId { pid, start }),
            expires: Expiry::from(labels.get(EXPIRES).cloned().unwrap_or_default()),
        })
    }

    /// The date on which the sandbox may be removed, RFC 3339.
    pub fn expiry_date(&self) -> Option<&str> {
        match &self.expires {
            Expiry::On(date) => Some(date),
            Expiry::WithOwner | Expiry::Never => None,
        }
    }

    /// Returns whether the process that made the sandbox still runs, as far as that is known.
    pub fn has_owner(&self) -> bool {
        self.owner.is_none_or(ProcessId::is_alive)
    }

    /// Returns whether a sandbox in `state` may be removed. One that runs never is: its guest ends it when its client is gone for
    /// the idle time, and a session that lost its process may have been resumed by another one.
    pub fn is_left_over(&self, state: State) -> bool {
        if self.host != this_host() {
            return false;
        }
        match (&self.expires, state) {
            (Expiry::Never, _) | (_, State::Running) => false,
            (Expiry::WithOwner, State::Stopped) => true,
            (Expiry::WithOwner, State::Starting | State::Paused) => !self.has_owner(),
            (Expiry::On(date), State::Starting) => is_past(date) && !self.has_owner(),
            (Expiry::On(date), State::Paused | State::Stopped) => is_past(date),
        }
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WithOwner => "owner",
            Self::On(date) => date,
            Self::Never => "never",
        })
    }
}

impl From<Expiry> for String {
    fn from(expiry: Expiry) -> Self {
        expiry.to_string()
    }
}

/// Text that is neither a date nor `owner` never expires.
impl From<String> for Expiry {
    fn from(text: String) -> Self {
        match text.as_str() {
            "owner" => Self::WithOwner,
            date if date.parse::<jiff::Timestamp>().is_ok() => Self::On(text),
            _ => Self::Never,
        }
    }
}

/// The date `after` now, RFC 3339; `None` beyond what a date can express.
fn date(after: Duration) -> Option<String> {
    let date = jiff::Timestamp::now().checked_add(after).ok()?;
    Some(date.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn is_past(date: &str) -> bool {
    date.parse::<jiff::Timestamp>().is_ok_and(|date| date < jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ownership(expires: &str, owner: ProcessId) -> Ownership {
        Ownership {
            session: "s".to_owned(),
            host: this_host(),
            owner: Some(owner),
            expires: Expiry::from(expires.to_owned()),
        }
    }

    #[test]
    fn a_sandbox_outlives_its_owner_only_while_it_runs() {
        let me = ProcessId::this().unwrap();
        let later = ProcessId { start: me.start.map(|start| start + 1), ..me };
        assert!(me.is_alive() && !later.is_alive());
        for state in [State::Starting, State::Paused] {
            assert!(!ownership("owner", me).is_left_over(state));
            assert!(ownership("owner", later).is_left_over(state));
        }
        assert!(!ownership("owner", later).is_left_over(State::Running));
        assert!(ownership("owner", me).is_left_over(State::Stopped));
    }

    #[test]
    fn a_kept_sandbox_goes_after_its_date_unless_it_runs() {
        let me = ProcessId::this().unwrap();
        let expired = ownership("2020-01-01T00:00:00Z", me);
        assert!(expired.is_left_over(State::Stopped) && expired.is_left_over(State::Paused));
        assert!(!expired.is_left_over(State::Running) && !expired.is_left_over(State::Starting));
        let tomorrow = date(Duration::from_secs(86_400)).unwrap();
        for expires in [tomorrow.as_str(), "never", "no date"] {
            assert!(!ownership(expires, me).is_left_over(State::Stopped), "{expires}");
        }
        assert_eq!(date(Duration::MAX), None);
    }

    #[test]
    fn a_sandbox_of_another_machine_is_never_left_over() {
        let gone = ProcessId { pid: i32::MAX, start: None };
        let mut elsewhere = ownership("owner", gone);
        assert!(elsewhere.is_left_over(State::Stopped));
        elsewhere.host = "another".to_owned();
        assert!(!elsewhere.is_left_over(State::Stopped));
    }

    #[test]
    fn labels_hold_all_of_it() {
        let me = ProcessId::this().unwrap();
        let ownership = ownership("never", me);
        assert_eq!(Ownership::from_labels(&ownership.labels()), Some(ownership));
        assert_eq!(me.to_string().parse(), Ok(me));
    }

    #[test]
    fn only_a_session_id_becomes_a_name() {
        assert_eq!(sandbox_name("a-1").unwrap(), "agent-a-1");
        for bad in ["", "../x", "A", "a b", &"x".repeat(65)] {
            assert!(sandbox_name(bad).is_err(), "{bad}");
        }
    }
}
