//! Options that every command takes and not every one obeys: who gives one where nothing comes of it is told.

use crate::cli::options::Options;
use crate::error::{Error, Result};

/// Fails with the first of the flags that was given: it has no effect `wherever`, and `hint` says what has one.
///
/// # Errors
/// One was given.
pub fn refuse(given: &[(&str, bool)], wherever: &str, hint: &str) -> Result<()> {
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(Error::usage(format!("{flag} has no effect {wherever}")).hint(hint)),
    }
}

/// What the end of a run is about, with whether it was given.
pub fn of_a_run(options: &Options) -> [(&'static str, bool); 3] {
    [
        ("--check", !options.check.is_empty()),
        ("--check-attempts", options.check_attempts.is_some()),
        ("--apply", options.apply),
    ]
}
