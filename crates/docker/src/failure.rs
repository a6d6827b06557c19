//! The engine's errors in our words.

use agent_base::error::Error;
use bollard::errors::Error as EngineError;
use std::error::Error as _;
use std::time::Duration;

/// The number of attempts to ask again for a container that is between two states, and the pause before each.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// `what` could not be done, for the reason that the engine gives.
pub(super) fn error(what: impl Into<String>, error: EngineError) -> Error {
    let hint = match &error {
        EngineError::DockerResponseServerError { .. } | EngineError::DockerStreamError { .. } => None,
        EngineError::RequestTimeoutError => Some("the engine is there but hangs: `docker info` may tell why"),
        _ => Some("is the engine still running? `docker info` tells"),
    };
    let ours = Error::sandbox(format!("{}: {}", what.into(), text(&error)));
    match hint {
        Some(hint) => ours.hint(hint),
        None => ours,
    }
}

/// The engine's own message where it sent one, else the chain of causes.
pub(super) fn text(error: &EngineError) -> String {
    match error {
        EngineError::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        EngineError::DockerStreamError { error } => error.trim().to_owned(),
        EngineError::RequestTimeoutError => "no answer in time".to_owned(),
        other => {
            let mut text = other.to_string();
            let mut cause = other.source();
            while let Some(error) = cause {
                let line = error.to_string();
                if !text.contains(&line) {
                    text = format!("{text}: {line}");
                }
                cause = error.source();
            }
            text
        }
    }
}

/// The HTTP status that the engine answered with, where it answered.
pub(super) fn status(error: &EngineError) -> Option<u16> {
    match error {
        EngineError::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Returns what `ask` answers once no container is in a state that Docker's API does not have. Podman says `stopped` from the end of a
/// container until it has cleaned up behind it, for about a tenth of a second.
///
/// # Errors
/// The engine's, and that of the last of fifty attempts, 100 ms apart.
pub(super) async fn settled<T, F>(ask: impl Fn() -> F) -> Result<T, EngineError>
where
    F: Future<Output = Result<T, EngineError>>,
{
    for _ in 1..ATTEMPTS {
        match ask().await {
            Err(EngineError::JsonDataError { message, .. }) if message.contains("unknown variant") => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
    ask().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ContainerSummary;
    use std::cell::Cell;

    fn of_podman(state: &str) -> Result<ContainerSummary, EngineError> {
        serde_json::from_str(&format!(r#"{{"State": "{state}"}}"#)).map_err(|error| {
            EngineError::JsonDataError { message: error.to_string(), column: error.column() }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_podman_is_cleaning_up_behind_is_asked_for_again() {
        let asked = Cell::new(0);
        let container = settled(async || {
            asked.set(asked.get() + 1);
            of_podman(if asked.get() < 4 { "stopped" } else { "exited" })
        });
        assert!(container.await.is_ok_and(|container| container.state.is_some()));
        assert_eq!(asked.get(), 4);
        let never = settled(async || of_podman("stopped")).await;
        assert!(never.is_err_and(|error| error.to_string().contains("unknown variant `stopped`")));
    }
}
