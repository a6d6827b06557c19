//! The way on where the endpoint refuses the key, or is overloaded: another key, another model.

use super::OpenAi;
use crate::client::address::Address;
use crate::client::failure::{Failure, Reason};
use crate::endpoint::Endpoint;
use crate::{OnProgress, Progress, Reply, Request};
use agent_base::error::Result;
use std::time::Duration;
use tokio::time::Instant;

/// Refusals of an overloaded endpoint after which another model is asked.
pub(super) const MAX_REFUSALS: u32 = 2;
/// The time for which a model that was overloaded is not asked again.
const PAUSE: Duration = Duration::from_secs(60);

impl OpenAi {
    /// The same client, with models of the same endpoint that answer in its place while it is overloaded, in this order.
    ///
    /// # Errors
    /// `Config` where a header of one cannot be used.
    pub fn with_fallbacks(mut self, endpoints: Vec<Endpoint>) -> Result<Self> {
        self.fallbacks =
            endpoints.into_iter().map(|endpoint| self.sibling(endpoint)).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Sends another key from now on, where this one was refused and its source has another. `false` where it has none.
    pub(super) async fn renew_key(&self, failure: &Failure, on_progress: OnProgress<'_>) -> bool {
        let source = self.endpoint.key_source.as_ref().filter(|_| failure.reason == Reason::KeyRefused);
        let Some(source) = source else { return false };
        let renewed = match source.renew().await {
            Ok(key) => Address::with_key(&self.endpoint, Some(&key)),
            Err(error) => Err(error),
        };
        match renewed {
            Ok(address) => {
                let mut current = self.address.lock();
                let is_another = current.headers != address.headers;
                *current = address;
                is_another
            }
            Err(error) => {
                on_progress(Progress::Notice(&format!(
                    "the key was refused, and there is no other: {error}"
                )));
                false
            }
        }
    }

    /// Returns whether a model that was overloaded a moment ago is left alone.
    pub(super) fn is_paused(&self) -> bool {
        !self.fallbacks.is_empty() && self.paused_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Asks the models that answer in place of this one. `None` where none does.
    pub(super) async fn ask_another(
        &self,
        request: &Request<'_>,
        on_progress: OnProgress<'_>,
    ) -> Option<Reply> {
        *self.paused_until.lock() = Some(Instant::now() + PAUSE);
        for other in &self.fallbacks {
            let text =
                format!("{} is overloaded: {} is asked instead", self.endpoint.model, other.endpoint.model);
            on_progress(Progress::Notice(&text));
            if let Ok(reply) = Box::pin(other.ask_until_answered(*request, on_progress)).await {
                return Some(reply);
            }
        }
        None
    }
}
