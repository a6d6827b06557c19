//! Whose a sandbox is: labels that tell later runs which process made it, and whether that process is gone.

use crate::error::{Error, Result};
use crate::sandbox::{Spec, expiry};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The session's id.
pub(super) const SESSION: &str = "agent.session";
/// The machine and user, as [`this_host`] tells them.
pub(super) const HOST: &str = "agent.host";
/// The process that made it.
const PID: &str = "agent.pid";
/// When that process was started (field 22 of `/proc/PID/stat`): process numbers come around again.
const PID_START: &str = "agent.pid_start";
/// When it may be removed: `owner` (as soon as its owner is gone), a date in RFC 3339, or `never`.
const EXPIRES: &str = "agent.expires";

/// The labels of a sandbox that this process makes.
pub(super) fn labels(spec: &Spec) -> HashMap<String, String> {
    let pid = std::process::id();
    [
        (SESSION, spec.session.clone()),
        (HOST, this_host()),
        (PID, pid.to_string()),
        (PID_START, started(pid).unwrap_or_default()),
        (EXPIRES, expires(spec)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn expires(spec: &Spec) -> String {
    match spec.ephemeral {
        true => "owner".to_owned(),
        false => spec.delete_after.and_then(expiry::date).unwrap_or_else(|| "never".to_owned()),
    }
}

/// The date after which a sandbox with these labels may be removed, where there is one.
pub(super) fn expiry_date(labels: &HashMap<String, String>) -> Option<String> {
    labels.get(EXPIRES).filter(|label| !matches!(label.as_str(), "owner" | "never")).cloned()
}

/// Whether the date of a sandbox with these labels, made on this machine, has passed.
pub(super) fn has_expired(labels: &HashMap<String, String>) -> bool {
    labels.get(HOST) == Some(&this_host()) && labels.get(EXPIRES).is_some_and(|date| expiry::is_past(date))
}

/// Whether a sandbox with these labels is left over: it goes with its owner, and its owner is gone.
pub(super) fn is_abandoned(labels: &HashMap<String, String>) -> bool {
    let label = |name| labels.get(name).map(String::as_str);
    label(HOST) == Some(&this_host()) && label(EXPIRES) == Some("owner") && !lives(labels)
}

/// Whether the owner of a sandbox with these labels, made on this machine, is still there, as far as they tell.
pub(super) fn lives(labels: &HashMap<String, String>) -> bool {
    let label = |name| labels.get(name).map(String::as_str);
    label(PID).and_then(|pid| pid.parse().ok()).is_none_or(|pid| is_alive(pid, label(PID_START)))
}

/// This process, so that it can be told from a later one with its number.
pub(super) fn this_process() -> String {
    let pid = std::process::id();
    format!("{pid} {}", started(pid).unwrap_or_default())
}

/// Whether the process that [`this_process`] named is still there.
pub(super) fn is_process_alive(process: &str) -> bool {
    let (pid, start) = process.trim().split_once(' ').unwrap_or((process.trim(), ""));
    pid.parse().is_ok_and(|pid| is_alive(pid, Some(start)))
}

/// A name for this machine and user: process numbers mean the same only there. It tells nothing about either.
pub(super) fn this_host() -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let uid = rustix::process::geteuid().as_raw();
    let name = super::engine::uname().nodename;
    let hash = Sha256::digest(format!("{}\0{name}\0{}\0{uid}", machine.trim(), processes.display()));
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn is_alive(pid: u32, start: Option<&str>) -> bool {
    match started(pid) {
        Some(now) => start.is_none_or(|then| then.is_empty() || then == now),
        None => exists(pid),
    }
}

/// Whether there is such a process, asked without /proc (not every system has one).
fn exists(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 sends nothing; the call only says whether the process exists.
    pid > 0
        && (unsafe { libc::kill(pid, 0) } == 0
            || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM))
}

/// Field 22 of `/proc/PID/stat` (`man 5 proc_pid_stat`): the start in clock ticks since boot.
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold spaces and parentheses itself.
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(22 - 3).map(str::to_owned)
}

/// The container's name. Refuses what is no session id, since the name becomes part of a request's path.
pub(super) fn container_name(session: &str) -> Result<String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if session.is_empty() || session.len() > 64 || !session.bytes().all(fits) {
        return Err(Error::usage(format!("`{}` is no session id", session.escape_debug())));
    }
    Ok(format!("agent-{session}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(pid: u32, start: &str, expires: &str) -> HashMap<String, String> {
        [(HOST, this_host()), (PID, pid.to_string()), (PID_START, start.into()), (EXPIRES, expires.into())]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn a_living_owner_keeps_its_sandbox_and_a_later_process_with_its_number_does_not() {
        let me = std::process::id();
        let start = started(me).unwrap_or_default();
        assert!(!is_abandoned(&labels_of(me, &start, "owner")));
        assert!(is_abandoned(&labels_of(me, "1", "owner")));
    }

    #[test]
    fn a_kept_sandbox_and_one_of_another_machine_are_never_abandoned() {
        let gone = libc::pid_t::MAX as u32;
        assert!(is_abandoned(&labels_of(gone, "1", "owner")));
        assert!(!is_abandoned(&labels_of(gone, "1", "never")));
        let mut elsewhere = labels_of(gone, "1", "owner");
        elsewhere.insert(HOST.into(), "another".into());
        assert!(!is_abandoned(&elsewhere));
    }

    #[test]
    fn only_a_session_id_becomes_a_container_name() {
        assert_eq!(container_name("a-1").unwrap(), "agent-a-1");
        for bad in ["", "../x", "A", "a b", &"x".repeat(65)] {
            assert!(container_name(bad).is_err(), "{bad}");
        }
    }
}
