//! Many streams over one virtio port, which has one reader and one writer.
//!
//! A frame is a kind, the number of a stream and a length, and as many bytes. Each direction of each stream has a window, so
//! that a client that does not read holds up no other. The side outside opens streams. What comes from the other side is
//! trusted by neither: the first frame that is not as it must be ends all of it.

use crate::client::would_block;
use crate::sys::{self, POLLIN, POLLOUT, Poll};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of a frame before its content: the kind, the stream's number, the length.
const HEADER: usize = 9;
/// The most that a frame holds.
pub const MAX_CONTENT: usize = 64 << 10;
/// Bytes that may be under way in one direction of a stream.
const WINDOW: usize = 256 << 10;
/// With so many bytes waiting for the port, nothing more is read from the clients.
const CONGESTED: usize = 1 << 20;
/// With so many, the other side asks for more than it reads: what answers it adds to what is below the bound above.
const MAX_WAITING: usize = 4 * CONGESTED;
/// Read from the port before others have their turn.
const MAX_READ: usize = 256 << 10;

/// A message about the machine, not about a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The guest inside is ready for clients.
    Ready = 1,
    /// The machine does not become a sandbox; the content says why.
    Failed = 2,
    /// The guest has ended, and the machine is about to be switched off.
    Ended = 3,
    /// A question whether the other side is there, and its answer.
    Ping = 4,
    Pong = 5,
    /// The machine has booted and waits for its session.
    Booted = 6,
    /// The session, after [`ENTROPY`] bytes that nobody knows.
    Session = 7,
    /// The time: nothing to ask for it, or the nanoseconds since 1970 as the answer.
    Clock = 8,
    /// The machine is about to be saved: nothing is to be under way. The answer is the last that is sent until the next session.
    Pause = 9,
    Paused = 14,
    /// The clients of all streams are gone, with the side that opened them.
    Reset = 15,
}

const NOTICES: [Notice; 11] = [
    Notice::Ready,
    Notice::Failed,
    Notice::Ended,
    Notice::Ping,
    Notice::Pong,
    Notice::Booted,
    Notice::Session,
    Notice::Clock,
    Notice::Pause,
    Notice::Paused,
    Notice::Reset,
];

/// Random bytes before a session's specification: machines that were restored from one state have none of their own.
pub const ENTROPY: usize = 64;

const OPEN: u8 = 10;
const DATA: u8 = 11;
const CREDIT: u8 = 12;
const CLOSE: u8 = 13;

/// The request of the other side.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Notice(Notice, Vec<u8>),
    /// A client has come: [`Mux::join`] connects it.
    Opened(u32),
}

struct ClientPipes {
    input: File,
    output: File,
}

pub struct Mux {
    port: File,
    received: Vec<u8>,
    waiting: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    last_opened: u32,
    /// Nothing is taken from the clients, or given to them.
    is_quiet: bool,
    buffer: Vec<u8>,
}

struct Stream {
    /// The client of this side; `None` until it has joined.
    client: Option<ClientPipes>,
    /// Bytes that the client has not taken yet.
    waiting: Vec<u8>,
    /// Bytes that may still be sent to the other side.
    credit: usize,
    /// Bytes that the client has taken and the other side does not know of.
    taken: usize,
    /// The other side has closed it: what waits is still written.
    is_closing: bool,
}

impl Mux {
    pub fn new(port: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(port.as_raw_fd())?;
        Ok(Self {
            port: port.into(),
            received: Vec::new(),
            waiting: Vec::new(),
            streams: BTreeMap::new(),
            last_opened: 0,
            is_quiet: false,
            buffer: vec![0; MAX_CONTENT],
        })
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        self.streams.len()
    }

    pub fn send(&mut self, notice: Notice, content: &[u8]) {
        let length = content.len().min(MAX_CONTENT);
        frame(&mut self.waiting, notice as u8, 0, &content[..length]);
    }

    /// Opens a stream for a client of this side.
    pub fn open(&mut self, input: OwnedFd, output: OwnedFd) -> io::Result<()> {
        self.last_opened += 1;
        frame(&mut self.waiting, OPEN, self.last_opened, &[]);
        self.streams.insert(self.last_opened, Stream::default());
        self.join(self.last_opened, input, output)
    }

    /// Connects a stream of the other side's with something of this side.
    pub fn join(&mut self, id: u32, input: OwnedFd, output: OwnedFd) -> io::Result<()> {
        sys::set_nonblocking(input.as_raw_fd())?;
        sys::set_nonblocking(output.as_raw_fd())?;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.client = Some(ClientPipes { input: input.into(), output: output.into() });
        }
        Ok(())
    }

    /// Closes a stream.
    pub fn close(&mut self, id: u32) {
        self.streams.remove(&id);
        frame(&mut self.waiting, CLOSE, id, &[]);
    }

    /// Has the streams stand still, or go on.
    pub fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    /// Closes all streams without a word: the other side knows none of them.
    pub fn reset(&mut self) {
        self.streams.clear();
        self.last_opened = 0;
    }

    /// Continues at another port, to which the other side has moved while nothing was under way.
    pub fn move_to(&mut self, port: OwnedFd) -> io::Result<()> {
        if !self.received.is_empty() || !self.waiting.is_empty() {
            return Err(wrong());
        }
        sys::set_nonblocking(port.as_raw_fd())?;
        self.port = port.into();
        Ok(())
    }

    pub fn interest(&self, poll: &mut Poll) {
        let events = if self.waiting.is_empty() { POLLIN } else { POLLIN | POLLOUT };
        poll.add(self.port.as_raw_fd(), events);
        if self.is_quiet {
            return;
        }
        let has_space = self.has_space();
        for stream in self.streams.values() {
            let Some(client) = &stream.client else { continue };
            if has_space && stream.credit > 0 && !stream.is_closing {
                poll.add(client.input.as_raw_fd(), POLLIN);
            }
            if !stream.waiting.is_empty() {
                poll.add(client.output.as_raw_fd(), POLLOUT);
            }
        }
    }

    /// Moves what can be moved. An error: the port has ended, or the other side did what it must not.
    pub fn step(&mut self, poll: &Poll, events: &mut Vec<Event>) -> io::Result<bool> {
        let heard = if poll.readable(self.port.as_raw_fd()) { self.receive(events)? } else { false };
        let mut closed = Vec::new();
        let moving = if self.is_quiet { None } else { Some(&mut self.streams) };
        for (&id, stream) in moving.into_iter().flatten() {
            let Some(client) = &mut stream.client else { continue };
            let is_readable = poll.readable(client.input.as_raw_fd()) && self.waiting.len() < CONGESTED;
            let is_over = stream.give(id, &mut self.waiting).is_err()
                || stream.is_closing && stream.waiting.is_empty()
                || is_readable && stream.take(id, &mut self.buffer, &mut self.waiting).is_err();
            if is_over {
                closed.push((id, stream.is_closing));
            }
        }
        for (id, is_known) in closed {
            self.streams.remove(&id);
            if !is_known {
                frame(&mut self.waiting, CLOSE, id, &[]);
            }
        }
        self.flush()?;
        Ok(heard)
    }

    /// Writes what the port takes now.
    pub fn flush(&mut self) -> io::Result<()> {
        write_some(&mut self.port, &mut self.waiting)?;
        if self.waiting.len() > MAX_WAITING { Err(wrong()) } else { Ok(()) }
    }

    /// Returns whether the other side reads what it is sent.
    pub fn has_space(&self) -> bool {
        self.waiting.len() < CONGESTED
    }

    /// Returns whether something waits for the port.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn receive(&mut self, events: &mut Vec<Event>) -> io::Result<bool> {
        let mut read = 0;
        while read < MAX_READ {
            match self.port.read(&mut self.buffer) {
                // What was said before the end counts.
                Ok(0) if read > 0 => break,
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.received.extend_from_slice(&self.buffer[..length]);
                    read += length;
                    self.handle(events)?;
                }
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(read > 0)
    }

    /// Handles the whole frames that have arrived.
    fn handle(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        while let Some((head, content)) = rest.split_at_checked(HEADER) {
            let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (kind, id, length) = (head[0], number(1), number(5) as usize);
            if length > MAX_CONTENT {
                return Err(wrong());
            }
            let Some((content, after)) = content.split_at_checked(length) else { break };
            rest = after;
            self.handle_frame(kind, id, content, events)?;
        }
        self.received = rest.to_vec();
        Ok(())
    }

    fn handle_frame(&mut self, kind: u8, id: u32, content: &[u8], events: &mut Vec<Event>) -> io::Result<()> {
        if let Some(notice) = NOTICES.into_iter().find(|notice| *notice as u8 == kind) {
            events.push(Event::Notice(notice, content.to_vec()));
            return Ok(());
        }
        if kind == OPEN {
            // The side that opens streams counts upwards; the other one opens none.
            if id <= self.last_opened {
                return Err(wrong());
            }
            self.last_opened = id;
            // What it sends may be here already, before there is something to give it to.
            self.streams.insert(id, Stream::default());
            events.push(Event::Opened(id));
            return Ok(());
        }
        // Frames for a stream that was closed on this side are under way for a while.
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match kind {
            DATA if stream.waiting.len() + stream.taken + content.len() <= WINDOW => {
                stream.waiting.extend_from_slice(content);
            }
            CREDIT => {
                let bytes: [u8; 4] = content.try_into().map_err(|_| wrong())?;
                let credit = stream.credit.saturating_add(u32::from_le_bytes(bytes) as usize);
                stream.credit = Some(credit).filter(|credit| *credit <= WINDOW).ok_or_else(wrong)?;
            }
            CLOSE => stream.is_closing = true,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self { client: None, waiting: Vec::new(), credit: WINDOW, taken: 0, is_closing: false }
    }
}

impl Stream {
    /// Gives the client what waits for it, and the other side credit for that.
    fn give(&mut self, id: u32, to_port: &mut Vec<u8>) -> io::Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        self.taken += write_some(&mut client.output, &mut self.waiting)?;
        if self.taken >= WINDOW / 2 {
            frame(to_port, CREDIT, id, &(self.taken as u32).to_le_bytes());
            self.taken = 0;
        }
        Ok(())
    }

    /// Takes from the client what there is credit for.
    fn take(&mut self, id: u32, buffer: &mut [u8], to_port: &mut Vec<u8>) -> io::Result<()> {
        let length = buffer.len().min(self.credit);
        let Some(client) = self.client.as_mut().filter(|_| length > 0) else { return Ok(()) };
        match client.input.read(&mut buffer[..length]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.credit -= length;
                frame(to_port, DATA, id, &buffer[..length]);
                Ok(())
            }
            Err(error) if would_block(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Writes what is taken without waiting, and says how much that was.
fn write_some(to: &mut File, waiting: &mut Vec<u8>) -> io::Result<usize> {
    let mut written = 0;
    while written < waiting.len() {
        match to.write(&waiting[written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => written += length,
            Err(error) if would_block(&error) => break,
            Err(error) => return Err(error),
        }
    }
    waiting.drain(..written);
    Ok(written)
}

fn frame(out: &mut Vec<u8>, kind: u8, id: u32, content: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(content);
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other side sent what it must not")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Mux, Mux) {
        let (one, other) = UnixStream::pair().unwrap();
        (Mux::new(one.into()).unwrap(), Mux::new(other.into()).unwrap())
    }

    /// Moves everything until nothing moves any more; inside, each stream that is opened gets a socket.
    fn settle(outside: &mut Mux, inside: &mut Mux, sockets: &mut Vec<UnixStream>) {
        for _ in 0..30 {
            let mut poll = Poll::default();
            outside.interest(&mut poll);
            inside.interest(&mut poll);
            poll.wait(Some(std::time::Duration::from_millis(1)));
            let mut events = Vec::new();
            outside.step(&poll, &mut Vec::new()).unwrap();
            inside.step(&poll, &mut events).unwrap();
            for event in events {
                if let Event::Opened(id) = event {
                    let (mine, theirs) = UnixStream::pair().unwrap();
                    let copy = mine.try_clone().unwrap();
                    inside.join(id, mine.into(), copy.into()).unwrap();
                    theirs.set_nonblocking(true).unwrap();
                    sockets.push(theirs);
                }
            }
        }
    }

    fn client(mux: &mut Mux) -> UnixStream {
        let (mine, theirs) = UnixStream::pair().unwrap();
        let copy = theirs.try_clone().unwrap();
        mux.open(theirs.into(), copy.into()).unwrap();
        mine.set_nonblocking(true).unwrap();
        mine
    }

    #[test]
    fn a_client_that_does_not_read_holds_up_no_other() {
        let (mut outside, mut inside) = pair();
        let (slow, mut quick) = (client(&mut outside), client(&mut outside));
        let mut sockets = Vec::new();
        settle(&mut outside, &mut inside, &mut sockets);
        let mut flood = 0;
        for _ in 0..20 {
            while let Ok(written) = sockets[0].write(&[7; 4096]) {
                flood += written;
            }
            settle(&mut outside, &mut inside, &mut Vec::new());
        }
        assert!(flood < 4 << 20, "{flood}");
        assert!(sockets[1].write(b"quick").is_ok());
        settle(&mut outside, &mut inside, &mut Vec::new());
        let mut answer = [0; 5];
        quick.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"quick");
        drop(slow);
        settle(&mut outside, &mut inside, &mut Vec::new());
        assert_eq!((outside.clients(), inside.clients()), (1, 1));
    }

    #[test]
    fn streams_stand_still_while_a_machine_is_moved() {
        let (mut outside, mut inside) = pair();
        let mut mine = client(&mut outside);
        let mut sockets = Vec::new();
        settle(&mut outside, &mut inside, &mut sockets);
        let mut theirs = sockets.remove(0);
        theirs.set_nonblocking(true).unwrap();
        for mux in [&mut outside, &mut inside] {
            mux.set_quiet(true);
        }
        mine.write_all(b"question").unwrap();
        theirs.write_all(b"answer").unwrap();
        settle(&mut outside, &mut inside, &mut sockets);
        let mut said = [0; 8];
        assert!(mine.read(&mut said).is_err() && theirs.read(&mut said).is_err(), "nothing moves");
        let (one, other) = UnixStream::pair().unwrap();
        outside.move_to(one.into()).unwrap();
        inside.move_to(other.into()).unwrap();
        for mux in [&mut outside, &mut inside] {
            mux.set_quiet(false);
        }
        settle(&mut outside, &mut inside, &mut sockets);
        theirs.read_exact(&mut said).unwrap();
        mine.read_exact(&mut said[..6]).unwrap();
        assert_eq!((&said[..6], &said[6..]), (b"answer".as_slice(), b"on".as_slice()));
        outside.send(Notice::Ping, &[]);
        assert!(outside.move_to(UnixStream::pair().unwrap().0.into()).is_err(), "something is under way");
        inside.reset();
        assert_eq!(inside.clients(), 0);
    }

    #[test]
    fn answers_that_are_not_read_end_it() {
        let (mut outside, _inside) = pair();
        let all = (0..200).map(|_| {
            outside.send(Notice::Session, &[7; MAX_CONTENT]);
            outside.flush()
        });
        assert!(all.filter(Result::is_err).count() > 1);
    }

    #[test]
    fn what_comes_with_the_opening_is_kept() {
        let (mut outside, mut inside) = pair();
        let mut quick = client(&mut outside);
        quick.write_all(b"hello").unwrap();
        let mut poll = Poll::default();
        outside.interest(&mut poll);
        poll.wait(None);
        // Both frames are on the port before the other side reads.
        outside.step(&poll, &mut Vec::new()).unwrap();
        let mut sockets = Vec::new();
        settle(&mut outside, &mut inside, &mut sockets);
        let mut said = [0; 5];
        sockets[0].read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello");
    }

    #[test]
    fn all_that_was_sent_arrives_before_the_end() {
        let (mut outside, mut inside) = pair();
        let mut first = client(&mut outside);
        let mut sockets = Vec::new();
        settle(&mut outside, &mut inside, &mut sockets);
        let mut socket = sockets.remove(0);
        socket.write_all(&[5; 100_000]).unwrap();
        drop(socket);
        let mut all = Vec::new();
        for _ in 0..10 {
            settle(&mut outside, &mut inside, &mut sockets);
            let _ = first.read_to_end(&mut all);
        }
        assert_eq!(all, [5; 100_000]);
        assert_eq!(outside.clients(), 0);
    }

    #[test]
    fn what_must_not_come_ends_it() {
        let long = {
            let mut head = vec![DATA];
            head.extend_from_slice(&1_u32.to_le_bytes());
            head.extend_from_slice(&u32::MAX.to_le_bytes());
            head
        };
        let flood = |count: usize| {
            let mut bytes = Vec::new();
            (0..count).for_each(|_| frame(&mut bytes, DATA, 1, &[0; MAX_CONTENT]));
            bytes
        };
        let credit = |bytes: u32| {
            let mut out = Vec::new();
            frame(&mut out, CREDIT, 1, &bytes.to_le_bytes());
            out
        };
        let cases: [(&str, Vec<u8>, bool); 5] = [
            ("a long frame", long, false),
            ("credit that nobody used", credit(1), false),
            ("what the window allows", flood(WINDOW / MAX_CONTENT), true),
            ("more than the window allows", flood(WINDOW / MAX_CONTENT + 4), false),
            ("an unknown kind", [vec![99], 1_u32.to_le_bytes().to_vec(), vec![0; 4]].concat(), false),
        ];
        for (what, bytes, is_right) in cases {
            let (port, _other) = UnixStream::pair().unwrap();
            let mut mux = Mux::new(port.into()).unwrap();
            // Nothing of it is written while it is handled.
            let _client = client(&mut mux);
            mux.received = bytes;
            assert_eq!(mux.handle(&mut Vec::new()).is_ok(), is_right, "{what}");
        }
    }
}
