//! A connected host: frames in, frames out, both bounded.

use crate::sys::{self, POLLIN, POLLOUT, Poll};
use crate::wire::{self, Decoder, MAGIC, Message, VERSION};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// With this many bytes waiting to be sent, nothing new is taken on for the client.
const CONGESTED: usize = 1 << 20;
/// The buffer is given back to the system when it was larger than this.
const KEPT_BUFFER: usize = 128 << 10;

/// The answer to a request that failed.
#[derive(Debug)]
pub struct Failure {
    pub errno: i32,
    pub message: String,
}

impl Failure {
    /// Something that the kernel has no number for.
    pub fn new(message: impl Into<String>) -> Self {
        Self { errno: 0, message: message.into() }
    }

    /// What was tried, and the kernel's answer.
    pub fn io(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self { errno: error.raw_os_error().unwrap_or(0), message: format!("{what}: {error}") }
    }
}

pub struct Client {
    input: File,
    output: File,
    decoder: Decoder,
    /// Whether the decoder has no whole frame left.
    starved: bool,
    out: Vec<u8>,
    sent: usize,
    greeted: bool,
    last_tunnel: u32,
    /// Gone, or to be treated so.
    pub closed: bool,
}

impl Client {
    pub fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(input.as_raw_fd())?;
        sys::set_nonblocking(output.as_raw_fd())?;
        Ok(Self {
            input: File::from(input),
            output: File::from(output),
            decoder: Decoder::new(),
            starved: true,
            out: Vec::new(),
            sent: 0,
            greeted: false,
            last_tunnel: 0,
            closed: false,
        })
    }

    pub fn interest(&self, poll: &mut Poll) {
        if self.starved && !self.congested() {
            poll.add(self.input.as_raw_fd(), POLLIN);
        }
        if self.sent < self.out.len() {
            poll.add(self.output.as_raw_fd(), POLLOUT);
        }
    }

    /// Whether the client takes in too slowly what is sent to it.
    pub fn congested(&self) -> bool {
        self.out.len() - self.sent > CONGESTED
    }

    /// Takes in what has arrived.
    pub fn receive(&mut self, poll: &Poll, buffer: &mut [u8]) {
        if !self.starved || !poll.readable(self.input.as_raw_fd()) {
            return;
        }
        match self.input.read(buffer) {
            Ok(0) => self.closed = true,
            Ok(length) => {
                self.decoder.feed(&buffer[..length]);
                self.starved = false;
            }
            Err(error) if would_block(&error) => {}
            Err(_) => self.closed = true,
        }
    }

    /// The next request. The greeting is dealt with here. A client that does not speak the protocol is closed.
    pub fn next(&mut self) -> Option<(u32, Message)> {
        while !self.closed && !self.congested() {
            match self.decoder.next() {
                Ok(Some((0, Message::Hello { magic: MAGIC, version }))) if !self.greeted => {
                    self.greeted = true;
                    self.send(0, &Message::Hello { magic: MAGIC, version: VERSION });
                    if version != VERSION {
                        // The host reads our version and says what is wrong; nothing else can be understood.
                        self.flush();
                        self.closed = true;
                    }
                }
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

    /// The id of a stream that the guest opens; `None` when all are used up.
    pub fn next_tunnel(&mut self) -> Option<u32> {
        self.last_tunnel = self.last_tunnel.checked_add(2)?;
        Some(self.last_tunnel)
    }

    /// Queues a message.
    pub fn send(&mut self, id: u32, message: &Message) {
        if wire::encode(id, message, &mut self.out).is_err() {
            // Only a message that grew out of a request can be too long: a path in an error, say.
            let failed = Message::Failed { errno: 0, message: "the answer is too long".into() };
            self.closed |= wire::encode(id, &failed, &mut self.out).is_err();
        }
    }

    pub fn fail(&mut self, id: u32, failure: &Failure) {
        let message = failure.message.as_bytes().to_vec().into();
        self.send(id, &Message::Failed { errno: failure.errno, message });
    }

    /// Sends what can be sent without waiting.
    pub fn flush(&mut self) {
        while self.sent < self.out.len() && !self.closed {
            match self.output.write(&self.out[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if would_block(&error) => break,
                Err(_) => self.closed = true,
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT_BUFFER);
            self.sent = 0;
        } else if self.sent > CONGESTED {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }
}

pub fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
