//! Processes, told apart from later ones with the same number by when they started.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;

/// A process of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub pid: i32,
    /// Clock ticks since boot: field 22 of proc_pid_stat(5).
    pub start: u64,
}

impl Process {
    /// The one that asks.
    pub fn this() -> Option<Self> {
        let pid = i32::try_from(std::process::id()).ok()?;
        Some(Self { pid, start: Stat::of(pid)?.start })
    }

    /// Reads `PID START`.
    pub fn parse(line: &str) -> Option<Self> {
        let (pid, start) = line.split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }

    /// Whether it still runs. One that has ended and that nobody has waited for does not.
    pub fn is_alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && stat.state != 'Z')
    }

    /// Whether it was stopped by SIGSTOP.
    pub fn is_stopped(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && stat.state == 'T')
    }

    /// Sends a signal to exactly this process. Gone is not an error; `false` says that it could not be signalled.
    pub fn signal(self, signal: i32) -> bool {
        // SAFETY: takes no pointer. The descriptor stands for one process even when its number is given out again.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        if fd < 0 || !self.is_alive() {
            return !self.is_alive();
        }
        // SAFETY: the descriptor was just made and is ours; a null `siginfo` is what kill(2) would send.
        unsafe {
            let sent = libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<u8>(), 0);
            libc::close(fd as i32);
            sent == 0 || !self.is_alive()
        }
    }

    /// It and all that descend from it. The PID 1 of a namespace inherits every orphan in it, so nothing is missed.
    pub fn tree(self) -> Vec<Process> {
        let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, Stat::of(pid)?))) {
                children.entry(stat.parent).or_default().push(Process { pid, start: stat.start });
            }
        }
        let mut tree = vec![self];
        let mut next = 0;
        while let Some(process) = tree.get(next) {
            tree.extend(children.remove(&process.pid).unwrap_or_default());
            next += 1;
        }
        tree
    }
}

/// The fields of `/proc/PID/stat` that matter here.
struct Stat {
    state: char,
    parent: i32,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 2 is the program's name in parentheses and may hold anything; field 3 comes after the last one.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            start: fields.nth(17)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_process_with_the_same_number_is_another() {
        let me = Process::this().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start: me.start + 1, ..me }.is_alive());
        assert!(Process { start: me.start + 1, ..me }.signal(libc::SIGKILL), "and it is never signalled");
    }

    #[test]
    fn children_are_in_the_tree() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pids: Vec<i32> = Process::this().unwrap().tree().iter().map(|process| process.pid).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pids.contains(&(child.id() as i32)));
    }
}
