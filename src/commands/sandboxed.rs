//! A sandbox without a conversation: a session's own while it runs, or a fresh one.

use super::open::{Audience, begin};
use crate::agent::Startup;
use crate::config::Config;
use crate::error::Result;
use crate::sandbox::{Sandbox, by_name, choose};
use crate::session::{History, SessionId, Store, read_records};
use std::path::PathBuf;

/// A sandbox to run something in.
pub struct Sandboxed {
    /// The handle.
    pub sandbox: Sandbox,
    /// Ended with the command, where the sandbox was made for it.
    fresh: Option<(Startup, Scratch)>,
}

/// What a sandbox without a session keeps on the host; it goes with the command, however that ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Copies of what is in the workspace: nothing is lost, and what cannot be removed now is pruned one day.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Sandboxed {
    /// The command is over: a sandbox that was made for it goes.
    pub async fn end(&self) {
        if let Some((startup, _)) = &self.fresh {
            startup.end().await;
        }
    }
}

/// The sandbox of `session`, or a fresh one with a copy of the workspace.
pub async fn sandboxed(config: &Config, session: Option<&str>, audience: &Audience) -> Result<Sandboxed> {
    match session {
        Some(id) => attach(id).await,
        None => {
            let chosen = choose(config.sandbox.choice, config.sandbox.image.as_deref()).await?;
            let id = SessionId::generate();
            let scratch = Scratch(Store::open()?.dir(&id));
            let startup = begin(config, &id, chosen.backend, audience)?;
            let sandbox = startup.ready().await?.sandbox.clone();
            Ok(Sandboxed { sandbox, fresh: Some((startup, scratch)) })
        }
    }
}

/// The sandbox of a session that still runs.
pub async fn attach(id: &str) -> Result<Sandboxed> {
    let store = Store::open()?;
    let id = store.find(id)?;
    let history = History::of(&read_records(&store.events(&id))?);
    let backend = by_name(&history.sandbox.backend).await?;
    let channel = backend.attach(id.as_str()).await.map_err(|error| {
        error.hint(format!("its sandbox may be gone: `agent resume {id}` brings the session back"))
    })?;
    Ok(Sandboxed { sandbox: Sandbox::connect(channel).await?, fresh: None })
}
