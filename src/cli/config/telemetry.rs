//! `[telemetry]`: spans and metrics of each session for a collector, where this build has that and the user asks for it.

use super::File;
use crate::error::Result;
use crate::machine::Machine;

#[cfg(feature = "telemetry")]
pub use with::{Apply, begin, end};
#[cfg(not(feature = "telemetry"))]
pub use without::{Apply, begin, end};

/// Has each session that is opened from now on observed, where `file` names a collector.
///
/// # Errors
/// The address is not one, or this build cannot do it.
pub(super) fn set_up(file: &File, machine: &Machine) -> Result<()> {
    match &file.telemetry.otlp {
        Some(otlp) => begin(otlp, &file.telemetry, machine),
        None => Ok(()),
    }
}

#[cfg(feature = "telemetry")]
mod with {
    use crate::cli::config::TelemetryOptions;
    use crate::error::Result;
    use crate::event::Changes;
    use crate::machine::Machine;
    use crate::session::Observer;
    use agent_telemetry::{Settings, Telemetry};
    use jiff::Timestamp;
    use std::sync::Arc;
    use std::time::Duration;

    /// The time for which the end of the process waits for the collector.
    const LAST_TIMEOUT: Duration = Duration::from_secs(2);

    /// Keeps what collects with `machine`, once.
    pub fn begin(otlp: &str, options: &TelemetryOptions, machine: &Machine) -> Result<()> {
        if Telemetry::of(machine).is_some() {
            return Ok(());
        }
        let TelemetryOptions { headers, content, .. } = options.clone();
        let telemetry = Arc::new(Telemetry::new(Settings { otlp: otlp.to_owned(), headers, content })?);
        machine.keep(Arc::clone(&telemetry));
        machine.keep(Observer::new(move || telemetry.listener()));
        Ok(())
    }

    /// Sends what still waits, at the end of the process. Why that failed.
    pub fn end(machine: &Machine) -> Option<String> {
        let why = Telemetry::of(machine)?.flush(LAST_TIMEOUT)?;
        Some(format!("telemetry could not be sent: {why}"))
    }

    /// The writing of a change into the user's files.
    pub struct Apply(Timestamp);

    impl Apply {
        /// It begins now.
        pub fn begin() -> Self {
            Self(Timestamp::now())
        }

        /// It ended, with these changes or with a failure.
        pub fn end(self, session: &str, changes: Option<Changes>, machine: &Machine) {
            if let Some(telemetry) = Telemetry::of(machine) {
                telemetry.applied(session, self.0, changes);
            }
        }
    }
}

#[cfg(not(feature = "telemetry"))]
mod without {
    use crate::cli::config::TelemetryOptions;
    use crate::error::{Error, Result};
    use crate::event::Changes;
    use crate::machine::Machine;

    /// # Errors
    /// Always: nothing would be sent.
    pub fn begin(_: &str, _: &TelemetryOptions, _: &Machine) -> Result<()> {
        Err(Error::config("[telemetry] otlp has no effect: this build of agent was made without telemetry")
            .hint("remove it, or build agent with --features telemetry"))
    }

    /// Nothing waits.
    pub fn end(_: &Machine) -> Option<String> {
        None
    }

    /// The writing of a change into the user's files.
    pub struct Apply;

    impl Apply {
        /// It begins now.
        pub fn begin() -> Self {
            Self
        }

        /// It ended.
        pub fn end(self, _: &str, _: Option<Changes>, _: &Machine) {}
    }
}
