//! A stream as the one who asked for it sees it.

use super::connection::{Connection, lock, remove};
use super::expect::{Expect, cost};
use super::wire::{self, Message, WINDOW};
use crate::error::{Error, Kind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// How long the guest may be silent about a request that should be answered at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A stream as the one who asked sees it. Dropping it before its end gives the request up.
pub(super) struct Incoming {
    connection: Arc<Connection>,
    id: u32,
    messages: mpsc::UnboundedReceiver<Message>,
    credit: Arc<Semaphore>,
    /// Consumed and not handed back yet.
    returned: u32,
    over: bool,
}

impl Incoming {
    pub fn new(
        connection: Arc<Connection>,
        id: u32,
        messages: mpsc::UnboundedReceiver<Message>,
        credit: Arc<Semaphore>,
    ) -> Self {
        Self { connection, id, messages, credit, returned: 0, over: false }
    }

    /// The next message. Takes no longer than `patience`, if given. A `Failed` is an [`Kind::InSandbox`] error.
    pub async fn next(&mut self, patience: Option<Duration>) -> Result<Message> {
        let message = match patience {
            None => self.messages.recv().await,
            Some(patience) => match tokio::time::timeout(patience, self.messages.recv()).await {
                Ok(message) => message,
                Err(_) => {
                    let reason = format!("the guest did not answer for {} s", patience.as_secs());
                    self.connection.fail(&reason);
                    None
                }
            },
        };
        let Some(message) = message else {
            self.over = true;
            return Err(self.connection.error());
        };
        self.consumed(cost(&message).unwrap_or(0));
        match message {
            Message::Failed { message, .. } => {
                self.over = true;
                Err(Error::new(Kind::InSandbox, String::from_utf8_lossy(&message.0)))
            }
            message => Ok(message),
        }
    }

    /// The one message that answers the request.
    pub async fn answer(mut self) -> Result<Message> {
        let message = self.next(Some(PATIENCE)).await;
        self.over = true;
        message
    }

    /// Hands credit back, a quarter of the window at a time.
    fn consumed(&mut self, cost: u32) {
        self.returned += cost;
        if self.returned >= WINDOW / 4 {
            let mut state = lock(&self.connection.state);
            if let Some(route) = state.routes.get_mut(&self.id) {
                route.window += self.returned;
                self.connection.send(self.id, &Message::Credit { bytes: self.returned });
                self.returned = 0;
            }
        }
    }

    /// What is needed to send on the stream.
    pub fn sender(&self) -> Sender {
        Sender { connection: self.connection.clone(), id: self.id, credit: self.credit.clone() }
    }

    /// Says that the terminal message has been seen.
    pub fn end(&mut self) {
        self.over = true;
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = lock(&self.connection.state);
        let Some(route) = state.routes.get_mut(&self.id) else { return };
        route.abandoned = true;
        let unread = std::mem::take(&mut self.returned)
            + std::iter::from_fn(|| self.messages.try_recv().ok()).filter_map(|m| cost(&m)).sum::<u32>();
        if unread > 0 {
            route.window += unread;
            self.connection.send(self.id, &Message::Credit { bytes: unread });
        }
        match &mut route.expect {
            Expect::Tunnel { host_ended: true, .. } => {}
            Expect::Tunnel { host_ended, guest_ended, .. } => {
                *host_ended = true;
                self.connection.send(self.id, &Message::Reset {});
                if *guest_ended {
                    remove(&mut state, self.id);
                }
            }
            _ => self.connection.send(self.id, &Message::Kill {}),
        }
    }
}

/// The sending side of a stream.
#[derive(Clone)]
pub(super) struct Sender {
    connection: Arc<Connection>,
    id: u32,
    credit: Arc<Semaphore>,
}

impl Sender {
    /// Sends bytes, as fast as the guest takes them. `false` where the stream has ended.
    pub async fn data(&self, bytes: &[u8]) -> bool {
        for chunk in bytes.chunks(wire::CHUNK) {
            let cost = wire::cost(chunk.len());
            let Ok(credit) = self.credit.acquire_many(cost).await else { return false };
            let Ok(room) = self.connection.outgoing.acquire_many(cost).await else { return false };
            credit.forget();
            room.forget();
            let mut frame = Vec::with_capacity(chunk.len() + 16);
            if wire::encode(self.id, &Message::Data { bytes: chunk.into() }, &mut frame).is_ok() {
                let _ = self.connection.frames.send((frame, cost as usize));
            }
        }
        true
    }

    /// Ends the bytes.
    pub fn eof(&self) {
        let mut state = lock(&self.connection.state);
        let Some(route) = state.routes.get_mut(&self.id) else { return };
        if let Expect::Tunnel { host_ended, guest_ended, .. } = &mut route.expect {
            if std::mem::replace(host_ended, true) {
                return;
            }
            if *guest_ended {
                remove(&mut state, self.id);
            }
        }
        self.connection.send(self.id, &Message::Eof {});
    }

    /// Sends a message that the stream is waiting for.
    pub fn say(&self, message: &Message) {
        self.connection.send(self.id, message);
    }

    /// Refuses a connection that the guest asked for.
    pub fn refuse(&self, why: &str) {
        let mut state = lock(&self.connection.state);
        if state.routes.contains_key(&self.id) {
            remove(&mut state, self.id);
            self.connection.send(self.id, &Message::Failed { errno: 0, message: why.into() });
        }
    }
}
