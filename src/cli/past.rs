//! A session that is gone on with: what it was, and what of it still holds.

use super::endpoint::{self, Connected};
use crate::agent::{Price, Source, Spent};
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::ui::sanitise::plain;
use crate::error::{Error, Result};
use crate::log::{History, Reopened, SessionFile, SessionId, Store};
use crate::sandbox::{Backend, SandboxChoice, State};
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An earlier session, locked for this process.
pub struct Past {
    /// Its id.
    pub id: SessionId,
    /// Its file, ready for more.
    pub file: SessionFile,
    /// What happened in it.
    pub history: History,
    /// What the person should know about its file.
    pub losses: Vec<String>,
}

impl Past {
    /// Opens the session's file.
    pub fn open(id: SessionId) -> Result<Self> {
        let Reopened { file, records, losses } = Store::open()?.reopen(&id)?;
        Ok(Self { id, file, history: History::of(&records), losses })
    }

    /// The options, with what the session had where the person says nothing else. A session stays with the workspace it
    /// was begun on.
    ///
    /// # Errors
    /// The person names another workspace with `-C`.
    pub fn options(&self, options: &Options) -> Result<Options> {
        if let Some(named) = &options.workspace {
            self.works_on(named)?;
        }
        let sandbox = &self.history.sandbox;
        // A backend that this version does not know is replaced by the automatic choice.
        let backend = sandbox.backend.parse().ok();
        let workspace = Some(&self.history.workspace).filter(|path| !path.is_empty()).map(PathBuf::from);
        let mut options = options.clone();
        options.workspace = workspace.or(options.workspace);
        // Stronger isolation stays, unless the user chooses a backend that has none.
        if !options.sandbox.is_some_and(SandboxChoice::lacks_runtimes) {
            options.runtime = options.runtime.or_else(|| sandbox.runtime.clone());
        }
        options.sandbox = options.sandbox.or(backend);
        options.image = options.image.or_else(|| sandbox.image.clone().filter(|image| image != "host"));
        Ok(options)
    }

    /// Whether the session works on `directory`: see [`works_on`].
    pub fn works_on(&self, directory: &Path) -> Result<()> {
        works_on(&self.id, &self.history, directory)
    }

    /// The session's model, where the endpoint is the same and the person names no other.
    pub async fn connect(&self, config: &mut Config) -> Result<Connected> {
        let connected = endpoint::connect(config).await?;
        let History { base_url, model, .. } = &self.history;
        if config.options.model.is_some() || model.is_empty() || connected.base_url != *base_url {
            return Ok(connected);
        }
        config.options.model = Some(model.clone());
        endpoint::connect(config).await
    }

    /// What was spent so far.
    pub fn spent(&self, price: Option<Price>) -> Spent {
        let mut spent = Spent { turns: self.history.turns, ..Spent::default() };
        spent.add_usage(Some(self.history.usage), price);
        spent
    }

    /// Where the workspace comes from: a sandbox that still runs is joined, else the files are brought back.
    /// `None`: the session never got so far as to have one.
    pub async fn source(&self, backend: &dyn Backend) -> Result<Option<Source>> {
        let workspace = Workspace::load(&Store::open()?.dir(&self.id)).await?.map(Arc::new);
        let listed = backend.list().await.unwrap_or_default();
        let state =
            listed.into_iter().find(|listed| listed.session == self.id.as_str()).map(|listed| listed.state);
        let lives = match state {
            Some(State::Running) => true,
            Some(State::Paused) => backend.resume(self.id.as_str()).await.is_ok(),
            _ => false,
        };
        // One whose start was cut short may lack files.
        let lives = lives && workspace.as_ref().is_some_and(|workspace| workspace.is_filled());
        match workspace {
            Some(workspace) if lives => Ok(Some(Source::Rejoin(workspace))),
            // What is left of a stopped one, or of one that was only beginning, would be in the way of a fresh one.
            workspace => {
                backend.destroy(self.id.as_str()).await?;
                Ok(workspace.map(Source::BringBack))
            }
        }
    }
}

/// Whether the session `id` with this `history` works on `directory`; one that never began works on any.
///
/// # Errors
/// It works on another one.
pub fn works_on(id: &SessionId, history: &History, directory: &Path) -> Result<()> {
    let its = &history.workspace;
    let asked = directory.canonicalize().unwrap_or_else(|_| directory.to_owned()).display().to_string();
    if its.is_empty() || *its == asked {
        return Ok(());
    }
    let message = format!("the session {id} works on {}, not on {}", plain(its), plain(&asked));
    Err(Error::usage(message)
        .hint("go on in its own directory (-C names it), or begin another session: with a key, another key"))
}
