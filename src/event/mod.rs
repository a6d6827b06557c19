//! Everything is an event: the one enum that the turn loop emits and all else listens to.
//!
//! The debug trace, the REPL, `--json`, the session file and the report are listeners.
//! Adding a field is allowed; renaming or removing one is a breaking change and goes into the changelog.

use crate::error::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard};

/// One thing that happened in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The session begins, or goes on in another process. Sent once a run, before anything else.
    SessionStarted {
        /// The session's id.
        session: String,
        /// The version of `agent`.
        version: String,
        /// The model's name as the endpoint knows it.
        model: String,
        /// The endpoint, without any key.
        base_url: String,
        /// The host directory that the session works on.
        workspace: String,
        /// The sandbox that belongs to the session.
        sandbox: SandboxInfo,
    },
    /// The person said something (or `--check` failed and its output goes back to the model).
    UserMessage {
        /// What was said.
        text: String,
    },
    /// A request to the model begins.
    TurnStarted {
        /// Counts from 1 over the whole session.
        turn: u64,
    },
    /// A piece of the answer. Live only.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A piece of the model's reasoning. Live only.
    ReasoningDelta {
        /// The piece.
        text: String,
    },
    /// The model's whole message.
    AssistantMessage {
        /// The text of the answer; may be empty beside tool calls.
        text: String,
        /// The reasoning, where the endpoint sends it.
        reasoning: Option<String>,
        /// The tools that the model asks for, in order.
        tool_calls: Vec<ToolCall>,
        /// Why the model stopped, in the endpoint's word.
        finish_reason: Option<String>,
        /// Tokens used by this message.
        usage: Option<Usage>,
    },
    /// A request failed and is tried again.
    Retry {
        /// Counts from 1.
        attempt: u32,
        /// How long until the next try, in milliseconds.
        wait_ms: u64,
        /// What went wrong.
        reason: String,
    },
    /// Something the person should know: a fallback that was chosen, files left out.
    Notice {
        /// One sentence.
        text: String,
    },
    /// A tool begins.
    ToolStarted {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments as parsed; a string where they were not valid JSON.
        arguments: Value,
    },
    /// A piece of a running command's output. Live only.
    ToolOutput {
        /// The call's id.
        id: String,
        /// `stdout` or `stderr`.
        stream: Stream,
        /// The piece, invalid UTF-8 replaced.
        data: String,
    },
    /// A tool is done.
    ToolFinished {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// Whether it did what was asked.
        ok: bool,
        /// The command's exit code, where a command ran and exited.
        exit_code: Option<i32>,
        /// Wall time in milliseconds.
        duration_ms: u64,
        /// Whether part of the output was left out of `result`.
        truncated: bool,
        /// The text that goes back to the model.
        result: String,
    },
    /// Something was tried that the rules do not allow.
    Denied {
        /// What was tried.
        what: String,
        /// The rule that forbids it.
        rule: String,
    },
    /// A connection from inside the sandbox through the proxy ended (or was refused).
    Connection {
        /// The host as asked for.
        host: String,
        /// The port.
        port: u16,
        /// Whether it was let through.
        allowed: bool,
        /// Bytes sent out.
        sent: u64,
        /// Bytes received.
        received: u64,
        /// How long it was open, in milliseconds.
        duration_ms: u64,
        /// Why it was refused, could not be made, or was cut; absent where it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The workspace was recorded, so that it can be brought back.
    Checkpoint {
        /// The checkpoint's id.
        id: String,
        /// How many files changed since the one before.
        files: u64,
        /// Which of the session's wishes (`user_message`) it belongs to, counting from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wish: Option<u64>,
    },
    /// A limit ended the run, lets no more through (those of the network), or killed a command (those of the sandbox).
    LimitReached {
        /// `turns`, `tokens`, `cost`, `time`, `repetition`, `bad_calls` or `answer_tokens`; `connections`,
        /// `connections_at_once` or `network_bytes`; `disk` or `memory`.
        limit: String,
    },
    /// A `--check` command ran in its fresh sandbox.
    CheckFinished {
        /// The command.
        command: String,
        /// Its exit code; absent where it did not exit by itself.
        exit_code: Option<i32>,
        /// Wall time in milliseconds.
        duration_ms: u64,
    },
    /// Older messages were shortened or replaced so that the conversation fits the context window.
    Compacted {
        /// Estimated tokens before.
        before: u64,
        /// Estimated tokens after.
        after: u64,
        /// The messages that the conversation goes on with.
        messages: Value,
    },
    /// The person let the conversation be forgotten; workspace and sandbox stay as they are.
    Cleared {},
    /// Lines at the end of the session file were missing when the session was opened again, lost with the power or
    /// removed. Stands where they were; kept only, the notice that follows says it live.
    LinesLost {
        /// How many; absent where it cannot be told, because the file that says how many there were is gone too.
        lines: Option<u64>,
    },
    /// The session ends. Always the last line.
    SessionFinished {
        /// `completed`, `interrupted`, `terminated`, `limit`, `check_failed`, `differs` (a strict replay), `conflict` or
        /// `failed`.
        status: String,
        /// The exit code of the process.
        exit_code: u8,
        /// Requests that the model answered.
        turns: u64,
        /// Tokens used over the whole session.
        usage: Usage,
        /// What the session changed in the workspace.
        changes: Changes,
        /// What went wrong, where something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

impl Event {
    /// Live-only events are shown but not kept on disk.
    pub fn is_live_only(&self) -> bool {
        matches!(self, Event::TextDelta { .. } | Event::ReasoningDelta { .. } | Event::ToolOutput { .. })
    }
}

/// A tool that the model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The endpoint's id, made unique where it was not.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them: JSON text, hopefully.
    pub arguments: String,
}

/// Tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens read by the model, the cached ones included.
    pub input: u64,
    /// Tokens written by the model.
    pub output: u64,
    /// Tokens of `input` that came from the provider's prompt cache.
    pub cached: u64,
}

impl Usage {
    /// Adds another message's tokens.
    pub fn add(&mut self, other: Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
    }
}

/// What a session changed, in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// Files that were not there before.
    pub added: u64,
    /// Files with other content or mode.
    pub modified: u64,
    /// Files that are gone.
    pub deleted: u64,
}

/// The sandbox as a session describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxInfo {
    /// `docker` or `local`.
    pub backend: String,
    /// The backend's own id of it; empty until it has started.
    pub id: String,
    /// The image, where there is one.
    pub image: Option<String>,
    /// The OCI runtime, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// `none`, `registries`, `full`, or the list of hosts.
    pub network: String,
    /// The limits in force.
    pub limits: Limits,
}

/// The resources that a sandbox may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Bytes of memory, swap included.
    pub memory: u64,
    /// Processors, as a decimal number.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes that the workspace, home and temporary files may take together.
    pub disk: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 2 << 30, cpus: 2.0, pids: 512, disk: 10 << 30 }
    }
}

/// Which of a command's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An event with its place in the session: one line of `--json` and of the session file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Counts from 1. Live-only events count too, so the session file may skip numbers.
    #[schemars(range(min = 1))]
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that wants to know what happens.
pub trait Listener: Send {
    /// Takes note of one event. An error ends the run: the session file must not lose anything.
    fn on_event(&mut self, record: &Record) -> Result<()>;
}

/// Numbers events and hands each to every listener, in the order they were added.
pub struct Events {
    state: Mutex<State>,
}

struct State {
    seq: u64,
    listeners: Vec<Box<dyn Listener>>,
}

impl Events {
    /// A stream whose first event will have number `next_seq` (1 for a new session).
    pub fn new(next_seq: u64) -> Self {
        Self { state: Mutex::new(State { seq: next_seq.max(1), listeners: Vec::new() }) }
    }

    /// Goes on with a session that was written before: the next event has at least number `next_seq`.
    pub fn go_on_from(&self, next_seq: u64) {
        let mut state = self.lock();
        state.seq = state.seq.max(next_seq);
    }

    /// Adds a listener behind those that are there.
    pub fn listen(&self, listener: Box<dyn Listener>) {
        self.lock().listeners.push(listener);
    }

    /// Adds a listener in front of those that are there: the session file joins when the session has a name.
    pub fn listen_first(&self, listener: Box<dyn Listener>) {
        self.lock().listeners.insert(0, listener);
    }

    /// Numbers `event` and hands it to every listener; the first listener that fails stops it.
    pub fn emit(&self, event: Event) -> Result<()> {
        let mut state = self.lock();
        let record = Record { seq: state.seq, time: now(), event };
        state.seq += 1;
        state.listeners.iter_mut().try_for_each(|listener| listener.on_event(&record))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A listener that panicked leaves nothing half-done that another would trip over.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The time now as events carry it.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
