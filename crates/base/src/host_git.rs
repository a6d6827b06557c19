//! git of this machine, started so that no repository decides what it runs.
//!
//! More than forty keys of git's configuration name a program, many with a wildcard (`filter.NAME.clean`), so they cannot be
//! overridden one by one. git therefore works in a directory of ours ([`apart`]), beside the objects and the index of the
//! repository, and sees no configuration but what it is given here. The repository's own is read only where there is no
//! other way ([`within`]): to find it, to list its settings, and to update a reference.

use crate::error::Result;
use crate::host_program;
use crate::machine::Machine;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit};
use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The time for which git's last words are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes of git's messages that are read.
const MAX_WORDS: u64 = 64 << 10;

/// Settings against what no call may do: run a program that an index, a hook or a setting names, or tidy up in the background.
const SETTINGS: [&str; 13] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    "submodule.recurse=false",
    "protocol.ext.allow=never",
    // A small archive can hold objects that are large, or long chains of deltas.
    "core.bigFileThreshold=16m",
    "core.deltaBaseCacheLimit=32m",
    "core.packedGitLimit=256m",
    "pack.deltaCacheSize=32m",
    "pack.windowMemory=64m",
    "pack.threads=1",
];

/// Bytes that a call may take for itself; mapped files do not count. An index of two million files fits.
const MAX_MEMORY: u64 = 512 << 20;
/// The same for a call that reads a whole tree, which a few bytes may make as large as they like: fifty thousand files take less than
/// 32 MB, and a million 200.
pub const TREE_MEMORY: u64 = 256 << 20;
/// The same for a call that packs all objects of a repository: three million of them.
pub const PACKING_MEMORY: u64 = 1 << 30;
/// The most that a call takes at once, for one object.
const MAX_ALLOCATION: &str = "256m";

/// Variables of every call. Those that name a program outrank the configuration.
const VARIABLES: [(&str, &str); 9] = [
    ("LC_ALL", "C"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_ALLOC_LIMIT", MAX_ALLOCATION),
    ("GIT_SEQUENCE_EDITOR", "false"),
];

/// git in the repository `git_dir`, which `agent` made with [`make_repository`], with no other configuration. `None` where no
/// git is installed outside of `workspace`.
pub fn apart(git_dir: &Path, workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = local(workspace, machine)?;
    git.env("GIT_DIR", git_dir).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    Some(with_settings(git))
}

/// git in the repository that it finds from `workspace`, with that one's configuration: only for calls that read settings and
/// names, and for `update-ref`. git's own checks hold, such as that of the owner.
pub fn within(workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = with_settings(local(workspace, machine)?);
    git.args(["-c", "safe.bareRepository=explicit"]).current_dir(workspace);
    Some(git)
}

/// `git config`, which shows settings as the user has them and runs nothing.
pub fn config(workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = local(workspace, machine)?;
    git.arg("config").current_dir(workspace);
    Some(git)
}

/// [`config`] with the settings that the environment of the caller adds or names, as git has them that the user starts from there.
/// Only to list them: they are for programs of the user's, and no call of ours obeys them.
pub fn config_of_caller(workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = config(workspace, machine)?;
    git.envs(machine.git_settings());
    Some(git)
}

/// `git config` with the settings of the user and of the machine alone: it finds the empty repository `git_dir` in place of any
/// other. It runs nothing.
pub fn config_of_user(git_dir: &Path, workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = local(workspace, machine)?;
    git.env("GIT_DIR", git_dir).arg("config").current_dir(git_dir);
    Some(git)
}

/// git that fetches for the user into a repository that `agent` made, with the user's own configuration.
pub fn networked(workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = host_program::networked("git".as_ref(), workspace, machine)?;
    git.envs(VARIABLES);
    Some(with_settings(git))
}

fn local(workspace: &Path, machine: &Machine) -> Option<Command> {
    let mut git = host_program::command("git".as_ref(), workspace, machine)?;
    git.envs(VARIABLES).env("GIT_ALLOW_PROTOCOL", "none").env("GIT_ASKPASS", "false");
    Some(git)
}

fn with_settings(mut git: Command) -> Command {
    git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
    git
}

/// The configuration of an empty repository of either object format.
pub fn format_config(is_sha256: bool) -> &'static str {
    match is_sha256 {
        true => "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n",
        false => "",
    }
}

/// Makes `directory` an empty repository with this configuration. One that is there already stays, for another process's git may
/// be reading it.
pub fn make_repository(directory: &Path, config: &str) -> Result<()> {
    for name in ["objects/info", "refs/heads", "refs/tags", "info"] {
        DirBuilder::new().mode(0o700).recursive(true).create(directory.join(name))?;
    }
    for (name, content) in [("config", config), ("HEAD", "ref: refs/heads/none\n")] {
        let path = directory.join(name);
        if !fs::read(&path).is_ok_and(|there| there == content.as_bytes()) {
            fs::write(path, content)?;
        }
    }
    Ok(())
}

/// The failure of a call of git, with what it wrote all the same.
#[derive(Debug, Default)]
pub struct Failure {
    /// Its standard output, which it wrote all the same.
    pub answer: Vec<u8>,
    /// Its standard error.
    pub said: Vec<u8>,
    /// The code that it ended with, unless it was killed or could not be started.
    pub code: Option<i32>,
}

/// Runs a call to its end, and gives the answer. Blocking.
///
/// # Errors
/// It could not be started, ended with another code than 0, or took longer than `time`; then it is killed.
pub fn run(git: Command, input: &[u8], time: Duration, max_answer: u64) -> Result<Vec<u8>, Failure> {
    run_within(&[], git, input, time, max_answer)
}

/// [`run`] for what a stranger has made: git may take no more than this of each resource, of memory (`Data`) too.
///
/// # Errors
/// As for [`run`], and where it needs more.
pub fn run_within(
    most: &[(Resource, u64)],
    mut git: Command,
    input: &[u8],
    time: Duration,
    max_answer: u64,
) -> Result<Vec<u8>, Failure> {
    limit(&mut git, most);
    // In a group of its own, which ends with it.
    git.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().map_err(|_| Failure::default())?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = input.to_vec();
    std::thread::spawn(move || {
        // git may end without reading it.
        let _ = stdin.map(|mut stdin| stdin.write_all(&input));
    });
    let (answer, said) = (read(stdout, max_answer), read(stderr, MAX_WORDS));
    let answer = answer.recv_timeout(time).ok();
    if answer.is_none()
        && let Some(group) = child.id().try_into().ok().and_then(Pid::from_raw)
    {
        // A group that is gone has no processes to end.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let code = child.wait().ok().and_then(|status| status.code());
    match answer {
        Some(answer) if code == Some(0) => Ok(answer),
        answer => {
            let said = said.recv_timeout(LAST_WORDS).unwrap_or_default();
            Err(Failure { answer: answer.unwrap_or_default(), said, code })
        }
    }
}

/// Bounds what a call may take, its memory always, before it is one.
fn limit(git: &mut Command, most: &[(Resource, u64)]) {
    let memory = most.iter().all(|(resource, _)| *resource != Resource::Data);
    let memory = memory.then_some((Resource::Data, MAX_MEMORY));
    let limits: Vec<_> = memory.into_iter().chain(most.iter().copied()).collect();
    let apply = move || {
        for (resource, most) in &limits {
            // Where a lower bound holds already, that one stays.
            let _ = setrlimit(*resource, Rlimit { current: Some(*most), maximum: Some(*most) });
        }
        Ok(())
    };
    // SAFETY: between fork and exec this makes system calls alone, and takes neither locks nor memory.
    unsafe { git.pre_exec(apply) };
}

fn read(stream: Option<impl Read + Send + 'static>, max: u64) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is missing; git's exit code decides.
        let _ = stream.map(|stream| stream.take(max).read_to_end(&mut bytes));
        let _ = sender.send(bytes);
    });
    receiver
}
