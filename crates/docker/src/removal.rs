//! The end of a sandbox: removed by name, or swept up because its owner is gone.

use super::{Docker, failure, overlay, state};
use agent_base::error::{Error, Result};
use agent_sandbox::ownership::{self, Ownership};
use bollard::models::ContainerSummary;
use bollard::query_parameters::{
    InspectContainerOptions, RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;
use futures_util::future::join_all;
use std::collections::HashSet;
use std::time::Duration;

/// The time limit for a removal that is under way; after it, that is an error.
const REMOVAL: Duration = Duration::from_secs(30);

impl Docker {
    /// Removes a container and its volumes, running or not, and comes back when it is gone.
    pub(super) async fn remove(&self, container: &str) -> Result<()> {
        let mut removed = self.request_removal(container).await;
        if let Err(error) = &removed
            && lost_race_with_its_end(&failure::text(error))
        {
            self.wait_until(container, "not-running").await?;
            removed = self.request_removal(container).await;
        }
        match removed {
            Ok(()) => Ok(()),
            Err(error) => match failure::status(&error) {
                Some(404) => Ok(()),
                // Its removal is under way: it has just ended by itself.
                Some(409) => self.wait_until(container, "removed").await,
                _ => Err(failure::error("the sandbox could not be removed", error)),
            },
        }
    }

    /// Returns whether there is a container of this name, in any state.
    pub(super) async fn has_container(&self, name: &str) -> Result<bool> {
        let inspect = || self.engine.client.inspect_container(name, None::<InspectContainerOptions>);
        match failure::settled(inspect).await {
            Ok(_) => Ok(true),
            Err(error) if failure::status(&error) == Some(404) => Ok(false),
            Err(error) => Err(failure::error("the sandbox could not be looked at", error)),
        }
    }

    async fn request_removal(&self, container: &str) -> std::result::Result<(), bollard::errors::Error> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        self.engine.client.remove_container(container, Some(options)).await
    }

    async fn wait_until(&self, container: &str, condition: &str) -> Result<()> {
        let options = WaitContainerOptionsBuilder::default().condition(condition).build();
        let mut gone = self.engine.client.wait_container(container, Some(options));
        // Whatever the answer says, an exit code or "no such container", the wait is over with it.
        tokio::time::timeout(REMOVAL, gone.next()).await.map(drop).map_err(|_| {
            Error::sandbox(format!("the sandbox is still being removed after {} s", REMOVAL.as_secs()))
        })
    }

    /// Removes what dead owners left behind, and what does not run any more and was kept until now: containers, and the
    /// layers of workspaces.
    pub(super) async fn remove_abandoned(&self) -> Result<()> {
        let is_abandoned = |c: &ContainerSummary| {
            let ownership = c.labels.as_ref().and_then(Ownership::from_labels);
            ownership.is_some_and(|ownership| ownership.is_left_over(state(c)))
        };
        let containers = self.containers().await?;
        let abandoned = containers.iter().filter(|c| is_abandoned(c)).filter_map(|c| c.id.as_deref());
        join_all(abandoned.map(|id| self.remove(id))).await.into_iter().collect::<Result<()>>()?;
        self.remove_abandoned_layers().await
    }

    async fn remove_abandoned_layers(&self) -> Result<()> {
        let layers = overlay::sessions(&self.engine.machine)?;
        if layers.is_empty() {
            return Ok(());
        }
        // Asked after the layers were listed: a container is made after its layer.
        let session = |c: ContainerSummary| c.labels?.remove(ownership::SESSION);
        let living: HashSet<String> = self.containers().await?.into_iter().filter_map(session).collect();
        for layer in layers
            .iter()
            .filter(|layer| !living.contains(*layer) && overlay::is_abandoned(&self.engine.machine, layer))
        {
            overlay::remove(&self.engine, layer).await?;
        }
        Ok(())
    }
}

/// Returns whether the engine failed to kill a container whose process ended while the engine looked at it: gVisor's runtime had not
/// noticed yet, or the process's entry in `/proc` was gone.
fn lost_race_with_its_end(error: &str) -> bool {
    error.contains("is zombie")
        || (error.contains("open /proc/") && error.contains("no such file or directory"))
}

#[cfg(test)]
mod tests {
    use super::lost_race_with_its_end;

    #[test]
    fn a_process_that_ended_while_it_was_killed_is_told_from_other_failures() {
        let killed = "Could not kill running container b014, cannot remove - ";
        assert!(lost_race_with_its_end(&format!("{killed}open /proc/5177/stat: no such file or directory")));
        assert!(lost_race_with_its_end(&format!("{killed}container PID 17 is zombie and can not be killed")));
        assert!(!lost_race_with_its_end(&format!("{killed}permission denied")));
        assert!(!lost_race_with_its_end("open /var/lib/docker/x: no such file or directory"));
    }
}
