//! The options that commands share, in groups. A command flattens the groups that have an effect on it.

use super::choices;
use super::working_directory::WorkingDirectory;
use crate::approval::Approve;
use crate::backends::SandboxChoice;
use crate::cli::ui::pictures::Images;
use crate::cli::ui::trace::Verbosity;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::sandbox::kubernetes::Settings;
use crate::session::CheckRules;
use crate::workspace::Mode;
use clap::Args;
use clap::builder::BoolishValueParser;
use std::path::{Path, PathBuf};

/// Defines [`Options`] of the groups that have options of their own.
macro_rules! options {
    ($($(#[$doc:meta])* $field:ident: $group:ident,)*) => {
        /// Everything that was given on the command line, of all that any command takes: `Config::load` adds the other sources.
        #[derive(Debug, Clone, Default)]
        pub struct Options {
            $($(#[$doc])* pub $field: $group,)*
        }

        $(impl OptionGroup for $group {
            fn add_to(&self, options: &mut Options) {
                options.$field = self.clone();
            }
        })*
    };
}

options! {
    model: ModelArg,
    endpoint: EndpointArgs,
    assist: AssistArg,
    directory: DirectoryArg,
    copy: CopyArgs,
    backend: BackendArgs,
    resources: ResourceArgs,
    keep: KeepArgs,
    limits: LimitArgs,
    cost: CostArg,
    approve: ApproveArg,
    delegate: DelegateArg,
    record: RecordArg,
    replay: ReplayArg,
    checks: CheckArgs,
    check_time: CheckTimeArg,
    apply: ApplyArg,
    plan: PlanArg,
    output: JsonArg,
    verbosity: VerbosityArgs,
}

/// Options that several commands share.
pub trait OptionGroup {
    fn add_to(&self, options: &mut Options);
}

impl Options {
    /// Returns what a command was given in its groups.
    pub fn of(groups: &[&dyn OptionGroup]) -> Self {
        let mut options = Self::default();
        groups.iter().for_each(|group| group.add_to(&mut options));
        options
    }

    /// The same for another workspace.
    pub fn on(&self, workspace: &Path) -> Self {
        let mut options = self.clone();
        options.directory.workspace = Some(workspace.to_owned());
        options
    }

    /// That the result is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.output.json
    }

    /// That only failures are shown.
    pub fn is_quiet(&self) -> bool {
        self.verbosity.quiet
    }

    /// Returns the level of detail in which a session is shown.
    pub fn verbosity(&self) -> Verbosity {
        match (self.verbosity.quiet, self.verbosity.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

/// Which model.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArg {
    /// The model, by the endpoint's name for it
    #[arg(short, long, help_heading = "Model")]
    pub model: Option<String>,
}

/// Which endpoint.
#[derive(Debug, Clone, Default, Args)]
pub struct EndpointArgs {
    /// The endpoint: any OpenAI-compatible chat-completions server
    #[arg(long, value_name = "URL", help_heading = "Model")]
    pub base_url: Option<String>,
    /// A well-known endpoint: openai, anthropic, gemini, novita, deepseek, openrouter, ollama, llamacpp, …
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub provider: Option<String>,
}

/// The setting of the help for the model.
#[derive(Debug, Clone, Default, Args)]
pub struct AssistArg {
    /// Help the model along where its steps fail or lead nowhere (default: models below 4 billion parameters)
    #[arg(long, value_name = "on|off", value_parser = BoolishValueParser::new(), help_heading = "Model")]
    pub assist: Option<bool>,
}

/// Which workspace, by default the current directory.
#[derive(Debug, Clone, Default, Args)]
pub struct DirectoryArg {
    /// The directory to work on (default: the current one); in a git repository, all of that is the workspace
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Workspace")]
    pub workspace: Option<PathBuf>,
    /// The directory alone is the workspace, also where it is part of a git repository
    #[arg(long, help_heading = "Workspace")]
    pub workspace_only: bool,
    /// That of the session that is resumed.
    #[arg(skip)]
    pub resumed: Option<WorkingDirectory>,
}

/// The parts of the workspace that get into the sandbox, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct CopyArgs {
    /// How the sandbox gets the workspace; bind lets it write directly into the directory
    #[arg(long, value_parser = choices::workspace_mode(), value_name = "MODE", help_heading = "Workspace")]
    pub workspace_mode: Option<Mode>,
    /// Copy files that are excluded otherwise (a glob; may be repeated)
    #[arg(long, value_name = "GLOB", help_heading = "Workspace")]
    pub include: Vec<String>,
    /// Exclude files (a glob; may be repeated)
    #[arg(long, value_name = "GLOB", help_heading = "Workspace")]
    pub exclude: Vec<String>,
    /// A further directory at its own path, under the same review; with :ro it can only be read (may be repeated)
    #[arg(long, value_name = "DIR[:ro]", help_heading = "Workspace")]
    pub add_dir: Vec<String>,
}

/// Which kind of sandbox.
#[derive(Debug, Clone, Default, Args)]
pub struct BackendArgs {
    /// Where tools run
    #[arg(long, value_parser = choices::sandbox(), value_name = "BACKEND", help_heading = "Sandbox")]
    pub sandbox: Option<SandboxChoice>,
    /// The container image; `host` is this machine's own /usr, read-only
    #[arg(long, help_heading = "Sandbox")]
    pub image: Option<String>,
    /// An OCI runtime of the engine other than its default: runsc, kata; with kubernetes, a RuntimeClass
    #[arg(long, help_heading = "Sandbox")]
    pub runtime: Option<String>,
    /// With vm: a Docker engine runs inside, and commands are root there
    #[arg(long, help_heading = "Sandbox")]
    pub allow_docker: bool,
    /// Which cluster
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Which cluster, and where in it.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// With kubernetes: the context of the kubeconfig, instead of its current one
    #[arg(long, global = true, value_name = "NAME", help_heading = "Sandbox")]
    pub kube_context: Option<String>,
    /// With kubernetes: the namespace of the pods, instead of the context's
    #[arg(long, global = true, value_name = "NAME", help_heading = "Sandbox")]
    pub kube_namespace: Option<String>,
}

impl ClusterArgs {
    /// Overrides what the user's file says of the cluster.
    pub fn keep(&self, machine: &Machine) {
        let Self { kube_context, kube_namespace } = self.clone();
        if kube_context.is_none() && kube_namespace.is_none() {
            return;
        }
        let settings = Settings::of(machine);
        let context = kube_context.or(settings.context.clone());
        let namespace = kube_namespace.or(settings.namespace.clone());
        Settings { context, namespace, ..settings }.keep(machine);
    }
}

/// Limits of the commands in the sandbox.
#[derive(Debug, Clone, Default, Args)]
pub struct ResourceArgs {
    /// Hosts that the sandbox may reach: none (only loopback), registries (of packages), hosts (example.com,*.b.org:8443,…) or
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
    /// A variable of the commands in the sandbox; without VALUE, the one of this environment (may be repeated)
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Sandbox")]
    pub env: Vec<String>,
    /// A credential that programs use without holding it: [credentials.NAME] of config.toml, or a preset (github, npm, …); with
    /// :write also for requests that write (may be repeated)
    #[arg(long, value_name = "NAME[:write]", help_heading = "Sandbox")]
    pub credential: Vec<String>,
}

/// The lifetime of the sandbox after its session.
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

/// Limits of one prompt or task.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitArgs {
    /// Requests to the model (default 100)
    #[arg(long, value_name = "N")]
    pub max_turns: Option<u64>,
    /// Tokens, input and output together
    #[arg(long, value_name = "N")]
    pub max_tokens_total: Option<u64>,
    /// Wall time: 90, 90s, 10m, 1h
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<String>,
}

/// The limit of one prompt's cost.
#[derive(Debug, Clone, Default, Args)]
pub struct CostArg {
    /// Cost, in the currency of the configured prices
    #[arg(long, value_name = "COST", help_heading = "Limits for one prompt")]
    pub max_cost: Option<f64>,
}

/// When the user is asked.
#[derive(Debug, Clone, Default, Args)]
pub struct ApproveArg {
    /// When to ask before a tool runs
    #[arg(long, value_parser = choices::approve(), value_name = "WHEN", help_heading = "Sandbox")]
    pub approve: Option<Approve>,
}

/// Limits of one prompt, and when the user is asked.
#[derive(Debug, Clone, Default, Args)]
pub struct PromptLimitArgs {
    #[command(flatten, next_help_heading = "Limits for one prompt")]
    limits: LimitArgs,
    #[command(flatten)]
    cost: CostArg,
    #[command(flatten)]
    approve: ApproveArg,
}

/// The setting of delegation.
#[derive(Debug, Clone, Default, Args)]
pub struct DelegateArg {
    /// Offer the tool `delegate`: parts of the work in sessions of their own, at the same time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Session")]
    pub delegate: Option<bool>,
}

/// Where else a session is written.
#[derive(Debug, Clone, Default, Args)]
pub struct RecordArg {
    /// Also write the session to this file
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub record: Option<PathBuf>,
}

/// Answers that were recorded.
#[derive(Debug, Clone, Default, Args)]
pub struct ReplayArg {
    /// Take the model's answers from a recorded session
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub replay: Option<PathBuf>,
}

/// The conditions at the end of a run.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// A command that has to pass, in a copy of the sandbox, before a run counts as finished (may be repeated)
    #[arg(id = "check", long = "check", value_name = "CMD", help_heading = "Run")]
    pub commands: Vec<String>,
    /// How often a check is tried before its failure counts (default 3: it goes back to the model twice)
    #[arg(id = "check_attempts", long = "check-attempts", value_name = "N", help_heading = "Run")]
    pub attempts: Option<u32>,
    /// Check the change alone, without what the session installed or built outside of it
    #[arg(id = "check_clean", long = "check-clean", help_heading = "Run")]
    pub is_clean: bool,
}

/// The number of times that a check is run by default before its failure counts.
const CHECK_ATTEMPTS: u32 = 3;

impl CheckArgs {
    /// Returns the rules for running checks.
    pub fn rules(&self) -> CheckRules {
        CheckRules { attempts: self.attempts.unwrap_or(CHECK_ATTEMPTS), is_clean: self.is_clean }
    }

    /// An empty command passes whatever the change is.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse_empty(&self) -> Result<()> {
        match self.commands.iter().any(|command| command.trim().is_empty()) {
            true => Err(Error::config("--check is empty").hint("is the variable set that it comes from?")),
            false => Ok(()),
        }
    }
}

/// How long a check may take.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckTimeArg {
    /// Time limit of one check: 90, 90s, 10m (default 1h)
    #[arg(long, value_name = "TIME")]
    pub check_timeout: Option<String>,
}

/// The decision to write the change.
#[derive(Debug, Clone, Default, Args)]
pub struct ApplyArg {
    /// Write the change into the workspace when the run has finished
    #[arg(long, help_heading = "Run")]
    pub apply: bool,
}

/// The conditions at the end of a run, and what follows from them.
#[derive(Debug, Clone, Default, Args)]
pub struct EndArgs {
    #[command(flatten)]
    checks: CheckArgs,
    #[command(flatten, next_help_heading = "Run")]
    check_time: CheckTimeArg,
    #[command(flatten)]
    apply: ApplyArg,
}

/// The setting of plans that the user accepts first.
#[derive(Debug, Clone, Default, Args)]
pub struct PlanArg {
    /// Plan first: the workspace is read-only until you accept the plan
    #[arg(long, help_heading = "Run")]
    pub plan: bool,
}

/// JSON instead of text.
#[derive(Debug, Clone, Default, Args)]
pub struct JsonArg {
    /// JSON on standard output: the events, one object a line, or the command's result
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// JSON instead of text, for a command and all below it.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalJsonArg {
    /// JSON on standard output
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
}

impl OptionGroup for GlobalJsonArg {
    fn add_to(&self, options: &mut Options) {
        options.output = JsonArg { json: self.json };
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
    /// When pictures that programs show are drawn in the terminal
    #[arg(long, value_parser = choices::images(), value_name = "WHEN", help_heading = "Output")]
    pub images: Option<Images>,
}

/// The options of every command that plays a recording.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaybackArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    limits: PromptLimitArgs,
    #[command(flatten)]
    record: RecordArg,
    #[command(flatten)]
    output: JsonArg,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

/// The options of every command that has a model work in a sandbox.
#[derive(Debug, Clone, Default, Args)]
pub struct WorkArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    assist: AssistArg,
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

/// The options of every command that opens a session for a model.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionOptions {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    limits: PromptLimitArgs,
    #[command(flatten)]
    delegate: DelegateArg,
    #[command(flatten)]
    record: RecordArg,
    #[command(flatten)]
    replay: ReplayArg,
}

/// A session, by default the newest of this workspace.
#[derive(Debug, Args)]
pub struct SessionArg {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    output: JsonArg,
    /// Its id, or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
}

impl SessionArg {
    pub fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.output])
    }
}

/// The changes of a session, or some of them.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    output: JsonArg,
    /// The session's id or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
    /// Only these files and directories
    pub paths: Vec<PathBuf>,
    /// With what only build tools write: byte code, caches, core dumps
    #[arg(long)]
    pub all: bool,
}

/// The groups that consist of others.
macro_rules! composites {
    ($($name:ident: $($group:ident)*;)*) => {$(
        impl OptionGroup for $name {
            fn add_to(&self, options: &mut Options) {
                $(self.$group.add_to(options);)*
            }
        }
    )*};
}

composites! {
    PromptLimitArgs: limits cost approve;
    EndArgs: checks check_time apply;
    PlaybackArgs: backend resources keep limits record output verbosity;
    WorkArgs: model endpoint assist directory copy backend resources verbosity;
    SessionOptions: work keep limits delegate record replay;
    ChangesArgs: directory output;
}
