//! Starting a command under a supervisor of its own.
//!
//! The supervisor is a forked copy of the guest and a child subreaper: whatever the command starts, daemonised or
//! in a session of its own, stays below it in the process tree and so belongs to the command. It does nothing but
//! wait: it reports how the command's main process ended and exits when no process is left. Everything else, the
//! time limit and the killing, is the guest's business, so that a supervisor that is stopped or killed from inside
//! holds nothing up.
//!
//! The guest is single-threaded, so the children of a fork may do what they like.

use crate::filters;
use crate::launch::landlock;
use crate::sys::{self, ffi};
use agent_wire::TerminalSize;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// Everything that the child needs, made before the fork.
pub struct Plan {
    /// At least one. The first that the kernel executes is the command.
    pub attempts: Vec<Execution>,
    /// `NAME=value`
    pub environment: Vec<CString>,
    /// `None` is where the guest is, the workspace.
    pub cwd: Option<CString>,
    pub stdin: bool,
    /// A terminal for all three standard streams.
    pub terminal: Option<TerminalSize>,
    /// The workspace, where it cannot be changed.
    pub read_only: Option<PathBuf>,
}

impl Plan {
    /// The program that an error message names.
    fn name(&self) -> &CStr {
        self.attempts.last().map_or(c"nothing", |last| &last.program)
    }
}

/// A program and its arguments, its own name first.
pub struct Execution {
    pub program: CString,
    pub arguments: Vec<CString>,
}

/// The guest's ends of a started command.
pub struct Supervised {
    /// The supervisor's process id.
    pub supervisor: c_int,
    /// Delivers one [`Report`].
    pub status: File,
    pub stdin: Option<File>,
    pub stdout: File,
    /// `None` with a terminal.
    pub stderr: Option<File>,
    pub terminal: Option<File>,
}

/// The report of the supervisor when the main process has ended.
#[derive(Clone, Copy)]
pub struct Report {
    /// As `waitpid` gives it.
    pub status: c_int,
    /// Set if other processes are left below the supervisor.
    pub children_left: bool,
}

impl Report {
    pub const BYTES: usize = 5;

    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, left] = bytes;
        Self { status: c_int::from_ne_bytes([a, b, c, d]), children_left: left != 0 }
    }

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.status.to_ne_bytes();
        [a, b, c, d, u8::from(self.children_left)]
    }
}

/// The guest's own standard input, `/dev/null`.
const NULL: RawFd = 0;
/// The file descriptor of the supervisor's end of the status pipe.
const STATUS: RawFd = 3;
/// Descriptors are closed up to here where the kernel has no `close_range`. The guest's own bounds keep it below.
const MAX_FD: RawFd = 4096;
/// As in `<linux/sched.h>`: the child has the memory of its parent, which waits until the child executes a program or ends.
const CLONE_VM: c_int = 0x100;
const CLONE_VFORK: c_int = 0x4000;
/// The stack of a child until it executes the command, in bytes.
const CHILD_STACK: usize = 64 << 10;
/// The same number on every architecture.
const SYS_CLOSE_RANGE: std::ffi::c_long = 436;
/// Raised, so that the kernel prefers the command to the guest when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// Forks the supervisor, which forks the command.
pub fn spawn(plan: &Plan) -> io::Result<Supervised> {
    let (status, status_child) = pipe()?;
    let (streams, child) = match plan.terminal {
        Some(size) => Streams::terminal(size)?,
        None => Streams::pipes(plan.stdin)?,
    };
    // SAFETY: the process has one thread, so the child finds every lock free and every structure whole.
    let supervisor = unsafe { ffi::fork() };
    match supervisor {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let [stdin, stdout, stderr] = child.map(|fd| fd.map_or(NULL, IntoRawFd::into_raw_fd));
            supervise(plan, [stdin, stdout, stderr, status_child.as_raw_fd()])
        }
        _ => {
            let Streams { stdin, stdout, stderr, terminal } = streams;
            Ok(Supervised { supervisor, status, stdin, stdout, stderr, terminal })
        }
    }
}

/// The guest's ends of a command's standard streams.
struct Streams {
    stdin: Option<File>,
    stdout: File,
    stderr: Option<File>,
    terminal: Option<File>,
}

/// The command's ends of its standard streams, in order; `None` is `/dev/null`.
type ChildStreams = [Option<OwnedFd>; 3];

impl Streams {
    fn pipes(with_stdin: bool) -> io::Result<(Self, ChildStreams)> {
        let (stdout, stdout_child) = pipe()?;
        let (stderr, stderr_child) = pipe()?;
        let (stdin, stdin_child) = if with_stdin {
            let (read, write) = io::pipe()?;
            sys::set_nonblocking(write.as_raw_fd())?;
            (Some(File::from(OwnedFd::from(write))), Some(OwnedFd::from(read)))
        } else {
            (None, None)
        };
        let streams = Self { stdin, stdout, stderr: Some(stderr), terminal: None };
        Ok((streams, [stdin_child, Some(stdout_child), Some(stderr_child)]))
    }

    fn terminal(size: TerminalSize) -> io::Result<(Self, ChildStreams)> {
        let (terminal, child) = sys::open_terminal()?;
        sys::set_terminal_size(terminal.as_raw_fd(), size.rows, size.columns);
        let streams = Self {
            stdin: Some(terminal.try_clone()?),
            stdout: terminal.try_clone()?,
            stderr: None,
            terminal: Some(terminal),
        };
        Ok((streams, [Some(child.try_clone()?), Some(child.try_clone()?), Some(child)]))
    }
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let (read, write): (PipeReader, PipeWriter) = io::pipe()?;
    sys::set_nonblocking(read.as_raw_fd())?;
    Ok((File::from(OwnedFd::from(read)), OwnedFd::from(write)))
}

/// The supervisor's whole life.
fn supervise(plan: &Plan, [stdin, stdout, stderr, status]: [RawFd; 4]) -> ! {
    // SAFETY: all of these are plain system calls on numbers. The sources but `NULL` are above 2, where the guest
    // keeps its standard descriptors open, so no dup2 overwrites a later source but the last, which copies `status`.
    let main = unsafe {
        ffi::dup2(stdin, 0);
        ffi::dup2(stdout, 1);
        ffi::dup2(stderr, 2);
        if status != STATUS {
            ffi::dup3(status, STATUS, sys::O_CLOEXEC);
        }
        close_from(STATUS + 1);
        // Only without these would something be left behind, and only where the guest dies on its own.
        let _ = sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as _);
        // gVisor before 2023 has no subreapers: what daemonises there is not counted, and lives as long as the sandbox.
        let _ = sys::prctl(sys::PR_SET_CHILD_SUBREAPER, 1);
        start(plan)
    };
    match main {
        -1 => {
            print_error("run", plan.name(), &io::Error::last_os_error());
            report(Report { status: 126 << 8, children_left: false });
        }
        _ => {
            for fd in 0..STATUS {
                // SAFETY: nothing in this process uses them.
                unsafe { ffi::close(fd) };
            }
            wait_for_all(main);
        }
    }
    // SAFETY: ends the process.
    unsafe { ffi::_exit(0) }
}

/// Waits until no process is left, and reports the main one's end on the way.
fn wait_for_all(main: c_int) {
    let mut main_status = None;
    loop {
        let mut status = 0;
        let options = if main_status.is_some() { sys::WNOHANG } else { 0 };
        // SAFETY: the kernel writes one int.
        match unsafe { ffi::waitpid(-1, &mut status, options) } {
            process if process == main => main_status = Some(status),
            process if process > 0 => {}
            // Processes are left (0), or none (-1). An interrupted wait has an error of its own.
            result => match main_status.take() {
                Some(status) => {
                    report(Report { status, children_left: result == 0 });
                    if result == -1 {
                        return;
                    }
                }
                None if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                None => return,
            },
        }
    }
}

fn report(report: Report) {
    sys::write_raw(STATUS, &report.to_bytes());
}

fn close_from(first: RawFd) {
    // SAFETY: nothing in this process uses the descriptors above, nor will drop them: it never returns.
    unsafe {
        if ffi::syscall(SYS_CLOSE_RANGE, first, u32::MAX, 0) < 0 {
            for fd in first..MAX_FD {
                ffi::close(fd);
            }
        }
    }
}

/// Starts the child that becomes the command, without a copy of this process's memory, which would be made and thrown away again:
/// its process id, or -1.
fn start(plan: &Plan) -> c_int {
    extern "C" fn run(plan: *mut c_void) -> c_int {
        // SAFETY: it is what `start` has passed, and stays there until this child executes the command.
        execute(unsafe { &*plan.cast::<Plan>() })
    }
    let mut stack: Vec<u128> = Vec::with_capacity(CHILD_STACK / size_of::<u128>());
    // SAFETY: the stack grows down from its end, which is aligned, and is freed when the child does not use it any more: until
    // then this process waits. It has one thread, so nothing else uses the memory that both share.
    unsafe {
        let end = stack.as_mut_ptr().add(stack.capacity());
        let plan = std::ptr::from_ref(plan).cast_mut();
        ffi::clone(run, end.cast(), CLONE_VM | CLONE_VFORK | sys::SIGCHLD, plan.cast())
    }
}

/// Becomes the command. What it changes in memory, the supervisor shares; neither uses it again.
fn execute(plan: &Plan) -> ! {
    // SAFETY: plain system calls; the strings and the arrays of pointers to them live until the exec.
    unsafe {
        ffi::setsid();
        if plan.terminal.is_some() {
            sys::control_terminal(0);
        }
        for signal in 1..=64 {
            ffi::signal(signal, 0);
        }
        sys::unblock_signals();
        ffi::umask(0o022);
        // The supervisor does not leave before its children, so only a supervisor that was killed triggers this.
        let _ = sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as _);
        raise_oom_score();
        if let Some(cwd) = &plan.cwd
            && ffi::chdir(cwd.as_ptr()) < 0
        {
            print_error("enter", cwd, &io::Error::last_os_error());
            ffi::_exit(126);
        }
        // Nothing runs that could write after all.
        if let Some(workspace) = &plan.read_only
            && let Err(error) = landlock::keep_workspace(workspace).and_then(|()| filters::refuse_modes())
        {
            print_error("keep the workspace read-only for", plan.name(), &error);
            ffi::_exit(126);
        }
        let environment = pointers(&plan.environment);
        for Execution { program, arguments } in &plan.attempts {
            ffi::execve(program.as_ptr(), pointers(arguments).as_ptr(), environment.as_ptr());
        }
        let error = io::Error::last_os_error();
        print_error("run", plan.name(), &error);
        ffi::_exit(if error.raw_os_error() == Some(sys::ENOENT) { 127 } else { 126 })
    }
}

fn raise_oom_score() {
    const PATH: &CStr = c"/proc/self/oom_score_adj";
    const O_WRONLY: c_int = 1;
    // SAFETY: the path is a constant; the descriptor is closed on exec. Where there is no such file, nothing is lost.
    unsafe {
        // Only a process that can be dumped owns its /proc files. All that it holds of the guest's is its own pipes.
        let _ = sys::prctl(sys::PR_SET_DUMPABLE, 1);
        let fd = ffi::open(PATH.as_ptr(), O_WRONLY | sys::O_CLOEXEC);
        let _ = sys::prctl(sys::PR_SET_DUMPABLE, 0);
        if fd >= 0 {
            sys::write_raw(fd, OOM_SCORE);
        }
    }
}

/// As `env` and the shell do it: a line on standard error, and exit code 126 or 127.
fn print_error(what: &str, name: &CStr, error: &io::Error) {
    let line = format!("agent: cannot {what} {}: {error}\n", name.to_string_lossy());
    sys::write_raw(2, line.as_bytes());
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}
