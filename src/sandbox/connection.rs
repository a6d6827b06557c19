//! One connection to a guest: frames out, frames in, each to the stream it belongs to.
//!
//! Nothing that the guest says is trusted. Every frame must belong to a stream that is open, be of a kind that
//! the stream expects now, and be covered by credit. The first that is not ends the connection, by name.

use super::Channel;
use super::wire::{self, Decoder, MAGIC, MAX_FRAME, Message, TunnelKind, VERSION, WINDOW};
use crate::error::{Error, Kind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

/// How long the guest has to say hello.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// How long the guest may be silent about a request that should be answered at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of files, standard inputs and tunnels that wait to be written.
const OUTGOING: usize = 1 << 20;
/// Streams at once.
const MAX_STREAMS: usize = 1024;
/// Of those, how many the guest may have opened.
const MAX_TUNNELS: usize = 256;
/// Read at once.
const READ_BUFFER: usize = 64 << 10;

/// What a stream is about, and so what the guest may say on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Command,
    JobStarted,
    JobOutput,
    Stated,
    /// `FileIs` first, then the bytes.
    File {
        begun: bool,
    },
    Done,
    Entries,
    Facts,
    /// Nothing but `Opened` or `Failed` first, then bytes.
    Tunnel {
        open: bool,
        guest_ended: bool,
        host_ended: bool,
    },
}

impl Expect {
    /// Whether the message fits, and whether it is the guest's last word on the stream.
    fn admit(&mut self, message: &Message) -> Option<bool> {
        match (self, message) {
            (Self::Tunnel { open: true, .. }, Message::Failed { .. }) => None,
            (_, Message::Failed { .. }) => Some(true),
            (Self::Command | Self::JobOutput, Message::Output { .. } | Message::Gap { .. }) => Some(false),
            (Self::Command, Message::Finished { .. })
            | (Self::JobOutput, Message::JobState { .. })
            | (Self::JobStarted, Message::JobStarted { .. })
            | (Self::Stated, Message::Stated { .. })
            | (Self::File { begun: true } | Self::Done, Message::Done {})
            | (Self::Facts, Message::FactsAre { .. }) => Some(true),
            (Self::File { begun }, Message::FileIs { .. }) => {
                (!std::mem::replace(begun, true)).then_some(false)
            }
            (Self::File { begun: true }, Message::Data { .. }) => Some(false),
            (Self::Entries, Message::Entries { last, .. }) => Some(*last),
            (Self::Tunnel { open, .. }, Message::Opened {}) => {
                (!std::mem::replace(open, true)).then_some(false)
            }
            (Self::Tunnel { open: true, guest_ended: false, .. }, Message::Data { .. }) => Some(false),
            (Self::Tunnel { open: true, guest_ended, host_ended }, Message::Eof {} | Message::Reset {}) => {
                (!std::mem::replace(guest_ended, true)).then_some(*host_ended)
            }
            _ => None,
        }
    }
}

/// The credit that a message uses; `None` where it is longer than allowed.
fn cost(message: &Message) -> Option<u32> {
    match message {
        Message::Data { bytes } | Message::Output { bytes, .. } => {
            (bytes.0.len() <= wire::CHUNK).then(|| wire::cost(bytes.0.len()))
        }
        Message::Gap { .. } => Some(wire::FRAME_COST),
        Message::Entries { entries, .. } => Some(wire::entries_cost(entries)),
        _ => Some(0),
    }
}

/// An open stream, as the reader sees it.
struct Route {
    expect: Expect,
    incoming: mpsc::UnboundedSender<Message>,
    /// What the guest may still send.
    window: u32,
    /// What may still be sent to the guest.
    credit: Arc<Semaphore>,
    /// Nobody listens any more; the guest's last word is awaited and what it sends until then is thrown away.
    abandoned: bool,
}

struct State {
    routes: HashMap<u32, Route>,
    next_id: u32,
    last_guest_id: u32,
    tunnels: usize,
    /// Why the connection is of no more use.
    broken: Option<String>,
}

/// A frame on its way out, and how much of [`OUTGOING`] it holds.
type Frame = (Vec<u8>, usize);

pub(super) struct Connection {
    state: Mutex<State>,
    frames: mpsc::UnboundedSender<Frame>,
    outgoing: Arc<Semaphore>,
    tunnels: Mutex<Option<mpsc::UnboundedReceiver<Asked>>>,
    asked: mpsc::UnboundedSender<Asked>,
    /// The reader and the writer.
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A connection that something inside the sandbox wants.
pub(super) struct Asked {
    pub host: Vec<u8>,
    pub port: u16,
    pub kind: TunnelKind,
    pub stream: Incoming,
}

impl Connection {
    /// Greets the guest and starts the two tasks that serve the connection.
    pub async fn open(channel: Channel) -> Result<Arc<Self>> {
        let Channel { mut reader, mut writer } = channel;
        let decoder = tokio::time::timeout(HANDSHAKE, greet(&mut reader, &mut writer))
            .await
            .map_err(|_| Error::sandbox(format!("the guest said nothing for {} s", HANDSHAKE.as_secs())))??;
        let (frames, outbox) = mpsc::unbounded_channel();
        let (asked, tunnels) = mpsc::unbounded_channel();
        let state = State { routes: HashMap::new(), next_id: 1, last_guest_id: 0, tunnels: 0, broken: None };
        let connection = Arc::new(Self {
            state: Mutex::new(state),
            frames,
            outgoing: Arc::new(Semaphore::new(OUTGOING)),
            tunnels: Mutex::new(Some(tunnels)),
            asked,
            tasks: Mutex::new(Vec::new()),
        });
        let weak = Arc::downgrade(&connection);
        let writer = tokio::spawn(write(writer, outbox, connection.outgoing.clone(), weak.clone()));
        let reader = tokio::spawn(read(reader, decoder, weak));
        *lock(&connection.tasks) = vec![reader.abort_handle(), writer.abort_handle()];
        Ok(connection)
    }

    /// Opens a stream with a request on it.
    pub fn request(self: &Arc<Self>, message: &Message, expect: Expect) -> Result<Incoming> {
        let mut state = lock(&self.state);
        if let Some(reason) = &state.broken {
            return Err(broken(reason));
        }
        if state.routes.len() >= MAX_STREAMS {
            return Err(Error::sandbox(format!("{MAX_STREAMS} requests to the guest are unanswered")));
        }
        let id = state.next_id;
        let mut frame = Vec::new();
        wire::encode(id, message, &mut frame).map_err(|_| {
            Error::new(Kind::InSandbox, "the request is too long")
                .hint(format!("arguments, variables and names may take {} KiB together", MAX_FRAME >> 10))
        })?;
        // An id is never used twice. Four thousand million requests are more than a connection lives to see.
        state.next_id = id.checked_add(2).ok_or_else(|| Error::sandbox("the connection is worn out"))?;
        let incoming = self.add_route(&mut state, id, expect);
        let _ = self.frames.send((frame, 0));
        Ok(incoming)
    }

    fn add_route(self: &Arc<Self>, state: &mut State, id: u32, expect: Expect) -> Incoming {
        let (sender, messages) = mpsc::unbounded_channel();
        let credit = Arc::new(Semaphore::new(WINDOW as usize));
        let route =
            Route { expect, incoming: sender, window: WINDOW, credit: credit.clone(), abandoned: false };
        state.routes.insert(id, route);
        Incoming { connection: self.clone(), id, messages, credit, returned: 0, over: false }
    }

    /// The connections that something inside wants; given to the first who asks.
    pub fn take_tunnels(&self) -> Option<mpsc::UnboundedReceiver<Asked>> {
        lock(&self.tunnels).take()
    }

    /// Queues a message that is small and rare enough not to be counted.
    fn send(&self, id: u32, message: &Message) {
        let mut frame = Vec::new();
        // The messages sent this way always fit.
        if wire::encode(id, message, &mut frame).is_ok() {
            let _ = self.frames.send((frame, 0));
        }
    }

    /// Ends the connection. Whatever waits for the guest learns that it waits in vain.
    pub fn fail(&self, reason: impl Into<String>) {
        let mut state = lock(&self.state);
        state.broken.get_or_insert(reason.into());
        state.routes.drain().for_each(|(_, route)| route.credit.close());
        self.outgoing.close();
        lock(&self.tasks).iter().for_each(AbortHandle::abort);
    }

    /// The error of a connection that has ended.
    pub fn error(&self) -> Error {
        let state = lock(&self.state);
        broken(state.broken.as_deref().unwrap_or("the stream ended"))
    }

    /// Delivers one frame. An error ends the connection.
    fn deliver(self: &Arc<Self>, id: u32, message: Message) -> Result<(), String> {
        let mut state = lock(&self.state);
        if let Message::Open { host, port, kind } = message {
            return self.ask(&mut state, id, host.0, port, kind);
        }
        let known = if id % 2 == 1 { id < state.next_id } else { (1..=state.last_guest_id).contains(&id) };
        let Some(route) = state.routes.get_mut(&id) else {
            // Credit for bytes that were under way when the stream ended.
            return if known && matches!(message, Message::Credit { .. }) {
                Ok(())
            } else {
                Err(format!("a frame for stream {id}, which is not open"))
            };
        };
        if let Message::Credit { bytes } = message {
            let total = route.credit.available_permits() + bytes as usize;
            if total > WINDOW as usize {
                return Err(format!("more credit on stream {id} than was used"));
            }
            route.credit.add_permits(bytes as usize);
            return Ok(());
        }
        let last =
            route.expect.admit(&message).ok_or_else(|| format!("a frame out of place on stream {id}"))?;
        let cost = cost(&message).ok_or_else(|| format!("too long a piece on stream {id}"))?;
        route.window =
            route.window.checked_sub(cost).ok_or_else(|| format!("more than allowed on stream {id}"))?;
        if route.abandoned {
            if cost > 0 {
                route.window += cost;
                self.send(id, &Message::Credit { bytes: cost });
            }
        } else {
            // Whoever let go a moment ago marks the route as abandoned next.
            let _ = route.incoming.send(message);
        }
        if last {
            remove(&mut state, id);
        }
        Ok(())
    }

    /// Takes up the guest's wish for a connection.
    fn ask(
        self: &Arc<Self>,
        state: &mut State,
        id: u32,
        host: Vec<u8>,
        port: u16,
        kind: TunnelKind,
    ) -> Result<(), String> {
        if id % 2 == 1 || id <= state.last_guest_id {
            return Err(format!("a connection asked for on stream {id}, out of order"));
        }
        state.last_guest_id = id;
        let refuse = |why: &str| self.send(id, &Message::Failed { errno: 0, message: why.into() });
        if state.tunnels >= MAX_TUNNELS {
            refuse("too many connections");
        } else if lock(&self.tunnels).is_some() {
            refuse("there is no network");
        } else {
            let expect = Expect::Tunnel { open: true, guest_ended: false, host_ended: false };
            let stream = self.add_route(state, id, expect);
            state.tunnels += 1;
            // Where the listener is gone, dropping the stream resets it; that takes the lock, so not here.
            if let Err(mpsc::error::SendError(asked)) = self.asked.send(Asked { host, port, kind, stream }) {
                let mut asked = asked;
                asked.stream.over = true;
                remove(state, id);
                refuse("there is no network");
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The writer ends by itself, when it has written what is left.
        if let Some(reader) = lock(&self.tasks).first() {
            reader.abort();
        }
    }
}

fn remove(state: &mut State, id: u32) {
    if let Some(route) = state.routes.remove(&id) {
        route.credit.close();
        if id % 2 == 0 {
            state.tunnels -= 1;
        }
    }
}

fn broken(reason: &str) -> Error {
    Error::sandbox(format!("the connection to the sandbox broke: {reason}"))
        .hint("the sandbox may have been stopped or may have run out of memory; start a new one")
}

/// A panic while the lock was held has been reported already; the state is a table that is whole between any two
/// statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// Both hellos.
async fn greet(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Decoder> {
    let failed = |error: std::io::Error| Error::sandbox("the guest cannot be reached").caused_by(error);
    let mut hello = Vec::new();
    wire::encode(0, &Message::Hello { magic: MAGIC, version: VERSION }, &mut hello)
        .map_err(|error| Error::unexpected("a greeting does not fit a frame").caused_by(error))?;
    writer.write_all(&hello).await.map_err(failed)?;
    writer.flush().await.map_err(failed)?;
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 4096];
    loop {
        match decoder.next() {
            Ok(None) => {}
            Ok(Some((0, Message::Hello { magic: MAGIC, version: VERSION }))) => return Ok(decoder),
            Ok(Some((0, Message::Hello { magic: MAGIC, version }))) => {
                return Err(Error::sandbox(format!(
                    "the sandbox's guest speaks version {version} of the protocol, this agent speaks {VERSION}"
                ))
                .hint("the sandbox was made by another version of agent; start a new one"));
            }
            Ok(Some(_)) | Err(_) => {
                return Err(Error::sandbox("what answers in the sandbox is not the guest"));
            }
        }
        let length = reader.read(&mut buffer).await.map_err(failed)?;
        if length == 0 {
            return Err(Error::sandbox("the guest ended before it said anything")
                .hint("the sandbox may have been stopped; start a new one"));
        }
        decoder.feed(&buffer[..length]);
    }
}

/// Writes frames until nobody can send any more, then closes the stream.
async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut frames: mpsc::UnboundedReceiver<Frame>,
    outgoing: Arc<Semaphore>,
    connection: Weak<Connection>,
) {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while frames.recv_many(&mut batch, 64).await > 0 {
        let room = batch.iter().map(|(_, room)| room).sum();
        bytes.clear();
        batch.drain(..).for_each(|(frame, _)| bytes.extend_from_slice(&frame));
        let written = tokio::time::timeout(PATIENCE, async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        });
        let reason = match written.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("it could not be written to ({error})")),
            Err(_) => Some(format!("the guest took nothing in for {} s", PATIENCE.as_secs())),
        };
        if let Some(reason) = reason {
            if let Some(connection) = connection.upgrade() {
                connection.fail(reason);
            }
            return;
        }
        outgoing.add_permits(room);
    }
    // The guest learns that its client is gone; where that cannot be said, it is gone itself.
    let _ = writer.shutdown().await;
}

/// Reads frames until the end, or the first that is out of order.
async fn read(
    mut reader: Box<dyn AsyncRead + Send + Unpin>,
    mut decoder: Decoder,
    connection: Weak<Connection>,
) {
    let mut buffer = vec![0; READ_BUFFER];
    let reason = loop {
        match decoder.next() {
            Ok(Some((id, message))) => {
                let Some(connection) = connection.upgrade() else { return };
                if let Err(reason) = connection.deliver(id, message) {
                    break format!("the guest does not keep to the protocol ({reason})");
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => break format!("the guest does not keep to the protocol ({error})"),
        }
        match reader.read(&mut buffer).await {
            Ok(0) => break "the guest is gone".to_owned(),
            Ok(length) => decoder.feed(&buffer[..length]),
            Err(error) => break format!("it could not be read ({error})"),
        }
    };
    if let Some(connection) = connection.upgrade() {
        connection.fail(reason);
    }
}
