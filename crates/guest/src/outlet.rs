//! The outlet: a port on the sandbox's loopback whose connections are carried to the host, byte for byte. What they
//! ask for is read, judged and answered there.

use crate::sys::{POLLIN, Poll};
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

pub struct Outlet {
    listener: TcpListener,
    /// The client that gets the connections.
    pub owner: u64,
    /// Variables that commands start with.
    pub env: Vec<(OsString, OsString)>,
}

impl Outlet {
    /// Listens on loopback, or on every address of the sandbox.
    pub fn open(port: u16, everywhere: bool, owner: u64, env: Vec<(OsString, OsString)>) -> io::Result<Self> {
        let address = if everywhere { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        let listener = TcpListener::bind((address, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, owner, env })
    }

    pub fn interest(&self, poll: &mut Poll) {
        poll.add(self.listener.as_raw_fd(), POLLIN);
    }

    /// The next connection, if there is one.
    pub fn accept(&self, poll: &Poll) -> Option<TcpStream> {
        if !poll.readable(self.listener.as_raw_fd()) {
            return None;
        }
        // A connection that cannot be accepted is gone, or will be offered again.
        let (socket, _) = self.listener.accept().ok()?;
        socket.set_nonblocking(true).ok()?;
        // What comes from the host is passed on as it comes: held back, each new TLS connection would wait 40 ms for an acknowledgement.
        socket.set_nodelay(true).ok()?;
        Some(socket)
    }
}
