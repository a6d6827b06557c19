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
//! # Streams
//!
//! The first frame each way is [`Message::Hello`] on stream 0; the host speaks first, and sends [`Message::Prove`] with it,
//! which the guest answers with [`Message::Proof`]. After that every request of the
//! host opens a stream of its own with an odd id that grows, and every connection that the guest hands over
//! ([`Message::Open`]) one with an even id that grows. Requests do not wait for each other: many are in flight. Each
//! sender takes turns between its streams, a frame at a time, so that a small answer does not wait behind a bulk
//! transfer.
//!
//! A request's stream ends with exactly one terminal message of the guest: `Finished`, `JobStarted`, `JobState`,
//! `Stated`, `Entries { last: Some(_) }`, `Updated`, `MissingAre`, `AttributesAre`, `Done`, `FactsAre` or `Failed`. What the host
//! sends on a stream that has ended is ignored.
//!
//! A connection's stream (`Connect` → `Opened` or `Failed`; `Open` → `Opened` or `Failed`) ends when each side
//! has sent its last frame, `Eof` or `Reset`. A side that receives `Reset` and has not ended yet answers with `Reset`.
//!
//! # Flow control
//!
//! Each direction of each stream starts with [`WINDOW`] bytes of credit. `Data`, `Block`, `Output`, `Gap` and `Entries`
//! use [`cost`] bytes of it (what they carry and [`FRAME_COST`], so that a flood of empty frames is bounded as well);
//! the receiver returns credit with `Credit` as it consumes. A receiver that keeps up grows the window
//! ([`ReceiveWindow`]) up to [`MAX_WINDOW`], which fits 100 ms × 100 MB/s. A sender that overdraws is cut off.
//!
//! # Liveness
//!
//! The host sends `Ping` on stream 0 when nothing has arrived for a while, and the guest answers `Pong`. Silence beyond
//! that means a dead link.

pub mod boot_spec;
pub mod bpf;
mod codec;
pub mod launch_spec;
pub mod lz4;
mod outbox;
pub mod sha1;
pub mod sha256;
pub mod websocket;
mod window;

pub use codec::WireError;
use codec::{Field, record, tagged, take};
pub use outbox::Outbox;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
pub use window::{ReceiveWindow, WindowBudget};

/// The directory of this crate's sources: the build script of the guest compiles them for the sandbox.
#[doc(hidden)]
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
/// The version of the protocol. Both sides must speak the same.
pub const VERSION: u16 = 3;
/// The first bytes of every connection's `Hello`.
pub const MAGIC: [u8; 4] = *b"agnt";
/// The longest frame, in bytes after the length.
pub const MAX_FRAME: usize = 256 << 10;
/// The most that one `Data`, `Output` or `Block` carries, in bytes.
pub const CHUNK: usize = 64 << 10;
/// The credit that every direction of every stream starts with, in bytes.
pub const WINDOW: u32 = 512 << 10;
/// The most credit that a stream can have in one direction.
pub const MAX_WINDOW: u32 = 16 << 20;
/// The cost of a frame beyond the bytes that it carries.
pub const FRAME_COST: u32 = 64;
/// The most changes that one `Block` holds.
pub const MAX_CHANGES: usize = 64;

/// The credit that a frame with `carried` bytes uses. Frames are shorter than 4 GiB, so nothing is cut off.
pub fn cost(carried: usize) -> u32 {
    carried as u32 + FRAME_COST
}

/// Returns the bytes whose SHA-256 a guest proves itself by. `build` is the hash of the sources that it was built from.
pub fn proven(nonce: &[u8; 32], build: &str) -> Vec<u8> {
    [&nonce[..], build.as_bytes()].concat()
}

/// Returns the number of files that a disk quota of `bytes` allows: as many as ext4 has inodes for (one for 16 KiB), and
/// at least 16,384.
pub fn files_of_quota(bytes: u64) -> u64 {
    (bytes >> 14).max(1 << 14)
}

/// The message for a disk quota of `bytes` that is used up.
pub fn quota_used_up(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1 << 30 { (1_u64 << 30, "GB") } else { (1 << 20, "MB") };
    let size = (bytes as f64 / unit as f64 * 10.0).round() / 10.0;
    format!("the disk quota of {size} {name} (or {} files) is used up", files_of_quota(bytes))
}

/// Returns what an entry adds to the cost of an `Entries`: as if it took 64 bytes, its path and its target.
pub fn entry_cost(entry: &Entry) -> u32 {
    let target = if let EntryKind::Symlink(target) = &entry.kind { target.as_os_str().len() } else { 0 };
    cost(entry.path.as_os_str().len() + target)
}

tagged! {
    /// The program to run.
    Program {
        /// Text for the shell: `bash -c`, or `sh -c` where there is no bash.
        0 = Shell(text: String),
        /// A program and its arguments; the program is searched on the sandbox's `PATH`.
        1 = Argv(words: Vec<OsString>),
    }
}

record! {
    /// A command to run inside.
    Command {
        program: Program,
        /// Working directory; relative is relative to the workspace, `None` is the workspace itself.
        cwd: Option<PathBuf>,
        /// Variables beyond the sandbox's own.
        env: Vec<(OsString, OsString)>,
        /// TERM to the whole process tree after this long, KILL after the grace period. `None`: no limit.
        timeout: Option<Duration>,
        /// Bytes of output that are streamed live, in order; what follows is only spooled, except the end of it,
        /// which is sent after a gap when the command has ended. `u64::MAX` streams everything, with back-pressure on
        /// the command.
        live_bytes: u64,
        /// Set if the caller feeds standard input; otherwise it is `/dev/null`.
        stdin: bool,
    }
}

tagged! {
    /// The outcome of a command. Exactly one of these, always.
    #[derive(Copy)]
    Outcome {
        /// By itself, with this code.
        0 = Exited(code: i32),
        /// By this signal.
        1 = Signaled(signal: i32),
        /// By its time limit.
        2 = TimedOut,
        /// By the kernel, out of memory.
        3 = OomKilled,
        /// Unknown: its supervisor, the guest, or the connection died. Never success.
        4 = Lost,
        /// By the guest, because the sandbox's disk quota was used up.
        5 = OverQuota {
            /// The quota in bytes; see [`files_of_quota`].
            bytes: u64,
        },
    }
}

record! {
    /// A finished command.
    Finished {
        outcome: Outcome,
        /// Wall time, measured by the guest.
        duration: Duration,
        /// Bytes that it wrote on both streams together.
        output_bytes: u64,
        /// The file inside the sandbox that holds the whole output (up to the guest's spool limit), where the
        /// output was longer than the guest's in-memory threshold.
        spool: Option<PathBuf>,
        /// The number of bytes of the output that the spool holds: less than `output_bytes` where it was cut at the spool
        /// limit.
        spool_bytes: u64,
        /// Processes that it started and that are still running.
        left_running: u32,
        /// Processes of the sandbox that the kernel killed out of memory while it ran. Its own outcome may be
        /// another: a shell continues when its child is killed.
        oom_kills: u32,
    }
}

/// The signal of a process that exceeded the size that a file may have.
const SIGXFSZ: i32 = 25;

impl Finished {
    /// The sandbox's limits that it ran into, as the event `limit_reached` names them.
    pub fn limits_reached(&self) -> impl Iterator<Item = &'static str> {
        let disk = matches!(self.outcome, Outcome::OverQuota { .. } | Outcome::Signaled(SIGXFSZ));
        let memory = self.outcome == Outcome::OomKilled || self.oom_kills > 0;
        [(disk, "disk"), (memory, "memory")].into_iter().filter_map(|(reached, name)| reached.then_some(name))
    }
}

tagged! {
    /// The kind of a directory entry.
    EntryKind {
        0 = File,
        /// A symbolic link and its target, as written.
        1 = Symlink(target: PathBuf),
        2 = Directory,
        /// A device, a pipe, a socket.
        3 = Other,
    }
}

record! {
    /// A directory entry, its symbolic link not followed.
    Entry {
        /// As asked for, or relative to the root of the walk: at least one component, none of them `..`.
        path: PathBuf,
        kind: EntryKind,
        /// Permission bits, at most 0o7777.
        mode: u32,
        /// Size in bytes.
        size: u64,
        /// Modification time in nanoseconds since 1970.
        mtime_ns: i64,
        /// Change time in nanoseconds since 1970. Programs inside cannot set it, so a file that was written to has
        /// another.
        ctime_ns: i64,
        /// SHA-256 of a regular file, where it was asked for and the file can be read.
        hash: Option<[u8; 32]>,
        /// Set if the directory could be listed, the file hashed. What is below a directory that cannot be listed is
        /// missing from a walk.
        readable: bool,
    }
}

tagged! {
    /// The node to write.
    Node {
        0 = Regular(content: Vec<u8>),
        /// A symbolic link with this target.
        1 = Symlink(target: PathBuf),
        2 = Directory,
    }
}

record! {
    /// A file to write. Missing parents are made; the file appears whole or not at all.
    FileWrite {
        path: PathBuf,
        node: Node,
        /// Permission bits; `None` keeps those of the file that is there, else 0644 (a directory: 0755).
        mode: Option<u32>,
        /// Modification time in nanoseconds since 1970; `None` is now. Not for directories.
        mtime_ns: Option<i64>,
        /// Set if a symbolic link at `path` is followed, as an editor does; otherwise it is replaced.
        follow: bool,
    }
}

tagged! {
    /// One step of an update of the file tree, in order. Several make a `Block`.
    Change {
        /// Write this; a regular file is complete.
        0 = Write(write: FileWrite),
        /// Begin a regular file whose first bytes these are. `Append` follows until `Finish`.
        1 = Begin(write: FileWrite),
        2 = Append(bytes: Vec<u8>),
        3 = Finish,
        /// Remove a file, a symbolic link or an empty directory.
        4 = Remove(path: PathBuf),
    }
}

record! {
    /// A change of an update that failed. The others were made.
    ChangeFailure {
        /// Counted over the `Write`, `Begin` and `Remove` of the update, from 0.
        index: u32,
        /// The kernel's error number; 0 where there is none.
        errno: i32,
        message: String,
    }
}

tagged! {
    /// One step of the contents of several files, in the order in which they were asked for.
    Part {
        /// The next file.
        0 = File {
            size: u64,
            mode: u32,
            mtime_ns: i64,
        },
        1 = Bytes(bytes: Vec<u8>),
        /// The file ends here.
        2 = End,
        /// The next file cannot be read, or the rest of this one.
        3 = Failed {
            errno: i32,
            message: String,
        },
    }
}

record! {
    /// The state that a file should have, for the question whether the sandbox has it already.
    FileState {
        path: PathBuf,
        mode: u32,
        size: u64,
        /// SHA-256.
        hash: [u8; 32],
    }
}

record! {
    /// An extended attribute of a file.
    Attribute {
        /// Its name behind the prefix that was asked for.
        name: OsString,
        value: Vec<u8>,
    }
}

record! {
    /// The size of a terminal in characters.
    #[derive(Copy)]
    TerminalSize {
        rows: u16,
        columns: u16,
    }
}

record! {
    /// The end of a walk.
    #[derive(Copy)]
    WalkEnd {
        /// Names this state of the tree, for a later walk's `since`; 0 where it was not kept.
        generation: u64,
        /// Set if all entries were listed, because the state asked for is not known.
        complete: bool,
    }
}

record! {
    /// Facts that the guest knows about its sandbox. Those that it cannot find out are `None`.
    Facts {
        /// Set if there is a bash; shell text runs in `sh` otherwise.
        bash: bool,
        /// Those of the tools asked for that are on `PATH`.
        tools: Vec<String>,
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
        /// Processes killed out of memory since the sandbox started.
        oom_kills: u64,
        /// Set if statx(2) takes `AT_NO_AUTOMOUNT`, which `ls -l` and `stat` pass.
        takes_no_automount: bool,
    }
}

tagged! {
    /// Every message there is.
    Message {
        /// Both ways: the first frame.
        0x00 = Hello {
            magic: [u8; 4],
            version: u16,
        },
        /// Both ways: bytes of a file, of standard input, or of a connection. At most [`CHUNK`].
        0x01 = Data {
            bytes: Vec<u8>,
        },
        /// Both ways: no more `Data` or `Block` in this direction.
        0x02 = Eof {},
        /// Both ways: this much more may be sent.
        0x03 = Credit {
            bytes: u32,
        },
        /// Both ways: the connection is broken off.
        0x04 = Reset {},
        /// Both ways: the connection is established.
        0x05 = Opened {},
        /// Both ways: the answer to a request that failed.
        0x06 = Failed {
            /// The kernel's error number; 0 where there is none.
            errno: i32,
            /// The step that failed, and why.
            message: String,
        },
        /// Both ways: encoded changes or parts, see [`pack`] and [`unpack`]. At most [`CHUNK`], decompressed as well.
        0x07 = Block {
            block: Block,
        },
        /// From the host, on stream 0: answer `Pong`.
        0x08 = Ping {},
        /// From the host: prove that this build of the guest answers, and answers now.
        0x0a = Prove {
            nonce: [u8; 32],
        },
        /// From the guest: the hash of what [`proven`] returns.
        0x0b = Proof {
            hash: [u8; 32],
        },
        0x09 = Pong {},

        /// Run a command. `Output` and `Gap`, then `Finished`. With a terminal, standard input and both outputs are one.
        0x10 = Run {
            command: Command,
            terminal: Option<TerminalSize>,
            /// Set if the command, and what it starts, cannot change the workspace.
            read_only: bool,
        },
        /// Run a command in the background; `live_bytes` is ignored. `JobStarted`.
        0x11 = StartJob {
            command: Command,
            terminal: Option<TerminalSize>,
            /// As in `Run`.
            read_only: bool,
        },
        /// Kill the command, or give the request up. A job that is attached to is detached from.
        0x12 = Kill {},
        /// Output that a job has written since the last of these. `Output` and `Gap`, then `JobState`.
        0x13 = JobOutput {
            job: u64,
            /// Wait this long for output or the end, in milliseconds.
            wait_ms: u32,
        },
        /// Kill a job and what it left behind. Answered as `JobOutput` is, when it is dead.
        0x14 = JobKill {
            job: u64,
        },
        /// `Stated`.
        0x15 = Stat {
            /// A symbolic link is not followed.
            path: PathBuf,
        },
        /// Read a regular file. `FileIs`, then `Data`, then `Done`.
        0x16 = ReadFile {
            path: PathBuf,
            offset: u64,
            /// At most this many bytes.
            limit: u64,
        },
        /// Change the file tree: `Block`s of [`Change`] and an `Eof` follow. `Updated`.
        0x17 = Update {},
        /// Read regular files. `Block`s of [`Part`], then `Done`.
        0x18 = ReadFiles {
            paths: Vec<PathBuf>,
            /// Set if the blocks may be compressed.
            compress: bool,
        },
        /// List a tree, parents before children. `Entries`, the last of them marked.
        0x19 = Walk {
            root: PathBuf,
            /// Set if regular files are hashed.
            hash: bool,
            /// Relative paths of directories that are not looked into.
            exclude: Vec<PathBuf>,
            /// More entries than this are an error.
            max_entries: u64,
            /// Only what has changed since this generation (0 is before everything), and remember this one.
            since: Option<u64>,
            /// The depth: 1 is the directory's own entries, 0 the whole tree.
            depth: u32,
        },
        /// `FactsAre`.
        0x1a = GetFacts {
            /// Programs to look for on `PATH`.
            tools: Vec<String>,
        },
        /// Open a connection to a port on the sandbox's loopback. `Opened`.
        0x1b = Connect {
            port: u16,
        },
        /// End every process and exit.
        0x1c = Shutdown {},
        /// Open the outlet: every connection to this port of the sandbox's loopback becomes an `Open` for this client,
        /// until it is gone. Sent again, it replaces the variables. `Done`.
        0x1d = Listen {
            port: u16,
            /// Variables that commands start with while the outlet is open.
            env: Vec<(OsString, OsString)>,
        },
        /// Follow a job and feed its standard input, as if it were a `Run`: `Output` and `Gap`, then `Finished`. Another
        /// client that is attached is detached with `Failed`.
        0x1e = AttachJob {
            job: u64,
            /// Bytes of its output that are known already. What is no longer kept is a `Gap`.
            from: u64,
        },
        /// The terminal has another size.
        0x1f = Resize {
            size: TerminalSize,
        },
        /// Send a signal to the command's process group, or to the terminal's foreground process group.
        0x20 = Signal {
            signal: i32,
        },
        /// Asks which of these files are not there as described. `MissingAre`.
        0x21 = Missing {
            files: Vec<FileState>,
        },
        /// This client was another one before, which had sent this `Prove` and was cut off: that one is gone, with its
        /// commands. `Done`.
        0x22 = Replace {
            nonce: [u8; 32],
        },
        /// Kill everything that runs but the guest: commands, jobs and what they left running. `Done`.
        0x23 = EndProcesses {},
        /// Read the extended attributes whose names begin with `prefix`. `AttributesAre`.
        0x24 = Attributes {
            paths: Vec<PathBuf>,
            prefix: OsString,
        },
        /// Give a file these extended attributes, and no others whose names begin with `prefix`. `Done`.
        0x25 = SetAttributes {
            path: PathBuf,
            prefix: OsString,
            attributes: Vec<Attribute>,
        },

        /// Output of a command. At most [`CHUNK`].
        0x30 = Output {
            stderr: bool,
            bytes: Vec<u8>,
        },
        /// Output that is left out here.
        0x31 = Gap {
            bytes: u64,
        },
        0x32 = Finished {
            finished: Finished,
        },
        0x33 = JobStarted {
            /// Its number, from 1.
            job: u64,
        },
        0x34 = JobState {
            /// The outcome; `None` while it runs.
            finished: Option<Finished>,
        },
        0x35 = Stated {
            entry: Entry,
        },
        /// The file that is read.
        0x36 = FileIs {
            /// Its size in bytes; 0 where the kernel makes it up while it is read (`/proc`).
            size: u64,
            mode: u32,
            /// Modification time in nanoseconds since 1970.
            mtime_ns: i64,
        },
        /// Entries of a walk. May be empty: a walk sends one every few seconds.
        0x37 = Entries {
            entries: Vec<Entry>,
            /// Relative paths that are not there any more.
            removed: Vec<PathBuf>,
            /// Set in the last one.
            last: Option<WalkEnd>,
        },
        /// The request is done.
        0x38 = Done {},
        0x39 = FactsAre {
            facts: Facts,
        },
        /// A program has connected to the port of [`Message::Listen`]. What it wants is in the bytes that follow.
        0x3a = Open {},
        /// The update is done.
        0x3b = Updated {
            /// In order.
            failures: Vec<ChangeFailure>,
            /// Set if the changes after the last failure were not tried, because too many failed.
            aborted: bool,
        },
        0x3c = MissingAre {
            /// Indexes into `Missing`, ascending.
            indexes: Vec<u32>,
        },
        0x3d = AttributesAre {
            /// Those of the first paths of `Attributes`, of one at least: more do not fit, and are asked for again. A file that
            /// cannot be read has none.
            files: Vec<Vec<Attribute>>,
        },
    }
}

tagged! {
    /// Encoded changes or parts.
    Block {
        0 = Plain(bytes: Vec<u8>),
        1 = Lz4 {
            /// Bytes when decompressed.
            size: u32,
            bytes: Vec<u8>,
        },
    }
}

impl Block {
    /// The bytes that it carries.
    pub fn size(&self) -> usize {
        match self {
            Self::Plain(bytes) | Self::Lz4 { bytes, .. } => bytes.len(),
        }
    }
}

/// Encodes changes or parts; with `compress`, compressed where that makes them smaller.
pub fn pack<T: Field>(items: &[T], compress: bool) -> Block {
    let mut bytes = Vec::new();
    items.iter().for_each(|item| item.put(&mut bytes));
    match compress.then(|| lz4::compress(&bytes)).flatten() {
        Some(compressed) => Block::Lz4 { size: bytes.len() as u32, bytes: compressed },
        None => Block::Plain(bytes),
    }
}

/// Decodes what [`pack`] encoded.
///
/// # Errors
///
/// It is damaged, or holds more than [`MAX_CHANGES`] or [`CHUNK`] bytes. The size is checked before anything is
/// decompressed.
pub fn unpack<T: Field>(block: &Block) -> Result<Vec<T>, WireError> {
    let decompressed;
    let mut input = match block {
        Block::Plain(bytes) => bytes.as_slice(),
        Block::Lz4 { size, .. } if *size as usize > CHUNK => return Err(WireError::Block(*size)),
        Block::Lz4 { size, bytes } => {
            decompressed = lz4::decompress(bytes, *size as usize).ok_or(WireError::Compressed)?;
            &decompressed
        }
    };
    let mut items = Vec::new();
    while !input.is_empty() {
        if items.len() == MAX_CHANGES {
            return Err(WireError::Trailing);
        }
        items.push(T::get(&mut input)?);
    }
    Ok(items)
}

/// Bytes of the length.
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
    #[allow(clippy::should_implement_trait)] // An iterator that continues after None would mislead.
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
