//! The process tree, read from `/proc`.

use crate::sys;
use std::collections::HashSet;
use std::ffi::c_int;

/// The number of times that a tree is stopped again before it is killed, because it has grown.
const STOP_ROUNDS: usize = 50;

struct Process {
    id: c_int,
    parent: c_int,
    zombie: bool,
    /// In clock ticks since the system started.
    started: u64,
}

fn all() -> Vec<Process> {
    let Ok(directory) = std::fs::read_dir("/proc") else { return Vec::new() };
    directory
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            parse(id, &std::fs::read(entry.path().join("stat")).ok()?)
        })
        .collect()
}

/// `PID (NAME) STATE PARENT …`; the name may hold anything, parentheses included.
fn parse(id: c_int, stat: &[u8]) -> Option<Process> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22 of proc(5); the state is the third.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { id, parent, zombie: matches!(state, "Z" | "X"), started })
}

/// The processes below `root`, zombies left out, parents before their children.
pub fn descendants(root: c_int) -> Vec<c_int> {
    let all = all();
    let mut found = vec![root];
    let mut living = Vec::new();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        next += 1;
        for process in all.iter().filter(|process| process.parent == parent) {
            found.push(process.id);
            if !process.zombie {
                living.push(process.id);
            }
        }
    }
    living
}

/// The processes that `fits` says of, zombies and the first one left out: by number and the text of `/proc/PID/status`.
pub fn that(fits: impl Fn(c_int, &str) -> bool) -> Vec<c_int> {
    let is_living = |process: &Process| !process.zombie && process.id != 1 && process.id != own_id();
    let status = |id: c_int| std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    all()
        .into_iter()
        .filter(is_living)
        .map(|process| process.id)
        .filter(|&id| fits(id, &status(id)))
        .collect()
}

fn own_id() -> c_int {
    std::process::id().cast_signed()
}

/// Returns whether a process has ended, reaped or not.
pub fn is_dead(id: c_int) -> bool {
    let stat = std::fs::read(format!("/proc/{id}/stat")).ok();
    stat.and_then(|stat| parse(id, &stat)).is_none_or(|process| process.zombie)
}

/// The children of `parent`, zombies left out.
pub fn children(parent: c_int) -> Vec<c_int> {
    all().into_iter().filter(|p| p.parent == parent && !p.zombie).map(|p| p.id).collect()
}

/// Returns the process group of the oldest child of `parent`, once that leads one: what a supervisor adopts is younger.
pub fn first_child_group(parent: c_int) -> Option<c_int> {
    let children = all().into_iter().filter(|p| p.parent == parent && !p.zombie);
    let first = children.min_by_key(|p| (p.started, p.id))?.id;
    sys::is_group(first).then_some(first)
}

/// Asks every process below `root` to end. A stopped one is woken, so that it hears.
pub fn terminate_below(root: c_int) {
    for process in descendants(root) {
        sys::kill(process, sys::SIGTERM);
        sys::kill(process, sys::SIGCONT);
    }
}

/// Kills every process below `root`. Stops them first, so that a tree that forks faster than it is killed does not get
/// away.
pub fn kill_below(root: c_int) {
    stop_below(root).into_iter().for_each(|id| sys::kill(id, sys::SIGKILL));
}

/// Stops every process below `root`, until no new one turns up.
pub fn stop_below(root: c_int) -> HashSet<c_int> {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_ROUNDS {
        let fresh: Vec<_> = descendants(root).into_iter().filter(|&id| stopped.insert(id)).collect();
        if fresh.is_empty() {
            break;
        }
        fresh.iter().for_each(|&id| sys::kill(id, sys::SIGSTOP));
    }
    stopped
}
