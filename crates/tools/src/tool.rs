//! The definition of a tool, and the context that it runs in.

use super::ToolResult;
use agent_base::error::{Kind, Result};
use agent_base::utf8_stream::Utf8Stream;
use agent_event::{Event, Events, Stream};
use agent_log::Artifacts;
use agent_policy::policy::{Action, FileChange};
use agent_sandbox::{Output, Sandbox};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::time::Duration;

/// A tool that the model may call.
pub trait Tool: Send + Sync {
    /// The name that the model calls it by.
    fn name(&self) -> &str;

    /// Returns what it does, for the model.
    fn description(&self) -> &str;

    /// The JSON Schema of its arguments; by default it has none.
    fn parameters(&self) -> Value {
        json!({ "type": "object", "properties": {} })
    }

    /// Returns what the policy judges before the call runs; `None` where there is nothing to judge.
    fn action<'a>(&'a self, arguments: &'a Value) -> Option<Action<'a>> {
        let _ = arguments;
        None
    }

    /// The changes of files that the call would make, as far as they are known before: the user is shown them with the question
    /// whether it may run.
    fn changes<'a>(&'a self, sandbox: &'a Sandbox, arguments: &'a Value) -> BoxFuture<'a, Vec<FileChange>> {
        let _ = (sandbox, arguments);
        Box::pin(async { Vec::new() })
    }

    /// The name and the arguments of the tool that a call is meant for, where it is another one: that one is judged and runs.
    fn stands_for(&self, arguments: &Value) -> Option<(String, Value)> {
        let _ = arguments;
        None
    }

    /// Returns whether its calls hand work to sessions of their own. Such calls of one message run at the same time, on the workspace as
    /// it was recorded right before them, and end by themselves when the turn is stopped.
    fn delegates(&self) -> bool {
        false
    }

    /// Returns whether its calls only read files of the sandbox. Such calls of one message run at the same time.
    fn only_reads(&self) -> bool {
        false
    }

    /// Discards what it keeps in the sandbox between calls, because the workspace was put back to an earlier state. What it
    /// discarded, for the user.
    fn discard_state(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// Runs the call. Dropping the future cancels it.
    ///
    /// A failure that the model can act on is a [`ToolResult`] that is not ok, or an error of kind `InSandbox` or
    /// `Usage`. Any other error ends the turn.
    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>>;
}

impl dyn Tool + '_ {
    /// Runs the call and turns errors that the model can act on into results.
    pub async fn call(&self, context: Context<'_>, arguments: Value) -> Result<ToolResult> {
        match self.run(context, arguments).await {
            Err(error) if matches!(error.kind(), Kind::InSandbox | Kind::Usage) => {
                Ok(ToolResult::failure(format!("error: {error}")))
            }
            other => other,
        }
    }
}

/// The context that a tool runs in.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The session's sandbox.
    pub sandbox: &'a Sandbox,
    /// The receiver of live output.
    pub events: &'a Events,
    /// The store of files that it produces.
    pub artifacts: &'a Artifacts,
    /// The id of the call.
    pub call: &'a str,
    /// Its requests of the network.
    pub reach: &'a dyn Reach,
    /// The bounds of the call.
    pub bounds: Bounds,
}

/// The requests that a tool may make of the network.
pub trait Reach: Send + Sync {
    /// Makes sure that programs in the sandbox may connect to these hosts; asks the user where they may not yet. What to do
    /// about it, where they may not.
    fn reach<'a>(&'a self, hosts: &'a [&'a str], purpose: &'a str) -> BoxFuture<'a, Result<Option<String>>>;
}

/// A network that nobody can change.
impl Reach for () {
    fn reach<'a>(&'a self, _: &'a [&'a str], _: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(async { Ok(Some("the network of this sandbox cannot be changed".to_owned())) })
    }
}

impl Context<'_> {
    /// Emits a command's output as live events.
    pub fn live_output(&self) -> LiveOutput<'_> {
        LiveOutput {
            events: self.events,
            call: self.call,
            stdout: Utf8Stream::default(),
            stderr: Utf8Stream::default(),
        }
    }
}

/// The output of one command as live events; its pieces may end within a character.
pub struct LiveOutput<'a> {
    events: &'a Events,
    call: &'a str,
    stdout: Utf8Stream,
    stderr: Utf8Stream,
}

impl LiveOutput<'_> {
    /// Emits one piece.
    pub fn emit(&mut self, output: Output<'_>) -> Result<()> {
        let Output::Data(stream, bytes) = output else { return Ok(()) };
        let decoder = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let data = decoder.push(bytes);
        self.emit_text(stream, data)
    }

    /// Emits what is left of a stream that ends within a character.
    pub fn finish(mut self) -> Result<()> {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.emit_text(Stream::Stdout, stdout.to_owned())?;
        self.emit_text(Stream::Stderr, stderr.to_owned())
    }

    fn emit_text(&self, stream: Stream, data: String) -> Result<()> {
        match data.is_empty() {
            true => Ok(()),
            false => self.events.emit(Event::ToolOutput { id: self.call.to_owned(), stream, data }),
        }
    }
}

/// The bounds of one tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Characters of output that go back to the model; the beginning and the end are kept beyond that.
    pub output_chars: usize,
    /// The timeout of a command for which the model sets none.
    pub timeout: Duration,
    /// The longest timeout that the model may set.
    pub max_timeout: Duration,
    /// The timeout of a check.
    pub check_timeout: Duration,
    /// Set if private keys and well-known tokens in a result are replaced before the model gets it.
    pub redact_secrets: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            output_chars: 30_000,
            timeout: Duration::from_secs(120),
            max_timeout: Duration::from_secs(3600),
            check_timeout: Duration::from_secs(3600),
            redact_secrets: true,
        }
    }
}
