//! The sandbox that checks run in: the change as it would be applied, and what the session's sandbox has outside of the diff (installed
//! packages, caches, `$HOME`), or the change alone.

use super::fork::{copied_layer, take_snapshot};
use super::startup::{ForkedFrom, Population, Ready, Startup};
use super::{Retention, SandboxSettings, Session};
use agent_base::error::Result;
use agent_base::paths::make_dir;
use agent_event::Event;
use agent_log::SessionId;
use agent_sandbox::WorkspaceMount;
use agent_workspace::{Outside, Workspace, home};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory in the session's for what is copied.
const SCRATCH: &str = "check";

/// A sandbox for checks, which is starting.
pub(super) struct CheckSandbox {
    startup: Startup,
    beside: Beside,
    scratch: PathBuf,
}

/// The source of what a sandbox for checks gets of the session's state outside of the diff.
enum Beside {
    /// Not at all: that was asked for, or no tool has run.
    Nothing,
    /// It begins with a copy.
    Copied(Outside),
    /// It begins as a copy of the whole sandbox at its provider.
    Snapshot,
    /// It is brought there by way of this machine.
    Carried,
}

impl CheckSandbox {
    /// Begins to start one for `session`.
    pub async fn begin(session: &Session, is_clean: bool) -> Result<Self> {
        let directory = session.store.dir(&session.id);
        let scratch = directory.join(SCRATCH);
        let id = SessionId::generate();
        let workspace = Workspace::load(&directory, Arc::clone(&session.workspace.machine)).await?;
        let (population, beside) = match (workspace, session.startup.if_ready()) {
            // No tool ran, so nothing changed: the workspace is the host's directory.
            (None, _) => {
                let population = session.workspace.populate(&directory, &session.sandbox)?;
                (population, Beside::Nothing)
            }
            (Some(workspace), Some(ready)) if !is_clean => {
                remove(&scratch).await;
                make_dir(&scratch)?;
                copy(session, &ready, workspace.transient(), &id, &scratch).await?
            }
            (Some(workspace), _) => (Population::Restore(Arc::new(workspace.transient())), Beside::Nothing),
        };
        let settings = SandboxSettings { retention: Retention::Remove, ..session.sandbox.clone() };
        let gateway = Arc::clone(session.startup.gateway());
        let startup = Startup::begin(&id, &settings, population, gateway, Arc::clone(&session.frontend));
        Ok(Self { startup, beside, scratch })
    }

    /// Waits until it has everything; with what the user is to know about what it has beside the change.
    pub async fn ready(&self, session: &Session) -> Result<(Arc<Ready>, Option<String>)> {
        let ready = self.startup.ready_silently().await?;
        let text = match (&self.beside, session.startup.if_ready()) {
            (Beside::Copied(outside), _) => described(outside),
            (Beside::Snapshot, _) => Some(told("what the session's sandbox has outside of the diff")),
            (Beside::Carried, Some(from)) => {
                match ready.workspace.carry(&from.sandbox, &ready.sandbox, &self.scratch).await {
                    Ok(outside) => described(&outside),
                    Err(error) => Some(format!(
                        "The checks run without what the session has outside of the diff, which could not be copied: {error}."
                    )),
                }
            }
            (Beside::Nothing | Beside::Carried, _) => None,
        };
        Ok((ready, text))
    }

    /// Returns whether it is the session's sandbox once more.
    pub fn is_copy(&self) -> bool {
        !matches!(self.beside, Beside::Nothing)
    }

    /// Removes it.
    pub async fn end(self) {
        self.startup.end().await;
        remove(&self.scratch).await;
    }
}

/// Copies what the session's sandbox holds for that of checks, as its backend can.
async fn copy(
    session: &Session,
    ready: &Ready,
    workspace: Workspace,
    id: &SessionId,
    scratch: &Path,
) -> Result<(Population, Beside)> {
    let (backend, layer) = (session.startup.backend(), scratch.join("layer"));
    let copied = copied_layer(backend.as_ref(), &session.id, &layer).await?;
    if copied.workspace {
        if !copied.home
            && let Err(error) = home::save(&ready.sandbox, scratch).await
        {
            let text =
                format!("The checks run without the session's $HOME, which could not be copied: {error}.");
            session.frontend.events().emit(Event::Notice { text })?;
        }
        let outside = workspace.outside_of_layer(&layer, &session.sandbox.home).await?;
        let workspace = Arc::new(workspace.with_home_of(scratch));
        return Ok((Population::Forked(workspace, ForkedFrom::Layer(layer)), Beside::Copied(outside)));
    }
    // Where nothing of the host's is below the workspace, a copy of the sandbox has all of it.
    if ready.workspace.mount().await == WorkspaceMount::Empty
        && let Some(snapshot) =
            take_snapshot(backend.as_ref(), &ready.sandbox, (&session.id, id), scratch.join("snapshot")).await
    {
        let population = Population::Forked(Arc::new(workspace), ForkedFrom::Snapshot(snapshot));
        return Ok((population, Beside::Snapshot));
    }
    Ok((Population::Restore(Arc::new(workspace)), Beside::Carried))
}

fn described(outside: &Outside) -> Option<String> {
    if outside.count == 0 {
        return None;
    }
    let mut names = outside.names.join(", ");
    match outside.count - outside.names.len() {
        0 => {}
        more => names.push_str(&format!(" and {more} more")),
    }
    Some(told(&format!("what the session has outside of the diff: {names}")))
}

fn told(what: &str) -> String {
    format!("The checks can use {what}. --check-clean leaves that out.")
}

async fn remove(directory: &Path) {
    let directory = directory.to_owned();
    // What is left is removed with the session.
    let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(directory)).await;
}
