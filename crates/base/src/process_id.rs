//! Names of processes and of this machine that are written down, for later processes to read.

use crate::hash::Hash;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

/// A process of this machine, told apart from later ones with the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Clock ticks since boot: field 22 of proc_pid_stat(5). `None` where there is no `/proc`.
    pub start: Option<u64>,
}

impl ProcessId {
    /// The calling process.
    pub fn this() -> Option<Self> {
        static THIS: OnceLock<Option<ProcessId>> = OnceLock::new();
        *THIS.get_or_init(|| {
            let pid = i32::try_from(std::process::id()).ok()?;
            Some(Self { pid, start: Stat::of(pid).map(|stat| stat.start) })
        })
    }

    /// Returns whether it still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        match Stat::of(self.pid) {
            Some(stat) => self.start.is_none_or(|start| start == stat.start) && stat.state != 'Z',
            None => self.exists(),
        }
    }

    /// Returns whether there is such a process, asked without `/proc`.
    fn exists(self) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid).filter(|_| self.pid > 0) else {
            return false;
        };
        matches!(rustix::process::test_kill_process(pid), Ok(()) | Err(rustix::io::Errno::PERM))
    }
}

/// `PID START`.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            Some(start) => write!(f, "{} {start}", self.pid),
            None => write!(f, "{}", self.pid),
        }
    }
}

impl std::str::FromStr for ProcessId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().split_once(' ') {
            Some((pid, start)) => Ok(Self { pid: pid.parse()?, start: Some(start.parse()?) }),
            None => Ok(Self { pid: text.trim().parse()?, start: None }),
        }
    }
}

/// The fields of `/proc/PID/stat` that are used.
pub struct Stat {
    /// One letter: `Z` for a zombie, `T` for a stopped one.
    pub state: char,
    /// The number of its parent.
    pub parent: i32,
    /// The time of its start, in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Those of process `pid`; `None` if there is none, or no `/proc`.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 2 is the program's name in parentheses and may hold anything; field 3 comes after the last one.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            start: fields.nth(17)?.parse().ok()?,
        })
    }
}

/// A name for this machine and user, within which process numbers have a meaning. It reveals nothing about either.
pub fn this_host() -> String {
    static THIS: OnceLock<String> = OnceLock::new();
    let this = || {
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let uid = rustix::process::geteuid().as_raw();
        let uname = rustix::system::uname();
        let name = uname.nodename().to_string_lossy();
        Hash::of(format!("{}\0{name}\0{}\0{uid}", machine.trim(), processes.display())).short(8)
    };
    THIS.get_or_init(this).clone()
}
