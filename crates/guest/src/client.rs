//! A connected host: frames in, frames out, both bounded.

use crate::sys::{self, POLLIN, POLLOUT, Poll};
use agent_wire::sha256::Sha256;
use agent_wire::websocket::{self, Frames, Handshake};
use agent_wire::{self as wire, CHUNK, Decoder, MAGIC, Message, Outbox, VERSION};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// With this many bytes waiting to be sent, nothing new is accepted from the client.
const CONGESTED: usize = 1 << 20;

/// The answer to a request that failed.
#[derive(Debug)]
pub struct Failure {
    pub errno: i32,
    pub message: String,
}

impl Failure {
    /// One without an error number of the kernel.
    pub fn new(message: impl Into<String>) -> Self {
        Self { errno: 0, message: message.into() }
    }

    pub fn io(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self { errno: error.raw_os_error().unwrap_or(0), message: format!("{what}: {error}") }
    }
}

/// The time limit for a client's WebSocket handshake.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// A WebSocket around a client's bytes.
struct Framing {
    /// The SHA-256 of the secret that the handshake has to name.
    verifier: [u8; 32],
    /// The bytes of the handshake that have arrived, and when it began; `None` once it was accepted.
    upgrading: Option<(Vec<u8>, Instant)>,
    frames: Frames,
    /// Bytes that are sent as they are: the handshake's answer, answers to pings.
    answers: Vec<u8>,
}

impl Framing {
    /// Unwraps what has arrived, and notes a number to prove at once. `false` where the connection has to end.
    fn receive(&mut self, bytes: &[u8], payload: &mut Vec<u8>, nonce: &mut Option<[u8; 32]>) -> bool {
        let Some((head, _)) = &mut self.upgrading else {
            return self.frames.read(bytes, payload, &mut self.answers).is_ok() && !self.frames.closed;
        };
        head.extend_from_slice(bytes);
        match websocket::handshake(head, &self.verifier) {
            Handshake::Partial => true,
            Handshake::Accepted { answer, length, nonce: asked } => {
                let rest = head.split_off(length);
                self.answers = answer;
                self.upgrading = None;
                *nonce = asked;
                self.receive(&rest, payload, nonce)
            }
            Handshake::Refused { answer } => {
                self.answers = answer.to_vec();
                false
            }
        }
    }
}

pub struct Client {
    input: File,
    output: File,
    framing: Option<Framing>,
    decoder: Decoder,
    /// Set if the decoder has no whole frame left.
    starved: bool,
    outbox: Outbox,
    /// Frames that are being written, and how much of them has been.
    writing: Vec<u8>,
    written: usize,
    greeted: bool,
    /// Set if its handshake was its greeting, which it may repeat: it does not know that it has arrived.
    may_repeat: bool,
    last_tunnel: u32,
    /// The number that it has asked to be proven.
    pub nonce: Option<[u8; 32]>,
    pub last_heard: Instant,
    /// The client has disconnected or violates the protocol.
    pub closed: bool,
}

impl Client {
    pub fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(input.as_raw_fd())?;
        sys::set_nonblocking(output.as_raw_fd())?;
        Ok(Self {
            input: File::from(input),
            output: File::from(output),
            framing: None,
            decoder: Decoder::new(),
            starved: true,
            outbox: Outbox::default(),
            writing: Vec::new(),
            written: 0,
            greeted: false,
            may_repeat: false,
            last_tunnel: 0,
            nonce: None,
            last_heard: Instant::now(),
            closed: false,
        })
    }

    /// One whose bytes are in a WebSocket, after a handshake that names the secret of `verifier`.
    pub fn over_websocket(stream: TcpStream, verifier: [u8; 32]) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (upgrading, frames) = (Some((Vec::new(), Instant::now())), Frames::default());
        let framing = Some(Framing { verifier, upgrading, frames, answers: Vec::new() });
        Ok(Self { framing, ..Self::new(stream.try_clone()?.into(), stream.into())? })
    }

    /// Returns the time when a client that is still at its handshake is dropped.
    pub fn upgrade_deadline(&self) -> Option<Instant> {
        let (_, since) = self.framing.as_ref()?.upgrading.as_ref()?;
        since.checked_add(UPGRADE_TIMEOUT)
    }

    pub fn interest(&self, poll: &mut Poll) {
        if self.starved && !self.congested() {
            poll.add(self.input.as_raw_fd(), POLLIN);
        }
        if self.unsent() > 0 {
            poll.add(self.output.as_raw_fd(), POLLOUT);
        }
    }

    fn unsent(&self) -> usize {
        let answers = self.framing.as_ref().map_or(0, |framing| framing.answers.len());
        self.outbox.bytes() + self.writing.len() - self.written + answers
    }

    /// Returns whether the client reads too slowly what is sent to it.
    pub fn congested(&self) -> bool {
        self.unsent() > CONGESTED
    }

    /// Reads what has arrived.
    pub fn receive(&mut self, poll: &Poll, buffer: &mut [u8]) {
        if !self.starved || !poll.readable(self.input.as_raw_fd()) {
            return;
        }
        match self.input.read(buffer) {
            Ok(0) => self.closed = true,
            Ok(length) => {
                self.last_heard = Instant::now();
                self.feed(&buffer[..length]);
            }
            Err(error) if would_block(&error) => {}
            Err(_) => self.closed = true,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let Some(framing) = &mut self.framing else {
            self.decoder.feed(bytes);
            self.starved = false;
            return;
        };
        let (mut payload, mut nonce) = (Vec::new(), None);
        let goes_on = framing.receive(bytes, &mut payload, &mut nonce);
        if let Some(nonce) = nonce {
            (self.greeted, self.may_repeat) = (true, true);
            self.send(0, &Message::Hello { magic: MAGIC, version: VERSION });
            self.prove(nonce);
        }
        if !payload.is_empty() {
            self.decoder.feed(&payload);
            self.starved = false;
        }
        if !goes_on {
            // The last answer fits into the socket's buffer, or is lost on a client that reads nothing.
            self.flush();
            self.closed = true;
        }
    }

    /// The next request. Greetings, proofs and pings are answered here. A client that violates the protocol is closed.
    pub fn next(&mut self) -> Option<(u32, Message)> {
        while !self.closed && !self.congested() {
            match self.decoder.next() {
                Ok(Some((0, Message::Hello { .. }))) if self.may_repeat => {}
                Ok(Some((0, Message::Prove { nonce }))) if self.may_repeat => {
                    self.may_repeat = false;
                    self.closed |= self.nonce != Some(nonce);
                }
                Ok(Some((0, Message::Hello { magic: MAGIC, version }))) if !self.greeted => {
                    self.greeted = true;
                    self.send(0, &Message::Hello { magic: MAGIC, version: VERSION });
                    if version != VERSION {
                        // The host reports our version; nothing else can be understood.
                        self.flush();
                        self.closed = true;
                    }
                }
                Ok(Some((0, Message::Prove { nonce }))) if self.greeted => self.prove(nonce),
                Ok(Some((0, Message::Ping {}))) if self.greeted => self.send(0, &Message::Pong {}),
                Ok(Some(frame)) if self.greeted => return Some(frame),
                Ok(None) => {
                    self.starved = true;
                    return None;
                }
                Ok(Some(_)) | Err(_) => self.closed = true,
            }
        }
        None
    }

    fn prove(&mut self, nonce: [u8; 32]) {
        let mut hash = Sha256::new();
        hash.update(&wire::proven(&nonce, env!("GUEST_BUILD")));
        self.nonce = Some(nonce);
        self.send(0, &Message::Proof { hash: hash.finish() });
    }

    /// The id of a stream that the guest opens; `None` when all are used up.
    pub fn next_tunnel(&mut self) -> Option<u32> {
        self.last_tunnel = self.last_tunnel.checked_add(2)?;
        Some(self.last_tunnel)
    }

    /// Queues a message.
    pub fn send(&mut self, id: u32, message: &Message) {
        let mut frame = Vec::new();
        if wire::encode(id, message, &mut frame).is_err() {
            // Only a message that grew out of a request can be too long: a path in an error, say.
            let failed = Message::Failed { errno: 0, message: "the answer is too long".into() };
            self.closed |= wire::encode(id, &failed, &mut frame).is_err();
        }
        self.outbox.push(id, frame);
    }

    pub fn fail(&mut self, id: u32, failure: &Failure) {
        self.send(id, &Message::Failed { errno: failure.errno, message: failure.message.clone() });
    }

    /// Sends what can be sent without waiting.
    pub fn flush(&mut self) {
        while !self.closed {
            if self.written == self.writing.len() && !self.refill() {
                return;
            }
            match self.output.write(&self.writing[self.written..]) {
                Ok(length) => self.written += length,
                Err(error) if would_block(&error) => return,
                Err(_) => self.closed = true,
            }
        }
    }

    /// Takes the next frames to write. `false` where there are none.
    fn refill(&mut self) -> bool {
        self.writing.clear();
        self.written = 0;
        if let Some(framing) = self.framing.as_mut().filter(|framing| !framing.answers.is_empty()) {
            self.writing.append(&mut framing.answers);
            return true;
        }
        while self.writing.len() < CHUNK
            && let Some(frame) = self.outbox.pop()
        {
            self.writing.extend_from_slice(&frame);
        }
        if self.framing.is_some() && !self.writing.is_empty() {
            self.writing.splice(..0, websocket::head(self.writing.len()));
        }
        !self.writing.is_empty()
    }
}

pub fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
