//! Reads in a process of its own.
//!
//! The grammars are C, written for editors: their scanners index tables with whatever character comes, write a byte past
//! their buffer where code nests in just the wrong way, and end the program where an assertion fails. What they read here
//! was written by a model. So they read in a child of this process that can do nothing but compute and answer: no file,
//! no network, no other process. Where it dies, what it read is unreadable, which is an answer of its own.

use super::findings::{Findings, Language, Unreadable};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the child may take: its own limit of a second, and more for a machine under load.
const TIME: Duration = Duration::from_secs(3);
/// The longest answer that is taken, in bytes; beyond every bound of what is found.
const MAX_ANSWER: usize = 64 << 20;
/// The most memory that the child may hold, in bytes, this process's own included.
const MEMORY: u64 = 4 << 30;
/// The descriptor that the child answers at.
const ANSWER: i32 = 3;

/// Returns what `reading` finds.
pub fn read(reading: impl FnOnce() -> Findings) -> Findings {
    let answer = in_child(|| serde_json::to_vec(&reading()).unwrap_or_default());
    answer.and_then(|answer| serde_json::from_slice(&answer).ok()).unwrap_or_else(|| Findings {
        // A command can hold code of every language.
        unreadable: vec![Unreadable {
            language: Language::Shell,
            what: "text that a grammar fails on".to_owned(),
        }],
        ..Findings::default()
    })
}

/// Returns what `work` answers in a child; `None` where the child does not live to say it.
pub fn in_child(work: impl FnOnce() -> Vec<u8>) -> Option<Vec<u8>> {
    let filter = filter().ok()?;
    let (reader, writer) = std::io::pipe().ok()?;
    // SAFETY: the child runs `work` on the only thread that it has and leaves by _exit(2). A lock that another thread held
    // at this moment may never open there; the C library keeps its own in order, and for any other the time limit ends
    // the child.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => {
            // A panic must not leave this function: what is above it on the stack belongs to the parent.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut answer = confine(writer.into(), &filter)?;
                answer.write_all(&work())
            }));
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(writer);
            let answer = receive(reader.into());
            // Whole or not, the answer speaks for itself; there is nothing more to wait for.
            // SAFETY: the child has not been waited for, so the number is nobody else's, and a null status is allowed.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                while libc::waitpid(child, std::ptr::null_mut(), 0) < 0
                    && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                {}
            }
            answer
        }
    }
}

/// All that comes, in time and within bounds.
fn receive(reader: OwnedFd) -> Option<Vec<u8>> {
    let deadline = Instant::now() + TIME;
    let mut reader = File::from(reader);
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as the count says, that outlives the call.
        match unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) } {
            0 => return None,
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
            -1 => return None,
            _ => {}
        }
        match reader.read(&mut piece) {
            Ok(0) => return Some(answer),
            Ok(length) if answer.len() + length <= MAX_ANSWER => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

/// Takes everything from this process but its memory and `answer`, which is handed back.
fn confine(answer: OwnedFd, filter: &BpfProgram) -> io::Result<File> {
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let limit = |bound| libc::rlimit { rlim_cur: bound, rlim_max: bound };
    // SAFETY: all pointers are to values of this function; descriptors from 4 on are used by nothing that runs here.
    unsafe {
        // Handlers speak to threads that this process does not have. A fault ends a process that blocks its signal.
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()))?;
        check(libc::setrlimit(libc::RLIMIT_CORE, &limit(0)))?;
        check(libc::setrlimit(libc::RLIMIT_CPU, &limit(TIME.as_secs())))?;
        check(libc::setrlimit(libc::RLIMIT_DATA, &limit(MEMORY)))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::dup2(answer.into_raw_fd(), ANSWER))?;
        check(libc::syscall(libc::SYS_close_range, ANSWER + 1, u32::MAX, 0) as i32)?;
        seccompiler::apply_filter(filter).map_err(io::Error::other)?;
        Ok(File::from_raw_fd(ANSWER))
    }
}

/// Memory, time, randomness for hash tables, the answer, and the end; every other system call is refused.
fn filter() -> Result<BpfProgram, BackendError> {
    let to_the_answer = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, ANSWER as u64)?;
    let free = [
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_getrandom,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let mut rules: BTreeMap<_, _> = free.into_iter().map(|number| (number, Vec::new())).collect();
    rules.insert(libc::SYS_write, vec![SeccompRule::new(vec![to_the_answer])?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, machine)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back() {
        assert_eq!(in_child(|| vec![b'x'; 1 << 20]), Some(vec![b'x'; 1 << 20]));
    }

    #[test]
    fn a_reader_that_dies_is_an_answer_too() {
        for die in [abort, fault, panic, never_end] {
            let findings = read(die);
            assert_eq!(findings.unreadable.len(), 1);
            assert_eq!(findings.unreadable[0].what, "text that a grammar fails on");
        }
    }

    fn abort() -> Findings {
        // SAFETY: what a failed assertion does.
        unsafe { libc::abort() }
    }

    fn fault() -> Findings {
        // SAFETY: none; this is the fault that is tested, in a process that is there for it.
        unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        Findings::default()
    }

    fn panic() -> Findings {
        panic!("on purpose")
    }

    fn never_end() -> Findings {
        loop {
            std::hint::spin_loop();
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it writes where nobody reads")]
    fn a_reader_reaches_nothing() {
        let there = std::env::temp_dir().join(format!("agent-subprocess-{}", std::process::id()));
        let answer = in_child(|| {
            let tried = [
                File::create(&there).is_err(),
                File::open("/etc/passwd").is_err(),
                std::net::TcpListener::bind("127.0.0.1:0").is_err(),
                std::process::Command::new("true").status().is_err(),
                std::io::stderr().write_all(b"nobody reads this").is_err(),
                // SAFETY: takes no pointer.
                unsafe { libc::kill(libc::getppid(), 0) } < 0,
            ];
            tried.map(u8::from).to_vec()
        });
        assert_eq!(answer, Some(vec![1; 6]));
        assert!(!there.exists());
    }
}
