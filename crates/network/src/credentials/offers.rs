//! Credentials that are configured and not enabled: the user is asked when a host refuses a request without one.

use super::rule::Rule;
use super::{Bound, Credentials};
use crate::gateway::{Gateway, answer_in_time};
use crate::host::Host;
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_event::Event;
use agent_policy::{Answer, Question};
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Reads the value of a credential, once the user has allowed it.
pub type ReadValue = Arc<dyn Fn() -> BoxFuture<'static, Result<SecretString>> + Send + Sync>;

/// A credential of the user's that is not enabled.
#[derive(Clone)]
pub struct Offered {
    /// The rule for its use.
    pub rule: Rule,
    /// Reads its value.
    pub read: ReadValue,
    /// Authorities of the hosts beside those of this machine, as PEM.
    pub authorities: Vec<u8>,
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered").field("rule", &self.rule).finish_non_exhaustive()
    }
}

/// The user's answer for the session.
#[derive(Clone)]
enum OfferState {
    /// Nothing yet.
    Open,
    /// It is used.
    Taken(Arc<Bound>),
    /// It is not, in this session.
    Declined,
}

/// A credential that the user is asked about.
pub(super) struct Offer {
    offered: Offered,
    state: Lock<OfferState>,
    /// Held while the user is asked: all connections that wait get the same answer.
    asking: Mutex<()>,
}

impl Offer {
    pub fn new(offered: Offered) -> Self {
        Self { offered, state: Lock::new(OfferState::Open), asking: Mutex::default() }
    }

    /// The credential, where the user allowed it for the session.
    pub fn taken(&self) -> Option<Arc<Bound>> {
        match &*self.state.lock() {
            OfferState::Taken(bound) => Some(Arc::clone(bound)),
            OfferState::Open | OfferState::Declined => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(*self.state.lock(), OfferState::Open)
    }
}

impl Credentials {
    /// Returns whether it is looked whether a host refuses requests.
    pub fn is_watched(&self, host: &Host, port: u16) -> bool {
        self.offer(host, port).is_some()
    }

    fn offer(&self, host: &Host, port: u16) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.is_open() && offer.offered.rule.is_bound_to(host, port))
    }

    async fn read(&self, offer: &Offer) -> Result<Arc<Bound>> {
        let value = (offer.offered.read)().await?;
        let mut needles = self.needles.lock();
        let mut changed = (**needles).clone();
        let bound = Bound::new(&offer.offered.rule, &value, true, &mut changed)?;
        *needles = Arc::new(changed);
        Ok(Arc::new(bound))
    }
}

impl Gateway {
    /// The credential that the user allows for a host which refused a request, and whether it is for this connection alone.
    pub(super) async fn offered(
        &self,
        credentials: &Credentials,
        host: &Host,
        port: u16,
    ) -> Option<(Arc<Bound>, bool)> {
        let offer = credentials.offer(host, port)?;
        let _asking = offer.asking.lock().await;
        if !offer.is_open() {
            return offer.taken().map(|bound| (bound, false));
        }
        let name = &offer.offered.rule.name;
        if self.bindings.is_said(name) {
            return None;
        }
        let answer = match self.project().is_some_and(|project| project.allows_credential(name)) {
            true => Answer::Always,
            false => self.ask_about_credential(name, &format!("{host}:{port}")).await,
        };
        if let Some(reason) = answer.reason() {
            self.deny(&format!("use the credential {name} at "), &format!("{host}:{port}"), &reason);
        }
        match answer {
            Answer::Once | Answer::Always | Answer::Project => {}
            Answer::Never => {
                *offer.state.lock() = OfferState::Declined;
                return None;
            }
            Answer::Said(_) => {
                self.bindings.keep_said(name);
                return None;
            }
            Answer::No => return None,
        }
        let bound = match credentials.read(offer).await {
            Ok(bound) => bound,
            Err(error) => {
                self.emit(Event::Notice { text: error.to_string() });
                return None;
            }
        };
        if answer == Answer::Project
            && let Some(Err(error)) = self.project().map(|project| project.allow_credential(name))
        {
            self.emit(Event::Notice { text: format!("allowed for this session only: {error}") });
        }
        if answer != Answer::Once {
            *offer.state.lock() = OfferState::Taken(Arc::clone(&bound));
        }
        Some((bound, answer == Answer::Once))
    }

    async fn ask_about_credential(&self, name: &str, host: &str) -> Answer {
        let Some(approver) = self.approver() else { return Answer::No };
        answer_in_time(&*approver, &Question::Credential { name, host }).await.unwrap_or(Answer::No)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bindings::tests::gateway;
    use super::super::presets::preset;
    use super::*;
    use agent_base::machine::Machine;
    use futures_util::FutureExt;
    use std::sync::atomic::Ordering::Relaxed;

    #[tokio::test]
    async fn an_answer_in_words_holds_until_the_model_has_it() {
        let (gateway, asked) = gateway(Answer::said("not this host"));
        let read: ReadValue = Arc::new(|| async { Ok(SecretString::from("a-value-of-the-user")) }.boxed());
        let offered =
            Offered { rule: preset("github").unwrap().rule("github"), read, authorities: Vec::new() };
        gateway.bind(&[], &[offered], &Machine::of_this_process()).unwrap();
        let credentials = gateway.credentials().unwrap();
        let host = Host::parse("github.com").unwrap();
        for _ in 0..3 {
            assert!(gateway.offered(&credentials, &host, 443).await.is_none());
        }
        assert_eq!(asked.load(Relaxed), 1);
        let told = gateway.explain("").unwrap();
        assert!(told.contains("not this host"), "{told}");
        assert!(gateway.offered(&credentials, &host, 443).await.is_none());
        assert_eq!(asked.load(Relaxed), 2);
    }
}
