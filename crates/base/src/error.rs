//! One error type: what happened, what to do about it, and the exit code it ends in.

use crate::exit_code::ExitCode;
use serde_json::Value;
use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure. Each kind ends in one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An internal failure: a bug, a full disk.
    Unexpected,
    /// The command line is wrong.
    Usage,
    /// The configuration is wrong.
    Config,
    /// The model endpoint failed.
    Endpoint,
    /// The conversation does not fit the model's context window.
    ContextOverflow,
    /// The sandbox failed.
    Sandbox,
    /// A request inside the sandbox failed (no such file, for example); the sandbox itself works.
    InSandbox,
    /// A limit was reached.
    Limit,
    /// `--check` did not pass.
    Check,
    /// A replay differs from the recording.
    Difference,
    /// The change could not be applied.
    Conflict,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The process got SIGTERM or SIGHUP.
    Terminated,
    /// The reader of standard output has closed it: the run ends without an error message.
    OutputClosed,
}

/// The scope of a failure, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    #[default]
    Unknown,
    /// The endpoint is unreachable, overloaded or refuses this user: every request fails for a while.
    Endpoint,
    /// This image cannot be used: others can.
    Image,
    /// There is no room for another sandbox at the moment: a quota is used up, or no node is free.
    Room,
}

/// A failure: message, hint and exit code.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    source: Option<anyhow::Error>,
    context_window: Option<u64>,
    prompt_tokens: Option<u64>,
    errno: Option<i32>,
    scope: Scope,
    /// Boxed, because every result is at least as large as an error.
    details: Option<Box<Value>>,
}

impl Error {
    /// A failure of `kind`, described in one sentence that starts in lower case.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            source: None,
            context_window: None,
            prompt_tokens: None,
            errno: None,
            scope: Scope::Unknown,
            details: None,
        }
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The configuration is wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config, message)
    }

    /// The model endpoint failed.
    pub fn endpoint(message: impl Into<String>) -> Self {
        Self::new(Kind::Endpoint, message)
    }

    /// The sandbox failed.
    pub fn sandbox(message: impl Into<String>) -> Self {
        Self::new(Kind::Sandbox, message)
    }

    /// An internal failure.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(Kind::Unexpected, message)
    }

    /// Adds what the user can do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the error underneath, shown after the message.
    pub fn caused_by(mut self, source: impl Into<anyhow::Error>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says before the message what failed because of it.
    pub fn context(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds the model's context window and the prompt's size in tokens, as an endpoint named them when the conversation did
    /// not fit.
    pub fn overflow(mut self, window: Option<u64>, prompt: Option<u64>) -> Self {
        (self.context_window, self.prompt_tokens) = (window, prompt);
        self
    }

    /// The model's context window in tokens, where an overflow named it.
    pub fn known_context_window(&self) -> Option<u64> {
        self.context_window
    }

    /// The tokens of the prompt, where an overflow named them.
    pub fn known_prompt_tokens(&self) -> Option<u64> {
        self.prompt_tokens
    }

    /// Adds the error number of the sandbox's kernel; 0 is none.
    pub fn errno(mut self, errno: i32) -> Self {
        self.errno = Some(errno).filter(|&errno| errno != 0);
        self
    }

    /// The error number of the sandbox's kernel, where a request failed with one.
    pub fn known_errno(&self) -> Option<i32> {
        self.errno
    }

    /// Adds whom it concerns.
    pub fn concerns(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Returns its scope.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Adds machine-readable details for `--json`.
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    pub fn known_details(&self) -> Option<&Value> {
        self.details.as_deref()
    }

    /// A copy, for several waiters of one operation that failed.
    pub fn repeat(&self) -> Self {
        Self {
            kind: self.kind,
            message: self.to_string(),
            hint: self.hint.clone(),
            source: None,
            context_window: self.context_window,
            prompt_tokens: self.prompt_tokens,
            errno: self.errno,
            // The source, which may be the one that shows it, is not repeated.
            scope: if self.is_shortage() { Scope::Room } else { self.scope },
            details: self.details.clone(),
        }
    }

    /// Returns whether a full disk or a quota caused it.
    pub fn is_disk_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let causes = self.source.iter().flat_map(|source| source.chain());
        causes
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
            .any(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
    }

    /// Returns whether it failed for want of what others may give back: room on the backend, memory or descriptors of this machine.
    pub fn is_shortage(&self) -> bool {
        let causes = self.source.iter().flat_map(|source| source.chain());
        let mut errors = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        let lacks = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
        self.scope == Scope::Room
            || errors.any(|error| error.raw_os_error().is_some_and(|number| lacks.contains(&number)))
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns what the user can do about it, if anything.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Unexpected | Kind::OutputClosed => ExitCode::Failure,
            Kind::Usage | Kind::Config => ExitCode::Usage,
            Kind::Endpoint | Kind::ContextOverflow => ExitCode::Endpoint,
            Kind::Sandbox | Kind::InSandbox => ExitCode::Sandbox,
            Kind::Limit => ExitCode::Limit,
            Kind::Check | Kind::Difference => ExitCode::Check,
            Kind::Conflict => ExitCode::Conflict,
            Kind::Interrupted => ExitCode::Interrupted,
            Kind::Terminated => ExitCode::Terminated,
        }
    }
}

/// The message and, after colons, what caused it. The hint is not part of it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source:#}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::unexpected("input or output failed").caused_by(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::unexpected("JSON could not be written or read").caused_by(error)
    }
}
