//! The protocol between host and guest, shared by both sides.
//!
//! # Frames
//!
//! A connection is a duplex byte stream that carries frames both ways. All integers are little-endian.
//!
//! ```text
//! length: u32   bytes that follow, 5 ..= MAX_FRAME
//! id:     u32   the stream that the message belongs to
//! kind:   u8    the variant of Message
//! body          its fields, in order
//! ```
//!
//! Byte strings are a `u32` length and the bytes, lists a `u32` count and the items, options a byte 0 or 1 and
//! the value. Paths, names, arguments and outputs are bytes, never strings.
//!
//! # Streams
//!
//! The first frame each way is [`Message::Hello`] on stream 0; the host speaks first. After it every request of the
//! host opens a stream of its own with an odd id that grows, and every connection that the guest hands over
//! ([`Message::Open`]) one with an even id that grows. Requests do not wait for each other: many are in flight.
//!
//! A request's stream ends with exactly one terminal message of the guest: `Finished`, `JobStarted`, `JobState`,
//! `Stated`, `Entries { last: true }`, `Done`, `FactsAre` or `Failed`. What the host sends on a stream that has ended
//! is ignored.
//!
//! A connection's stream (`Connect` → `Opened` or `Failed`; `Open` → `Opened` or `Failed`) ends when each side
//! has sent its last frame, `Eof` or `Reset`. A side that receives `Reset` and has not ended yet answers with `Reset`.
//!
//! # Flow control
//!
//! Each direction of each stream starts with [`WINDOW`] bytes of credit. `Data`, `Output`, `Gap` and `Entries` use
//! [`cost`] bytes of it (what they carry and [`FRAME_COST`], so that a flood of empty frames is bounded as well);
//! the receiver hands credit back with `Credit` as it consumes. Whoever overdraws is cut off.

// Named, because the host's side finds this file by its path as well.
#[path = "codec.rs"]
mod codec;

pub use codec::{Bytes, WireError};
use codec::{Field, record, tagged, take};

/// The version of the protocol. Both sides must speak the same.
pub const VERSION: u16 = 1;
/// The first bytes of every connection's `Hello`.
pub const MAGIC: [u8; 4] = *b"agnt";
/// The longest frame, in bytes after the length.
pub const MAX_FRAME: usize = 256 << 10;
/// The most that one `Data` or `Output` carries, in bytes.
pub const CHUNK: usize = 64 << 10;
/// The credit that every direction of every stream starts with, in bytes.
pub const WINDOW: u32 = 512 << 10;
/// What a frame costs beyond the bytes that it carries.
pub const FRAME_COST: u32 = 64;

/// The credit that a frame with `carried` bytes uses. Frames are shorter than 4 GiB, so nothing is cut off.
pub fn cost(carried: usize) -> u32 {
    carried as u32 + FRAME_COST
}

/// How many files a disk quota of `bytes` allows: as many as ext4 makes room for (one for 16 KiB), and at least 16,384.
pub fn files_of_quota(bytes: u64) -> u64 {
    (bytes >> 14).max(1 << 14)
}

/// What is said where a disk quota of `bytes` is used up.
pub fn quota_used_up(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1 << 30 { (1_u64 << 30, "GB") } else { (1 << 20, "MB") };
    let size = (bytes as f64 / unit as f64 * 10.0).round() / 10.0;
    format!("the disk quota of {size} {name} (or {} files) is used up", files_of_quota(bytes))
}

/// What an entry adds to the cost of an `Entries`: as if it took 64 bytes, its path and its target.
pub fn entry_cost(entry: &Entry) -> u32 {
    let target = if let EntryKind::Symlink { target } = &entry.kind { target.0.len() } else { 0 };
    cost(entry.path.0.len() + target)
}

tagged! {
    /// What to run.
    Program {
        /// Text for `bash -c`, or `sh -c` where there is no bash.
        0 = Shell {
            /// The text.
            text: Bytes,
        },
        /// A program and its arguments.
        1 = Argv {
            /// The program first, searched on `PATH`.
            words: Vec<Bytes>,
        },
    }
}

record! {
    /// A command to run.
    Command {
        /// What to run.
        program: Program,
        /// Working directory, relative to the workspace.
        cwd: Option<Bytes>,
        /// Variables beyond the guest's own.
        env: Vec<(Bytes, Bytes)>,
        /// The time limit in milliseconds.
        timeout_ms: Option<u64>,
        /// Bytes that are streamed live.
        live_bytes: u64,
        /// Whether the host feeds standard input.
        stdin: bool,
    }
}

tagged! {
    /// How a command ended.
    Outcome {
        /// By itself.
        0 = Exited {
            /// Its exit code.
            code: i32,
        },
        /// By a signal.
        1 = Signaled {
            /// The signal's number.
            signal: i32,
        },
        /// By its time limit.
        2 = TimedOut {},
        /// By the kernel, for want of memory.
        3 = OomKilled {},
        /// The process that watched over it is gone.
        4 = Lost {},
        /// Killed, because the sandbox's disk quota was used up.
        5 = OverQuota {
            /// The quota in bytes; see [`files_of_quota`].
            bytes: u64,
        },
    }
}

record! {
    /// A finished command.
    Finished {
        /// How it ended.
        outcome: Outcome,
        /// Wall time in microseconds.
        duration_us: u64,
        /// Bytes written on both streams together.
        output_bytes: u64,
        /// The file that holds the output, where it was too long for memory.
        spool: Option<Bytes>,
        /// Bytes of the output that the file holds.
        spool_bytes: u64,
        /// Processes that it left behind, running.
        left_running: u32,
        /// Processes of the sandbox that were killed for want of memory while it ran.
        oom_kills: u32,
    }
}

tagged! {
    /// What a directory entry is.
    EntryKind {
        /// A regular file.
        0 = File {},
        /// A symbolic link.
        1 = Symlink {
            /// Where it leads, as written.
            target: Bytes,
        },
        /// A directory.
        2 = Directory {},
        /// A device, a pipe, a socket.
        3 = Other {},
    }
}

record! {
    /// A directory entry, its symbolic link not followed.
    Entry {
        /// As asked for, or relative to the root of the walk.
        path: Bytes,
        /// What it is.
        kind: EntryKind,
        /// Permission bits, at most 0o7777.
        mode: u32,
        /// Size in bytes.
        size: u64,
        /// Modification time in nanoseconds since 1970.
        mtime_ns: i64,
        /// Change time in nanoseconds since 1970. Programs cannot set it.
        ctime_ns: i64,
        /// SHA-256 of a regular file, where it was asked for and the file can be read.
        hash: Option<[u8; 32]>,
        /// Whether the directory could be listed, the file hashed. `true` where nobody tried.
        readable: bool,
    }
}

tagged! {
    /// What to write.
    Node {
        /// A regular file.
        0 = Regular {
            /// Its bytes, or the first of them.
            bytes: Bytes,
            /// Whether more follow, as `Data` up to an `Eof`.
            more: bool,
        },
        /// A symbolic link.
        1 = Symlink {
            /// Where it leads.
            target: Bytes,
        },
        /// A directory.
        2 = Directory {},
    }
}

record! {
    /// A file to write, by a temporary file and a rename. Missing parents are made.
    FileWrite {
        /// Where, relative to the workspace.
        path: Bytes,
        /// What.
        node: Node,
        /// Permission bits; `None` keeps those of the file that is there, else 0644 (a directory: 0755).
        mode: Option<u32>,
        /// Modification time in nanoseconds since 1970; `None` is now.
        mtime_ns: Option<i64>,
        /// Whether a symbolic link at `path` is followed; otherwise it is replaced.
        follow: bool,
    }
}

record! {
    /// What the guest knows about its sandbox. What it cannot find out is `None`.
    Facts {
        /// Whether there is a bash.
        bash: bool,
        /// Those of the tools asked for that are on `PATH`.
        tools: Vec<Bytes>,
        /// Memory in use, in bytes.
        memory_bytes: Option<u64>,
        /// The memory limit, in bytes.
        memory_limit: Option<u64>,
        /// Processes and threads.
        pids: Option<u64>,
        /// Their limit.
        pids_limit: Option<u64>,
        /// Bytes in use on the workspace's file system.
        disk_bytes: Option<u64>,
        /// Bytes that are free there.
        disk_free: Option<u64>,
        /// Processes killed for want of memory since the sandbox started.
        oom_kills: u64,
    }
}

tagged! {
    /// Everything that is ever said.
    Message {
        /// Both ways: the first frame.
        0x00 = Hello {
            /// [`MAGIC`].
            magic: [u8; 4],
            /// [`VERSION`].
            version: u16,
        },
        /// Both ways: bytes of a file, of standard input, or of a connection. At most [`CHUNK`].
        0x01 = Data {
            /// The bytes.
            bytes: Bytes,
        },
        /// Both ways: no more `Data` this way.
        0x02 = Eof {},
        /// Both ways: the receiver consumed this much.
        0x03 = Credit {
            /// How much more may be sent.
            bytes: u32,
        },
        /// Both ways: the connection is broken off.
        0x04 = Reset {},
        /// Both ways: the connection stands.
        0x05 = Opened {},
        /// Both ways: the answer to a request that failed.
        0x06 = Failed {
            /// The kernel's error number; 0 where there is none.
            errno: i32,
            /// What failed and why.
            message: Bytes,
        },

        /// Run a command. `Output` and `Gap`, then `Finished`.
        0x10 = Run {
            /// What to run.
            command: Command,
        },
        /// Run a command in the background. `JobStarted`.
        0x11 = StartJob {
            /// What to run; `live_bytes` and `stdin` do not count.
            command: Command,
        },
        /// Kill the command, or give the request up.
        0x12 = Kill {},
        /// What is new of a job. `Output` and `Gap`, then `JobState`.
        0x13 = JobOutput {
            /// Which.
            job: u64,
            /// Wait this long for news or the end, in milliseconds.
            wait_ms: u32,
        },
        /// Kill a job and what it left behind. Answered as `JobOutput` is, when it is dead.
        0x14 = JobKill {
            /// Which.
            job: u64,
        },
        /// What is there. `Stated`.
        0x15 = Stat {
            /// Where; a symbolic link is not followed.
            path: Bytes,
        },
        /// Read a regular file. `FileIs`, then `Data`, then `Done`.
        0x16 = ReadFile {
            /// Where.
            path: Bytes,
            /// From this byte.
            offset: u64,
            /// At most this many.
            limit: u64,
        },
        /// Write a file. `Done`.
        0x17 = WriteFile {
            /// What and where.
            write: FileWrite,
        },
        /// Remove a file, a symbolic link or an empty directory. `Done`.
        0x18 = Remove {
            /// Where.
            path: Bytes,
        },
        /// List a tree, parents before children. `Entries`, the last of them marked.
        0x19 = Walk {
            /// The directory.
            root: Bytes,
            /// Whether regular files are hashed.
            hash: bool,
            /// Relative paths of directories that are not looked into.
            exclude: Vec<Bytes>,
            /// More entries than this are an error.
            max_entries: u64,
        },
        /// Ask for facts. `FactsAre`.
        0x1a = GetFacts {
            /// Programs to look for on `PATH`.
            tools: Vec<Bytes>,
        },
        /// Open a connection to a port on the sandbox's loopback. `Opened`.
        0x1b = Connect {
            /// The port.
            port: u16,
        },
        /// End every process and exit.
        0x1c = Shutdown {},
        /// Open the way out: every connection to this port of the sandbox's loopback becomes an `Open` for this client,
        /// until it is gone. Once more replaces the variables. `Done`.
        0x1d = Listen {
            /// The port.
            port: u16,
            /// Variables that commands start with while the way out is open.
            env: Vec<(Bytes, Bytes)>,
        },

        /// What a command wrote. At most [`CHUNK`].
        0x30 = Output {
            /// Whether it was written to standard error.
            stderr: bool,
            /// The bytes.
            bytes: Bytes,
        },
        /// Output that is left out here.
        0x31 = Gap {
            /// Bytes of it.
            bytes: u64,
        },
        /// The command is done.
        0x32 = Finished {
            /// How.
            finished: Finished,
        },
        /// The job runs.
        0x33 = JobStarted {
            /// Its number, from 1.
            job: u64,
        },
        /// What the job is doing, after its output.
        0x34 = JobState {
            /// How it ended; `None` while it runs.
            finished: Option<Finished>,
        },
        /// What is there.
        0x35 = Stated {
            /// The entry.
            entry: Entry,
        },
        /// The file that is read.
        0x36 = FileIs {
            /// Its size in bytes; 0 where the kernel makes it up while it is read (`/proc`).
            size: u64,
            /// Permission bits.
            mode: u32,
            /// Modification time in nanoseconds since 1970.
            mtime_ns: i64,
        },
        /// Entries of a walk. May be empty: a walk says something every few seconds.
        0x37 = Entries {
            /// The entries.
            entries: Vec<Entry>,
            /// Whether the walk is done.
            last: bool,
        },
        /// The request is done.
        0x38 = Done {},
        /// The facts.
        0x39 = FactsAre {
            /// The facts.
            facts: Facts,
        },
        /// A program has connected to the port of [`Message::Listen`]. What it wants is in the bytes that follow.
        0x3a = Open {},
    }
}

/// The length of the frame's head: the length itself.
const PREFIX: usize = 4;

/// Appends a frame to `out`.
///
/// # Errors
///
/// [`WireError::Length`] where the message does not fit a frame; `out` is then as it was.
pub fn encode(id: u32, message: &Message, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    id.put(out);
    message.put(out);
    let length = out.len() - start - PREFIX;
    if length > MAX_FRAME {
        out.truncate(start);
        return Err(WireError::Length(length));
    }
    out[start..start + PREFIX].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Cuts a byte stream into frames. Holds at most one frame and what was fed beyond it.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// A decoder at the start of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes as they arrive. Call [`Decoder::next`] until it has no more before feeding again.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.drain(..self.start);
        }
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame: its stream's id and its message. `None`: more bytes are needed.
    ///
    /// # Errors
    ///
    /// The connection is of no use any more after one.
    #[allow(clippy::should_implement_trait)] // An iterator of results that end in None and go on later would mislead.
    pub fn next(&mut self) -> Result<Option<(u32, Message)>, WireError> {
        let mut input = &self.buffer[self.start..];
        let Ok(length) = u32::get(&mut input) else { return Ok(None) };
        let length = length as usize;
        if !(size_of::<u32>() + 1..=MAX_FRAME).contains(&length) {
            return Err(WireError::Length(length));
        }
        let Ok(mut frame) = take(&mut input, length) else { return Ok(None) };
        let id = u32::get(&mut frame)?;
        let message = Message::get(&mut frame)?;
        if !frame.is_empty() {
            return Err(WireError::Trailing);
        }
        self.start += PREFIX + length;
        Ok(Some((id, message)))
    }
}
