//! Removals of sandboxes that go on beside other work: an API server or an engine that is away for a moment would otherwise
//! leave what was to be removed then.
//!
//! Such a removal is only ever of the sandbox that was meant: it goes by the backend's identity of it, and ends where another process
//! has resumed the session (`mark.rs`).

mod mark;

pub use mark::take_over;

use super::Backend;
use agent_base::lock::Lock;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all, select_all};
use mark::{Hold, Mark};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The time for which the removal of one sandbox is tried. What is left then is swept by a later process.
const LONGEST: Duration = Duration::from_secs(600);
/// The time limit for one attempt.
const ATTEMPT: Duration = Duration::from_secs(90);
/// The first pause between two attempts, and the longest: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The time for which a sandbox that cannot be removed counts among those that may be there at once: what has ended and
/// cannot be removed for a reason that stays must not stop all others.
const PLACE: Duration = Duration::from_secs(120);

/// The wait for a free place where no removal has one.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A removal under way.
#[derive(Clone)]
pub struct Removal {
    begun: Instant,
    end: Shared<BoxFuture<'static, ()>>,
    /// Set once nobody waits for it any more.
    is_left_alone: Arc<AtomicBool>,
}

impl Removal {
    /// Waits for its end, for at most `longest`. It goes on after that.
    pub async fn wait(&self, longest: Duration) {
        if timeout(longest, self.end.clone()).await.is_err() {
            self.is_left_alone.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until its sandbox does not count any more among those that may be there at once: one that is ending has its
    /// memory, and its part of a quota, until it is gone.
    pub async fn place_freed(self) {
        tokio::select! {
            () = self.end => {}
            () = sleep_until(self.begun + PLACE) => {}
        }
    }
}

/// Those under way, each with a number of its own.
static UNDER_WAY: Lock<BTreeMap<u64, Removal>> = Lock::new(BTreeMap::new());

/// Removes the sandbox of `session`, and tries again where that fails. A session that may be resumed has a file of its own at `mark`
/// meanwhile: this process still has the session.
pub fn remove(backend: &Arc<dyn Backend>, session: &str, mark: Option<PathBuf>) -> Removal {
    let (backend, name) = (Arc::clone(backend), session.to_owned());
    // Before the session is closed, and with it open to others.
    let mark = mark.map(|path| Mark::make(path).map(|mark| (mark.hold(), mark)));
    let tried = async move {
        match mark {
            Some(Ok((hold, mark))) => try_marked(&*backend, &name, hold, mark).await,
            // Others cannot be kept away, so it is tried once, while this process has the session.
            Some(Err(_)) => drop(attempt(&*backend, &name, backend.identity(&name).as_deref()).await),
            None => try_unmarked(&*backend, &name).await,
        }
    };
    begin(tried)
}

async fn try_marked(backend: &dyn Backend, session: &str, mut hold: Hold, mark: Mark) {
    let (identity, mut pauses) = (backend.identity(session), Pauses::new());
    loop {
        match hold {
            Hold::TakenOver => return,
            Hold::Contended => {}
            Hold::Held(_lock) => {
                if attempt(backend, session, identity.as_deref()).await {
                    return mark.remove();
                }
            }
        }
        if !pauses.next().await {
            return;
        }
        hold = mark.hold();
    }
}

async fn try_unmarked(backend: &dyn Backend, session: &str) {
    let (identity, mut pauses) = (backend.identity(session), Pauses::new());
    while !attempt(backend, session, identity.as_deref()).await && pauses.next().await {}
}

/// One attempt to remove it: whether it is gone.
async fn attempt(backend: &dyn Backend, session: &str, identity: Option<&str>) -> bool {
    let removed = match identity {
        Some(identity) => backend.destroy_only(session, identity),
        None => backend.destroy(session),
    };
    matches!(timeout(ATTEMPT, removed).await, Ok(Ok(())))
}

/// The pauses between attempts.
struct Pauses {
    deadline: Instant,
    next: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self { deadline: Instant::now() + LONGEST, next: FIRST_PAUSE }
    }

    /// Waits; `false` where no further attempt is made.
    async fn next(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        sleep(self.next).await;
        self.next = (2 * self.next).min(LONGEST_PAUSE);
        true
    }
}

/// Has a removal go on beside other work.
pub fn go_on(removal: impl Future<Output = ()> + Send + 'static) {
    // Outside of a runtime there is nobody who could.
    if tokio::runtime::Handle::try_current().is_ok() {
        begin(removal).is_left_alone.store(true, Ordering::Relaxed);
    }
}

/// Waits until no removal is under way, for at most `longest`: how many are left.
pub async fn settle(longest: Duration) -> usize {
    let ends: Vec<_> = UNDER_WAY.lock().values().map(|removal| removal.end.clone()).collect();
    let _ = timeout(longest, join_all(ends)).await;
    UNDER_WAY.lock().len()
}

/// Those whose sandboxes count among the ones that may be there at once, and that nobody waits for.
fn with_places() -> Vec<Removal> {
    let now = Instant::now();
    let has_place =
        |removal: &&Removal| removal.is_left_alone.load(Ordering::Relaxed) && removal.begun + PLACE > now;
    UNDER_WAY.lock().values().filter(has_place).cloned().collect()
}

/// The number of sandboxes that count among those that may be there at once though their sessions have ended: they are being removed.
pub fn places() -> usize {
    with_places().len()
}

/// Waits until that number becomes smaller, or for `LOOK_AGAIN` where it is 0: it may have become so before the caller waited.
pub async fn place_freed() {
    match with_places() {
        none if none.is_empty() => sleep(LOOK_AGAIN).await,
        some => drop(select_all(some.into_iter().map(|removal| Box::pin(removal.place_freed()))).await),
    }
}

/// An entry of the list, for as long as its removal runs: a runtime that ends drops it.
struct Entry {
    number: u64,
    _ended: oneshot::Sender<()>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        UNDER_WAY.lock().remove(&self.number);
    }
}

fn begin(removal: impl Future<Output = ()> + Send + 'static) -> Removal {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (ended, end) = oneshot::channel();
    let end = end.map(drop).boxed().shared();
    let begun = Removal { begun: Instant::now(), end, is_left_alone: Arc::default() };
    UNDER_WAY.lock().insert(number, begun.clone());
    let entry = Entry { number, _ended: ended };
    tokio::spawn(async move {
        removal.await;
        drop(entry);
    });
    begun
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, Channel, EnforcedLimits, Listed, Networks, OnProgress, Spec};
    use agent_base::error::{Error, Result};
    use agent_event::SandboxInfo;
    use async_trait::async_trait;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// A backend that is away for so many attempts, with a sandbox of this identity.
    struct Away {
        attempts: AtomicU32,
        left: u32,
        identity: Option<&'static str>,
    }

    impl Away {
        fn attempt(&self, identity: Option<&str>) -> Result<()> {
            assert_eq!(identity, self.identity);
            match self.attempts.fetch_add(1, Relaxed) < self.left {
                true => Err(Error::sandbox("away")),
                false => Ok(()),
            }
        }
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
            self.attempt(None)
        }
        fn identity(&self, _: &str) -> Option<String> {
            self.identity.map(str::to_owned)
        }
        async fn destroy_only(&self, _: &str, identity: &str) -> Result<()> {
            self.attempt(Some(identity))
        }
        async fn list(&self) -> Result<Vec<Listed>> {
            Ok(Vec::new())
        }
        async fn sweep(&self) -> Result<()> {
            Ok(())
        }
    }

    fn away(left: u32, identity: Option<&'static str>) -> Arc<Away> {
        Arc::new(Away { attempts: AtomicU32::new(0), left, identity })
    }

    fn begun(backend: &Arc<Away>, mark: Option<PathBuf>) -> Removal {
        remove(&(Arc::clone(backend) as Arc<dyn Backend>), "session", mark)
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_fails_goes_on_until_it_succeeds() {
        for identity in [None, Some("the one that was meant")] {
            let backend = away(8, identity);
            let removal = begun(&backend, None);
            removal.wait(Duration::from_secs(5)).await;
            assert!(
                (2..8).contains(&backend.attempts.load(Relaxed)),
                "it is tried again, and not waited for"
            );
            removal.wait(Duration::from_secs(60)).await;
            assert_eq!(backend.attempts.load(Relaxed), 9);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_resumes_a_session_has_its_sandbox() {
        // The removal gave up where the session was resumed in the same process, and went on where another one did that.
        let directory = tempfile::tempdir().unwrap();
        let mark = directory.path().join("removal");
        let backend = away(u32::MAX, Some("x"));
        let removal = begun(&backend, Some(mark.clone()));
        removal.wait(Duration::from_secs(5)).await;
        assert!(mark.exists(), "another process learns of it");
        take_over(&mark).await.expect("no attempt is under way");
        let attempts = backend.attempts.load(Relaxed);
        removal.wait(LONGEST).await;
        assert_eq!(backend.attempts.load(Relaxed), attempts);
        // One that succeeds leaves no mark.
        begun(&away(3, None), Some(mark.clone())).wait(LONGEST).await;
        assert!(!mark.exists());
        // Without one it is tried once: others cannot be kept away.
        let unmarked = away(u32::MAX, None);
        begun(&unmarked, Some(directory.path().join("missing/removal"))).wait(LONGEST).await;
        assert_eq!(unmarked.attempts.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_has_its_place_until_it_is_gone() {
        let since = Instant::now();
        begun(&away(3, None), None).place_freed().await;
        let elapsed = since.elapsed();
        assert!(elapsed > FIRST_PAUSE && elapsed < PLACE, "{elapsed:?}");
        // What cannot be removed at all does not keep all others away.
        let never = begun(&away(u32::MAX, None), None);
        never.clone().place_freed().await;
        assert!(never.end.clone().now_or_never().is_none());
        never.wait(2 * LONGEST).await;
        assert!(never.end.now_or_never().is_some());
    }
}
