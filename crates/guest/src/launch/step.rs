//! A failure while a sandbox was made, and the step at which it happened.

use std::fmt;
use std::io;
use std::path::Path;

/// A step that failed.
#[derive(Debug)]
pub struct Failure {
    step: String,
    error: io::Error,
}

impl Failure {
    pub fn new(step: &str, error: io::Error) -> Self {
        Self { step: step.to_owned(), error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.error)
    }
}

/// Names the step that a result belongs to.
pub trait Step<T> {
    fn step(self, step: &str) -> Result<T, Failure>;
    fn step_at(self, step: &str, path: &Path) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, error))
    }

    fn step_at(self, step: &str, path: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure { step: format!("{step} {}", path.display()), error })
    }
}
