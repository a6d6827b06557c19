//! The sandboxes of all clients, by name. At most so many are open; one that nobody uses any more ends.

use super::client_sandbox::ClientSandbox;
use crate::{Opener, StartFrom};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_log::SessionId;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Sandboxes of one server.
const MAX_PLACES: usize = 32;
/// One that nobody has used for this long ends.
const MAX_IDLE: Duration = Duration::from_secs(3600);
/// The interval of looks for those.
const IDLE_CHECK: Duration = Duration::from_secs(60);
/// The longest name, in bytes.
const MAX_NAME: usize = 200;

type Cell = Arc<OnceCell<Arc<ClientSandbox>>>;

/// All sandboxes.
pub struct ClientSandboxes {
    opener: Arc<dyn Opener>,
    workspace: PathBuf,
    all: Lock<HashMap<String, Cell>>,
}

impl ClientSandboxes {
    /// None yet, of `workspace`.
    pub fn new(opener: Arc<dyn Opener>, workspace: PathBuf) -> Self {
        Self { opener, workspace, all: Lock::default() }
    }

    /// The sandbox called `name`, opened by the first that asks; `key` is the session's where it is to be found again.
    ///
    /// # Errors
    /// There are too many, or it cannot be opened: the next call tries again.
    pub async fn get(&self, name: &str, key: Option<&str>) -> Result<Arc<ClientSandbox>> {
        let named = self.named(name)?;
        let place = named.cell.get_or_try_init(|| async {
            let from = match key {
                Some(key) => StartFrom::Session(self.opener.store().for_key(key)?),
                None => StartFrom::New,
            };
            ClientSandbox::open(&*self.opener, &self.workspace, from).await
        });
        let place = Arc::clone(place.await?);
        place.touch();
        Ok(place)
    }

    /// A second sandbox for `key`, with the workspace and `$HOME` of `source` as they are now. A later server finds it by that
    /// key.
    pub async fn fork(&self, source: &ClientSandbox, key: &str) -> Result<SessionId> {
        let named = self.named(&Self::of_key(key))?;
        let is_ours = AtomicBool::new(false);
        let place = named.cell.get_or_try_init(|| async {
            is_ours.store(true, Ordering::Relaxed);
            // What is not needed yet does not run yet, and could not be copied.
            source.ready().await?;
            let fork = source.session.fork().await?;
            self.opener.store().bind_key(key, &fork.id)?;
            ClientSandbox::open(&*self.opener, &self.workspace, StartFrom::Session(fork.id)).await
        });
        let id = place.await?.session.id().clone();
        match is_ours.into_inner() {
            true => Ok(id),
            false => {
                Err(Error::usage(format!("there is a sandbox called {key:?}")).hint("choose another name"))
            }
        }
    }

    /// Returns whether there is a sandbox called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.all.lock().contains_key(name)
    }

    /// The name of the sandbox of a key.
    pub fn of_key(key: &str) -> String {
        format!("key {key}")
    }

    fn named(&self, name: &str) -> Result<PendingName<'_>> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::usage(format!("the name of a sandbox has 1 to {MAX_NAME} bytes")));
        }
        let mut all = self.all.lock();
        if !all.contains_key(name) && all.len() >= MAX_PLACES {
            return Err(Error::usage(format!("{MAX_PLACES} sandboxes are open, which is the limit"))
                .hint("close one that is not needed any more"));
        }
        let cell = Arc::clone(all.entry(name.to_owned()).or_default());
        Ok(PendingName { places: self, name: name.to_owned(), cell })
    }

    /// Ends the sandbox called `name`, if there is one.
    pub async fn end(&self, name: &str) -> bool {
        let removed = self.all.lock().remove(name);
        match removed.and_then(|cell| cell.get().cloned()) {
            Some(place) => {
                place.end().await;
                true
            }
            None => false,
        }
    }

    /// Ends what nobody has used for an hour, again and again.
    pub async fn end_idle(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(IDLE_CHECK).await;
            self.end_unused(MAX_IDLE).await;
        }
    }

    async fn end_unused(&self, since: Duration) {
        let is_unused = |cell: &Cell| {
            cell.get().is_some_and(|place| place.unused_for() >= since && Arc::strong_count(place) == 1)
        };
        let unused: Vec<Cell> =
            self.all.lock().extract_if(|_, cell| is_unused(cell)).map(|(_, cell)| cell).collect();
        join_all(unused.iter().filter_map(|cell| cell.get()).map(|place| place.end())).await;
    }

    /// Ends all of them.
    pub async fn end_all(&self) {
        let all: Vec<_> = self.all.lock().drain().filter_map(|(_, cell)| cell.get().cloned()).collect();
        join_all(all.iter().map(|place| place.end())).await;
    }
}

/// A name that is being looked up. Where it ends without a sandbox (the call failed or was cancelled), the name is free again.
struct PendingName<'a> {
    places: &'a ClientSandboxes,
    name: String,
    cell: Cell,
}

impl Drop for PendingName<'_> {
    fn drop(&mut self) {
        let mut all = self.places.all.lock();
        // The list and this one: nobody else waits for it. Names are looked up under the same lock.
        let is_last = all
            .get(&self.name)
            .is_some_and(|cell| Arc::ptr_eq(cell, &self.cell) && Arc::strong_count(cell) == 2);
        if is_last && !self.cell.initialized() {
            all.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_log::Store;
    use agent_session::{Frontend, ModelSettings, Session};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use std::path::Path;

    /// Opens nothing, ever.
    struct Stuck(Store);

    impl Opener for Stuck {
        fn store(&self) -> &Store {
            &self.0
        }

        fn own(&self, directory: &Path) -> Vec<PathBuf> {
            vec![directory.to_owned()]
        }

        fn open<'a>(
            &'a self,
            _: &'a Path,
            _: StartFrom,
            _: Arc<dyn Frontend>,
        ) -> BoxFuture<'a, Result<Session>> {
            std::future::pending().boxed()
        }

        fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
            std::future::pending().boxed()
        }

        fn end_sandbox<'a>(&'a self, _: &'a str, _: &'a SessionId) -> BoxFuture<'a, ()> {
            std::future::pending().boxed()
        }

        fn model<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ModelSettings>> {
            std::future::pending().boxed()
        }
    }

    #[tokio::test]
    async fn a_call_that_is_cancelled_while_its_sandbox_is_opened_leaves_no_place_taken() {
        let places = ClientSandboxes::new(Arc::new(Stuck(Store::at("/nowhere"))), PathBuf::from("/nowhere"));
        // Two wait for the same one; the second begins to open it when the first is cancelled.
        let mut first = Box::pin(places.get("x", None));
        let mut second = Box::pin(places.get("x", None));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(places.all.lock().len(), 1);
        drop(second);
        assert!(places.all.lock().is_empty());
    }
}
