//! Sessions for the servers of this process: each with the user's configuration, on the directory that a client names.

use super::endpoint::{self, Connected};
use super::kept_session;
use super::open::{StartingPoint, builder, resumed_options};
use crate::agent::{Budget, Governed};
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::working_directory::WorkingDirectory;
use crate::error::Result;
use crate::log::{SessionId, Store};
use crate::machine::Machine;
use crate::model::Replayed;
use crate::server::web::PageOpener;
use crate::server::{Opener, StartFrom};
use crate::session::{Frontend, ModelSettings, Notice, Resume, Session, Starts};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens sessions as `agent run` does.
pub struct FromConfig {
    machine: Arc<Machine>,
    options: Options,
    store: Store,
    /// Set if a model works in the sessions, and not their client alone.
    has_model: bool,
}

impl FromConfig {
    /// With the options of the server's call.
    pub fn new(machine: &Arc<Machine>, options: &Options) -> Result<Self> {
        let (machine, store) = (Arc::clone(machine), Store::open(machine)?);
        Ok(Self { machine, options: options.clone(), store, has_model: true })
    }

    /// Opens sessions without a model, whose sandbox starts when it is needed.
    pub fn without_model(machine: &Arc<Machine>, options: &Options) -> Result<Self> {
        Ok(Self { has_model: false, ..Self::new(machine, options)? })
    }

    /// A session with these options, whose model is paid from `budgets`. The user has named the workspace, or it is the one where
    /// the server was started.
    async fn open_session(
        &self,
        (options, is_named): (Options, bool),
        resume: Option<SessionId>,
        frontend: Arc<dyn Frontend>,
        budgets: &[Arc<Budget>],
    ) -> Result<Session> {
        let resume = resume.map(|id| Resume::open(&self.store, id)).transpose()?;
        let options = resumed_options(&self.machine, resume.as_ref(), &options)?;
        let mut config = Config::load(&self.machine, &options)?;
        config.workspace_named = is_named;
        let Connected { settings, notices } = match self.has_model {
            true => endpoint::model(&mut config, resume.as_ref()).await?,
            false => Connected { settings: no_model(), notices: Vec::new() },
        };
        let mut builder = builder(&config, paid(settings, budgets), StartingPoint::of(resume)).await?;
        builder.notices.extend(notices.into_iter().map(Notice::Usual));
        if !self.has_model {
            builder.sandbox.starts = Starts::WhenNeeded;
        }
        builder.open(frontend).await
    }

    /// The options of the server for its own workspace, whose directory it was started in, or for another one alone.
    fn options_on(&self, workspace: &Path) -> Result<Options> {
        let mut options = self.options.on(workspace);
        let own = WorkingDirectory::of(&self.machine, &self.options.directory)?;
        options.directory.workspace_only |= own.root != workspace;
        options.directory.resumed = Some(own).filter(|own| own.root == workspace);
        Ok(options)
    }

    async fn list_models(&self) -> Result<Vec<String>> {
        endpoint::models(&Config::load(&self.machine, &self.options)?).await
    }

    async fn model_named(&self, name: &str, budgets: &[Arc<Budget>]) -> Result<ModelSettings> {
        let mut config = Config::load(&self.machine, &self.options)?;
        config.options.model.model = Some(name.to_owned());
        Ok(paid(endpoint::connect(&config).await?.settings, budgets))
    }
}

/// In the place of a model: the client calls the tools.
fn no_model() -> ModelSettings {
    let client = Arc::new(Replayed::new("client", Vec::new()));
    ModelSettings { base_url: "mcp".to_owned(), ..ModelSettings::new(client) }
}

/// A model whose answers are counted in each of `budgets`.
fn paid(mut settings: ModelSettings, budgets: &[Arc<Budget>]) -> ModelSettings {
    settings.client = Governed::by(budgets, settings.client, settings.price);
    settings
}

impl Opener for FromConfig {
    fn store(&self) -> &Store {
        &self.store
    }

    fn own(&self, directory: &Path) -> Vec<PathBuf> {
        let place = WorkingDirectory::of(&self.machine, &self.options.on(directory).directory);
        place.map_or_else(|_| vec![directory.to_owned()], |place| place.own())
    }

    fn open<'a>(
        &'a self,
        workspace: &'a Path,
        from: StartFrom,
        frontend: Arc<dyn Frontend>,
    ) -> BoxFuture<'a, Result<Session>> {
        let resume = match from {
            StartFrom::New => None,
            StartFrom::Session(id) => Some(id),
        };
        self.open_session((self.options.on(workspace), true), resume, frontend, &[]).boxed()
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        self.list_models().boxed()
    }

    fn end_sandbox<'a>(&'a self, backend: &'a str, session: &'a SessionId) -> BoxFuture<'a, ()> {
        kept_session::end_sandbox(&self.machine, backend, session).boxed()
    }

    fn model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ModelSettings>> {
        self.model_named(name, &[]).boxed()
    }
}

#[async_trait]
impl PageOpener for FromConfig {
    async fn open(
        &self,
        workspace: &Path,
        resume: Option<SessionId>,
        frontend: Arc<dyn Frontend>,
        budgets: &[Arc<Budget>],
    ) -> Result<Session> {
        let is_named = self.options.directory.workspace.is_some();
        self.open_session((self.options_on(workspace)?, is_named), resume, frontend, budgets).await
    }

    async fn models(&self) -> Result<Vec<String>> {
        self.list_models().await
    }

    async fn model(&self, name: &str, budgets: &[Arc<Budget>]) -> Result<ModelSettings> {
        self.model_named(name, budgets).await
    }

    async fn end_sandbox(&self, backend: &str, session: &SessionId) {
        kept_session::end_sandbox(&self.machine, backend, session).await;
    }
}
