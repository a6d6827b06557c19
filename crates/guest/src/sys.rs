//! The system calls that the standard library has no name for. The guest has no dependencies, so the functions of the C
//! library are declared here, for `launch/sys.rs` as well. Numbers are those of Linux on x86-64 and arm64, where they
//! agree.

use std::ffi::{CStr, CString, OsStr, c_int, c_long, c_short, c_uint, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const SIGHUP: c_int = 1;
pub const SIGINT: c_int = 2;
pub const SIGKILL: c_int = 9;
pub const SIGTERM: c_int = 15;
pub const SIGCHLD: c_int = 17;
pub const SIGCONT: c_int = 18;
pub const SIGSTOP: c_int = 19;
pub const SIGXFSZ: c_int = 25;

pub const POLLIN: c_short = 1;
pub const POLLOUT: c_short = 4;
pub const POLLERR: c_short = 8;
pub const POLLHUP: c_short = 16;
pub const POLLNVAL: c_short = 32;

pub const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
pub const O_NONBLOCK: c_int = 0o4000;
/// The same number on every architecture that the guest is built for.
pub const O_PATH: c_int = 0o10_000_000;
const O_NOCTTY: c_int = 0o400;
pub const O_CLOEXEC: c_int = 0o2_000_000;
pub const WNOHANG: c_int = 1;

pub const PR_SET_PDEATHSIG: c_int = 1;
pub const PR_SET_DUMPABLE: c_int = 4;
pub const PR_SET_CHILD_SUBREAPER: c_int = 36;
pub const PR_SET_NO_NEW_PRIVS: c_int = 38;
const PR_SET_SECCOMP: c_int = 22;
const SECCOMP_MODE_FILTER: c_ulong = 2;
const SIG_IGN: usize = 1;

const F_SETFD: c_int = 2;
const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const F_DUPFD_CLOEXEC: c_int = 1030;
const FIONREAD: c_ulong = 0x541B;
const TIOCSCTTY: c_ulong = 0x540E;
const TIOCSWINSZ: c_ulong = 0x5414;
const TIOCGPTN: c_ulong = 0x8004_5430;
const TIOCSPTLCK: c_ulong = 0x4004_5431;
const TIOCSIG: c_ulong = 0x4004_5436;
const SOL_SOCKET: c_int = 1;
const SO_PEERCRED: c_int = 17;
const SIG_SETMASK: c_int = 2;
const AT_FDCWD: c_int = -100;
const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
const X_OK: c_int = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_NETLINK: c_int = 16;
const SOCK_STREAM: c_int = 1;
const SOCK_RAW: c_int = 3;
const NETLINK_SOCK_DIAG: c_int = 4;
const SC_PAGESIZE: c_int = 30;
const EINPROGRESS: i32 = 115;

#[repr(C)]
pub struct ResourceLimit {
    pub soft: u64,
    pub hard: u64,
}

#[repr(C)]
pub struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

/// glibc and musl both make it 1024 bits long.
#[repr(C)]
pub struct SignalSet([u64; 16]);

#[repr(C)]
pub struct TimeSpec {
    seconds: i64,
    nanoseconds: c_long,
}

/// The fields that glibc and musl agree on, and space for the rest.
#[repr(C)]
pub struct StatVfs {
    block_size: c_ulong,
    fragment_size: c_ulong,
    blocks: u64,
    free: u64,
    available: u64,
    files: u64,
    free_files: u64,
    rest: [u64; 14],
}

pub mod ffi {
    use super::{PollFd, ResourceLimit, SignalSet, StatVfs, TimeSpec};
    use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

    // SAFETY: the signatures are those of the C library. `ioctl` takes its request as an int in musl, which reads
    // the lower half of the same register.
    unsafe extern "C" {
        pub fn sysconf(name: c_int) -> c_long;
        pub fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
        pub fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
        pub fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
        pub fn getsockopt(
            fd: c_int,
            level: c_int,
            name: c_int,
            value: *mut c_void,
            length: *mut c_uint,
        ) -> c_int;
        pub fn signalfd(fd: c_int, mask: *const SignalSet, flags: c_int) -> c_int;
        pub fn utimensat(
            directory: c_int,
            path: *const c_char,
            times: *const TimeSpec,
            flags: c_int,
        ) -> c_int;
        pub fn listxattr(path: *const c_char, list: *mut c_void, size: usize) -> isize;
        pub fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize;
        pub fn setxattr(
            path: *const c_char,
            name: *const c_char,
            value: *const c_void,
            size: usize,
            flags: c_int,
        ) -> c_int;
        pub fn removexattr(path: *const c_char, name: *const c_char) -> c_int;
        pub fn statvfs(path: *const c_char, result: *mut StatVfs) -> c_int;
        pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
        pub fn connect(fd: c_int, address: *const c_void, length: c_uint) -> c_int;
        pub fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
        pub fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
        pub fn signal(signal: c_int, handler: usize) -> usize;
        pub fn fork() -> c_int;
        pub fn clone(
            run: extern "C" fn(*mut c_void) -> c_int,
            stack: *mut c_void,
            flags: c_int,
            argument: *mut c_void,
            ...
        ) -> c_int;
        pub fn execve(
            path: *const c_char,
            arguments: *const *const c_char,
            environment: *const *const c_char,
        ) -> c_int;
        pub fn _exit(code: c_int) -> !;
        pub fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
        pub fn kill(process: c_int, signal: c_int) -> c_int;
        pub fn prctl(option: c_int, ...) -> c_int;
        pub fn setsid() -> c_int;
        pub fn umask(mask: c_uint) -> c_uint;
        pub fn chdir(path: *const c_char) -> c_int;
        pub fn open(path: *const c_char, flags: c_int, ...) -> c_int;
        pub fn openat(directory: c_int, path: *const c_char, flags: c_int, ...) -> c_int;
        pub fn write(fd: c_int, bytes: *const c_void, length: usize) -> isize;
        pub fn close(fd: c_int) -> c_int;
        pub fn dup2(from: c_int, to: c_int) -> c_int;
        pub fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
        pub fn syscall(number: c_long, ...) -> c_long;
        pub fn mount(
            source: *const c_char,
            target: *const c_char,
            kind: *const c_char,
            flags: c_ulong,
            data: *const c_void,
        ) -> c_int;
        pub fn umount2(target: *const c_char, flags: c_int) -> c_int;
        pub fn unshare(flags: c_int) -> c_int;
        pub fn setgroups(count: usize, groups: *const u32) -> c_int;
        pub fn setresuid(real: u32, effective: u32, saved: u32) -> c_int;
        pub fn setresgid(real: u32, effective: u32, saved: u32) -> c_int;
        pub fn setrlimit(resource: c_int, limit: *const ResourceLimit) -> c_int;
        pub fn getrlimit(resource: c_int, limit: *mut ResourceLimit) -> c_int;
        pub fn sethostname(name: *const c_char, length: usize) -> c_int;
        pub fn fchdir(fd: c_int) -> c_int;
        pub fn getegid() -> u32;
        pub fn geteuid() -> u32;
        pub fn chroot(path: *const c_char) -> c_int;
        pub fn sync();
        pub fn reboot(action: c_int) -> c_int;
        pub fn clock_settime(clock: c_int, time: *const u64) -> c_int;
    }
}

/// Returns what a call returned, or its error where that is negative.
pub fn check<T: Default + PartialOrd>(result: T) -> io::Result<T> {
    if result < T::default() { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A path for the kernel. A NUL inside is `InvalidInput`.
pub fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

/// The set of descriptors that the event loop waits for, rebuilt for each wait.
#[derive(Default)]
pub struct Poll {
    fds: Vec<PollFd>,
    /// Ready events, indexed by descriptor.
    ready: Vec<c_short>,
}

impl Poll {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.fds.iter().for_each(|poll| self.ready[poll.fd as usize] = 0);
        self.fds.clear();
    }

    /// Waits for `events` on `fd` as well.
    pub fn add(&mut self, fd: RawFd, events: c_short) {
        self.fds.push(PollFd { fd, events, revents: 0 });
        if self.ready.len() <= fd as usize {
            self.ready.resize(fd as usize + 1, 0);
        }
    }

    /// Waits until something is ready or the time is up.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        // Rounded up, so that a deadline has passed when the wait ends.
        let timeout = timeout.map_or(-1, |t| t.as_micros().div_ceil(1000).min(i32::MAX as u128) as c_int);
        // SAFETY: pointer and length are those of one live vector. An interrupted wait leaves nothing ready.
        unsafe { ffi::poll(self.fds.as_mut_ptr(), self.fds.len() as c_ulong, timeout) };
        for poll in &self.fds {
            self.ready[poll.fd as usize] |= poll.revents;
        }
    }

    /// Returns whether a read would not block: there are bytes, or the end, or an error.
    pub fn readable(&self, fd: RawFd) -> bool {
        self.is(fd, POLLIN | POLLHUP | POLLERR | POLLNVAL)
    }

    /// Returns whether a write would not block.
    pub fn writable(&self, fd: RawFd) -> bool {
        self.is(fd, POLLOUT | POLLHUP | POLLERR | POLLNVAL)
    }

    fn is(&self, fd: RawFd, events: c_short) -> bool {
        self.ready.get(fd as usize).is_some_and(|ready| ready & events != 0)
    }
}

/// The permissions that new files do not get.
pub fn set_umask(mask: c_uint) {
    // SAFETY: only a number of this process's is set.
    unsafe { ffi::umask(mask) };
}

/// Makes reads and writes on the open file behind `fd` return at once.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: only flags of an open descriptor are read and set.
    unsafe {
        let flags = check(ffi::fcntl(fd, F_GETFL))?;
        check(ffi::fcntl(fd, F_SETFL, flags | O_NONBLOCK))?;
    }
    Ok(())
}

/// A copy of `fd`, above the standard ones, closed on exec.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call makes a new descriptor that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(check(ffi::fcntl(fd, F_DUPFD_CLOEXEC, 3))?)) }
}

/// Puts `/dev/null` where standard input and output were, and returns those.
pub fn take_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = (duplicate(0)?, duplicate(1)?);
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for fd in [0, 1] {
        // SAFETY: both descriptors are open; nothing in this process uses 0 and 1 as anything else.
        check(unsafe { ffi::dup2(null.as_raw_fd(), fd) })?;
    }
    Ok(pair)
}

/// Takes over a descriptor that the program which started this one left open for it: it is closed on exec from now
/// on, and its old number is free.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    let copy = duplicate(fd)?;
    // SAFETY: the standard library owns none but those that it opened; this one came from outside.
    check(unsafe { ffi::close(fd) })?;
    Ok(copy)
}

/// A socket at which the kernel answers questions about the sockets of this network, sock_diag(7). Reads return at once.
pub fn open_socket_questions() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; the call makes a new descriptor that nothing else owns.
    unsafe {
        let fd = ffi::socket(AF_NETLINK, SOCK_RAW | O_CLOEXEC | O_NONBLOCK, NETLINK_SOCK_DIAG);
        Ok(OwnedFd::from_raw_fd(check(fd)?))
    }
}

/// Writes everything to the disks.
pub fn synchronise() {
    // SAFETY: takes nothing and cannot fail.
    unsafe { ffi::sync() };
}

/// Starts the machine again, which ends a virtual one that does not reboot.
pub fn reboot() -> io::Result<()> {
    const RB_AUTOBOOT: c_int = 0x0123_4567;
    // SAFETY: takes no pointer.
    check(unsafe { ffi::reboot(RB_AUTOBOOT) }).map(drop)
}

/// Sets the clock to a number of nanoseconds since 1970.
pub fn set_clock(nanoseconds: u64) -> io::Result<()> {
    const CLOCK_REALTIME: c_int = 0;
    let parts = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    // SAFETY: on 64-bit Linux the structure is two numbers of 64 bits.
    check(unsafe { ffi::clock_settime(CLOCK_REALTIME, parts.as_ptr()) }).map(drop)
}

/// Adds to the kernel's random bytes, and has it draw from them at once.
pub fn add_entropy(bytes: &[u8; 64]) -> io::Result<()> {
    const RNDADDENTROPY: c_ulong = 0x4008_5203;
    const RNDRESEEDCRNG: c_ulong = 0x5207;
    #[repr(C)]
    struct Pool {
        bits: c_int,
        length: c_int,
        bytes: [u8; 64],
    }
    let pool = Pool { bits: 64 * 8, length: 64, bytes: *bytes };
    let device = File::options().write(true).open("/dev/urandom")?;
    // SAFETY: the structure has as many bytes as it says, and the second request takes no argument.
    unsafe {
        check(ffi::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const pool))?;
        check(ffi::ioctl(device.as_raw_fd(), RNDRESEEDCRNG)).map(drop)
    }
}

/// Leaves `fd` open for the program that this process becomes.
pub fn keep_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: only a flag of an open descriptor is set.
    check(unsafe { ffi::fcntl(fd, F_SETFD, 0) }).map(drop)
}

/// Bytes of a page of memory.
pub fn page_size() -> u64 {
    // SAFETY: only asks.
    u64::try_from(unsafe { ffi::sysconf(SC_PAGESIZE) }).unwrap_or(4096)
}

/// Closes every descriptor but the standard ones and `kept`: what a container runtime has forgotten to close leads out of
/// the sandbox (CVE-2024-21626). Before anything was opened but `kept`.
pub fn close_what_was_left_open(kept: &[RawFd]) {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|&fd| fd > 2 && !kept.contains(&fd)) {
        // SAFETY: nothing in this process owns it. The descriptor of the listing itself is closed already.
        unsafe { ffi::close(fd) };
    }
}

/// Bytes that wait in a pipe.
pub fn bytes_waiting(fd: RawFd) -> usize {
    let mut count: c_int = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { ffi::ioctl(fd, FIONREAD, &mut count) };
    if result < 0 { 0 } else { count as usize }
}

/// A new terminal: its controlling side, which does not block, and the side for a program.
pub fn open_terminal() -> io::Result<(File, OwnedFd)> {
    let open = |path: &str, flags: c_int| {
        File::options().read(true).write(true).custom_flags(flags | O_NOCTTY | O_CLOEXEC).open(path)
    };
    let master = open("/dev/ptmx", O_NONBLOCK)?;
    let (locked, mut number): (c_int, c_int) = (0, 0);
    // SAFETY: the kernel reads one int, and writes the other.
    unsafe {
        check(ffi::ioctl(master.as_raw_fd(), TIOCSPTLCK, &raw const locked))?;
        check(ffi::ioctl(master.as_raw_fd(), TIOCGPTN, &raw mut number))?;
    }
    let slave = open(&format!("/dev/pts/{number}"), 0)?;
    Ok((master, slave.into()))
}

/// Sets the size of a terminal in characters; programs in it learn of it by SIGWINCH.
pub fn set_terminal_size(terminal: RawFd, rows: u16, columns: u16) {
    // `struct winsize`: rows, columns, and two sizes in pixels.
    let size = [rows, columns, 0, 0];
    // SAFETY: the kernel reads four 16-bit numbers. It fails only for a descriptor that is not a terminal.
    unsafe { ffi::ioctl(terminal, TIOCSWINSZ, &raw const size) };
}

/// Signals the foreground process group of a terminal.
pub fn signal_terminal(terminal: RawFd, signal: c_int) {
    // SAFETY: the signal is passed as a number. One that the terminal does not know is not sent.
    unsafe { ffi::ioctl(terminal, TIOCSIG, c_long::from(signal)) };
}

/// Makes a terminal the controlling one of this process, which leads a session. For a child before its exec.
pub fn control_terminal(fd: RawFd) {
    // SAFETY: takes no pointer.
    unsafe { ffi::ioctl(fd, TIOCSCTTY, 0 as c_long) };
}

/// The user id of the process that connected, as this user namespace sees it.
pub fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    let mut credentials = [u32::MAX; 3];
    let mut length = size_of_val(&credentials) as c_uint;
    // SAFETY: the kernel writes at most `length` bytes: pid, uid, gid.
    check(unsafe {
        ffi::getsockopt(
            stream.as_raw_fd(),
            SOL_SOCKET,
            SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &mut length,
        )
    })?;
    Ok(credentials[1])
}

/// `prctl` with one number.
pub fn prctl(option: c_int, value: c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take numbers, no pointers.
    check(unsafe { ffi::prctl(option, value, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) }).map(drop)
}

/// Sends a signal to a process or, negative, to a process group. One that is gone is not an error.
pub fn kill(process: c_int, signal: c_int) {
    // SAFETY: no memory is involved.
    unsafe { ffi::kill(process, signal) };
}

/// Returns whether there is a process group of this number.
pub fn is_group(group: c_int) -> bool {
    // SAFETY: no memory is involved.
    let found = unsafe { ffi::kill(-group, 0) == 0 };
    found || io::Error::last_os_error().raw_os_error() != Some(ESRCH)
}

/// A signal that arrived.
pub struct Signal {
    pub number: c_int,
    /// The process that sent it; 0 is one outside this one's pid namespace, or the kernel.
    pub sender: u32,
}

/// Signals as a readable descriptor. The signals are blocked from now on.
pub struct Signals(std::fs::File);

impl Signals {
    pub fn block(signals: &[c_int]) -> io::Result<Self> {
        let mut set = SignalSet([0; 16]);
        for signal in signals {
            set.0[0] |= 1 << (signal - 1);
        }
        // SAFETY: the set lives across the calls; the descriptor is new and ours.
        unsafe {
            check(ffi::sigprocmask(SIG_SETMASK, &set, std::ptr::null_mut()))?;
            let fd = check(ffi::signalfd(-1, &set, O_NONBLOCK | O_CLOEXEC))?;
            Ok(Self(std::fs::File::from_raw_fd(fd)))
        }
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next signal, if there is one.
    pub fn next(&self) -> Option<Signal> {
        // struct signalfd_siginfo: 128 bytes; number at 0, sender at 12.
        let mut record = [0_u8; 128];
        let length = io::Read::read(&mut &self.0, &mut record).ok()?;
        let word =
            |at: usize| u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        (length == record.len()).then(|| Signal { number: word(0) as c_int, sender: word(12) })
    }
}

/// Unblocks every signal. For a child before its exec.
pub fn unblock_signals() {
    // SAFETY: the set lives across the call.
    unsafe { ffi::sigprocmask(SIG_SETMASK, &SignalSet([0; 16]), std::ptr::null_mut()) };
}

/// A child that ended, if there is one: its id and its raw status.
pub fn reap() -> Option<(c_int, c_int)> {
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let process = unsafe { ffi::waitpid(-1, &mut status, WNOHANG) };
    (process > 0).then_some((process, status))
}

/// Sets the modification time of a symbolic link itself (or any other entry).
pub fn set_link_mtime(path: &Path, mtime_ns: i64) -> io::Result<()> {
    let path = c_path(path)?;
    let time = || TimeSpec {
        seconds: mtime_ns.div_euclid(1_000_000_000),
        nanoseconds: mtime_ns.rem_euclid(1_000_000_000) as c_long,
    };
    let times = [time(), time()];
    // SAFETY: path and times live across the call.
    check(unsafe { ffi::utimensat(AT_FDCWD, path.as_ptr(), times.as_ptr(), AT_SYMLINK_NOFOLLOW) }).map(drop)
}

#[cfg(target_arch = "x86_64")]
const SYS_RENAMEAT2: c_long = 316;
#[cfg(target_arch = "aarch64")]
const SYS_RENAMEAT2: c_long = 276;
/// From `linux/fs.h`.
const RENAME_EXCHANGE: c_uint = 2;

/// Has two files change places. Not every file system can.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (c_path(one)?, c_path(other)?);
    // SAFETY: both paths live across the call.
    let result = unsafe {
        ffi::syscall(SYS_RENAMEAT2, AT_FDCWD, one.as_ptr(), AT_FDCWD, other.as_ptr(), RENAME_EXCHANGE)
    };
    check(result as c_int).map(drop)
}

/// The most bytes of the names of a file's extended attributes, as the kernel bounds them.
const MAX_ATTRIBUTE_NAMES: usize = 64 << 10;

/// The names of a file's extended attributes, each with a zero behind it.
pub fn attribute_names(path: &Path) -> io::Result<Vec<u8>> {
    let path = c_path(path)?;
    // SAFETY: the path lives across the call, and nothing is written.
    if unsafe { ffi::listxattr(path.as_ptr(), std::ptr::null_mut(), 0) } == 0 {
        return Ok(Vec::new());
    }
    let mut list = vec![0; MAX_ATTRIBUTE_NAMES];
    // SAFETY: the path lives across the call, and the kernel writes no more than the list holds.
    let length = unsafe { ffi::listxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    filled(list, length)
}

/// The value of an extended attribute of a file, of at most so many bytes.
pub fn attribute(path: &Path, name: &OsStr, most: usize) -> io::Result<Vec<u8>> {
    let (path, name, mut value) = (c_path(path)?, c_path(Path::new(name))?, vec![0; most]);
    // SAFETY: path and name live across the call, and the kernel writes no more than the value holds.
    let length =
        unsafe { ffi::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    filled(value, length)
}

fn filled(mut buffer: Vec<u8>, length: isize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Sets an extended attribute of a file.
pub fn set_attribute(path: &Path, name: &OsStr, value: &[u8]) -> io::Result<()> {
    let (path, name) = (c_path(path)?, c_path(Path::new(name))?);
    // SAFETY: path, name and value live across the call.
    check(unsafe { ffi::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
        .map(drop)
}

/// Removes an extended attribute of a file.
pub fn remove_attribute(path: &Path, name: &OsStr) -> io::Result<()> {
    let (path, name) = (c_path(path)?, c_path(Path::new(name))?);
    // SAFETY: path and name live across the call.
    check(unsafe { ffi::removexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}

/// Ignores a signal, in the processes that come from this one as well.
pub fn ignore_signal(signal: c_int) {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { ffi::signal(signal, SIG_IGN) };
}

/// Installs a filter of system calls, instructions of classic BPF, for this process and all its descendants.
pub fn install_filter(instructions: &[[u8; 8]]) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const [u8; 8],
    }
    let program = Program { length: instructions.len() as u16, instructions: instructions.as_ptr() };
    // SAFETY: the program outlives the call.
    check(unsafe { ffi::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program) }).map(drop)
}

/// A file system as a whole.
#[derive(Default)]
pub struct FileSystem {
    pub bytes: u64,
    pub free_bytes: u64,
    /// Free to others than root.
    pub available_bytes: u64,
    /// In use. 0 where the file system does not count them.
    pub files: u64,
}

/// The file system of `path`.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let path = c_path(path)?;
    let mut result = StatVfs {
        block_size: 0,
        fragment_size: 0,
        blocks: 0,
        free: 0,
        available: 0,
        files: 0,
        free_files: 0,
        rest: [0; 14],
    };
    // SAFETY: the structure is at least as large as the C library's.
    check(unsafe { ffi::statvfs(path.as_ptr(), &mut result) })?;
    let unit: u64 = result.fragment_size;
    Ok(FileSystem {
        bytes: result.blocks.saturating_mul(unit),
        free_bytes: result.free.saturating_mul(unit),
        available_bytes: result.available.saturating_mul(unit),
        files: result.files.saturating_sub(result.free_files),
    })
}

/// Begins to connect to a port on loopback. The socket is writable when that has succeeded or failed.
pub fn connect_loopback(port: u16, v6: bool) -> io::Result<TcpStream> {
    // struct sockaddr_in6: family, port (big-endian), flow, address, scope. sockaddr_in: family, port, address.
    let mut address = [0_u8; 28];
    let (family, length) = if v6 { (AF_INET6, 28) } else { (AF_INET, 16) };
    address[..2].copy_from_slice(&family.to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    if v6 {
        address[23] = 1;
    } else {
        address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    }
    // SAFETY: the descriptor is new and ours; the address lives across the call and has the length given.
    let (stream, result) = unsafe {
        let fd = check(ffi::socket(c_int::from(family), SOCK_STREAM | O_NONBLOCK | O_CLOEXEC, 0))?;
        (TcpStream::from_raw_fd(fd), check(ffi::connect(fd, address.as_ptr().cast(), length)))
    };
    match result {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

/// Returns whether this process may execute what `name` is in the open directory.
pub fn executable_in(directory: RawFd, name: &CStr) -> bool {
    // SAFETY: the name lives across the call.
    unsafe { ffi::faccessat(directory, name.as_ptr(), X_OK, 0) == 0 }
}

/// Writes to a raw descriptor. A failure means that the reader is gone, and is ignored.
pub fn write_raw(fd: RawFd, bytes: &[u8]) {
    // SAFETY: pointer and length are those of one live slice.
    unsafe { ffi::write(fd, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
}
