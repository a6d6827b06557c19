//! The command line: every flag and its help.

use crate::approval::Approve;
use crate::sandbox::SandboxChoice;
use crate::workspace::Mode;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A coding agent for the terminal. Let it do anything: nothing it does can hurt you. Review one diff at the end.
#[derive(Debug, Parser)]
#[command(name = "agent", version, about, long_about = None, after_help = EXIT_CODES, max_term_width = 110,
          args_conflicts_with_subcommands = false)]
pub struct Cli {
    /// The options that every command shares.
    #[command(flatten)]
    pub options: Options,
    /// Without a command: the REPL on this directory.
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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One wish, one answer: PROMPT as an argument, `-` or piped standard input (appended where both are there)
    Run(RunArgs),
    /// Run a command in a session's sandbox, or in a fresh one; its exit code is passed on
    Exec(ExecArgs),
    /// The whole thing on recorded sessions: the model's part is recorded, the tools are real; no key, no network
    Demo(DemoArgs),
    /// The sessions that were kept
    Sessions(SessionsArgs),
    /// Go on with a session in the REPL
    Resume(ResumeArgs),
    /// Play a recorded session: the model's part is recorded, the tools are real
    Replay(ReplayArgs),
    /// Start a second session from the state of another one
    Fork(SessionArg),
    /// Show what a session changed
    Diff(DiffArgs),
    /// Write what a session changed into the workspace
    Apply(ApplyArgs),
    /// Put the host's files back as they were before an apply
    Undo(SessionArg),
    /// The sandboxes that exist
    Sandbox(SandboxArgs),
    /// Show a server that runs inside the sandbox on this machine's loopback
    Forward(ForwardArgs),
    /// Check whether everything is there that the main job needs
    Doctor(DoctorArgs),
    /// List the models that the endpoint offers
    Models,
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// The options that every command shares.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// The model, by the endpoint's name for it
    #[arg(short, long, global = true, help_heading = "Model")]
    pub model: Option<String>,
    /// The endpoint: any OpenAI-compatible chat-completions server
    #[arg(long, global = true, value_name = "URL", help_heading = "Model")]
    pub base_url: Option<String>,
    /// A well-known endpoint: openai, novita, deepseek, openrouter, together, groq, ollama, lmstudio, vllm, llamacpp
    #[arg(long, global = true, value_name = "NAME", help_heading = "Model")]
    pub provider: Option<String>,

    /// The directory to work on (default: the current one)
    #[arg(short = 'C', long, global = true, value_name = "DIR", help_heading = "Workspace")]
    pub workspace: Option<PathBuf>,
    /// How the workspace comes into the sandbox; bind lets it write straight into the directory
    #[arg(long, global = true, value_enum, value_name = "MODE", help_heading = "Workspace")]
    pub workspace_mode: Option<Mode>,
    /// Take files along that would stay out (a glob; may be repeated)
    #[arg(long, global = true, value_name = "GLOB", help_heading = "Workspace")]
    pub include: Vec<String>,
    /// Leave files out (a glob; may be repeated)
    #[arg(long, global = true, value_name = "GLOB", help_heading = "Workspace")]
    pub exclude: Vec<String>,

    /// Where tools run
    #[arg(long, global = true, value_enum, value_name = "BACKEND", help_heading = "Sandbox")]
    pub sandbox: Option<SandboxChoice>,
    /// The container image; `host` is this machine's own /usr, read-only
    #[arg(long, global = true, help_heading = "Sandbox")]
    pub image: Option<String>,
    /// Another OCI runtime of the engine: runsc, kata
    #[arg(long, global = true, help_heading = "Sandbox")]
    pub runtime: Option<String>,
    /// What the sandbox may reach: none (only loopback), registries (of packages), hosts (example.com,*.b.org:8443,…) or
    /// full (the engine's ordinary network)
    #[arg(long, global = true, value_name = "NETWORK", help_heading = "Sandbox")]
    pub network: Option<String>,
    /// Memory, swap included: 512m, 2g
    #[arg(long, global = true, value_name = "SIZE", help_heading = "Sandbox")]
    pub memory: Option<String>,
    /// Processors
    #[arg(long, global = true, value_name = "N", help_heading = "Sandbox")]
    pub cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, global = true, value_name = "N", help_heading = "Sandbox")]
    pub pids: Option<u64>,
    /// Disk for workspace, home and temporary files
    #[arg(long, global = true, value_name = "SIZE", help_heading = "Sandbox")]
    pub disk: Option<String>,
    /// Time limit of one command: 90, 90s, 10m
    #[arg(long, global = true, value_name = "TIME", help_heading = "Sandbox")]
    pub timeout: Option<String>,

    /// Requests to the model (default 100)
    #[arg(long, global = true, value_name = "N", help_heading = "Limits")]
    pub max_turns: Option<u64>,
    /// Tokens, input and output together
    #[arg(long, global = true, value_name = "N", help_heading = "Limits")]
    pub max_tokens_total: Option<u64>,
    /// Cost, in the currency of the configured prices
    #[arg(long, global = true, value_name = "COST", help_heading = "Limits")]
    pub max_cost: Option<f64>,
    /// Wall time: 90, 90s, 10m, 1h
    #[arg(long, global = true, value_name = "TIME", help_heading = "Limits")]
    pub max_time: Option<String>,
    /// When to ask before a tool runs: never, risky or always
    #[arg(long, global = true, value_enum, value_name = "WHEN", help_heading = "Sandbox")]
    pub approve: Option<Approve>,
    /// Keep the sandbox after the run
    #[arg(long, global = true, help_heading = "Sandbox")]
    pub keep: bool,
    /// With --keep: an idle sandbox stops after this long (default 1h)
    #[arg(long, global = true, value_name = "TIME", help_heading = "Sandbox")]
    pub ttl: Option<String>,
    /// With --keep: the sandbox is removed this long after it was made, once it has stopped (default: never)
    #[arg(long, global = true, value_name = "TIME", help_heading = "Sandbox")]
    pub delete_after: Option<String>,
    /// Also write the session to this file
    #[arg(long, global = true, value_name = "FILE", help_heading = "Session")]
    pub record: Option<PathBuf>,
    /// Take the model's answers from a recorded session
    #[arg(long, global = true, value_name = "FILE", help_heading = "Session")]
    pub replay: Option<PathBuf>,

    /// A command that has to pass, in a fresh sandbox, before a run counts as finished (may be repeated)
    #[arg(long, global = true, value_name = "CMD", help_heading = "Run")]
    pub check: Vec<String>,
    /// How often a failed check goes back to the model (default 3)
    #[arg(long, global = true, value_name = "N", help_heading = "Run")]
    pub check_attempts: Option<u32>,
    /// Write the change into the workspace when the run finished
    #[arg(long, global = true, help_heading = "Run")]
    pub apply: bool,

    /// JSON on standard output: the events, one object a line, or whatever the command has to say
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// No traces; only what went wrong, what is not written yet, and a sandbox that is not the first choice
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Whole arguments and results in the traces
    #[arg(short, long, global = true, help_heading = "Output")]
    pub verbose: bool,
}

/// `agent run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The wish; `-` reads standard input
    pub prompt: Option<String>,
    /// Write the final answer to this file too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The final answer has to be JSON that satisfies this schema
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output_schema: Option<PathBuf>,
    /// Go on with this session
    #[arg(long, value_name = "ID", conflicts_with = "session_key", help_heading = "Session")]
    pub session: Option<String>,
    /// Go on with the session of this key, or start it
    #[arg(long, value_name = "KEY", help_heading = "Session")]
    pub session_key: Option<String>,
}

/// `agent exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The session whose sandbox to use
    #[arg(short, long, value_name = "ID")]
    pub session: Option<String>,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// `agent demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Only this one of the recorded tasks
    pub task: Option<String>,
}

/// `agent sessions`
#[derive(Debug, Args)]
pub struct SessionsArgs {
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
    /// Its id, or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
}

/// `agent resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Its id, or the beginning of it (default: the newest of this workspace)
    pub id: Option<String>,
    /// The newest session of all
    #[arg(long, conflicts_with = "id")]
    pub last: bool,
}

/// `agent replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
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
}

/// `agent apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
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
    /// Let a paused one go on, or start a stopped one
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
    /// The session (default: the newest of this workspace), and the port inside with the one on this machine
    #[arg(required = true, num_args = 1..=2, value_name = "[ID] PORT[:LOCAL]")]
    pub target: Vec<String>,
}

/// `agent doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Try the endpoint: models, streaming, tools, parallel calls, usage
    #[arg(long)]
    pub endpoint: bool,
}

/// `agent completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
