//! The services of a session for its servers.

use super::http::Exchange;
use super::settings::ServerSettings;
use agent_base::error::Result;
use agent_base::machine::Machine;
use agent_sandbox::Sandbox;
use agent_sandbox::image::ImageProgram;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use url::Url;

/// The services of a session for its servers.
pub trait Site: Send + Sync {
    /// The session's sandbox, once it is up; a handle that cannot change the workspace as long as nothing may.
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>>;

    /// Starts a sandbox for this server alone, with its limits and the hosts that it may reach.
    fn own_sandbox<'a>(&'a self, server: &'a ServerSettings) -> BoxFuture<'a, Result<Arc<dyn OwnSandbox>>>;

    /// The variables by which the program of this server reaches the hosts that are for it.
    fn network<'a>(
        &'a self,
        server: &'a ServerSettings,
        sandbox: &'a Sandbox,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>>;

    /// Refuses a server elsewhere that the user denies.
    ///
    /// # Errors
    /// Why.
    fn check_address(&self, url: &Url) -> Result<()>;

    /// Records what went to a server elsewhere and came from it.
    fn record(&self, url: &Url, exchange: Exchange);

    /// The workspace on this machine.
    fn workspace(&self) -> &Path;

    /// This machine.
    fn machine(&self) -> &Machine;
}

/// A sandbox that a server has for itself.
pub trait OwnSandbox: Send + Sync {
    /// The handle.
    fn sandbox(&self) -> &Sandbox;

    /// The program of its image; empty where the server's program is not an image's.
    fn program(&self) -> &ImageProgram;

    /// Removes it.
    fn end(&self) -> BoxFuture<'_, ()>;
}

/// The sandbox of a running server, which is removed with it.
pub(super) struct Own(Option<Arc<dyn OwnSandbox>>);

impl Own {
    pub fn new(sandbox: Arc<dyn OwnSandbox>) -> Self {
        Self(Some(sandbox))
    }

    /// Removes it, and waits for that.
    pub async fn end(mut self) {
        if let Some(sandbox) = self.0.take() {
            sandbox.end().await;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let (Some(sandbox), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { sandbox.end().await });
        }
    }
}
