//! The groups of options that commands share. A command flattens those that have an effect on it.

use super::completions::values;
use super::options::{Group, Options};
use super::value_enum;
use crate::approval::Approve;
use crate::backends::SandboxChoice;
use crate::cli::ui::pictures::Images;
use crate::workspace::Mode;
use clap::Args;
use std::path::PathBuf;

/// Which model.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArg {
    /// The model, by the endpoint's name for it
    #[arg(short, long, help_heading = "Model", add = values::models())]
    model: Option<String>,
}

/// Which endpoint.
#[derive(Debug, Clone, Default, Args)]
pub struct EndpointArgs {
    /// The endpoint: any OpenAI-compatible chat-completions server
    #[arg(long, value_name = "URL", help_heading = "Model")]
    base_url: Option<String>,
    /// A well-known endpoint: openai, novita, deepseek, openrouter, together, groq, ollama, lmstudio, vllm, llamacpp
    #[arg(long, value_name = "NAME", help_heading = "Model", add = values::providers())]
    provider: Option<String>,
}

/// Which workspace, by default the current directory.
#[derive(Debug, Clone, Default, Args)]
pub struct DirectoryArg {
    /// The directory to work on (default: the current one)
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Workspace")]
    workspace: Option<PathBuf>,
}

/// What of the workspace gets into the sandbox, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct CopyArgs {
    /// How the sandbox gets the workspace; bind lets it write directly into the directory
    #[arg(long, value_parser = value_enum::workspace_mode(), value_name = "MODE", help_heading = "Workspace")]
    workspace_mode: Option<Mode>,
    /// Copy files that are excluded otherwise (a glob; may be repeated)
    #[arg(long, value_name = "GLOB", help_heading = "Workspace")]
    include: Vec<String>,
    /// Exclude files (a glob; may be repeated)
    #[arg(long, value_name = "GLOB", help_heading = "Workspace")]
    exclude: Vec<String>,
}

/// Which kind of sandbox.
#[derive(Debug, Clone, Default, Args)]
pub struct BackendArgs {
    /// Where tools run
    #[arg(long, value_parser = value_enum::sandbox(), value_name = "BACKEND", help_heading = "Sandbox")]
    sandbox: Option<SandboxChoice>,
    /// The container image; `host` is this machine's own /usr, read-only
    #[arg(long, help_heading = "Sandbox")]
    image: Option<String>,
    /// An OCI runtime of the engine other than its default: runsc, kata; with kubernetes, a RuntimeClass
    #[arg(long, help_heading = "Sandbox")]
    runtime: Option<String>,
    /// With kubernetes: the context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    kube_context: Option<String>,
}

/// What commands in the sandbox may use.
#[derive(Debug, Clone, Default, Args)]
pub struct ResourceArgs {
    /// What the sandbox may reach: none (only loopback), registries (of packages), hosts (example.com,*.b.org:8443,…) or
    /// full (the engine's ordinary network)
    #[arg(long, value_name = "NETWORK", help_heading = "Sandbox", add = values::networks())]
    network: Option<String>,
    /// Memory, swap included: 512m, 2g
    #[arg(long, value_name = "SIZE", help_heading = "Sandbox")]
    memory: Option<String>,
    /// Processors
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    pids: Option<u64>,
    /// Disk for workspace, home and temporary files
    #[arg(long, value_name = "SIZE", help_heading = "Sandbox")]
    disk: Option<String>,
    /// Time limit of one command: 90, 90s, 10m
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    timeout: Option<String>,
    /// A variable of the commands in the sandbox; without VALUE, the one of this environment (may be repeated)
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Sandbox")]
    env: Vec<String>,
}

/// Whether the sandbox outlives the session.
#[derive(Debug, Clone, Default, Args)]
pub struct KeepArgs {
    /// Keep the sandbox after the session
    #[arg(long, help_heading = "Sandbox")]
    keep: bool,
    /// With --keep: an idle sandbox stops after this long (default 1h)
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    ttl: Option<String>,
    /// With --keep: a stopped sandbox is removed this long after it was created (default: never)
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    delete_after: Option<String>,
}

/// What one prompt may use, and when the user is asked.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitArgs {
    /// Requests to the model (default 100)
    #[arg(long, value_name = "N", help_heading = "Limits for one prompt")]
    max_turns: Option<u64>,
    /// Tokens, input and output together
    #[arg(long, value_name = "N", help_heading = "Limits for one prompt")]
    max_tokens_total: Option<u64>,
    /// Cost, in the currency of the configured prices
    #[arg(long, value_name = "COST", help_heading = "Limits for one prompt")]
    max_cost: Option<f64>,
    /// Wall time: 90, 90s, 10m, 1h
    #[arg(long, value_name = "TIME", help_heading = "Limits for one prompt")]
    max_time: Option<String>,
    /// When to ask before a tool runs
    #[arg(long, value_parser = value_enum::approve(), value_name = "WHEN", help_heading = "Sandbox")]
    approve: Option<Approve>,
}

/// Whether the model may delegate.
#[derive(Debug, Clone, Default, Args)]
pub struct DelegateArg {
    /// Offer the tool `delegate`: parts of the work in sessions of their own, at the same time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Session")]
    delegate: Option<bool>,
}

/// Recordings.
#[derive(Debug, Clone, Default, Args)]
pub struct RecordArgs {
    /// Also write the session to this file
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    record: Option<PathBuf>,
    /// Take the model's answers from a recorded session
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    replay: Option<PathBuf>,
}

/// What has to hold at the end of a run, and what then.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// A command that has to pass, in a fresh sandbox, before a run counts as finished (may be repeated)
    #[arg(long, value_name = "CMD", help_heading = "Run")]
    check: Vec<String>,
    /// How often a failed check goes back to the model (default 3)
    #[arg(long, value_name = "N", help_heading = "Run")]
    check_attempts: Option<u32>,
    /// Time limit of one check: 90, 90s, 10m (default 1h)
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    check_timeout: Option<String>,
    /// Write the change into the workspace when the run has finished
    #[arg(long, help_heading = "Run")]
    apply: bool,
}

/// JSON instead of text.
#[derive(Debug, Clone, Default, Args)]
pub struct JsonArg {
    /// JSON on standard output: the events, one object a line, or the command's result
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// How much is shown.
#[derive(Debug, Clone, Default, Args)]
pub struct VerbosityArgs {
    /// No traces; only failures, what is not written yet, and a sandbox that is not the first choice
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    quiet: bool,
    /// Whole arguments and results in the traces
    #[arg(short, long, help_heading = "Output")]
    verbose: bool,
    /// When pictures that programs show are drawn in the terminal
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Output")]
    images: Option<Images>,
}

/// What every command takes that plays a recording.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaybackArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// Also write the session to this file
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    record: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

/// What every command takes that has a model work in a sandbox.
#[derive(Debug, Clone, Default, Args)]
pub struct WorkArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

/// What every command takes that opens a session for a model.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionOptions {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    delegate: DelegateArg,
    #[command(flatten)]
    record: RecordArgs,
}

/// A session, by default the newest of this workspace.
#[derive(Debug, Args)]
pub struct SessionArg {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    json: JsonArg,
    /// Its id, or the beginning of it (default: the newest of this workspace)
    #[arg(add = values::sessions())]
    pub id: Option<String>,
}

impl SessionArg {
    pub fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.json])
    }
}

/// The changes of a session, or some of them.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    json: JsonArg,
    /// The session's id or the beginning of it (default: the newest of this workspace)
    #[arg(add = values::sessions())]
    pub id: Option<String>,
    /// Only these files and directories
    pub paths: Vec<PathBuf>,
}

/// A group's own options, and the groups in it.
macro_rules! groups {
    ($($name:ident: $($field:ident)* $([$($group:ident)*])?;)*) => {$(
        impl Group for $name {
            fn add_to(&self, options: &mut Options) {
                $(options.$field = self.$field.clone();)*
                $($(self.$group.add_to(options);)*)?
            }
        }
    )*};
}

groups! {
    ModelArg: model;
    EndpointArgs: base_url provider;
    DirectoryArg: workspace;
    CopyArgs: workspace_mode include exclude;
    BackendArgs: sandbox image runtime kube_context;
    ResourceArgs: network memory cpus pids disk timeout env;
    KeepArgs: keep ttl delete_after;
    LimitArgs: max_turns max_tokens_total max_cost max_time approve;
    DelegateArg: delegate;
    RecordArgs: record replay;
    CheckArgs: check check_attempts check_timeout apply;
    JsonArg: json;
    VerbosityArgs: quiet verbose images;
    PlaybackArgs: record [backend resources keep limits json verbosity];
    WorkArgs: [model endpoint directory copy backend resources verbosity];
    SessionOptions: [work keep limits delegate record];
    ChangesArgs: [directory json];
}
