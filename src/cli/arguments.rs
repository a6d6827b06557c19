//! The groups of options that commands share. A command flattens those that have an effect on it.

use super::options::Options;
use crate::approval::Approve;
use crate::sandbox::SandboxChoice;
use crate::workspace::Mode;
use clap::Args;
use std::path::PathBuf;

/// Which model.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArg {
    /// The model, by the endpoint's name for it
    #[arg(short, long, help_heading = "Model")]
    pub model: Option<String>,
}

impl ModelArg {
    pub fn add_to(self, options: &mut Options) {
        options.model = self.model;
    }
}

/// Which endpoint.
#[derive(Debug, Clone, Default, Args)]
pub struct EndpointArgs {
    /// The endpoint: any OpenAI-compatible chat-completions server
    #[arg(long, value_name = "URL", help_heading = "Model")]
    pub base_url: Option<String>,
    /// A well-known endpoint: openai, novita, deepseek, openrouter, together, groq, ollama, lmstudio, vllm, llamacpp
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub provider: Option<String>,
}

impl EndpointArgs {
    pub fn add_to(self, options: &mut Options) {
        options.base_url = self.base_url;
        options.provider = self.provider;
    }
}

/// Which workspace, by default the current directory.
#[derive(Debug, Clone, Default, Args)]
pub struct DirectoryArg {
    /// The directory to work on (default: the current one)
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Workspace")]
    pub workspace: Option<PathBuf>,
}

impl DirectoryArg {
    pub fn add_to(self, options: &mut Options) {
        options.workspace = self.workspace;
    }
}

/// What of the workspace gets into the sandbox, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct CopyArgs {
    /// How the sandbox gets the workspace; bind lets it write directly into the directory
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Workspace")]
    pub workspace_mode: Option<Mode>,
    /// Copy files that are excluded otherwise (a glob; may be repeated)
    #[arg(long, value_name = "GLOB", help_heading = "Workspace")]
    pub include: Vec<String>,
    /// Exclude files (a glob; may be repeated)
    #[arg(long, value_name = "GLOB", help_heading = "Workspace")]
    pub exclude: Vec<String>,
}

impl CopyArgs {
    pub fn add_to(self, options: &mut Options) {
        options.workspace_mode = self.workspace_mode;
        options.include = self.include;
        options.exclude = self.exclude;
    }
}

/// Which kind of sandbox.
#[derive(Debug, Clone, Default, Args)]
pub struct BackendArgs {
    /// Where tools run
    #[arg(long, value_enum, value_name = "BACKEND", help_heading = "Sandbox")]
    pub sandbox: Option<SandboxChoice>,
    /// The container image; `host` is this machine's own /usr, read-only
    #[arg(long, help_heading = "Sandbox")]
    pub image: Option<String>,
    /// An OCI runtime of the engine other than its default: runsc, kata
    #[arg(long, help_heading = "Sandbox")]
    pub runtime: Option<String>,
}

impl BackendArgs {
    pub fn add_to(self, options: &mut Options) {
        options.sandbox = self.sandbox;
        options.image = self.image;
        options.runtime = self.runtime;
    }
}

/// What commands in the sandbox may use.
#[derive(Debug, Clone, Default, Args)]
pub struct ResourceArgs {
    /// What the sandbox may reach: none (only loopback), registries (of packages), hosts (example.com,*.b.org:8443,…) or
    /// full (the engine's ordinary network)
    #[arg(long, value_name = "NETWORK", help_heading = "Sandbox")]
    pub network: Option<String>,
    /// Memory, swap included: 512m, 2g
    #[arg(long, value_name = "SIZE", help_heading = "Sandbox")]
    pub memory: Option<String>,
    /// Processors
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    pub cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    pub pids: Option<u64>,
    /// Disk for workspace, home and temporary files
    #[arg(long, value_name = "SIZE", help_heading = "Sandbox")]
    pub disk: Option<String>,
    /// Time limit of one command: 90, 90s, 10m
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    pub timeout: Option<String>,
}

impl ResourceArgs {
    pub fn add_to(self, options: &mut Options) {
        options.network = self.network;
        options.memory = self.memory;
        options.cpus = self.cpus;
        options.pids = self.pids;
        options.disk = self.disk;
        options.timeout = self.timeout;
    }
}

/// Whether the sandbox outlives the session.
#[derive(Debug, Clone, Default, Args)]
pub struct KeepArgs {
    /// Keep the sandbox after the session
    #[arg(long, help_heading = "Sandbox")]
    pub keep: bool,
    /// With --keep: an idle sandbox stops after this long (default 1h)
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    pub ttl: Option<String>,
    /// With --keep: a stopped sandbox is removed this long after it was created (default: never)
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    pub delete_after: Option<String>,
}

impl KeepArgs {
    pub fn add_to(self, options: &mut Options) {
        options.keep = self.keep;
        options.ttl = self.ttl;
        options.delete_after = self.delete_after;
    }
}

/// What one prompt may use, and when the user is asked.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitArgs {
    /// Requests to the model (default 100)
    #[arg(long, value_name = "N", help_heading = "Limits for one prompt")]
    pub max_turns: Option<u64>,
    /// Tokens, input and output together
    #[arg(long, value_name = "N", help_heading = "Limits for one prompt")]
    pub max_tokens_total: Option<u64>,
    /// Cost, in the currency of the configured prices
    #[arg(long, value_name = "COST", help_heading = "Limits for one prompt")]
    pub max_cost: Option<f64>,
    /// Wall time: 90, 90s, 10m, 1h
    #[arg(long, value_name = "TIME", help_heading = "Limits for one prompt")]
    pub max_time: Option<String>,
    /// When to ask before a tool runs
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Sandbox")]
    pub approve: Option<Approve>,
}

impl LimitArgs {
    pub fn add_to(self, options: &mut Options) {
        options.max_turns = self.max_turns;
        options.max_tokens_total = self.max_tokens_total;
        options.max_cost = self.max_cost;
        options.max_time = self.max_time;
        options.approve = self.approve;
    }
}

/// Recordings.
#[derive(Debug, Clone, Default, Args)]
pub struct RecordArgs {
    /// Also write the session to this file
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub record: Option<PathBuf>,
    /// Take the model's answers from a recorded session
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub replay: Option<PathBuf>,
}

impl RecordArgs {
    pub fn add_to(self, options: &mut Options) {
        options.record = self.record;
        options.replay = self.replay;
    }
}

/// What has to hold at the end of a run, and what then.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// A command that has to pass, in a fresh sandbox, before a run counts as finished (may be repeated)
    #[arg(long, value_name = "CMD", help_heading = "Run")]
    pub check: Vec<String>,
    /// How often a failed check goes back to the model (default 3)
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub check_attempts: Option<u32>,
    /// Write the change into the workspace when the run has finished
    #[arg(long, help_heading = "Run")]
    pub apply: bool,
}

impl CheckArgs {
    pub fn add_to(self, options: &mut Options) {
        options.check = self.check;
        options.check_attempts = self.check_attempts;
        options.apply = self.apply;
    }
}

/// JSON instead of text.
#[derive(Debug, Clone, Default, Args)]
pub struct JsonArg {
    /// JSON on standard output: the events, one object a line, or the command's result
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

impl JsonArg {
    pub fn add_to(self, options: &mut Options) {
        options.json = self.json;
    }
}

/// How much is shown.
#[derive(Debug, Clone, Default, Args)]
pub struct VerbosityArgs {
    /// No traces; only failures, what is not written yet, and a sandbox that is not the first choice
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Whole arguments and results in the traces
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
}

impl VerbosityArgs {
    pub fn add_to(self, options: &mut Options) {
        options.quiet = self.quiet;
        options.verbose = self.verbose;
    }
}
