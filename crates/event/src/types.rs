//! [`Event`] and the types that its fields have.
//!
//! Adding a field is allowed; renaming or removing one is a breaking change and goes into the changelog.

use super::{Arguments, Artifact, CallForm, Content, FileEdit, Opaque};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing that happened in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The session starts, or is resumed by another process. The first event of a run.
    SessionStarted {
        /// The version of `agent`.
        version: String,
        /// The model's name as the endpoint knows it.
        model: String,
        /// The endpoint, without any key.
        base_url: String,
        /// The host directory that the session works on.
        workspace: String,
        /// The directory that commands start in, relative to it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        directory: String,
        /// Directories beside it that the session sees.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        added: Vec<AddedDirectory>,
        /// The sandbox that belongs to the session.
        sandbox: SandboxInfo,
        /// The session whose model delegated a part of its work to this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// The sandbox is up. Sent once a run, before its first use; absent where nothing needed it.
    SandboxReady {
        /// `docker` or `local`.
        backend: String,
        /// The backend's own id of it: a container's id, for example.
        id: String,
    },
    /// A prompt of the user, or the output of a failed `--check` that goes back to the model.
    UserMessage {
        /// The prompt.
        text: String,
    },
    /// A request to the model starts.
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
        /// The requested tool calls, in order.
        tool_calls: Vec<ToolCall>,
        /// Why the model stopped, as the endpoint reports it.
        finish_reason: Option<String>,
        /// Tokens used by this message.
        usage: Option<Usage>,
        /// Fields that go back to the endpoint as they came.
        #[serde(default, skip_serializing_if = "Opaque::is_empty")]
        opaque: Opaque,
    },
    /// A request failed and is retried.
    Retry {
        /// Counts from 1.
        attempt: u32,
        /// Time until the next attempt, in milliseconds.
        wait_ms: u64,
        /// The error.
        reason: String,
    },
    /// Something the user should know: a fallback that was chosen, files that were excluded.
    Notice {
        /// One sentence.
        text: String,
    },
    /// The form in which tools are offered to the model and in which it writes its calls, if it is not the native one.
    CallForm {
        /// The model's name.
        model: String,
        /// The form.
        form: CallForm,
        /// Why it was chosen.
        reason: String,
    },
    /// `agent` asked the model to continue, in place of accepting its answer: it was empty, or nothing was done.
    Nudge {
        /// The text that the model was sent.
        text: String,
    },
    /// The model's message was not finished, or a prompt ended without an answer: what had arrived stays in the
    /// conversation.
    AnswerStopped {
        /// The text that had arrived; may be empty.
        text: String,
        /// Why it ended there, as the model learns it.
        reason: String,
    },
    /// Something that happened between two prompts: a command or an `/undo` of the user, files that changed on the host.
    /// The model learns with the next prompt.
    Note {
        /// The text that the model gets.
        text: String,
    },
    /// A file, a directory or an image that the prompt names with `@`. The model reads it behind that prompt, which follows.
    Attached {
        /// Its path in the workspace, with the lines that were asked for.
        name: String,
        /// The text that the model reads.
        text: String,
    },
    /// The model's plan changed, or the user began to plan or decided about it.
    Plan {
        /// The steps, in order.
        steps: Vec<PlanStep>,
        /// Set if the workspace is read-only until the user accepts the plan.
        read_only: bool,
    },
    /// A tool call starts.
    ToolStarted {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The parsed arguments; a string if they were not valid JSON.
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
    /// A tool call ended.
    ToolFinished {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// Set if the call succeeded.
        ok: bool,
        /// The command's exit code, if a command ran and exited.
        exit_code: Option<i32>,
        /// Wall time in milliseconds.
        duration_ms: u64,
        /// Set if `result` lacks part of the output.
        truncated: bool,
        /// The text that is returned to the model.
        result: String,
        /// The parts of the result, where it is more than text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        content: Vec<Content>,
        /// The files that the call itself wrote, where it is a tool that writes files: the first of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        edits: Vec<FileEdit>,
    },
    /// A tool call produced a file, an image for example; its bytes are stored beside the session file.
    Artifact {
        /// The file.
        #[serde(flatten)]
        artifact: Artifact,
        /// The id of the call.
        tool_call: String,
    },
    /// A `delegate` call begins a session for a part of the work. Its events name that session.
    DelegateStarted {
        /// The call's id.
        id: String,
        /// The new session.
        delegate: String,
        /// The task that it is given.
        task: String,
        /// The files and directories that it may change; absent where that is all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<String>,
    },
    /// The session of a `delegate` call ended, and what it changed was merged into the workspace of this session's sandbox.
    DelegateFinished {
        /// The call's id.
        id: String,
        /// The session.
        delegate: String,
        /// As in its `session_finished`.
        status: String,
        /// Number of requests that the model answered in it.
        turns: u64,
        /// Tokens that it used; the usage of this session includes them.
        usage: Usage,
        /// Their cost; absent without prices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
        /// Wall time in milliseconds.
        duration_ms: u64,
        /// The files that it changed.
        changes: Changes,
        /// Number of its changed files that this session's workspace has now.
        merged: u64,
        /// Files that conflict, and were not merged.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conflicts: Vec<String>,
        /// Changed files that are outside of `paths`, and were not merged.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outside: Vec<String>,
        /// Why it did not complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Secrets in a tool's result, or in the output of a failed check, were replaced before the model got it.
    SecretsRedacted {
        /// The call's id, or `check`.
        id: String,
        /// How many were replaced, by type.
        types: std::collections::BTreeMap<String, u64>,
    },
    /// A rule denied an action.
    Denied {
        /// The denied action.
        what: String,
        /// The rule that denied it.
        rule: String,
    },
    /// A connection from the sandbox through the proxy was closed or refused.
    Connection {
        /// The host as the client named it.
        host: String,
        /// The port.
        port: u16,
        /// Set if the network rules allowed it.
        allowed: bool,
        /// Bytes sent out.
        sent: u64,
        /// Bytes received.
        received: u64,
        /// How long it was open, in milliseconds.
        duration_ms: u64,
        /// Why it was refused, failed or was cut off; absent if it was closed normally.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A request from the sandbox was given a credential of the user's.
    CredentialUsed {
        /// The credential's name.
        credential: String,
        /// The host and the port.
        host: String,
        /// The request's method.
        method: String,
        /// Its path, without the query.
        path: String,
    },
    /// A request to a host that a credential is bound to was not passed on.
    CredentialRefused {
        /// The credential's name.
        credential: String,
        /// The host and the port.
        host: String,
        /// The request's method.
        method: String,
        /// Its path, without the query.
        path: String,
        /// Why.
        reason: String,
    },
    /// The user changed what the sandbox may reach. Holds again when the session is resumed, unless that call names a network.
    NetworkChanged {
        /// The list in force, as `--network` takes it; empty where nothing is allowed or denied.
        hosts: Vec<String>,
    },
    /// The state of the workspace was saved and can be restored.
    Checkpoint {
        /// The checkpoint's id.
        id: String,
        /// Number of files that changed since the previous checkpoint.
        files: u64,
        /// The first of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<String>,
        /// The number of the prompt (`user_message`) that it belongs to, counting from 1.
        #[serde(default, alias = "wish", skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
    },
    /// A limit was reached: it ended the run, blocks further traffic (network limits) or killed a command (sandbox
    /// limits).
    LimitReached {
        /// `turns`, `tokens`, `cost`, `time`, `repetition`, `bad_calls` or `answer_tokens`;
        /// `connections`, `connections_at_once` or `network_bytes`; `disk` or `memory`.
        limit: String,
    },
    /// A `--check` command ran.
    CheckFinished {
        /// The command.
        command: String,
        /// Its exit code; absent if it was killed.
        exit_code: Option<i32>,
        /// Wall time in milliseconds.
        duration_ms: u64,
        /// The last lines of its output, if it did not pass.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
    },
    /// Older messages were shortened or summarised so that the conversation fits the context window.
    Compacted {
        /// Estimated tokens before.
        before: u64,
        /// Estimated tokens after.
        after: u64,
        /// The messages that remain.
        messages: Value,
    },
    /// The user went back: this prompt and all that followed is not in the conversation any more, and the workspace is as
    /// it was before it.
    Rewound {
        /// The number of the prompt (`user_message`), counting from 1.
        prompt: u64,
    },
    /// The model kept failing: all that followed this prompt is not in the conversation any more, the workspace is as it was
    /// before it, and the model works on it again.
    StartedOver {
        /// The number of the prompt (`user_message`), counting from 1.
        prompt: u64,
        /// Which attempt at the prompt begins, counting from 1.
        attempt: u32,
    },
    /// The user cleared the conversation; workspace and sandbox are unchanged.
    Cleared {},
    /// Lines at the end of the session file were missing when the session was reopened: lost in a power failure, or
    /// removed. Only in the session file, in their place; a live listener gets a notice.
    LinesLost {
        /// Number of missing lines; absent if it is unknown because the `head` file is missing too.
        lines: Option<u64>,
    },
    /// The run ended. Always the last event.
    SessionFinished {
        /// `completed`, `interrupted`, `terminated`, `limit`, `check_failed`, `differs` (a strict replay), `conflict` or
        /// `failed`.
        status: String,
        /// The exit code of the process.
        exit_code: u8,
        /// Number of requests that the model answered.
        turns: u64,
        /// Tokens used over the whole session, by sessions that it delegated to as well.
        usage: Usage,
        /// Their cost, in the currency of the configured prices; absent without prices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
        /// The part of `usage` that sessions used to which this run delegated; absent if there were none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delegated: Option<Usage>,
        /// The changes of the session in the workspace.
        changes: Changes,
        /// The error message, if the run failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

impl Event {
    /// Returns whether the event is delivered live but not written to the session file.
    pub fn is_live_only(&self) -> bool {
        matches!(self, Event::TextDelta { .. } | Event::ReasoningDelta { .. } | Event::ToolOutput { .. })
    }
}

/// A tool call that the model requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The endpoint's id, made unique if it was not.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them; not necessarily valid JSON.
    #[schemars(with = "String")]
    pub arguments: Arguments,
}

/// A step of the model's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    /// The task.
    pub text: String,
    /// How far it is.
    pub status: StepStatus,
}

/// How far a step of a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Pending,
    InProgress,
    Completed,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the provider's prompt cache.
    pub cached: u64,
    /// Input tokens written to the provider's prompt cache, where it counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Input that was neither read from the cache nor written to it.
    pub fn fresh(&self) -> u64 {
        self.input.saturating_sub(self.cached).saturating_sub(self.written)
    }

    pub fn add(&mut self, other: Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.written = self.written.saturating_add(other.written);
    }
}

/// Numbers of changed files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// New files.
    pub added: u64,
    /// Files whose content or mode changed.
    pub modified: u64,
    /// Deleted files.
    pub deleted: u64,
}

/// A directory of the host beside the workspace, at its own path inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddedDirectory {
    /// Its path.
    pub path: String,
    /// Set if the session can only read it.
    pub read_only: bool,
}

/// The sandbox of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxInfo {
    /// `docker` or `local`.
    pub backend: String,
    /// The id that the backend gave it; empty until it has started.
    pub id: String,
    /// The image, if the backend uses one.
    pub image: Option<String>,
    /// The OCI runtime, if one was configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Set if a Docker engine runs inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub docker: bool,
    /// `none`, `registries`, `full`, or the list of hosts.
    pub network: String,
    /// The resource limits.
    pub limits: Limits,
    /// The parts of its protection that the backend could not make, a sentence each. Known once it has started, and a notice then.
    #[serde(skip)]
    pub missing: Vec<String>,
}

/// The resource limits of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Memory in bytes, including swap.
    pub memory: u64,
    /// Number of CPUs; may be fractional.
    pub cpus: f64,
    /// Number of processes and threads.
    pub pids: u64,
    /// Disk space in bytes for the workspace, the home directory and temporary files together.
    pub disk: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 2 << 30, cpus: 2.0, pids: 512, disk: 10 << 30 }
    }
}

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}
