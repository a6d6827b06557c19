//! Removals of sandboxes that go on beside other work: an API server or an engine that is away for a moment would otherwise
//! leave what was to be removed then.

use super::Backend;
use agent_base::lock::Lock;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long the removal of one sandbox is tried. What is left then is swept by a later process.
const LONGEST: Duration = Duration::from_secs(600);
/// The first pause between two attempts, and the longest: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

struct Removal {
    abort: AbortHandle,
    end: Shared<BoxFuture<'static, ()>>,
}

/// Those under way, by what is removed.
static UNDER_WAY: Lock<BTreeMap<String, Removal>> = Lock::new(BTreeMap::new());

/// Removes the sandbox of `session`, and tries again where that fails. Waits for its end for at most `within`; it goes on
/// after that.
pub async fn remove(backend: &Arc<dyn Backend>, session: &str, within: Duration) {
    let (backend, name) = (Arc::clone(backend), session.to_owned());
    let end = begin(session, async move {
        let (deadline, mut pause) = (Instant::now() + LONGEST, FIRST_PAUSE);
        while backend.destroy(&name).await.is_err() && Instant::now() < deadline {
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    });
    let _ = timeout(within, end).await;
}

/// Has the rest of a removal, of what is called `name`, go on beside other work.
pub fn go_on(name: &str, rest: impl Future<Output = ()> + Send + 'static) {
    // Outside of a runtime there is nobody who could.
    if tokio::runtime::Handle::try_current().is_ok() {
        drop(begin(name, rest));
    }
}

/// Gives up the removal of the sandbox of `session`: it is to run again.
pub fn give_up(session: &str) {
    if let Some(removal) = UNDER_WAY.lock().remove(session) {
        removal.abort.abort();
    }
}

/// Waits until no removal is under way, for at most `longest`: how many are left.
pub async fn settle(longest: Duration) -> usize {
    let ends: Vec<_> = UNDER_WAY.lock().values().map(|removal| removal.end.clone()).collect();
    let _ = timeout(longest, join_all(ends)).await;
    UNDER_WAY.lock().len()
}

/// Begins a removal, unless one of the same name is under way: its end.
fn begin(name: &str, removal: impl Future<Output = ()> + Send + 'static) -> Shared<BoxFuture<'static, ()>> {
    let mut under_way = UNDER_WAY.lock();
    if let Some(removal) = under_way.get(name) {
        return removal.end.clone();
    }
    let own = name.to_owned();
    // It is on the list before it can end, because that is locked.
    let task = tokio::spawn(async move {
        removal.await;
        UNDER_WAY.lock().remove(&own);
    });
    let abort = task.abort_handle();
    let end = task.map(drop).boxed().shared();
    under_way.insert(name.to_owned(), Removal { abort, end: end.clone() });
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, Channel, EnforcedLimits, Listed, Networks, OnProgress, Spec};
    use agent_base::error::{Error, Result};
    use agent_event::SandboxInfo;
    use async_trait::async_trait;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// A backend that is away for so many attempts.
    struct Away {
        attempts: AtomicU32,
        left: u32,
    }

    #[async_trait]
    impl Backend for Away {
        fn name(&self) -> &'static str {
            "away"
        }
        fn location(&self) -> String {
            String::new()
        }
        fn capabilities(&self) -> Capabilities {
            let (networks, limits) = (Networks { isolated: false, full: false }, EnforcedLimits::default());
            let (host_paths, own_paths, maps_owners, images, runtimes, pause, docker) = Default::default();
            Capabilities {
                host_paths,
                own_paths,
                maps_owners,
                images,
                runtimes,
                pause,
                docker,
                networks,
                limits,
            }
        }
        async fn start(&self, _: &Spec, _: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
            Err(Error::sandbox("away"))
        }
        async fn attach(&self, _: &str) -> Result<Channel> {
            Err(Error::sandbox("away"))
        }
        async fn destroy(&self, _: &str) -> Result<()> {
            match self.attempts.fetch_add(1, Relaxed) < self.left {
                true => Err(Error::sandbox("away")),
                false => Ok(()),
            }
        }
        async fn list(&self) -> Result<Vec<Listed>> {
            Ok(Vec::new())
        }
        async fn sweep(&self) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_fails_goes_on_until_it_succeeds_or_is_given_up() {
        let away = |left| Arc::new(Away { attempts: AtomicU32::new(0), left });
        let backend = away(8);
        remove(&(Arc::clone(&backend) as Arc<dyn Backend>), "comes-back", Duration::from_secs(5)).await;
        assert!((2..8).contains(&backend.attempts.load(Relaxed)), "it is tried again, and not waited for");
        assert_eq!(settle(Duration::from_secs(60)).await, 0);
        assert_eq!(backend.attempts.load(Relaxed), 9);
        let never = away(u32::MAX);
        remove(&(Arc::clone(&never) as Arc<dyn Backend>), "never", Duration::ZERO).await;
        assert_eq!(settle(Duration::from_secs(1)).await, 1);
        give_up("never");
        assert_eq!(settle(Duration::ZERO).await, 0);
        let attempts = never.attempts.load(Relaxed);
        sleep(LONGEST).await;
        assert_eq!(never.attempts.load(Relaxed), attempts, "a session that was resumed keeps its sandbox");
    }
}
