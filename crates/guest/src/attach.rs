//! `guest attach`: joins the guest's socket to standard input and output, so that whatever can run a program
//! inside the sandbox can connect to its guest.

use crate::client::would_block;
use crate::sys::{self, POLLIN, POLLOUT, Poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

/// Bytes that wait in one direction.
const BUFFER: usize = 64 << 10;
/// The time limit for a guest that is starting to listen, and the pause between two attempts.
const START: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(5);

pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some("--socket"), Some(name), None) =
        (arguments.next().as_deref(), arguments.next(), arguments.next())
    else {
        return Err(crate::USAGE.to_owned());
    };
    // What goes through here is nobody's to read: the sandbox may have one user for all of its processes.
    sys::prctl(sys::PR_SET_DUMPABLE, 0).map_err(|error| format!("cannot become undumpable: {error}"))?;
    let stream = connect(&name).map_err(|error| format!("cannot reach the guest at @{name}: {error}"))?;
    splice(stream).map_err(|error| format!("the connection broke: {error}"))
}

fn connect(name: &str) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(name)?;
    let deadline = Instant::now() + START;
    loop {
        match UnixStream::connect_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                std::thread::sleep(AGAIN);
            }
            connected => return connected,
        }
    }
}

/// Copies both ways, until the guest has closed its side. The end of the input is passed on.
fn splice(stream: UnixStream) -> io::Result<()> {
    let (input, output) = sys::take_stdio()?;
    for fd in [input.as_raw_fd(), output.as_raw_fd(), stream.as_raw_fd()] {
        sys::set_nonblocking(fd)?;
    }
    let socket = File::from(OwnedFd::from(stream.try_clone()?));
    let mut up = Direction::new(File::from(input), socket.try_clone()?);
    let mut down = Direction::new(socket, File::from(output));
    let mut poll = Poll::default();
    while !down.done() {
        poll.clear();
        up.interest(&mut poll);
        down.interest(&mut poll);
        poll.wait(None);
        if !up.done() && up.pump(&poll)? {
            stream.shutdown(Shutdown::Write)?;
        }
        down.pump(&poll)?;
    }
    Ok(())
}

/// One direction: bytes that were read and wait to be written.
struct Direction {
    from: File,
    to: File,
    buffer: Vec<u8>,
    ended: bool,
}

impl Direction {
    fn new(from: File, to: File) -> Self {
        Self { from, to, buffer: Vec::with_capacity(BUFFER), ended: false }
    }

    fn done(&self) -> bool {
        self.ended && self.buffer.is_empty()
    }

    fn interest(&self, poll: &mut Poll) {
        if !self.buffer.is_empty() {
            poll.add(self.to.as_raw_fd(), POLLOUT);
        } else if !self.ended {
            poll.add(self.from.as_raw_fd(), POLLIN);
        }
    }

    /// Moves what can be moved. `true` when that was the last of it.
    fn pump(&mut self, poll: &Poll) -> io::Result<bool> {
        if self.buffer.is_empty() && !self.ended && poll.readable(self.from.as_raw_fd()) {
            self.buffer.resize(BUFFER, 0);
            let length = match self.from.read(&mut self.buffer) {
                Ok(0) => {
                    self.ended = true;
                    0
                }
                Ok(length) => length,
                Err(error) if would_block(&error) => 0,
                // The other side was closed before it had read everything: also an end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.ended = true;
                    0
                }
                Err(error) => return Err(error),
            };
            self.buffer.truncate(length);
        }
        while !self.buffer.is_empty() {
            match self.to.write(&self.buffer) {
                Ok(length) => drop(self.buffer.drain(..length)),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.done())
    }
}
