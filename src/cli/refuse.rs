//! Refusing options that have no effect where they are given.

use crate::cli::options::Options;
use crate::error::{Error, Result};

/// Fails with the first of the flags that was given: it has no effect `wherever`; `hint` is what to do instead.
///
/// # Errors
/// One was given.
pub fn refuse(given: &[(&str, bool)], wherever: &str, hint: &str) -> Result<()> {
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(Error::usage(format!("{flag} has no effect {wherever}")).hint(hint)),
    }
}

/// The options about the end of a run, and whether they were given.
pub fn of_a_run(options: &Options) -> [(&'static str, bool); 5] {
    [
        ("--check", !options.checks.commands.is_empty()),
        ("--check-attempts", options.checks.attempts.is_some()),
        ("--check-clean", options.checks.is_clean),
        ("--check-timeout", options.check_time.check_timeout.is_some()),
        ("--apply", options.apply.apply),
    ]
}
