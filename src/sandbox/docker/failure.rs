//! The engine's errors in our words.

use crate::error::Error;
use bollard::errors::Error as EngineError;
use std::error::Error as _;

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
