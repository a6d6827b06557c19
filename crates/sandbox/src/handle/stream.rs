//! The two sides of a stream: what arrives, and what is sent.

use super::connection::{Connection, remove};
use super::expect::{Expect, cost};
use agent_base::error::{Error, Kind, Result};
use agent_wire::{self as wire, Block, CHUNK, Message};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// The time limit for the guest to answer a request that needs no time.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The receiving side of a stream. Dropping it before its end cancels the request.
pub(super) struct Incoming {
    connection: Arc<Connection>,
    id: u32,
    messages: mpsc::UnboundedReceiver<Message>,
    credit: Arc<Semaphore>,
    over: bool,
}

impl Incoming {
    pub fn new(
        connection: Arc<Connection>,
        id: u32,
        messages: mpsc::UnboundedReceiver<Message>,
        credit: Arc<Semaphore>,
    ) -> Self {
        Self { connection, id, messages, credit, over: false }
    }

    /// The next message. A guest that takes longer than `timeout` breaks the connection. A `Failed` is a
    /// [`Kind::InSandbox`] error.
    pub async fn next(&mut self, timeout: Option<Duration>) -> Result<Message> {
        let message = match timeout {
            None => self.messages.recv().await,
            Some(timeout) => match tokio::time::timeout(timeout, self.messages.recv()).await {
                Ok(message) => message,
                Err(_) => {
                    let reason = format!("the guest did not answer for {} s", timeout.as_secs());
                    self.connection.cut(&reason);
                    None
                }
            },
        };
        let Some(message) = message else {
            self.over = true;
            return Err(self.connection.error());
        };
        if let Some(cost @ 1..) = cost(&message) {
            self.connection.consumed(self.id, cost, self.messages.is_empty());
        }
        match message {
            Message::Failed { errno, message } => {
                self.over = true;
                Err(Error::new(Kind::InSandbox, message).errno(errno))
            }
            message => Ok(message),
        }
    }

    /// The one message that answers the request.
    pub async fn answer(mut self) -> Result<Message> {
        let message = self.next(Some(ANSWER_TIMEOUT)).await;
        self.over = true;
        message
    }

    /// Returns what is needed to send on the stream.
    pub fn sender(&self) -> Sender {
        Sender { connection: self.connection.clone(), id: self.id, credit: self.credit.clone() }
    }

    /// To be called when the terminal message has been seen.
    pub fn end(&mut self) {
        self.over = true;
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = self.connection.state.lock();
        let Some(route) = state.routes.get_mut(&self.id) else { return };
        route.abandoned = true;
        let unread: u32 =
            std::iter::from_fn(|| self.messages.try_recv().ok()).filter_map(|message| cost(&message)).sum();
        drop(state);
        self.connection.consumed(self.id, unread, false);
        let mut state = self.connection.state.lock();
        let Some(route) = state.routes.get_mut(&self.id) else { return };
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
    /// Sends bytes, as fast as the guest accepts them. `false` where the stream has ended.
    pub async fn data(&self, bytes: &[u8]) -> bool {
        for chunk in bytes.chunks(CHUNK) {
            if !self.bulk(&Message::Data { bytes: chunk.into() }, chunk.len()).await {
                return false;
            }
        }
        true
    }

    /// Sends a block, as [`Sender::data`] does.
    pub async fn block(&self, block: Block) -> bool {
        let length = block.size();
        self.bulk(&Message::Block { block }, length).await
    }

    async fn bulk(&self, message: &Message, length: usize) -> bool {
        let Ok(credit) = self.credit.acquire_many(wire::cost(length)).await else { return false };
        let mut frame = Vec::with_capacity(length + 32);
        // Chunks and blocks always fit.
        let is_sent = wire::encode(self.id, message, &mut frame).is_ok()
            && self.connection.outgoing.push_bulk(self.id, frame).await;
        // What a dropped future did not send has cost nothing.
        if is_sent {
            credit.forget();
        }
        is_sent
    }

    /// Ends the bytes.
    pub fn eof(&self) {
        let mut state = self.connection.state.lock();
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

    pub fn send(&self, message: &Message) {
        self.connection.send(self.id, message);
    }

    /// Refuses a connection that the guest offers.
    pub fn refuse(&self, reason: &str) {
        let mut state = self.connection.state.lock();
        if state.routes.contains_key(&self.id) {
            remove(&mut state, self.id);
            self.connection.send(self.id, &Message::Failed { errno: 0, message: reason.into() });
        }
    }
}
