//! One connection to a guest: frames out, frames in, each to the stream it belongs to.
//!
//! Nothing that the guest says is trusted. Every frame must belong to a stream that is open, be of a kind that
//! the stream expects now, and be covered by credit. The first that is not ends the connection, by name.

use super::Channel;
use super::expect::{Expect, cost};
use super::stream::{Incoming, PATIENCE};
use super::wire::{self, Decoder, MAGIC, MAX_FRAME, Message, VERSION, WINDOW};
use crate::error::{Error, Kind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

/// How long the guest has to say hello.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Bytes of files, standard inputs and tunnels that wait to be written.
const OUTGOING: usize = 1 << 20;
/// Streams at once.
const MAX_STREAMS: usize = 1024;
/// Of those, how many the guest may have opened.
const MAX_TUNNELS: usize = 256;
/// Read at once.
const READ_BUFFER: usize = 64 << 10;

/// An open stream, as the reader sees it.
pub(super) struct Route {
    pub expect: Expect,
    incoming: mpsc::UnboundedSender<Message>,
    /// What the guest may still send.
    pub window: u32,
    /// What may still be sent to the guest.
    credit: Arc<Semaphore>,
    /// Nobody listens any more; the guest's last word is awaited and what it sends until then is thrown away.
    pub abandoned: bool,
}

pub(super) struct State {
    pub routes: HashMap<u32, Route>,
    next_id: u32,
    last_guest_id: u32,
    tunnels: usize,
    /// Where connections that the guest wants go.
    asked: Option<mpsc::UnboundedSender<Asked>>,
    /// Why the connection is of no more use.
    broken: Option<String>,
}

/// A frame on its way out, and how much of [`OUTGOING`] it holds.
type Frame = (Vec<u8>, usize);

pub(super) struct Connection {
    pub state: Mutex<State>,
    pub frames: mpsc::UnboundedSender<Frame>,
    pub outgoing: Arc<Semaphore>,
    tunnels: Mutex<Option<mpsc::UnboundedReceiver<Asked>>>,
    /// The reader and the writer.
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A connection that something inside the sandbox wants.
pub(super) struct Asked {
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
        let state = State {
            routes: HashMap::new(),
            next_id: 1,
            last_guest_id: 0,
            tunnels: 0,
            asked: Some(asked),
            broken: None,
        };
        let connection = Arc::new(Self {
            state: Mutex::new(state),
            frames,
            outgoing: Arc::new(Semaphore::new(OUTGOING)),
            tunnels: Mutex::new(Some(tunnels)),
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
        Incoming::new(self.clone(), id, messages, credit)
    }

    /// The connections that something inside wants; given to the first who asks.
    pub fn take_tunnels(&self) -> Option<mpsc::UnboundedReceiver<Asked>> {
        lock(&self.tunnels).take()
    }

    /// Queues a message that is small and rare enough not to be counted.
    pub fn send(&self, id: u32, message: &Message) {
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
        state.asked = None;
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
        if let Message::Open {} = message {
            return self.ask(&mut state, id);
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

    /// Takes up a connection that the guest offers.
    fn ask(self: &Arc<Self>, state: &mut State, id: u32) -> Result<(), String> {
        if id % 2 == 1 || id <= state.last_guest_id {
            return Err(format!("a connection asked for on stream {id}, out of order"));
        }
        state.last_guest_id = id;
        // Gone when the connection has been given up a moment ago.
        let Some(asked) = state.asked.clone() else { return Ok(()) };
        let refuse = |why: &str| self.send(id, &Message::Failed { errno: 0, message: why.into() });
        if state.tunnels >= MAX_TUNNELS {
            refuse("too many connections");
        } else if asked.is_closed() || lock(&self.tunnels).is_some() {
            refuse("there is no network");
        } else {
            let expect = Expect::Tunnel { open: true, guest_ended: false, host_ended: false };
            let stream = self.add_route(state, id, expect);
            state.tunnels += 1;
            if let Err(mpsc::error::SendError(mut asked)) = asked.send(Asked { stream }) {
                // Nobody listens any more. Dropping the stream would reset it; it is refused instead.
                asked.stream.end();
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

/// Takes a stream that has ended out of the table.
pub(super) fn remove(state: &mut State, id: u32) {
    if let Some(route) = state.routes.remove(&id) {
        route.credit.close();
        if id.is_multiple_of(2) {
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
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    while frames.recv_many(&mut batch, 16).await > 0 {
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
