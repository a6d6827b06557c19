//! A failure while a sandbox was made, and the step at which it happened.

use std::fmt;
use std::io;
use std::path::Path;

/// A step that failed.
#[derive(Debug)]
pub struct FailedStep {
    step: String,
    error: io::Error,
}

impl FailedStep {
    pub fn new(step: &str, error: io::Error) -> Self {
        Self { step: step.to_owned(), error }
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.error)
    }
}

/// Names the step that a result belongs to.
pub trait Step<T> {
    fn step(self, step: &str) -> Result<T, FailedStep>;
    fn step_at(self, step: &str, path: &Path) -> Result<T, FailedStep>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T, FailedStep> {
        self.map_err(|error| FailedStep::new(step, error))
    }

    fn step_at(self, step: &str, path: &Path) -> Result<T, FailedStep> {
        self.map_err(|error| FailedStep { step: format!("{step} {}", path.display()), error })
    }
}
