//! Logging in to a server elsewhere by OAuth 2.1, as the protocol's section on authorization has it.
//!
//! A login belongs to a server's address, and its token goes there alone. It is kept on this machine (`store.rs`) and is in no sandbox.

mod discovery;
mod exchange;
mod flow;
mod loopback;
mod store;

pub use flow::{Shown, Way, log_in};
pub use store::Store;

use agent_base::lock::Lock;
use agent_base::machine::Machine;
use exchange::{Asking, client};
use futures_util::future::join_all;
use secrecy::SecretString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Kept;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use url::Url;

/// The time before its end at which a token is refreshed.
const EARLY: Duration = Duration::from_secs(30);
/// The time for which the process waits at its end for refreshes.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Refreshes that are under way. Many servers take a token for refreshing once: what they give in its place has to be kept, also when
/// nobody waits for it any more.
static UNDER_WAY: Lock<Vec<JoinHandle<()>>> = Lock::new(Vec::new());

/// Waits until the refreshes that are under way have been kept, at the end of the process.
pub async fn settle() {
    let under_way = std::mem::take(&mut *UNDER_WAY.lock());
    let _ = timeout(SETTLE_TIMEOUT, join_all(under_way)).await;
}

/// The login to one server, if there is one.
#[derive(Clone)]
pub(super) struct Login {
    store: Store,
    server: Url,
}

impl Login {
    pub fn new(server: &Url, machine: &Machine) -> Option<Self> {
        Some(Self { store: Store::of(machine).ok()?, server: server.clone() })
    }

    /// The token, refreshed where it is about to end.
    pub async fn token(&self) -> Option<SecretString> {
        let kept = self.store.read(&self.server)?;
        if kept.expires_at.is_none_or(|end| now() + EARLY.as_secs() < end) {
            return Some(kept.access_token.into());
        }
        self.another(&kept.access_token).await.or(Some(kept.access_token.into()))
    }

    /// Another token than `refused`, which the server does not take any more. Goes on when the future is dropped.
    pub async fn another(&self, refused: &str) -> Option<SecretString> {
        let (tell, told) = oneshot::channel();
        let (login, refused) = (self.clone(), refused.to_owned());
        let refreshing = tokio::spawn(async move {
            // Nobody may wait for it.
            let _ = tell.send(login.refreshed(&refused).await);
        });
        {
            let mut under_way = UNDER_WAY.lock();
            under_way.retain(|other| !other.is_finished());
            under_way.push(refreshing);
        }
        told.await.ok().flatten()
    }

    /// Refreshes a token, unless another process has done that meanwhile.
    async fn refreshed(&self, old: &str) -> Option<SecretString> {
        let _lock = self.store.lock(&self.server).await.ok()?;
        let kept = self.store.read(&self.server)?;
        if kept.access_token != old {
            return Some(kept.access_token.into());
        }
        let refresh = kept.refresh_token.clone()?;
        let asking = Asking { client: &client().ok()?, endpoint: &kept.token_endpoint };
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", &refresh),
            ("client_id", &kept.client_id),
            ("client_secret", kept.client_secret.as_deref().unwrap_or_default()),
            ("resource", kept.resource.as_str()),
        ];
        let tokens = asking.tokens(&form).await.ok()?.ok()?;
        let kept = Kept {
            access_token: tokens.access_token,
            // A server that gives no other one goes on to take the old one.
            refresh_token: tokens.refresh_token.or(Some(refresh)),
            expires_at: tokens.expires_in.map(|seconds| now().saturating_add(seconds)),
            ..kept
        };
        // It is of use for this session all the same.
        let _ = self.store.write(&self.server, &kept);
        Some(kept.access_token.into())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
