//! The settings of a call: flags before the environment, before `.env`, before the user's file, before defaults.

mod endpoint;
mod layers;
mod units;

pub use endpoint::{EndpointChoice, choose_endpoint};
pub use layers::{DOT_ENV_NAMES, File, Layers, SETTINGS, Setting, Source};
pub use units::{bytes, duration};

use crate::agent::{DEFAULT_MAX_TURNS, Price, RunLimits};
use crate::cli::options::Options;
use crate::error::{Error, Result};
use crate::event::Limits;
use crate::network;
use crate::sandbox::{Network, SandboxChoice};
use crate::tools::Bounds;
use crate::workspace::Mode;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a call, with every default filled in.
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
    /// The flags of the call.
    pub options: Options,
    /// The user's file, with the settings of the environment in place of its own.
    pub file: File,
    /// The environment and `.env`.
    pub layers: Layers,
}

/// The settings of the sandbox.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Which backend.
    pub choice: SandboxChoice,
    /// The image, if one was named.
    pub image: Option<String>,
    /// The OCI runtime, if one was named.
    pub runtime: Option<String>,
    /// What it may reach.
    pub network: Network,
    /// Resources.
    pub limits: Limits,
    /// How the workspace is made available.
    pub workspace_mode: Mode,
}

/// How long a kept sandbox keeps running with nobody connected, by default.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3600);

impl Config {
    /// Reads every layer.
    pub fn load(options: &Options) -> Result<Self> {
        let current = std::env::current_dir()
            .map_err(|error| Error::config("the current directory cannot be found").caused_by(error))?;
        let layers = Layers::read(&current)?;
        let file = File::read(&crate::paths::config_dir()?, &layers)?;
        let origins = Origins(&layers);
        let workspace = match &options.workspace {
            Some(directory) => current.join(directory),
            None => current,
        };
        let workspace = workspace.canonicalize().map_err(|error| {
            Error::usage(format!("the workspace {} cannot be opened", workspace.display())).caused_by(error)
        })?;
        if !workspace.is_dir() {
            return Err(Error::usage(format!("the workspace {} is not a directory", workspace.display())));
        }
        Ok(Self {
            workspace,
            workspace_named: options.workspace.is_some(),
            sandbox: sandbox(options, origins, &file)?,
            bounds: bounds(options, origins, &file)?,
            limits: limits(options, origins, &file)?,
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

fn sandbox(options: &Options, origins: Origins, file: &File) -> Result<SandboxConfig> {
    let mut limits = Limits::default();
    let size = |flag: &Option<String>, name, file: &Option<String>| {
        let text = flag.as_ref().or(file.as_ref());
        let size = text.map(|text| bytes(text).and_then(|size| at_least(size, 16 << 20))).transpose();
        origins.name(flag.is_some(), name, size)
    };
    limits.memory = size(&options.memory, "memory", &file.memory)?.unwrap_or(limits.memory);
    limits.disk = size(&options.disk, "disk", &file.disk)?.unwrap_or(limits.disk);
    if let Some(cpus) = options.cpus.or(file.cpus) {
        let usable = match cpus.is_finite() && (0.01..=4096.0).contains(&cpus) {
            true => Ok(cpus),
            false => Err(Error::config(format!("{cpus} is not a valid number of processors"))),
        };
        limits.cpus = origins.name(options.cpus.is_some(), "cpus", usable)?;
    }
    if let Some(pids) = options.pids.or(file.pids) {
        limits.pids = origins.name(options.pids.is_some(), "pids", at_least(pids, 8))?;
    }
    let named = options.network.as_ref().or(file.network.as_ref());
    let network = named.map_or(Ok(Network::None), |text| network(text));
    Ok(SandboxConfig {
        choice: options.sandbox.or(file.sandbox).unwrap_or_default(),
        image: options.image.clone().or_else(|| file.image.clone()),
        runtime: options.runtime.clone().or_else(|| file.runtime.clone()),
        network: origins.name(options.network.is_some(), "network", network)?,
        limits,
        workspace_mode: options.workspace_mode.unwrap_or_default(),
    })
}

/// Where values come from: errors name the flag, the variable or the file.
#[derive(Clone, Copy)]
struct Origins<'a>(&'a Layers);

impl Origins<'_> {
    /// Prefixes an error with the origin of the setting.
    fn name<T>(self, is_flag: bool, setting: &str, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let variable = layers::variable(setting);
            let origin = match is_flag {
                true => format!("--{}", setting.replace('_', "-")),
                false if self.0.get_from(&variable, Source::Environment).is_some() => variable,
                false => format!("{setting} in config.toml"),
            };
            let named = Error::config(format!("{origin}: {error}"));
            match error.hint_text() {
                Some(hint) => named.hint(hint),
                None => named,
            }
        })
    }
}

fn at_least(value: u64, least: u64) -> Result<u64> {
    match value >= least {
        true => Ok(value),
        false => Err(Error::config(format!("{value} is too small: at least {least}"))),
    }
}

/// What a run may cost.
fn amount(cost: f64) -> Result<f64> {
    match cost.is_finite() && cost >= 0.0 {
        true => Ok(cost),
        false => Err(Error::config(format!("{cost} is not a valid amount")).hint("write it like 0.5")),
    }
}

fn temperature(value: f64) -> Result<f64> {
    match (0.0..=2.0).contains(&value) {
        true => Ok(value),
        false => {
            Err(Error::config(format!("{value} is not a valid temperature")).hint("use a number from 0 to 2"))
        }
    }
}

/// `none`, `full`, or a list of hosts.
fn network(text: &str) -> Result<Network> {
    match text.trim() {
        "none" => Ok(Network::None),
        "full" => Ok(Network::Full),
        hosts => Ok(Network::Hosts(network::Rules::parse(hosts)?.words())),
    }
}

fn bounds(options: &Options, origins: Origins, file: &File) -> Result<Bounds> {
    let mut bounds = Bounds::default();
    if let Some(text) = options.timeout.as_ref().or(file.timeout.as_ref()) {
        bounds.timeout = origins.name(options.timeout.is_some(), "timeout", duration(text))?;
        bounds.max_timeout = bounds.max_timeout.max(bounds.timeout);
    }
    if let Some(chars) = file.output_chars {
        let usable = match (4_000..=100_000).contains(&chars) {
            true => Ok(chars),
            false => Err(Error::config(format!("{chars} is out of range: 4000 to 100000"))),
        };
        bounds.output_chars = origins.name(false, "output_chars", usable)?;
    }
    bounds.redact_secrets = file.redact_secrets.unwrap_or(bounds.redact_secrets);
    Ok(bounds)
}

fn limits(options: &Options, origins: Origins, file: &File) -> Result<RunLimits> {
    let turns = options.max_turns.or(file.max_turns).unwrap_or(DEFAULT_MAX_TURNS);
    let time = options.max_time.as_ref().or(file.max_time.as_ref()).map(|text| duration(text)).transpose();
    let tokens = options.max_tokens_total.or(file.max_tokens_total);
    let tokens = tokens.map(|tokens| at_least(tokens, 1)).transpose();
    let cost = options.max_cost.or(file.max_cost).map(amount).transpose();
    // Read where the endpoint is set up.
    let answer = file.max_answer_tokens.map_or(Ok(0), |tokens| at_least(tokens.into(), 1));
    origins.name(false, "max_answer_tokens", answer)?;
    origins.name(false, "temperature", file.temperature.map_or(Ok(0.0), temperature))?;
    Ok(RunLimits {
        turns: origins.name(options.max_turns.is_some(), "max_turns", at_least(turns, 1))?,
        tokens: origins.name(options.max_tokens_total.is_some(), "max_tokens_total", tokens)?,
        cost: origins.name(options.max_cost.is_some(), "max_cost", cost)?,
        time: origins.name(options.max_time.is_some(), "max_time", time)?,
    })
}
