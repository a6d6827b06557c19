//! A connection between the host and a port on the sandbox's loopback, made from either side.

use crate::client::{Client, would_block};
use crate::sys::{self, POLLIN, POLLOUT, Poll};
use agent_wire::{CHUNK, FRAME_COST, Message, ReceiveWindow, WINDOW, WindowBudget, cost};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

pub struct Relay {
    socket: TcpStream,
    state: State,
    /// Bytes from the host that the socket has not accepted yet.
    waiting: Vec<u8>,
    /// The cost of what the host has sent since the socket last accepted everything.
    waiting_cost: u32,
    window: ReceiveWindow,
    host_ended: bool,
    socket_ended: bool,
    pub credit: u32,
}

enum State {
    /// The address family tried now is IPv4, IPv6 is still to be tried.
    ConnectingFirst(u16),
    ConnectingLast,
    /// A program inside has connected; the host has not accepted the connection yet.
    Offered,
    Open,
}

impl Relay {
    /// Servers listen on either of the two loopback addresses, so both are tried.
    pub fn connect(port: u16) -> io::Result<Self> {
        let (socket, state) = match sys::connect_loopback(port, false) {
            Ok(socket) => (socket, State::ConnectingFirst(port)),
            Err(_) => (sys::connect_loopback(port, true)?, State::ConnectingLast),
        };
        Ok(Self::new(socket, state))
    }

    /// A connection that a program inside has made, to be accepted by the host.
    pub fn offered(socket: TcpStream) -> Self {
        Self::new(socket, State::Offered)
    }

    fn new(socket: TcpStream, state: State) -> Self {
        Self {
            socket,
            state,
            waiting: Vec::new(),
            waiting_cost: 0,
            window: ReceiveWindow::default(),
            host_ended: false,
            socket_ended: false,
            credit: WINDOW,
        }
    }

    /// The host has accepted the connection.
    pub fn accepted(&mut self) {
        if matches!(self.state, State::Offered) {
            self.state = State::Open;
        }
    }

    pub fn interest(&self, client: &Client, poll: &mut Poll) {
        let fd = self.socket.as_raw_fd();
        match self.state {
            State::Open => {
                if !self.waiting.is_empty() {
                    poll.add(fd, POLLOUT);
                }
                if !self.socket_ended && self.credit > FRAME_COST && !client.congested() {
                    poll.add(fd, POLLIN);
                }
            }
            State::Offered => {}
            State::ConnectingFirst(_) | State::ConnectingLast => poll.add(fd, POLLOUT),
        }
    }

    /// Moves what can be moved. `true` when the stream has ended.
    pub fn step(
        &mut self,
        id: u32,
        client: &mut Client,
        poll: &Poll,
        buffer: &mut [u8],
        budget: &mut WindowBudget,
    ) -> bool {
        let moved = match self.state {
            State::Open => {
                self.send(id, client, budget).and_then(|()| self.receive(id, client, poll, buffer))
            }
            State::Offered => Ok(()),
            _ if poll.writable(self.socket.as_raw_fd()) => match self.connected(id, client) {
                Ok(()) => Ok(()),
                Err(error) => {
                    client.fail(id, &crate::client::Failure::io("nothing answers on the port", &error));
                    return true;
                }
            },
            _ => Ok(()),
        };
        if moved.is_err() {
            client.send(id, &Message::Reset {});
            return true;
        }
        self.host_ended && self.waiting.is_empty() && self.socket_ended
    }

    fn connected(&mut self, id: u32, client: &mut Client) -> io::Result<()> {
        let failed = self.socket.take_error()?;
        match (&self.state, failed) {
            (_, None) => {
                self.state = State::Open;
                client.send(id, &Message::Opened {});
            }
            (State::ConnectingFirst(port), Some(_)) => {
                self.socket = sys::connect_loopback(*port, true)?;
                self.state = State::ConnectingLast;
            }
            (_, Some(error)) => return Err(error),
        }
        Ok(())
    }

    /// Accepts what the host sent. `false` when it sent more than it may.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.waiting.extend_from_slice(bytes);
        let cost = cost(bytes.len());
        self.waiting_cost = self.waiting_cost.saturating_add(cost);
        self.window.receive(cost)
    }

    /// The host sends no more.
    pub fn end(&mut self) {
        self.host_ended = true;
    }

    /// Returns whether this side has sent its last frame already.
    pub fn ended(&self) -> bool {
        self.socket_ended
    }

    pub fn release(&mut self, budget: &mut WindowBudget) {
        self.window.release(budget);
    }

    fn send(&mut self, id: u32, client: &mut Client, budget: &mut WindowBudget) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.socket.write(&self.waiting) {
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let written = std::mem::take(&mut self.waiting_cost);
        if let Some(bytes) = self.window.consume(written, true, budget) {
            client.send(id, &Message::Credit { bytes });
        }
        if self.host_ended {
            // It may be closed already.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    fn receive(&mut self, id: u32, client: &mut Client, poll: &Poll, buffer: &mut [u8]) -> io::Result<()> {
        if self.socket_ended
            || self.credit <= FRAME_COST
            || client.congested()
            || !poll.readable(self.socket.as_raw_fd())
        {
            return Ok(());
        }
        let space = CHUNK.min((self.credit - FRAME_COST) as usize);
        match self.socket.read(&mut buffer[..space]) {
            Ok(0) => {
                self.socket_ended = true;
                client.send(id, &Message::Eof {});
            }
            Ok(length) => {
                client.send(id, &Message::Data { bytes: buffer[..length].to_vec() });
                self.credit -= cost(length);
            }
            Err(error) if would_block(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
