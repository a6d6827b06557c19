//! What a session provides to its servers.

use super::http::Exchange;
use super::settings::ServerSettings;
use crate::error::Result;
use crate::sandbox::Sandbox;
use crate::sandbox::machine::Machine;
use futures_util::future::BoxFuture;
use std::path::Path;
use url::Url;

/// What a session provides to its servers.
pub trait Site: Send + Sync {
    /// The session's sandbox, once it is up; a handle that cannot change the workspace as long as nothing may.
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>>;

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
