//! The memory in the buffers of TCP and UDP sockets, where no control group counts it.
//!
//! Version 2 of the control groups counts it as the group's memory. Version 1 counts it apart and only where a limit for it is set, which
//! takes rights on the machine that nobody has in a container: there, the guest looks. Twenty times a second, while commands run, it
//! reads what the sockets of the whole machine take: a small file. Only when that is more than this sandbox may have, the
//! kernel is asked for each socket of the sandbox's network (sock_diag(7)), and what runs is killed if they hold too much.

use crate::command::Command;
use crate::facts::cgroup_file;
use crate::sys;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// The part of the sandbox's memory that the buffers may take on top of it.
const PART: u64 = 4;
/// Answers of the kernel that are read, each with a hundred sockets: the event loop waits for them.
const MAX_READS: usize = 10_000;
/// A limit that is none: version 1 has a huge number there.
const NO_LIMIT: u64 = 1 << 60;

/// IPv4 and IPv6, each with TCP and UDP.
const KINDS: [(u8, u8); 4] = [(2, 6), (2, 17), (10, 6), (10, 17)];
/// The header of a netlink message, `struct inet_diag_req_v2`, and `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const SOCKET: usize = 72;
/// Message types, and the flags of a request for all.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST_ALL: u16 = 0x301;
/// The attribute with the memory of a socket, and where in it the buffers are: received, reserved, to be sent, waiting for the owner.
const MEMORY: u16 = 7;
const BUFFERS: [usize; 4] = [0, 4, 5, 7];

pub struct SocketMemory {
    watched: Option<Watched>,
    next: Instant,
    buffer: Vec<u8>,
}

struct Watched {
    /// Asks the kernel about sockets.
    questions: File,
    limit: u64,
}

impl SocketMemory {
    /// Over the socket that asks the kernel: no filter lets one be opened later.
    pub fn new(questions: Option<OwnedFd>) -> Self {
        let limit = limit();
        let watched = questions.zip(limit).map(|(fd, limit)| Watched { questions: fd.into(), limit });
        Self { watched, next: Instant::now(), buffer: Vec::new() }
    }

    /// Returns the time of the next look, while commands run.
    pub fn next_check(&self) -> Option<Instant> {
        self.watched.as_ref().map(|_| self.next)
    }

    /// Looks, if it is time. Kills what runs where sockets hold too much.
    pub fn watch<'c>(&mut self, commands: impl Iterator<Item = &'c mut Command>) {
        let Some(watched) = self.watched.as_mut().filter(|_| Instant::now() >= self.next) else { return };
        if of_the_machine().is_none_or(|bytes| bytes > watched.limit) {
            self.buffer.resize(1 << 16, 0);
            // Kernels without the answers leave it at that.
            let held = held(&mut watched.questions, &mut self.buffer).unwrap_or(0);
            if held > watched.limit {
                commands.filter(|command| !command.over()).for_each(Command::end_out_of_memory);
            }
        }
        self.next = Instant::now() + INTERVAL;
    }
}

/// The socket for [`SocketMemory::new`], where version 1 of the control groups counts the sandbox's memory.
pub fn questions() -> Option<OwnedFd> {
    limit()?;
    sys::open_socket_questions().ok()
}

/// [`questions`] for the program that this process becomes: the number of a descriptor that stays open.
pub fn questions_for_the_guest() -> Option<i32> {
    let questions = questions()?;
    sys::keep_on_exec(questions.as_raw_fd()).ok()?;
    Some(questions.into_raw_fd())
}

/// Returns what the sandbox's sockets may hold; `None` where they are counted as memory, or nothing is limited.
fn limit() -> Option<u64> {
    if cgroup_file("", "memory.events").is_some() {
        return None;
    }
    let text = std::fs::read_to_string(cgroup_file("memory", "memory.limit_in_bytes")?).ok()?;
    text.trim().parse().ok().filter(|limit| *limit < NO_LIMIT).map(|limit: u64| limit / PART)
}

/// Returns what the buffers of all sockets of the machine take.
fn of_the_machine() -> Option<u64> {
    pages(&std::fs::read_to_string("/proc/net/sockstat").ok()?)
        .map(|pages| pages.saturating_mul(sys::page_size()))
}

/// `TCP: inuse 5 orphan 0 tw 0 alloc 5 mem 1`, and the same for UDP: the numbers after `mem`, in pages.
fn pages(text: &str) -> Option<u64> {
    let of =
        |line: &str| line.split_whitespace().skip_while(|word| *word != "mem").nth(1)?.parse::<u64>().ok();
    let lines = text.lines().filter(|line| line.starts_with("TCP: ") || line.starts_with("UDP: "));
    lines.map(of).sum()
}

/// Returns what the buffers of this network's sockets hold.
fn held(questions: &mut File, buffer: &mut [u8]) -> io::Result<u64> {
    let mut held = 0_u64;
    let mut reads = 0;
    for (family, protocol) in KINDS {
        questions.write_all(&request(family, protocol))?;
        loop {
            let length = questions.read(buffer)?;
            let (bytes, is_over) = answer(buffer.get(..length).unwrap_or_default());
            held = held.saturating_add(bytes);
            if is_over {
                break;
            }
            reads += 1;
            if reads == MAX_READS {
                return Ok(u64::MAX);
            }
        }
    }
    Ok(held)
}

/// A request for the sockets of a kind in every state, with their memory.
fn request(family: u8, protocol: u8) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    bytes[0] = (HEADER + REQUEST) as u8;
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    bytes[HEADER] = family;
    bytes[HEADER + 1] = protocol;
    bytes[HEADER + 2] = 1 << (MEMORY - 1);
    bytes[HEADER + 4..HEADER + 8].fill(0xff);
    bytes
}

/// Returns what the sockets of one read hold, and whether it was the last one: the end of the list, or an error.
fn answer(mut bytes: &[u8]) -> (u64, bool) {
    let mut held = 0_u64;
    if bytes.is_empty() {
        return (0, true);
    }
    while !bytes.is_empty() {
        let length = number(bytes, 0).map_or(0, |length| length as usize);
        let Some(message) = bytes.get(..length).filter(|message| message.len() >= HEADER) else {
            return (held, true);
        };
        if let Some(DONE | ERROR) = short(message, 4) {
            return (held, true);
        }
        let attributes = message.get(HEADER + SOCKET..).unwrap_or_default();
        held = held.saturating_add(memory(attributes).unwrap_or(0));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    (held, false)
}

/// The memory that the attributes of a socket state.
fn memory(mut attributes: &[u8]) -> Option<u64> {
    loop {
        let length = usize::from(short(attributes, 0)?);
        let attribute = attributes.get(4..length)?;
        if short(attributes, 2)? == MEMORY {
            return BUFFERS.iter().map(|index| number(attribute, index * 4).map(u64::from)).sum();
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
