//! The end of a sandbox: removed by name, or swept up because its owner is gone.

use super::{Docker, failure, overlay, owner};
use crate::error::{Error, Result};
use bollard::models::ContainerSummary;
use bollard::query_parameters::{RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder};
use futures_util::StreamExt;
use futures_util::future::join_all;
use std::time::Duration;

/// How long a removal that is under way may take before it is an error.
const REMOVAL: Duration = Duration::from_secs(30);

impl Docker {
    /// Removes a container and its volumes, running or not, and comes back when it is gone.
    pub(super) async fn remove(&self, container: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.engine.client.remove_container(container, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) => match failure::status(&error) {
                Some(404) => Ok(()),
                // Its removal is under way: it has just ended by itself.
                Some(409) => self.wait_until_removed(container).await,
                _ => Err(failure::error("the sandbox could not be removed", error)),
            },
        }
    }

    async fn wait_until_removed(&self, container: &str) -> Result<()> {
        let options = WaitContainerOptionsBuilder::default().condition("removed").build();
        let mut gone = self.engine.client.wait_container(container, Some(options));
        // Whatever the answer says, an exit code or "no such container", the wait is over with it.
        tokio::time::timeout(REMOVAL, gone.next()).await.map(drop).map_err(|_| {
            Error::sandbox(format!("the sandbox is still being removed after {} s", REMOVAL.as_secs()))
        })
    }

    /// Removes what dead owners left behind: containers, and the layers of workspaces.
    pub(super) async fn remove_abandoned(&self) -> Result<()> {
        let is_abandoned = |c: &ContainerSummary| c.labels.as_ref().is_some_and(owner::is_abandoned);
        let (abandoned, living): (Vec<_>, Vec<_>) =
            self.containers().await?.into_iter().partition(is_abandoned);
        let removals = abandoned.iter().filter_map(|c| c.id.as_deref()).map(|id| self.remove(id));
        join_all(removals).await.into_iter().collect::<Result<()>>()?;
        let session = |c: ContainerSummary| c.labels?.remove(owner::SESSION);
        overlay::sweep(&self.engine, &living.into_iter().filter_map(session).collect()).await
    }
}
