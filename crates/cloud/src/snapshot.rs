//! The provider's own copy of a sandbox, as which the sandbox of a fork begins.
//!
//! A copy has no labels, so that its name says whose it is: this machine's, one session's, and until when. It stays as long as
//! the sandbox that began as it, because a provider may still read from it.

use super::provider::{Instance, Provider};
use agent_base::error::{Error, Kind, Result};
use agent_sandbox::ownership::{SESSION, sandbox_name, this_host};
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::timeout;

/// The label that names the copy as which a sandbox began.
pub const LABEL: &str = "agent.snapshot";
/// The time for which a fork may wait until its sandbox starts. Later it has its workspace as it was recorded.
pub const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The time limit for a provider to make one.
const TIME: Duration = Duration::from_secs(300);
/// Copies of this machine's that there may be at a time.
const MAX_SNAPSHOTS: usize = 50;
/// The prefix of their names.
const PREFIX: &str = "agent-fork-";

/// A copy that a provider lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// The provider's id of it.
    pub id: String,
    /// The name that it was made with.
    pub name: String,
}

/// The parts of a copy's name, where it is one of this machine's.
struct Named {
    session: String,
    expires: i64,
}

impl Named {
    fn of(session: &str) -> Result<Self> {
        sandbox_name(session)?;
        let expires = Timestamp::now().as_second().saturating_add_unsigned(LIFE.as_secs());
        Ok(Self { session: session.to_owned(), expires })
    }

    fn text(&self) -> String {
        format!("{PREFIX}{}-{}-{}", this_host(), self.expires, self.session)
    }

    fn parse(name: &str) -> Option<Self> {
        let (host, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let (expires, session) = rest.split_once('-')?;
        let expires = expires.parse().ok()?;
        (host == this_host() && sandbox_name(session).is_ok())
            .then(|| Self { session: session.to_owned(), expires })
    }
}

/// Makes a copy of a sandbox for the session `fork`.
///
/// # Errors
/// The provider refuses, is late, or has too many of this machine's; nothing is left then, as far as that is known.
pub async fn make(provider: &impl Provider, instance: &Instance, fork: &str) -> Result<Option<String>> {
    let name = Named::of(fork)?.text();
    let others = provider.snapshots().await?;
    let number = others.iter().filter(|other| Named::parse(&other.name).is_some()).count();
    if number >= MAX_SNAPSHOTS {
        return Err(Error::new(
            Kind::Limit,
            format!("{} holds {number} copies of sandboxes of this machine", provider.name()),
        )
        .hint("remove forks that were never started with `agent sessions rm`"));
    }
    let late = |_| {
        Err(Error::sandbox(format!(
            "{} did not copy the sandbox within {} s",
            provider.name(),
            TIME.as_secs()
        )))
    };
    let made = timeout(TIME, provider.snapshot(instance, &name)).await.unwrap_or_else(late);
    if made.is_err() {
        // It may have been made all the same.
        for id in of_session(provider, fork).await {
            let _ = provider.remove_snapshot(&id).await;
        }
    }
    made
}

/// The copies that were made for `session`, as far as the provider answers.
pub async fn of_session(provider: &impl Provider, session: &str) -> Vec<String> {
    let listed = provider.snapshots().await.unwrap_or_default();
    let is_its = |snapshot: &ListedSnapshot| {
        Named::parse(&snapshot.name).is_some_and(|named| named.session == session)
    };
    listed.into_iter().filter(is_its).map(|snapshot| snapshot.id).collect()
}

/// Removes the copies whose time is over and that none of the `sandboxes` began as.
pub async fn sweep(provider: &impl Provider, sandboxes: &[Instance]) -> Result<()> {
    let now = Timestamp::now().as_second();
    let is_used = |named: &Named| {
        sandboxes
            .iter()
            .any(|sandbox| sandbox.labels.get(SESSION).is_some_and(|session| *session == named.session))
    };
    for snapshot in provider.snapshots().await? {
        if Named::parse(&snapshot.name).is_some_and(|named| named.expires < now && !is_used(&named)) {
            provider.remove_snapshot(&snapshot.id).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_a_copy_is_and_until_when() {
        let name = Named::of("20261120-153012-k3f9").unwrap().text();
        let named = Named::parse(&name).unwrap();
        assert_eq!(named.session, "20261120-153012-k3f9");
        assert!(named.expires > Timestamp::now().as_second() + 6 * 24 * 3600);
        assert!(Named::of("../x").is_err());
        for other in [
            "",
            "agent-fork-",
            "base",
            "agent-fork-elsewhere-1-s",
            &name.replace(&this_host(), ""),
            &format!("x{name}"),
        ] {
            assert!(Named::parse(other).is_none(), "{other}");
        }
    }
}
