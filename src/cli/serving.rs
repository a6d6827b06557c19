//! Sessions for the servers of this process: each with the user's configuration, on the directory that a client names.

use super::endpoint;
use super::machine;
use super::open::{From, builder};
use super::run::{model, options_of};
use super::sessions::end_sandbox;
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::error::Result;
use crate::log::{SessionId, Store};
use crate::model::Replayed;
use crate::server::{Opener, StartFrom};
use crate::session::{Frontend, ModelSettings, Notice, Resume, Session, Starts};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;

/// Opens sessions as `agent run` does.
pub struct FromConfig {
    options: Options,
    store: Store,
    /// Whether a model works in the sessions, and not their client alone.
    has_model: bool,
}

impl FromConfig {
    /// With the options of the server's call.
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Self { options: options.clone(), store: Store::open(&machine())?, has_model: true })
    }

    /// Opens sessions without a model, whose sandbox starts when it is needed.
    pub fn without_model(options: &Options) -> Result<Self> {
        Ok(Self { has_model: false, ..Self::new(options)? })
    }

    async fn open_session(
        &self,
        workspace: &Path,
        from: StartFrom,
        frontend: Arc<dyn Frontend>,
    ) -> Result<Session> {
        let resume = match from {
            StartFrom::New => None,
            StartFrom::Session(id) => Some(Resume::open(&self.store, id)?),
        };
        let options = Options { workspace: Some(workspace.to_owned()), ..self.options.clone() };
        let mut config = Config::load(&options_of(resume.as_ref(), &options)?)?;
        let (model, notices) = match self.has_model {
            true => model(&mut config, resume.as_ref()).await?,
            false => (no_model(), Vec::new()),
        };
        let from = resume.map_or(From::Workspace, |resume| From::Session(Box::new(resume)));
        let mut builder = builder(&config, model, from).await?;
        builder.notices.extend(notices.into_iter().map(Notice::Usual));
        if !self.has_model {
            builder.sandbox.starts = Starts::WhenNeeded;
        }
        builder.open(frontend).await
    }
}

/// In the place of a model: the client calls the tools.
fn no_model() -> ModelSettings {
    let client = Arc::new(Replayed::new("client", Vec::new()));
    ModelSettings { base_url: "mcp".to_owned(), ..ModelSettings::new(client) }
}

impl Opener for FromConfig {
    fn store(&self) -> &Store {
        &self.store
    }

    fn open<'a>(
        &'a self,
        workspace: &'a Path,
        from: StartFrom,
        frontend: Arc<dyn Frontend>,
    ) -> BoxFuture<'a, Result<Session>> {
        self.open_session(workspace, from, frontend).boxed()
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        async { endpoint::models(&endpoint::without_model(&Config::load(&self.options)?)?).await }.boxed()
    }

    fn end_sandbox<'a>(&'a self, backend: &'a str, session: &'a SessionId) -> BoxFuture<'a, ()> {
        end_sandbox(backend, session).boxed()
    }

    fn model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ModelSettings>> {
        async move {
            let options = Options { model: Some(name.to_owned()), ..self.options.clone() };
            let config = Config::load(&options)?;
            let connected = endpoint::connect(&config).await?;
            Ok(ModelSettings {
                price: config.price(name),
                base_url: connected.base_url,
                context_window: connected.window,
                compaction: config.file.compaction.unwrap_or(true),
                ..ModelSettings::new(connected.model)
            })
        }
        .boxed()
    }
}
