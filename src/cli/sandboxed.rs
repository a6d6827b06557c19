//! A sandbox without a conversation: a session's own while it runs, or a fresh one.

use super::open::{Audience, backend, begin};
use super::past::works_on;
use crate::agent::Startup;
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::error::{Error, Result};
use crate::log::{History, SessionId, Store, read_records};
use crate::paths;
use crate::sandbox::{Listed, Sandbox, State, by_name};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A sandbox to run something in.
pub struct Sandboxed {
    /// The handle.
    pub sandbox: Sandbox,
    /// Ended with the command, where the sandbox was made for it.
    fresh: Option<(Startup, Scratch)>,
}

/// What a sandbox without a session keeps on the host; it goes with the command, or with the next one where this one is
/// killed.
struct Scratch {
    directory: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
}

impl Scratch {
    /// An empty directory, and none of those that dead processes left.
    fn make(id: &SessionId) -> Result<Self> {
        let all = paths::data_dir()?.join("scratch");
        let directory = all.join(id.as_str());
        paths::make_dir(&directory)?;
        let made = || {
            let lock = File::create_new(directory.join(LOCK))?;
            lock.lock()?;
            Ok(lock)
        };
        let _lock = made().map_err(|error: std::io::Error| {
            Error::unexpected(format!("{} could not be created", directory.display())).caused_by(error)
        })?;
        sweep(&all);
        Ok(Self { directory, _lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Copies of what is in the workspace: nothing is lost, and what cannot be removed now is swept later.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

const LOCK: &str = "lock";

/// Removes the directories whose lock nobody holds. One without a lock is about to get it.
fn sweep(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        if File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            // What cannot be removed now is tried again the next time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Sandboxed {
    /// The command is over: a sandbox that was made for it goes.
    pub async fn end(&self) {
        if let Some((startup, _)) = &self.fresh {
            startup.gateway().end().await;
            startup.end().await;
        }
    }
}

/// The sandbox of `session`, or a fresh one with a copy of the workspace.
pub async fn sandboxed(config: &Config, session: Option<&str>, audience: &Audience) -> Result<Sandboxed> {
    match session {
        Some(id) => {
            takes_effect(&config.options)?;
            attach(id, &config.options).await
        }
        None => {
            let chosen = backend(config).await?;
            audience.say_fallback(&chosen)?;
            let id = SessionId::generate();
            let scratch = Scratch::make(&id)?;
            let startup = begin(config, &id, &scratch.directory, chosen.backend, audience)?;
            let sandbox = startup.ready().await?.sandbox.clone();
            Ok(Sandboxed { sandbox, fresh: Some((startup, scratch)) })
        }
    }
}

/// Refuses the flags that say how a sandbox is made: a session's is made already, and nobody would notice that they do
/// nothing.
fn takes_effect(options: &Options) -> Result<()> {
    let given = [
        ("--workspace-mode", options.workspace_mode.is_some()),
        ("--include", !options.include.is_empty()),
        ("--exclude", !options.exclude.is_empty()),
        ("--sandbox", options.sandbox.is_some()),
        ("--image", options.image.is_some()),
        ("--runtime", options.runtime.is_some()),
        ("--network", options.network.is_some()),
        ("--memory", options.memory.is_some()),
        ("--cpus", options.cpus.is_some()),
        ("--pids", options.pids.is_some()),
        ("--disk", options.disk.is_some()),
        ("--keep", options.keep),
        ("--ttl", options.ttl.is_some()),
        ("--delete-after", options.delete_after.is_some()),
    ];
    let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let hint = match flag {
        // Its own process judges its connections.
        "--network" => {
            "allow the host with /network in that session's REPL, or leave -s out for a fresh sandbox"
        }
        _ => "leave it out, or leave -s out for a fresh sandbox",
    };
    Err(Error::usage(format!("{flag} has no effect on the sandbox of another session")).hint(hint))
}

/// The sandbox of a session that still runs.
///
/// # Errors
/// It does not run, or `-C` names another workspace.
pub async fn attach(id: &str, options: &Options) -> Result<Sandboxed> {
    let store = Store::open()?;
    let id = store.find(id)?;
    let history = History::of(&read_records(&store.events(&id))?);
    if let Some(named) = &options.workspace {
        works_on(&id, &history, named)?;
    }
    let backend = by_name(&history.sandbox.backend).await?;
    let is_it = |listed: &Listed| listed.session == id.as_str() && listed.state == State::Paused;
    if backend.list().await.is_ok_and(|list| list.iter().any(is_it)) {
        backend.resume(id.as_str()).await?;
    }
    let channel = backend.attach(id.as_str()).await.map_err(|error| {
        error.hint(format!("its sandbox may be gone: `agent resume {id}` brings the session back"))
    })?;
    Ok(Sandboxed { sandbox: Sandbox::connect(channel).await?, fresh: None })
}
