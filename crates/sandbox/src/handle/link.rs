//! The connection of a handle; and where its stream is cut and can be opened again, the next one to the same guest.
//!
//! Jobs and files are the guest's, so they are as they were. A command of the cut connection is [`Outcome::Lost`]: its output
//! may be incomplete, and the guest ends it. Requests that do the same twice as once are sent again.
//!
//! [`Outcome::Lost`]: crate::Outcome::Lost

use super::connection::{Connection, Offers};
use super::expect::Expect;
use super::process::Programs;
use super::stream::Incoming;
use crate::{Channel, Reopen, Reopened};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_wire::Message;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

/// The time limit for opening a stream again that was cut, and for one attempt.
const REJOIN: Duration = Duration::from_secs(120);
const ATTEMPT: Duration = Duration::from_secs(30);
/// The pauses between attempts: the first, which doubles, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The number of times in all that a request is sent whose connection is cut before its answer.
const SENT: u32 = 3;

pub(super) struct Link {
    now: watch::Sender<Now>,
    /// The question that was put to the outlet last. It is put to each further connection.
    outlet: Lock<Option<Message>>,
    offered: Lock<Option<mpsc::UnboundedReceiver<Incoming>>>,
    /// Set if somebody has taken those.
    are_taken: Arc<AtomicBool>,
    /// The commands of the jobs that this process has started, by their numbers.
    pub jobs: Lock<BTreeMap<u64, String>>,
    pub programs: Arc<Programs>,
    pub is_slow: bool,
}

struct Now {
    connection: Arc<Connection>,
    /// No other one follows.
    is_last: bool,
}

/// The reason why a stream is not open again.
enum Failure {
    NotYet(Error),
    Gone(Error),
}

impl Link {
    /// Greets the guest, and keeps the connection to it from then on.
    pub async fn open(channel: Channel) -> Result<Arc<Self>> {
        let (reopen, is_slow) = (channel.reopen.clone(), channel.is_slow);
        let (offers, offered) = Offers::new();
        let connection = Connection::open(channel, offers.clone()).await?;
        let ended = connection.ended();
        let now = Now { connection, is_last: reopen.is_none() };
        let link = Arc::new(Self {
            now: watch::Sender::new(now),
            outlet: Lock::new(None),
            offered: Lock::new(Some(offered)),
            are_taken: Arc::clone(&offers.are_taken),
            is_slow,
            jobs: Lock::default(),
            programs: Arc::default(),
        });
        if let Some(reopen) = reopen {
            tokio::spawn(keep(Arc::downgrade(&link), reopen, offers, ended));
        }
        Ok(link)
    }

    /// The connection: the one that was last, where there will be no other. Waits while a cut one is joined again.
    pub async fn connection(&self) -> Arc<Connection> {
        let mut changes = self.now.subscribe();
        let usable = changes.wait_for(|now| now.is_last || !now.connection.has_ended()).await;
        // The sender is `self`'s own.
        usable.map_or_else(|_| self.latest(), |now| Arc::clone(&now.connection))
    }

    /// The connection, whatever its state.
    pub fn latest(&self) -> Arc<Connection> {
        Arc::clone(&self.now.borrow().connection)
    }

    /// Sends a request.
    pub async fn request(&self, message: &Message, expect: Expect) -> Result<Incoming> {
        self.connection().await.request(message, expect)
    }

    /// Does what asks the guest for something, again where the connection is cut meanwhile. It must do the same twice as once.
    pub async fn repeat<T, F>(&self, ask: impl Fn(Arc<Connection>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut sent = 1;
        loop {
            let connection = self.connection().await;
            match ask(Arc::clone(&connection)).await {
                Err(error)
                    if error.kind() == Kind::Sandbox && sent < SENT && self.is_joined_again(&connection) =>
                {
                    sent += 1;
                }
                result => return result,
            }
        }
    }

    /// Returns whether a connection has ended and another one follows, or may.
    pub fn is_joined_again(&self, connection: &Arc<Connection>) -> bool {
        let now = self.now.borrow();
        connection.is_cut() && (!now.is_last || !Arc::ptr_eq(&now.connection, connection))
    }

    /// Joins a cut stream no more.
    pub fn end(&self) {
        self.now.send_modify(|now| now.is_last = true);
    }

    /// Opens the outlet, also on each further connection.
    pub async fn listen(&self, request: Message) -> Result<()> {
        let listen = |connection: Arc<Connection>| {
            let request = &request;
            async move { connection.request(request, Expect::Done)?.answer().await.map(drop) }
        };
        self.repeat(listen).await?;
        *self.outlet.lock() = Some(request);
        Ok(())
    }

    /// The connections that the guest offers; given to the first caller.
    pub fn take_offered(&self) -> Option<mpsc::UnboundedReceiver<Incoming>> {
        let offered = self.offered.lock().take()?;
        self.are_taken.store(true, Ordering::Relaxed);
        Some(offered)
    }

    /// The connection that was cut, and what the next one asks for; `None` where none follows.
    fn cut(&self) -> Option<([u8; 32], Option<Message>)> {
        let now = self.now.borrow();
        let follows = !now.is_last && now.connection.is_cut();
        follows.then(|| (now.connection.nonce, self.outlet.lock().clone()))
    }

    fn join(&self, connection: Arc<Connection>) {
        self.now.send_modify(|now| now.connection = connection);
    }
}

/// Joins the guest again each time that the stream is cut, until nobody has the link any more.
async fn keep(link: Weak<Link>, reopen: Reopen, offers: Offers, mut ended: watch::Receiver<bool>) {
    // An error: the connection was dropped, because the link was.
    while ended.wait_for(|ended| *ended).await.is_ok() {
        let joined = join_again(&link, &reopen, &offers).await;
        let Some(link) = link.upgrade() else { return };
        match joined {
            Ok(Some(connection)) => {
                ended = connection.ended();
                link.join(connection);
            }
            Ok(None) => return link.end(),
            Err(error) => {
                link.latest().explain(&error);
                return link.end();
            }
        }
    }
}

/// The next connection; `None` where none is wanted.
async fn join_again(link: &Weak<Link>, reopen: &Reopen, offers: &Offers) -> Result<Option<Arc<Connection>>> {
    let deadline = Instant::now() + REJOIN;
    let mut pause = FIRST_PAUSE;
    loop {
        let Some((nonce, outlet)) = link.upgrade().and_then(|link| link.cut()) else { return Ok(None) };
        let joining = timeout(ATTEMPT, attempt(reopen, offers, nonce, outlet));
        let late = |_| Err(Failure::NotYet(Error::sandbox("it does not answer")));
        let error = match joining.await.unwrap_or_else(late) {
            Ok(connection) => return Ok(Some(connection)),
            Err(Failure::Gone(error)) => return Err(error),
            Err(Failure::NotYet(error)) => error,
        };
        if Instant::now() + pause >= deadline {
            let hint = error.hint_text().unwrap_or("`agent resume` continues the session").to_owned();
            let text = format!("it could not be joined again for {} s: {error}", REJOIN.as_secs());
            return Err(Error::sandbox(text).hint(hint));
        }
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

async fn attempt(
    reopen: &Reopen,
    offers: &Offers,
    nonce: [u8; 32],
    outlet: Option<Message>,
) -> Result<Arc<Connection>, Failure> {
    let channel = match reopen().await {
        Reopened::Open(channel) => channel,
        Reopened::NotYet(error) => return Err(Failure::NotYet(error)),
        Reopened::Gone(error) => return Err(Failure::Gone(error)),
    };
    let joining = async {
        let connection = Connection::open(channel, offers.clone()).await?;
        // The guest may not know yet that the other connection was cut.
        connection.request(&Message::Replace { nonce }, Expect::Done)?.answer().await?;
        if let Some(outlet) = outlet {
            let opened = connection.request(&outlet, Expect::Done)?.answer().await;
            // Where another client has it by now, programs find no proxy, and everything else works.
            opened
                .map(drop)
                .or_else(|error| if error.kind() == Kind::InSandbox { Ok(()) } else { Err(error) })?;
        }
        Ok(connection)
    };
    joining.await.map_err(Failure::NotYet)
}
