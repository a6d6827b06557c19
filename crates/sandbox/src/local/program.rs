//! A program in the namespaces of a local sandbox, which serves a guest that is elsewhere: the keeper of a virtual machine. Its life,
//! its directory and its ownership are those of a sandbox.

use super::process::Signals;
use super::{Local, REMOVAL, Record, launch, reap, resource_limits};
use crate::ownership::{Ownership, sandbox_name};
use crate::{Backend, Channel, Listed, Spec, cgroup, host_ids, session_ids};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::process_id::ProcessId;
use agent_event::Limits;
use agent_wire::launch_spec::LaunchSpec;
use std::path::PathBuf;
use std::sync::Arc;

/// Sandboxes whose guest is served by a program.
#[derive(Debug, Clone)]
pub struct Keeper {
    local: Local,
}

impl Keeper {
    /// Those whose private directories are in the data directory's `store`.
    pub fn new(machine: Arc<Machine>, store: &'static str) -> Self {
        Self { local: Local { machine, store } }
    }

    /// Starts what `prepare` describes, within `limits`; its standard streams are the first client's. `prepare` is given the directory
    /// that the program finds at `/workspace`, and the owner of what it may write there. The user, a group where none
    /// is named, control groups and resource limits are added to the description.
    ///
    /// # Errors
    /// It cannot be prepared or launched. Nothing is left of it then.
    pub async fn start<F>(
        &self,
        spec: &Spec,
        limits: &Limits,
        prepare: impl FnOnce(PathBuf, (u32, u32)) -> F,
    ) -> Result<Channel>
    where
        F: Future<Output = Result<LaunchSpec>>,
    {
        let directory = self.local.directory(&spec.session)?;
        let record = Record {
            created: jiff::Timestamp::now().to_string(),
            ownership: Ownership::of(spec),
            limits: limits.clone(),
        };
        let ids = session_ids(&spec.session);
        let owner = host_ids(ids);
        directory.make(&record, &["workspace", "home"], owner)?;
        let unfinished = Unfinished { keeper: self.clone(), session: Some(spec.session.clone()) };
        let groups = cgroup::make(&sandbox_name(&spec.session)?, limits);
        let started = async {
            let program = prepare(directory.path().join("workspace"), owner).await?;
            directory.write_spec(&LaunchSpec {
                uid: ids.0,
                gid: if program.gid == 0 { ids.1 } else { program.gid },
                cgroups: groups.directories.clone(),
                cgroup_files: groups.counters.clone(),
                rlimits: resource_limits(limits, &groups),
                keep: !spec.ephemeral,
                ..program
            })?;
            let mut child = launch(&self.local.machine, &directory, true).await?;
            let streams = child.stdout.take().zip(child.stdin.take());
            reap(child);
            streams
                .map(|(stdout, stdin)| Channel::new(stdout, stdin))
                .ok_or_else(|| Error::unexpected("the launcher has no stream"))
        };
        let started = started.await;
        unfinished.disarm();
        if started.is_err() {
            // The first error is the one to tell; what cannot be removed now is swept later.
            let _ = self.local.destroy_sandbox(&directory).await;
            cgroup::remove(&groups.directories);
        }
        started
    }

    /// The directory that a program finds at `/workspace`.
    ///
    /// # Errors
    /// The session's name is not one.
    pub fn directory(&self, session: &str) -> Result<PathBuf> {
        Ok(self.local.directory(session)?.path().join("workspace"))
    }

    /// The launcher of a sandbox that runs. It removes the directory when the sandbox has ended by itself.
    pub fn launcher(&self, session: &str) -> Option<ProcessId> {
        self.local.directory(session).ok()?.processes().map(|(launcher, _)| launcher)
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, session: &str, signal: i32) -> Result<()> {
        let first = self.local.directory(session)?.running();
        match first.is_some_and(|first| first.signal(signal)) {
            true => Ok(()),
            false => Err(Error::sandbox(format!("session {session} has no running sandbox"))),
        }
    }

    /// Returns whether the program runs, or is frozen.
    pub fn is_there(&self, session: &str) -> bool {
        self.local.directory(session).is_ok_and(|directory| directory.running().is_some())
    }

    /// Removes a sandbox that has failed, and waits until its launcher removes nothing any more: the session may get another one.
    pub async fn remove_failed(&self, session: &str, launcher: Option<ProcessId>) {
        // The failure is the one to tell; what cannot be removed now is swept later.
        let _ = self.local.destroy(session).await;
        if let Some(launcher) = launcher {
            let _ = tokio::time::timeout(REMOVAL, launcher.ended()).await;
        }
    }

    /// See [`Backend::attach`].
    pub async fn attach(&self, session: &str) -> Result<Channel> {
        self.local.attach(session).await
    }

    /// See [`Backend::destroy`].
    pub async fn destroy(&self, session: &str) -> Result<()> {
        self.local.destroy(session).await
    }

    /// See [`Backend::pause`].
    pub async fn pause(&self, session: &str) -> Result<()> {
        self.local.pause(session).await
    }

    /// See [`Backend::resume`].
    pub async fn resume(&self, session: &str) -> Result<()> {
        self.local.resume(session).await
    }

    /// See [`Backend::list`].
    pub async fn list(&self) -> Result<Vec<Listed>> {
        self.local.list().await
    }

    /// See [`Backend::sweep`].
    pub async fn sweep(&self) -> Result<()> {
        self.local.sweep().await
    }
}

/// A start that is given up half-way: nothing of it stays.
struct Unfinished {
    keeper: Keeper,
    session: Option<String>,
}

impl Unfinished {
    fn disarm(mut self) {
        self.session = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let keeper = self.keeper.clone();
            tokio::spawn(async move {
                // What cannot be removed now is swept by a later process.
                let _ = keeper.destroy(&session).await;
            });
        }
    }
}
