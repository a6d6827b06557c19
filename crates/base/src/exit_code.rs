//! The exit codes of `agent`, one meaning each.

use std::process::ExitCode as ProcessExitCode;

/// The exit code of the process. `docs/reference/exit-codes.md` and `agent --help` show the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The model gave its answer (and `--check`, if any, passed).
    Success = 0,
    /// An unexpected failure of `agent` itself, or a session file that is not as `agent` wrote it.
    Failure = 1,
    /// Usage or configuration is wrong.
    Usage = 2,
    /// The model endpoint failed: unreachable, key refused, retries used up, not speaking the protocol.
    Endpoint = 3,
    /// The sandbox failed: no engine, no image, died.
    Sandbox = 4,
    /// A limit was reached: turns, tokens, cost, time, repeated identical calls, an answer that was cut off.
    Limit = 5,
    /// `--check` did not pass, or `agent replay --strict` found a difference.
    Check = 6,
    /// The change could not be applied: a conflict.
    Conflict = 7,
    /// `agent exec`: `agent` itself failed, not the command.
    ExecFailed = 125,
    /// Interrupted (SIGINT).
    Interrupted = 130,
    /// Terminated (SIGTERM).
    Terminated = 143,
}

impl ExitCode {
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitCode> for ProcessExitCode {
    fn from(code: ExitCode) -> Self {
        ProcessExitCode::from(code.code())
    }
}
