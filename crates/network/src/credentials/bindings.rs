//! The credentials of a session at its gateway, and the events about them.

use super::{Credential, Credentials, Offered};
use crate::gateway::{Gateway, answer_in_time};
use crate::host::Host;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_base::sanitise::one_line;
use agent_base::tls::{AUTHORITIES, MAX_AUTHORITIES};
use agent_event::Event;
use agent_policy::{Answer, Question};
use agent_sandbox::{HomeFile, Sandbox};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::Mutex;

/// Uses of credentials that are events.
const MAX_EVENTS: u64 = 20_000;
/// Columns of a method and of a path in an event.
const MAX_METHOD: usize = 20;
const MAX_PATH: usize = 300;
/// Repositories about whose pushes the user's answers hold for the session.
const MAX_REPOSITORIES: usize = 200;

/// The state of a gateway's credentials.
#[derive(Default)]
pub(crate) struct Bindings {
    credentials: Lock<Option<Arc<Credentials>>>,
    /// Events about their use.
    events: AtomicU64,
    /// The user's answers about pushes for the session, by credential and repository. Held while the user is asked.
    pushes: Mutex<HashMap<(String, String), bool>>,
    /// The same for files of git LFS, until the push that follows them. Held while the user is asked.
    files: Mutex<HashSet<(String, String)>>,
    /// Credentials about which the user answered in words, until the model has these: programs try again and again.
    said: Lock<HashSet<String>>,
}

impl Bindings {
    /// Keeps that the user answered in words about a credential.
    pub(super) fn keep_said(&self, name: &str) {
        self.said.lock().insert(name.to_owned());
    }

    /// Returns whether the user answered in words about a credential.
    pub(super) fn is_said(&self, name: &str) -> bool {
        self.said.lock().contains(name)
    }

    /// Forgets these answers, because the model has them.
    pub(crate) fn forget_said(&self) {
        self.said.lock().clear();
    }
}

/// A request: the host and its port, the method, and the path without the query.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub host: &'a Host,
    pub port: u16,
    pub method: &'a str,
    pub path: &'a str,
}

impl Gateway {
    /// Binds credentials to their hosts, which the sandbox may reach then. About those that are offered the user is asked when a host
    /// refuses a request. Called after [`Gateway::ask_with`], where there is a user.
    ///
    /// # Errors
    ///
    /// Connections bypass this gateway; the certificate authority cannot be made.
    pub fn bind(&self, credentials: &[Credential], offered: &[Offered], machine: &Machine) -> Result<()> {
        if !credentials.is_empty() && self.is_full() {
            return Err(Error::config("credentials need the proxy, which --network full bypasses")
                .hint("name the hosts that the sandbox may reach, or leave --network out"));
        }
        if self.is_full() || (credentials.is_empty() && offered.is_empty()) {
            return Ok(());
        }
        let (mut credentials, mut offered) = (credentials.to_vec(), offered.to_vec());
        offered.retain(|offered| offered.rule.can_be_added());
        if self.is_anybody_asked() {
            let rules = credentials.iter_mut().map(|credential| &mut credential.rule);
            for rule in rules.chain(offered.iter_mut().map(|offered| &mut offered.rule)) {
                rule.write |= rule.write_if_asked;
            }
        }
        *self.bindings.credentials.lock() =
            Some(Arc::new(Credentials::new(&credentials, &offered, machine)?));
        Ok(())
    }

    /// Returns whether there is a user to ask.
    pub(super) fn is_anybody_asked(&self) -> bool {
        self.approver().is_some()
    }

    /// Asks the user about a push.
    ///
    /// # Errors
    /// The user does not allow it: the reason.
    pub(super) async fn approve_push(
        &self,
        name: &str,
        repository: &str,
        changes: &str,
    ) -> std::result::Result<(), String> {
        let mut pushes = self.bindings.pushes.lock().await;
        let key = (name.to_owned(), repository.to_owned());
        let known = pushes.get(&key).map(|allowed| if *allowed { Answer::Always } else { Answer::Never });
        let answer = match (known, self.approver()) {
            (Some(known), _) => known,
            (None, Some(approver)) => {
                let question = Question::Push { name, repository, changes };
                answer_in_time(&*approver, &question).await.unwrap_or(Answer::No)
            }
            (None, None) => Answer::No,
        };
        if matches!(answer, Answer::Always | Answer::Never) && pushes.len() < MAX_REPOSITORIES {
            pushes.insert(key, answer == Answer::Always);
        }
        match answer {
            Answer::Once | Answer::Always => Ok(()),
            refused => {
                let reason = refused.reason().unwrap_or_else(|| "the user did not allow the push".to_owned());
                Err(reason)
            }
        }
    }

    /// Asks the user about uploads and locks of git LFS, which are many requests before a push.
    ///
    /// # Errors
    /// The user does not allow them: the reason.
    pub(super) async fn approve_files(
        &self,
        name: &str,
        repository: &str,
    ) -> std::result::Result<(), String> {
        let mut files = self.bindings.files.lock().await;
        let key = (name.to_owned(), repository.to_owned());
        if !files.contains(&key) {
            self.approve_push(name, repository, "uploads or locks of git LFS").await?;
            files.insert(key);
        }
        Ok(())
    }

    /// Forgets which files of git LFS the user allowed: the push that follows them is there.
    pub(super) async fn forget_files(&self, name: &str) {
        self.bindings.files.lock().await.retain(|(of, _)| of != name);
    }

    /// Files that programs in a sandbox need for them, below its `$HOME`.
    pub async fn home_files(&self, sandbox: &Sandbox) -> Vec<HomeFile> {
        match self.credentials() {
            Some(credentials) => credentials.home_files(authorities_of(sandbox).await),
            None => Vec::new(),
        }
    }

    pub(crate) fn credentials(&self) -> Option<Arc<Credentials>> {
        self.bindings.credentials.lock().clone()
    }

    /// Returns whether TLS to this host ends here.
    pub(crate) fn ends_tls(&self, host: &Host, port: u16) -> bool {
        let is_watched =
            |credentials: Arc<Credentials>| self.is_anybody_asked() && credentials.is_watched(host, port);
        self.is_bound(host, port) || self.credentials().is_some_and(is_watched)
    }

    /// Returns whether a credential is bound to this host.
    pub(crate) fn is_bound(&self, host: &Host, port: u16) -> bool {
        self.credentials().is_some_and(|credentials| !credentials.at(host, port).is_empty())
    }

    pub(super) fn credential_used(&self, credential: &str, attempt: Attempt<'_>) {
        if self.may_report_use() {
            self.emit(Event::CredentialUsed {
                credential: credential.to_owned(),
                host: attempt.host_and_port(),
                method: one_line(attempt.method, MAX_METHOD),
                path: one_line(attempt.path, MAX_PATH),
            });
        }
    }

    pub(super) fn credential_refused(&self, credential: &str, attempt: Attempt<'_>, reason: &str) {
        let host = attempt.host_and_port();
        let (method, path) = (one_line(attempt.method, MAX_METHOD), one_line(attempt.path, MAX_PATH));
        if self.may_report_use() {
            self.emit(Event::CredentialRefused {
                credential: credential.to_owned(),
                host: host.clone(),
                method: method.clone(),
                path: path.clone(),
                reason: reason.to_owned(),
            });
        }
        self.deny("", &format!("{method} {host}{path}"), reason);
    }

    /// Counts an event about a credential. Those beyond the limit are not emitted.
    fn may_report_use(&self) -> bool {
        let before = self.bindings.events.fetch_add(1, Relaxed);
        if before == MAX_EVENTS {
            let text =
                format!("credentials were used more than {MAX_EVENTS} times; further uses are not recorded");
            self.emit(Event::Notice { text });
        }
        before < MAX_EVENTS
    }
}

impl Attempt<'_> {
    fn host_and_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The authorities that programs of a sandbox trust, as far as they are in a file of its image.
async fn authorities_of(sandbox: &Sandbox) -> Option<Vec<u8>> {
    for path in AUTHORITIES {
        if let Ok(file) = sandbox.read_file(Path::new(path), 0, MAX_AUTHORITIES).await
            && (1..=MAX_AUTHORITIES).contains(&file.size)
        {
            return Some(file.bytes);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::traffic::Limits;
    use agent_event::Events;
    use agent_sandbox::Network;
    use futures_util::FutureExt;

    /// A gateway whose user gives one answer, and the number of questions.
    pub(in crate::credentials) fn gateway(answer: Answer) -> (Arc<Gateway>, Arc<AtomicU64>) {
        let gateway = Gateway::new(&Network::None, Arc::new(Events::new(1)), Limits::default()).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        gateway.ask_with(Arc::new(move |_: &Question<'_>| {
            counted.fetch_add(1, Relaxed);
            let answer = answer.clone();
            async { Ok(answer) }.boxed()
        }));
        (gateway, asked)
    }

    #[tokio::test]
    async fn files_of_lfs_are_asked_about_once_until_the_next_push() {
        let (once, asked) = gateway(Answer::Once);
        for _ in 0..2 {
            assert_eq!(once.approve_files("git", "h:443/o/r.git").await, Ok(()));
            assert_eq!(asked.load(Relaxed), 1);
        }
        assert_eq!(once.approve_push("git", "h:443/o/r.git", "update main").await, Ok(()));
        once.forget_files("git").await;
        assert_eq!(once.approve_files("git", "h:443/o/r.git").await, Ok(()));
        assert_eq!(asked.load(Relaxed), 3);
    }

    #[tokio::test]
    async fn an_answer_for_the_session_is_one_for_pushes_and_files_of_lfs() {
        for (answer, is_allowed) in [(Answer::Always, true), (Answer::Never, false)] {
            let (gateway, asked) = gateway(answer);
            let files = gateway.approve_files("git", "h:443/o/r.git").await;
            let push = gateway.approve_push("git", "h:443/o/r.git", "update main").await;
            assert_eq!((files.is_ok(), push.is_ok()), (is_allowed, is_allowed));
            assert_eq!(asked.load(Relaxed), 1);
        }
    }
}
