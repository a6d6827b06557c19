//! Signals to the processes of a local sandbox.

use agent_base::process_id::{ProcessId, Stat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Acts on one process, and never on a later one with the same number.
pub(super) trait Signals: Copy {
    /// Returns whether it was stopped by SIGSTOP.
    fn is_stopped(self) -> bool;

    /// Sends a signal to exactly this process. A process that is gone is not an error; `false`: it could not be signalled.
    fn signal(self, signal: i32) -> bool;

    /// Waits until it has ended.
    async fn ended(self) -> io::Result<()>;

    /// Opens a descriptor that stands for the process of this number, even when the number is given to another one later.
    fn open(self) -> io::Result<OwnedFd>;

    /// Lists the process and all its descendants. The PID 1 of a namespace inherits every orphan in it, so none is missed.
    fn tree(self) -> Vec<ProcessId>;
}

/// Returns whether the process of a descriptor has ended: it is readable from then on.
fn has_ended(process: &OwnedFd) -> io::Result<bool> {
    let mut process = [PollFd::new(process, PollFlags::IN)];
    Ok(poll(&mut process, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

impl Signals for ProcessId {
    fn is_stopped(self) -> bool {
        self.is_alive() && Stat::of(self.pid).is_some_and(|stat| stat.state == 'T')
    }

    fn signal(self, signal: i32) -> bool {
        let Ok(process) = self.open() else { return !self.is_alive() };
        if !self.is_alive() {
            return true;
        }
        // SAFETY: a null `siginfo` is what kill(2) would send.
        let sent = unsafe {
            let (fd, no_info) = (process.as_raw_fd(), std::ptr::null::<u8>());
            libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0)
        };
        sent == 0 || !self.is_alive()
    }

    async fn ended(self) -> io::Result<()> {
        match self.open() {
            Ok(process) if self.is_alive() => {
                // SAFETY: the descriptor is open, and nobody else's until this is dropped.
                let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
                let process = process.map_err(io::Error::from)?;
                loop {
                    let mut ready = process.readable().await?;
                    // The first readiness may be one of an earlier descriptor of this number.
                    if has_ended(process.get_ref())? {
                        return Ok(());
                    }
                    ready.clear_ready();
                }
            }
            Err(error) if self.is_alive() => Err(error),
            _ => Ok(()),
        }
    }

    fn open(self) -> io::Result<OwnedFd> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        match i32::try_from(fd) {
            // SAFETY: the descriptor was just made and is nobody else's.
            Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn tree(self) -> Vec<ProcessId> {
        let mut children: HashMap<i32, Vec<ProcessId>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, Stat::of(pid)?))) {
                children.entry(stat.parent).or_default().push(ProcessId { pid, start: Some(stat.start) });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_process_with_the_same_number_is_never_signalled() {
        let me = ProcessId::this().unwrap();
        let later = ProcessId { start: me.start.map(|start| start + 1), ..me };
        assert!(later.signal(libc::SIGKILL));
    }

    #[test]
    fn children_are_in_the_tree() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pids: Vec<i32> = ProcessId::this().unwrap().tree().iter().map(|process| process.pid).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pids.contains(&(child.id() as i32)));
    }
}
