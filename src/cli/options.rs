//! The command line: every command, and which options it takes.

use super::arguments::{
    BackendArgs, CheckArgs, CopyArgs, DirectoryArg, EndpointArgs, JsonArg, KeepArgs, LimitArgs, ModelArg,
    RecordArgs, ResourceArgs, VerbosityArgs,
};
use crate::approval::Approve;
use crate::sandbox::SandboxChoice;
use crate::workspace::Mode;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// A coding agent for the terminal. Let it do anything: nothing it does can hurt you. Review one diff at the end.
///
/// Without a command and a prompt it opens the REPL on this directory; with a prompt it is `agent run`.
#[derive(Debug, Parser)]
#[command(name = "agent", version, about, after_help = EXIT_CODES, max_term_width = 110,
          args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(flatten)]
    pub run: RunArgs,
    /// The prompt, for one that could be taken for a command
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    pub prompt_option: Option<String>,
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  finished (and --check, if any, passed)      5  a limit was reached: turns, tokens, cost, time, repetition
  1  agent itself failed; a changed session file 6  --check did not pass
  2  usage or configuration is wrong             7  the change could not be applied (conflict)
  3  the model endpoint failed                   130 / 143  interrupted / terminated
  4  the sandbox failed                          `agent exec` passes the command's code on; 125: agent failed";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one prompt: PROMPT as an argument, `-` or piped standard input (appended if both are given)
    Run(Box<RunArgs>),
    /// Run a command in a session's sandbox, or in a fresh one; its exit code is passed on
    Exec(ExecArgs),
    /// Play recorded tasks: the model's part is recorded, the tools are real; no key, no network
    Demo(DemoArgs),
    /// List, show, remove and verify sessions
    Sessions(SessionsArgs),
    /// Resume a session in the REPL
    Resume(ResumeArgs),
    /// Play a recorded session: the model's part is recorded, the tools are real
    Replay(ReplayArgs),
    /// Start a second session from the state of another one
    Fork(SessionArg),
    /// Show what a session changed
    Diff(DiffArgs),
    /// Write what a session changed into the workspace
    Apply(ApplyArgs),
    /// Restore the host's files to their state before an apply
    Undo(SessionArg),
    /// List, pause, resume and remove sandboxes
    Sandbox(SandboxArgs),
    /// Forward a port of this machine's loopback to a server inside the sandbox
    Forward(ForwardArgs),
    /// Check that this machine and its configuration are ready
    Doctor(DoctorArgs),
    /// List the models that the endpoint offers
    Models(ModelsArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

/// What was given on the command line, of all that any command takes: `Config::load` adds the other sources.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub model: Option<String>,
    pub base_url: Option<String>,
    pub provider: Option<String>,
    pub workspace: Option<PathBuf>,
    pub workspace_mode: Option<Mode>,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub sandbox: Option<SandboxChoice>,
    pub image: Option<String>,
    pub runtime: Option<String>,
    pub network: Option<String>,
    pub memory: Option<String>,
    pub cpus: Option<f64>,
    pub pids: Option<u64>,
    pub disk: Option<String>,
    pub timeout: Option<String>,
    pub max_turns: Option<u64>,
    pub max_tokens_total: Option<u64>,
    pub max_cost: Option<f64>,
    pub max_time: Option<String>,
    pub approve: Option<Approve>,
    pub keep: bool,
    pub ttl: Option<String>,
    pub delete_after: Option<String>,
    pub record: Option<PathBuf>,
    pub replay: Option<PathBuf>,
    pub check: Vec<String>,
    pub check_attempts: Option<u32>,
    pub apply: bool,
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
}

/// What every command takes that opens a session for a model.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionOptions {
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
    keep: KeepArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl SessionOptions {
    fn add_to(self, options: &mut Options) {
        self.model.add_to(options);
        self.endpoint.add_to(options);
        self.directory.add_to(options);
        self.copy.add_to(options);
        self.backend.add_to(options);
        self.resources.add_to(options);
        self.keep.add_to(options);
        self.limits.add_to(options);
        self.record.add_to(options);
        self.verbosity.add_to(options);
    }
}

/// `agent run`
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    json: JsonArg,
    /// The prompt; `-` reads standard input
    pub prompt: Option<String>,
    /// Also write the final answer to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The final answer has to be JSON that satisfies this schema
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output_schema: Option<PathBuf>,
    /// Continue this session
    #[arg(long, value_name = "ID", conflicts_with = "session_key", help_heading = "Session")]
    pub session: Option<String>,
    /// Continue the session with this key, or start it
    #[arg(long, value_name = "KEY", help_heading = "Session")]
    pub session_key: Option<String>,
}

/// `agent exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
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
    /// The session whose sandbox to use
    #[arg(short, long, value_name = "ID")]
    pub session: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `agent demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
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
    /// Only this one of the recorded tasks
    pub task: Option<String>,
}

/// `agent sessions`
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// JSON on standard output
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Whole arguments and results in what is shown
    #[arg(short, long, global = true, help_heading = "Output")]
    verbose: bool,
    /// Without one: list
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
}

/// What to do with the kept sessions.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List them, the newest first
    List,
    /// Show one
    Show {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Remove one, with its sandbox
    Rm {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Remove old ones
    Prune {
        /// Older than this: 12h, 7d
        #[arg(long, value_name = "TIME", default_value = "30d")]
        older_than: String,
    },
    /// Find changed, missing or reordered lines
    Verify {
        /// Its id, or the beginning of it
        id: String,
    },
    /// What the session touched: commands, files, hosts, packages, time and tokens
    Report {
        /// Its id, or the beginning of it
        id: String,
        /// As one HTML file that needs no network
        #[arg(long)]
        html: bool,
    },
}

/// A session, by default the newest of this workspace.
#[derive(Debug, Args)]
pub struct SessionArg {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    json: JsonArg,
    /// Its id, or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
}

/// `agent resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    /// Its id, or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
    /// The newest session of all
    #[arg(long, conflicts_with = "id")]
    pub last: bool,
}

/// `agent replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    copy: CopyArgs,
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
    /// A recorded session: a file, or the id of a kept one
    #[arg(value_name = "FILE|ID")]
    pub source: String,
    /// Exit with 6 where a result differs
    #[arg(long)]
    pub strict: bool,
}

/// `agent diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    json: JsonArg,
    /// The session's id or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
    /// Only these files and directories
    pub paths: Vec<PathBuf>,
    /// How many lines changed in each file
    #[arg(long, conflicts_with_all = ["name_only", "patch"])]
    pub stat: bool,
    /// Only the names
    #[arg(long, conflicts_with = "patch")]
    pub name_only: bool,
    /// What `git apply` takes
    #[arg(long)]
    pub patch: bool,
    /// Only what other programs will execute: CI, hooks, build scripts, new executables, symlinks
    #[arg(long, conflicts_with_all = ["stat", "name_only", "patch"])]
    pub risks: bool,
}

/// `agent apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    json: JsonArg,
    /// The session's id or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
    /// Only these files and directories
    pub paths: Vec<PathBuf>,
    /// Try a three-way merge with files that changed meanwhile
    #[arg(long)]
    pub merge: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// `agent sandbox`
#[derive(Debug, Args)]
pub struct SandboxArgs {
    /// JSON on standard output
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: SandboxCommand,
}

/// What to do with the sandboxes that exist.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// List them
    List,
    /// Freeze one, memory intact
    Pause {
        /// The session's id
        id: String,
    },
    /// Resume a paused one, or start a stopped one
    Resume {
        /// The session's id
        id: String,
    },
    /// End and remove one
    Rm {
        /// The session's id
        id: String,
    },
}

/// `agent forward`
#[derive(Debug, Args)]
pub struct ForwardArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// The session (default: the newest of this workspace), and the port inside with the one on this machine
    #[arg(required = true, num_args = 1..=2, value_name = "[ID] PORT[:LOCAL]")]
    pub target: Vec<String>,
}

/// `agent doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    endpoint_options: EndpointArgs,
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    json: JsonArg,
    /// Try the endpoint: models, streaming, tools, parallel calls, usage
    #[arg(long)]
    pub endpoint: bool,
}

/// `agent models`
#[derive(Debug, Args)]
pub struct ModelsArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// `agent completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// What a command was given, for the parts of it that are the same for several commands.
macro_rules! options_of {
    ($($arguments:ty: $($group:ident)* $(, $field:ident)*;)*) => {$(
        impl $arguments {
            pub fn options(&self) -> Options {
                let mut options = Options::default();
                $(self.$group.clone().add_to(&mut options);)*
                $(options.$field = self.$field.clone();)*
                options
            }
        }
    )*};
}

options_of! {
    RunArgs: session_options check json;
    ExecArgs: directory copy backend resources verbosity;
    DemoArgs: backend resources keep limits json verbosity, record;
    SessionsArgs: , json, verbose;
    SessionArg: directory json;
    ResumeArgs: session_options;
    ReplayArgs: directory copy backend resources keep limits json verbosity, record;
    DiffArgs: directory json;
    ApplyArgs: directory json;
    SandboxArgs: , json;
    ForwardArgs: directory;
    DoctorArgs: model endpoint_options directory backend json;
    ModelsArgs: endpoint json;
}
