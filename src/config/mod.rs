//! The settings of a call: flags before the environment, before `.env`, before the user's file, before defaults.

mod endpoint;
mod layers;
mod units;

pub use endpoint::{EndpointChoice, choose_endpoint};
pub use layers::{DOT_ENV_NAMES, File, Layers, Price, Setting, Source};
pub use units::{bytes, duration};

use crate::cli::{Options, SandboxChoice};
use crate::error::{Error, Result};
use crate::event::Limits;
use crate::network::entries;
use crate::sandbox::Network;
use crate::tools::Bounds;
use crate::workspace::Mode;
use std::path::PathBuf;
use std::time::Duration;

/// What a call was asked for, with every default filled in.
#[derive(Debug, Clone)]
pub struct Config {
    /// The host directory to work on, absolute.
    pub workspace: PathBuf,
    /// Whether it was named on the command line.
    pub workspace_named: bool,
    /// The sandbox.
    pub sandbox: SandboxConfig,
    /// The bounds of tools.
    pub bounds: Bounds,
    /// The limits of a run.
    pub limits: RunLimits,
    /// With `--keep`: how long an idle sandbox goes on running.
    pub ttl: Duration,
    /// With `--keep`: how long after it was made a sandbox that has stopped is removed.
    pub delete_after: Option<Duration>,
    /// The flags as they were given.
    pub options: Options,
    /// The user's file.
    pub file: File,
    /// The environment and `.env`.
    pub layers: Layers,
}

/// What the sandbox shall be.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Which backend.
    pub choice: SandboxChoice,
    /// Which image, where one was named.
    pub image: Option<String>,
    /// Which OCI runtime, where one was named.
    pub runtime: Option<String>,
    /// Reach.
    pub network: Network,
    /// Resources.
    pub limits: Limits,
    /// How the workspace comes in.
    pub workspace_mode: Mode,
}

/// What ends a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLimits {
    /// Requests to the model.
    pub turns: u64,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Cost, and what the model's tokens cost.
    pub cost: Option<f64>,
    /// Wall time.
    pub time: Option<Duration>,
}

/// How long a kept sandbox goes on running with nobody connected, where nothing else was said.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3600);

/// Requests to the model that one wish may take, where nothing else was said.
pub const DEFAULT_MAX_TURNS: u64 = 100;

impl Config {
    /// Reads every layer.
    pub fn load(options: &Options) -> Result<Self> {
        let current = std::env::current_dir()
            .map_err(|error| Error::config("the current directory cannot be found").caused_by(error))?;
        let layers = Layers::read(&current)?;
        let file = File::read(&crate::paths::config_dir()?)?;
        let workspace = match &options.workspace {
            Some(directory) => current.join(directory),
            None => current,
        };
        let workspace = workspace.canonicalize().map_err(|error| {
            Error::usage(format!("the workspace {} cannot be opened", workspace.display())).caused_by(error)
        })?;
        if !workspace.is_dir() {
            return Err(Error::usage(format!("the workspace {} is no directory", workspace.display())));
        }
        Ok(Self {
            workspace,
            workspace_named: options.workspace.is_some(),
            sandbox: sandbox(options, &layers, &file)?,
            bounds: bounds(options, &layers, &file)?,
            limits: limits(options, &file)?,
            ttl: options.ttl.as_deref().map_or(Ok(DEFAULT_TTL), duration)?,
            delete_after: options.delete_after.as_deref().map(duration).transpose()?,
            options: options.clone(),
            file,
            layers,
        })
    }

    /// What a million tokens of `model` cost, where the user's file says.
    pub fn price(&self, model: &str) -> Option<Price> {
        self.file.prices.get(model).copied()
    }
}

fn sandbox(options: &Options, layers: &Layers, file: &File) -> Result<SandboxConfig> {
    let variable = |name: &str| layers.get_from(name, Source::Environment).map(|setting| setting.value);
    let choice = match (options.sandbox, variable("AGENT_SANDBOX")) {
        (Some(choice), _) => choice,
        (None, Some(name)) => clap::ValueEnum::from_str(&name, true).map_err(|_| {
            Error::config(format!("AGENT_SANDBOX={name:?} is no sandbox")).hint("use auto, docker or local")
        })?,
        (None, None) => file.sandbox.unwrap_or(SandboxChoice::Auto),
    };
    let pick = |flag: &Option<String>, name: &str, file: &Option<String>| {
        flag.clone().or_else(|| variable(name)).or_else(|| file.clone())
    };
    let mut limits = Limits::default();
    if let Some(text) = pick(&options.memory, "AGENT_MEMORY", &file.memory) {
        limits.memory = at_least("--memory", bytes(&text)?, 16 << 20)?;
    }
    if let Some(text) = pick(&options.disk, "AGENT_DISK", &file.disk) {
        limits.disk = at_least("--disk", bytes(&text)?, 16 << 20)?;
    }
    if let Some(cpus) = options.cpus.or(file.cpus) {
        if !(cpus.is_finite() && (0.01..=4096.0).contains(&cpus)) {
            return Err(Error::config(format!("--cpus {cpus} is no number of processors")));
        }
        limits.cpus = cpus;
    }
    if let Some(pids) = options.pids.or(file.pids) {
        limits.pids = at_least("--pids", pids, 8)?;
    }
    Ok(SandboxConfig {
        choice,
        image: pick(&options.image, "AGENT_IMAGE", &file.image),
        runtime: pick(&options.runtime, "AGENT_RUNTIME", &file.runtime),
        network: match pick(&options.network, "AGENT_NETWORK", &file.network) {
            Some(text) => network(&text)?,
            None => Network::None,
        },
        limits,
        workspace_mode: options.workspace_mode.unwrap_or_default(),
    })
}

fn at_least(flag: &str, value: u64, least: u64) -> Result<u64> {
    match value >= least {
        true => Ok(value),
        false => Err(Error::config(format!("{flag} {value} is too little: at least {least}"))),
    }
}

/// `none`, `full`, or a list of hosts.
fn network(text: &str) -> Result<Network> {
    match text.trim() {
        "none" => Ok(Network::None),
        "full" => Ok(Network::Full),
        hosts => Ok(Network::Hosts(entries(hosts)?.iter().map(ToString::to_string).collect())),
    }
}

fn bounds(options: &Options, layers: &Layers, file: &File) -> Result<Bounds> {
    let mut bounds = Bounds::default();
    let named = options
        .timeout
        .clone()
        .or_else(|| layers.get_from("AGENT_TIMEOUT", Source::Environment).map(|setting| setting.value))
        .or_else(|| file.timeout.clone());
    if let Some(text) = named {
        bounds.timeout = duration(&text)?;
        bounds.max_timeout = bounds.max_timeout.max(bounds.timeout);
    }
    if let Some(chars) = file.output_chars {
        if !(4_000..=100_000).contains(&chars) {
            return Err(Error::config(format!("output_chars = {chars} is out of range: 4000 to 100000")));
        }
        bounds.output_chars = chars;
    }
    Ok(bounds)
}

fn limits(options: &Options, file: &File) -> Result<RunLimits> {
    let turns = options.max_turns.or(file.max_turns).unwrap_or(DEFAULT_MAX_TURNS);
    if turns == 0 {
        return Err(Error::usage("--max-turns 0 leaves nothing to do").hint("at least 1"));
    }
    let time = options.max_time.as_ref().or(file.max_time.as_ref());
    Ok(RunLimits {
        turns,
        tokens: options.max_tokens_total.or(file.max_tokens_total),
        cost: options.max_cost.or(file.max_cost),
        time: time.map(|text| duration(text)).transpose()?,
    })
}
