//! One connection to a guest: frames out, frames in, each to the stream it belongs to.
//!
//! Nothing that the guest sends is trusted. Every frame must belong to a stream that is open, be of a kind that
//! the stream expects now, and be covered by credit. The first that is not ends the connection with a named reason.

use super::expect::{Expect, cost};
use super::stream::{ANSWER_TIMEOUT, Incoming};
use crate::Channel;
use crate::bootstrap;
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_wire::{
    self as wire, CHUNK, Decoder, MAGIC, MAX_FRAME, MAX_WINDOW, Message, Outbox, ReceiveWindow, VERSION,
    WINDOW, WindowBudget,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

/// The time limit for the guest to answer the greeting.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of files, standard inputs and tunnels that wait to be written.
const OUTGOING: usize = 1 << 20;
/// The most that the windows of all streams may grow by together, in bytes.
const GROWTH: u32 = 64 << 20;
/// Silence after which the guest is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(15);
/// Pings without any answer after which the link is dead.
const MAX_PINGS: u32 = 3;
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
    /// The window for what the guest may still send.
    window: ReceiveWindow,
    /// The credit for what may still be sent to the guest.
    credit: Arc<Semaphore>,
    /// The receiver was dropped; the guest's last message is awaited, and what it sends until then is discarded.
    pub abandoned: bool,
}

pub(super) struct ConnectionState {
    pub routes: HashMap<u32, Route>,
    next_id: u32,
    last_guest_id: u32,
    tunnels: usize,
    /// The receiver of connections that the guest offers.
    offers: Option<Offers>,
    /// The bytes by which the windows may still grow.
    budget: WindowBudget,
    /// Set if a ping has not been answered yet.
    pinged: bool,
    /// Set if the guest is frozen, so that its silence means nothing.
    pub is_frozen: bool,
    /// The reason why the connection is broken.
    broken: Option<Broken>,
}

/// The reason why a connection is broken.
struct Broken {
    reason: String,
    hint: Option<String>,
    /// The stream ended. Otherwise the guest did what it must not.
    is_cut: bool,
}

/// The receiver of connections that the guest offers, over all connections of a link.
#[derive(Clone)]
pub(super) struct Offers {
    to: mpsc::UnboundedSender<Incoming>,
    /// Set if somebody takes them.
    pub are_taken: Arc<AtomicBool>,
}

impl Offers {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Incoming>) {
        let (to, offered) = mpsc::unbounded_channel();
        (Self { to, are_taken: Arc::default() }, offered)
    }
}

/// Frames on their way to the writer.
#[derive(Default)]
pub(super) struct Outgoing {
    outbox: Lock<Outbox>,
    /// Set when no more frames will come.
    closed: AtomicBool,
    /// There are frames, or no more will come.
    ready: Notify,
    /// There is space for bulk data again.
    space: Notify,
}

impl Outgoing {
    fn push(&self, id: u32, frame: Vec<u8>) {
        self.outbox.lock().push(id, frame);
        self.ready.notify_one();
    }

    /// Queues a frame with bulk data once there is space for it. `false` where the connection has ended.
    pub async fn push_bulk(&self, id: u32, frame: Vec<u8>) -> bool {
        loop {
            let space = self.space.notified();
            if self.closed.load(Ordering::Acquire) {
                return false;
            }
            if self.outbox.lock().bytes() < OUTGOING {
                self.push(id, frame);
                return true;
            }
            space.await;
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ready.notify_one();
        self.space.notify_waiters();
    }

    /// The next frames, of about [`CHUNK`] bytes together. `false` where no more will come.
    async fn next(&self, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        loop {
            // Read before the queue: what was queued before the end is still written.
            let closed = self.closed.load(Ordering::Acquire);
            {
                let mut outbox = self.outbox.lock();
                while bytes.len() < CHUNK
                    && let Some(frame) = outbox.pop()
                {
                    bytes.extend_from_slice(&frame);
                }
            }
            if !bytes.is_empty() {
                self.space.notify_waiters();
                return true;
            }
            if closed {
                return false;
            }
            self.ready.notified().await;
        }
    }
}

pub(super) struct Connection {
    pub state: Lock<ConnectionState>,
    pub outgoing: Arc<Outgoing>,
    /// The number by which the guest knows this connection.
    pub nonce: [u8; 32],
    ended: watch::Sender<bool>,
    /// The reader and the writer.
    tasks: Lock<Vec<AbortHandle>>,
}

impl Connection {
    /// Greets the guest and starts the two tasks that serve the connection.
    pub async fn open(channel: Channel, offers: Offers) -> Result<Arc<Self>> {
        let Channel { mut reader, mut writer, greeted, .. } = channel;
        let nonce = greeted.map_or_else(bootstrap::nonce, |greeting| greeting.nonce);
        let greeting = async {
            if !greeted.is_some_and(|greeting| greeting.is_noticed) {
                greet(&nonce, &mut writer).await?;
            }
            be_greeted(&nonce, &mut reader).await
        };
        let decoder = tokio::time::timeout(HANDSHAKE_TIMEOUT, greeting).await.map_err(|_| {
            Error::sandbox(format!(
                "the guest did not answer the greeting for {} s",
                HANDSHAKE_TIMEOUT.as_secs()
            ))
        })??;
        let state = ConnectionState {
            routes: HashMap::new(),
            next_id: 1,
            last_guest_id: 0,
            tunnels: 0,
            offers: Some(offers),
            budget: WindowBudget::new(GROWTH),
            pinged: false,
            is_frozen: false,
            broken: None,
        };
        let connection = Arc::new(Self {
            state: Lock::new(state),
            outgoing: Arc::default(),
            nonce,
            ended: watch::Sender::new(false),
            tasks: Lock::new(Vec::new()),
        });
        let weak = Arc::downgrade(&connection);
        let writer = tokio::spawn(write(writer, connection.outgoing.clone(), weak.clone()));
        let reader = tokio::spawn(read(reader, decoder, weak));
        *connection.tasks.lock() = vec![reader.abort_handle(), writer.abort_handle()];
        Ok(connection)
    }

    /// Opens a stream with a request on it.
    pub fn request(self: &Arc<Self>, message: &Message, expect: Expect) -> Result<Incoming> {
        let mut state = self.state.lock();
        if let Some(broken) = &state.broken {
            return Err(broken.error());
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
        self.outgoing.push(id, frame);
        Ok(incoming)
    }

    fn add_route(self: &Arc<Self>, state: &mut ConnectionState, id: u32, expect: Expect) -> Incoming {
        let (sender, messages) = mpsc::unbounded_channel();
        let credit = Arc::new(Semaphore::new(WINDOW as usize));
        let window = ReceiveWindow::default();
        let route = Route { expect, incoming: sender, window, credit: credit.clone(), abandoned: false };
        state.routes.insert(id, route);
        Incoming::new(self.clone(), id, messages, credit)
    }

    /// Becomes `true` when the connection ends.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns whether it has ended because its stream did.
    pub fn is_cut(&self) -> bool {
        self.state.lock().broken.as_ref().is_some_and(|broken| broken.is_cut)
    }

    /// Says why the connection is broken, where that is known better by now.
    pub fn explain(&self, error: &Error) {
        if let Some(broken) = &mut self.state.lock().broken {
            broken.reason = error.to_string();
            broken.hint = error.hint_text().map(str::to_owned);
        }
    }

    /// Queues a message that is small and rare enough not to be counted.
    pub fn send(&self, id: u32, message: &Message) {
        let mut frame = Vec::new();
        // The messages sent this way always fit.
        if wire::encode(id, message, &mut frame).is_ok() {
            self.outgoing.push(id, frame);
        }
    }

    /// Ends the connection because the guest did what it must not, and with an error whatever waits for it.
    pub fn fail(&self, reason: impl Into<String>) {
        self.end(reason.into(), false);
    }

    /// Ends the connection because its stream has ended, or is dead.
    pub fn cut(&self, reason: impl Into<String>) {
        self.end(reason.into(), true);
    }

    fn end(&self, reason: String, is_cut: bool) {
        let mut state = self.state.lock();
        state.broken.get_or_insert(Broken { reason, hint: None, is_cut });
        state.offers = None;
        state.routes.drain().for_each(|(_, route)| route.credit.close());
        self.outgoing.close();
        self.ended.send_replace(true);
        self.tasks.lock().iter().for_each(AbortHandle::abort);
    }

    /// The error of a connection that has ended.
    pub fn error(&self) -> Error {
        let state = self.state.lock();
        let ended = || Broken { reason: "the stream ended".to_owned(), hint: None, is_cut: true };
        state.broken.as_ref().map_or_else(|| ended().error(), Broken::error)
    }

    /// Delivers one frame. An error ends the connection.
    fn deliver(self: &Arc<Self>, id: u32, message: Message) -> Result<(), String> {
        let mut state = self.state.lock();
        if let Message::Open {} = message {
            return self.accept_offer(&mut state, id);
        }
        if matches!(message, Message::Pong {}) && std::mem::take(&mut state.pinged) {
            return Ok(());
        }
        let known = if id % 2 == 1 { id < state.next_id } else { (1..=state.last_guest_id).contains(&id) };
        let ConnectionState { routes, budget, .. } = &mut *state;
        let Some(route) = routes.get_mut(&id) else {
            // Credit for bytes that were under way when the stream ended.
            return if known && matches!(message, Message::Credit { .. }) {
                Ok(())
            } else {
                Err(format!("a frame for stream {id}, which is not open"))
            };
        };
        if let Message::Credit { bytes } = message {
            let total = route.credit.available_permits() + bytes as usize;
            if total > MAX_WINDOW as usize {
                return Err(format!("more credit on stream {id} than allowed"));
            }
            route.credit.add_permits(bytes as usize);
            return Ok(());
        }
        let last =
            route.expect.admit(&message).ok_or_else(|| format!("a frame out of place on stream {id}"))?;
        let cost = cost(&message).ok_or_else(|| format!("a message too long on stream {id}"))?;
        if !route.window.receive(cost) {
            return Err(format!("more than allowed on stream {id}"));
        }
        if route.abandoned {
            if let Some(bytes) = route.window.consume(cost, false, budget) {
                self.send(id, &Message::Credit { bytes });
            }
        } else {
            // A receiver that was just dropped marks the route as abandoned next.
            let _ = route.incoming.send(message);
        }
        if last {
            remove(&mut state, id);
        }
        Ok(())
    }

    /// Counts what a stream's reader has consumed, and returns credit to the guest.
    pub fn consumed(&self, id: u32, cost: u32, drained: bool) {
        let mut state = self.state.lock();
        let ConnectionState { routes, budget, .. } = &mut *state;
        let Some(route) = routes.get_mut(&id) else { return };
        if let Some(bytes) = route.window.consume(cost, drained, budget) {
            self.send(id, &Message::Credit { bytes });
        }
    }

    /// Accepts a connection that the guest offers.
    fn accept_offer(self: &Arc<Self>, state: &mut ConnectionState, id: u32) -> Result<(), String> {
        if id % 2 == 1 || id <= state.last_guest_id {
            return Err(format!("a connection offered on stream {id}, out of order"));
        }
        state.last_guest_id = id;
        // None when the connection has just ended.
        let Some(offers) = state.offers.clone() else { return Ok(()) };
        let refuse = |why: &str| self.send(id, &Message::Failed { errno: 0, message: why.into() });
        if state.tunnels >= MAX_TUNNELS {
            refuse("too many connections");
        } else if offers.to.is_closed() || !offers.are_taken.load(Ordering::Relaxed) {
            refuse("there is no network");
        } else {
            let expect = Expect::Tunnel { open: true, guest_ended: false, host_ended: false };
            let stream = self.add_route(state, id, expect);
            state.tunnels += 1;
            if let Err(mpsc::error::SendError(mut stream)) = offers.to.send(stream) {
                // The receiver was dropped. Dropping the stream would reset it; it is refused instead.
                stream.end();
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
        self.outgoing.close();
        if let Some(reader) = self.tasks.lock().first() {
            reader.abort();
        }
    }
}

/// Takes a stream that has ended out of the table.
pub(super) fn remove(state: &mut ConnectionState, id: u32) {
    if let Some(mut route) = state.routes.remove(&id) {
        route.credit.close();
        route.window.release(&mut state.budget);
        if id.is_multiple_of(2) {
            state.tunnels -= 1;
        }
    }
}

impl Broken {
    fn error(&self) -> Error {
        let hint = "the sandbox may have been stopped or may have run out of memory; start a new one";
        Error::sandbox(format!("the connection to the sandbox broke: {}", self.reason))
            .hint(self.hint.as_deref().unwrap_or(hint).to_owned())
    }
}

/// Sends the greeting: a hello, and the number to prove.
async fn greet(nonce: &[u8; 32], writer: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
    let mut hello = Vec::new();
    for message in [Message::Hello { magic: MAGIC, version: VERSION }, Message::Prove { nonce: *nonce }] {
        wire::encode(0, &message, &mut hello)
            .map_err(|error| Error::unexpected("a greeting does not fit a frame").caused_by(error))?;
    }
    writer.write_all(&hello).await.map_err(unreachable)?;
    writer.flush().await.map_err(unreachable)
}

fn unreachable(error: std::io::Error) -> Error {
    Error::sandbox("the guest cannot be reached").caused_by(error)
}

/// Waits for the guest's answer to the greeting, and returns what reads on.
async fn be_greeted(nonce: &[u8; 32], reader: &mut (impl AsyncRead + Unpin)) -> Result<Decoder> {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 4096];
    let mut greeted = false;
    loop {
        match decoder.next() {
            Ok(None) => {}
            Ok(Some((0, Message::Hello { magic: MAGIC, version: VERSION }))) if !greeted => {
                greeted = true;
                continue;
            }
            Ok(Some((0, Message::Proof { hash }))) if greeted => {
                if hash == bootstrap::proof(nonce) {
                    return Ok(decoder);
                }
                return Err(Error::sandbox("what answers in the sandbox is not the guest of this build")
                    .hint("the sandbox was made by another build of agent, or its stream is not live; start a new one"));
            }
            Ok(Some((0, Message::Hello { magic: MAGIC, version }))) if !greeted => {
                return Err(Error::sandbox(format!(
                    "the sandbox's guest speaks version {version} of the protocol, this agent speaks {VERSION}"
                ))
                .hint("the sandbox was made by another version of agent; start a new one"));
            }
            Ok(Some(_)) | Err(_) => {
                return Err(Error::sandbox("what answers in the sandbox is not the guest"));
            }
        }
        let length = reader.read(&mut buffer).await.map_err(unreachable)?;
        if length == 0 {
            return Err(Error::sandbox("the guest ended without an answer")
                .hint("the sandbox may have been stopped; start a new one"));
        }
        decoder.feed(&buffer[..length]);
    }
}

/// Writes frames until no more will come, then closes the stream.
async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    outgoing: Arc<Outgoing>,
    connection: Weak<Connection>,
) {
    let mut bytes = Vec::new();
    while outgoing.next(&mut bytes).await {
        let written = tokio::time::timeout(ANSWER_TIMEOUT, async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        });
        let reason = match written.await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("it could not be written to ({error})"),
            Err(_) => format!("the guest read nothing for {} s", ANSWER_TIMEOUT.as_secs()),
        };
        if let Some(connection) = connection.upgrade() {
            connection.cut(reason);
        }
        return;
    }
    // The guest learns that its client is gone; where that fails, the guest is gone.
    let _ = writer.shutdown().await;
}

/// Reads frames until the end, or the first that is out of order.
async fn read(
    mut reader: Box<dyn AsyncRead + Send + Unpin>,
    mut decoder: Decoder,
    connection: Weak<Connection>,
) {
    let mut buffer = vec![0; READ_BUFFER];
    let mut pings = 0;
    let reason = loop {
        let violation = match decoder.next() {
            Ok(Some((id, message))) => {
                let Some(connection) = connection.upgrade() else { return };
                match connection.deliver(id, message) {
                    Ok(()) => continue,
                    Err(reason) => Some(reason),
                }
            }
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(violation) = violation {
            if let Some(connection) = connection.upgrade() {
                connection.fail(format!("the guest violates the protocol ({violation})"));
            }
            return;
        }
        match tokio::time::timeout(PING_AFTER, reader.read(&mut buffer)).await {
            Ok(Ok(0)) => break "the guest is gone".to_owned(),
            Ok(Ok(length)) => {
                pings = 0;
                decoder.feed(&buffer[..length]);
            }
            Ok(Err(error)) => break format!("it could not be read ({error})"),
            Err(_) if connection.upgrade().is_some_and(|connection| connection.state.lock().is_frozen) => {
                pings = 0;
            }
            Err(_) if pings == MAX_PINGS => {
                break format!("nothing arrived for {} s", (PING_AFTER * (MAX_PINGS + 1)).as_secs());
            }
            Err(_) => {
                pings += 1;
                let Some(connection) = connection.upgrade() else { return };
                connection.state.lock().pinged = true;
                connection.send(0, &Message::Ping {});
            }
        }
    };
    if let Some(connection) = connection.upgrade() {
        connection.cut(reason);
    }
}
