//! The settings of a call: flags before the environment, before `.env`, before the user's file, before defaults.

mod approvals;
pub mod credentials;
mod dev_container;
mod endpoint;
pub mod key_command;
mod layers;
pub mod project;
mod project_file;
mod project_setup;
mod providers;
mod request;
pub mod servers;
mod shown;
pub mod telemetry;
pub mod units;

pub use endpoint::{EndpointChoice, choose_endpoint};
pub use layers::{File, SettingSource, TelemetryOptions};
pub use shown::{ShownSetting, shown};

use crate::agent::{DEFAULT_MAX_TURNS, Price, RunLimits};
use crate::backends::SandboxChoice;
use crate::cli::options::Options;
use crate::cli::ui::host_programs::HostPrograms;
use crate::cli::ui::pictures::Images;
use crate::cli::working_directory::WorkingDirectory;
use crate::error::{Error, Result};
use crate::event::Limits;
use crate::machine::Machine;
use crate::model::{Endpoint, listed};
use crate::network;
use crate::sandbox::Network;
use crate::sandbox::host_tree::share_looks;
use crate::session::NetworkOrigin;
use crate::session::hooks::{DEFAULT_TIMEOUT, Hook};
use crate::tools::Bounds;
use crate::workspace::Mode;
use key_command::PrintedKey;
use layers::{HookOptions, Layers};
use project::ConfiguredProject;
use providers::with_providers;
use servers::Configured;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use units::{bytes, duration};

/// The settings of a call, with every default filled in.
#[derive(Debug, Clone)]
pub struct Config {
    /// Facts of this machine.
    pub machine: Arc<Machine>,
    /// The host directory to work on, absolute.
    pub workspace: PathBuf,
    /// Set if it was named on the command line.
    pub workspace_named: bool,
    /// The directory in the workspace where commands start.
    pub directory: PathBuf,
    /// The sandbox.
    pub sandbox: SandboxConfig,
    /// The bounds of tools.
    pub bounds: Bounds,
    /// The limits of a run.
    pub limits: RunLimits,
    /// With `--keep`: how long an idle sandbox keeps running.
    pub ttl: Duration,
    /// With `--keep`: how long after its creation a stopped sandbox is removed.
    pub delete_after: Option<Duration>,
    /// The user's hooks.
    pub hooks: Vec<Hook>,
    /// MCP servers.
    pub mcp: Configured,
    /// The settings that prepare the workspace, and its sandbox.
    pub project: ConfiguredProject,
    /// The time for which the user has to have typed nothing before they are notified, if the file sets it.
    pub notify_after: Option<Duration>,
    /// The flags of the call.
    pub options: Options,
    /// The user's file, with the settings of the environment and the flags above its own.
    pub file: File,
    /// The environment and `.env`.
    pub layers: Layers,
    /// The key that `api_key_command` printed in this call.
    pub printed_key: PrintedKey,
}

/// The settings of the sandbox.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// The choice of the backend.
    pub choice: SandboxChoice,
    /// The image, if one was named.
    pub image: Option<String>,
    /// The OCI runtime, if one was named.
    pub runtime: Option<String>,
    /// Set if a Docker engine runs inside.
    pub docker: bool,
    /// The network that it may reach.
    pub network: Network,
    /// The origin of that.
    pub network_origin: NetworkOrigin,
    /// Resources.
    pub limits: Limits,
    /// Variables of commands.
    pub env: Vec<(String, String)>,
    /// Credentials that programs use without holding them.
    pub credentials: Vec<credentials::Enabled>,
    /// Those that the user may be asked about.
    pub offered: Vec<credentials::Enabled>,
    /// The mode in which it gets the workspace.
    pub workspace_mode: Mode,
}

/// The default time for which a kept sandbox keeps running with nobody connected.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3600);

/// Facts of this machine, and what the user's file says of sandboxes elsewhere.
pub fn machine() -> Arc<Machine> {
    let machine = Machine::of_this_process();
    share_looks(&machine);
    // A file that cannot be read is an error of the commands that need more of it.
    Arc::new(match machine.config_dir().and_then(|directory| File::read_alone(&directory)) {
        Ok(file) => {
            file.kubernetes.keep(&machine);
            file.vm.keep(&machine);
            with_providers(machine, &file.providers)
        }
        Err(_) => machine,
    })
}

/// The environment, and `.env` of the current directory.
pub fn layers_here() -> Result<Layers> {
    let current = std::env::current_dir()
        .map_err(|error| Error::config("the current directory cannot be found").caused_by(error))?;
    Layers::read(&current)
}

/// Reports what is wrong with the text of a `config.toml`.
///
/// # Errors
/// Something is.
pub fn check_text(path: &Path, text: &[u8]) -> Result<()> {
    let file = File::from_text(path, text)?;
    file.models.iter().try_for_each(|(model, options)| request::check(model, options))?;
    providers::check(&file.providers)?;
    sandbox(&Options::default(), &file)?;
    credentials::check(&file.credentials)?;
    bounds(&file, &Options::default())?;
    limits(&file)?;
    file.hooks.iter().try_for_each(|options| hook(options).map(drop))
}

impl Config {
    /// Reads every layer.
    pub fn load(machine: &Arc<Machine>, options: &Options) -> Result<Self> {
        let layers = layers_here()?;
        let file = File::read(&machine.config_dir()?, &layers, options)?;
        file.models.iter().try_for_each(|(model, options)| request::check(model, options))?;
        options.backend.cluster.keep(machine);
        providers::check(&file.providers)?;
        telemetry::set_up(&file, machine)?;
        let notify_after = file.ui.notify_after.as_deref().map(duration).transpose();
        let notify_after =
            notify_after.map_err(|error| Error::config(format!("[ui] notify_after: {error}")))?;
        let WorkingDirectory { root: workspace, directory } =
            WorkingDirectory::of(machine, &options.directory)?;
        let mcp = servers::servers(&file.mcp, &workspace, machine)?;
        let project = project::configured(&file.workspace.setup, &workspace, machine)?;
        Ok(Self {
            machine: Arc::clone(machine),
            workspace,
            directory,
            workspace_named: options.directory.workspace.is_some(),
            sandbox: sandbox(options, &file)?,
            bounds: bounds(&file, options)?,
            limits: limits(&file)?,
            ttl: options.keep.ttl.as_deref().map_or(Ok(DEFAULT_TTL), duration)?,
            delete_after: options.keep.delete_after.as_deref().map(duration).transpose()?,
            hooks: file.hooks.iter().map(hook).collect::<Result<_>>()?,
            mcp,
            project,
            notify_after,
            options: options.clone(),
            file,
            layers,
            printed_key: PrintedKey::default(),
        })
    }

    /// The settings after the user has answered what the project asks for.
    pub fn with_project(&self) -> Result<Self> {
        let project = project::configured(&self.file.workspace.setup, &self.workspace, &self.machine)?;
        Ok(Self { project, ..self.clone() })
    }

    /// Returns whether the call, the environment or a file names the endpoint; a provider's key alone does not.
    pub fn names_endpoint(&self) -> bool {
        endpoint::names_endpoint(&self.options, &self.layers, &self.file)
    }

    /// The programs of this machine that are started for the user.
    pub fn programs(&self) -> HostPrograms {
        HostPrograms::new(Arc::clone(&self.machine), &self.workspace)
    }

    /// Returns the setting of when pictures are drawn in the terminal.
    pub fn images(&self) -> Images {
        self.options.verbosity.images.or(self.file.ui.images).unwrap_or_default()
    }

    /// Returns what a million tokens of the model cost: by the user's file, or at the provider's own address by its price list.
    pub fn price(&self, endpoint: &Endpoint) -> Option<Price> {
        let of_list = || {
            let provider = crate::model::providers::of_base_url(&endpoint.base_url);
            listed(provider.name, &endpoint.model).and_then(|listed| listed.price)
        };
        self.file.prices.get(&endpoint.model).copied().or_else(of_list)
    }
}

fn sandbox(options: &Options, file: &File) -> Result<SandboxConfig> {
    let default = Limits::default();
    let size = |name, text: &Option<String>, default| {
        let size =
            text.as_ref().map(|text| bytes(text).and_then(|size| at_least(size, 16 << 20))).transpose();
        Ok::<u64, Error>(file.name_origin(name, size)?.unwrap_or(default))
    };
    let limits = Limits {
        memory: size("memory", &file.memory, default.memory)?,
        disk: size("disk", &file.disk, default.disk)?,
        cpus: file.name_origin("cpus", file.cpus.map_or(Ok(default.cpus), processors))?,
        pids: file.name_origin("pids", at_least(file.pids.unwrap_or(default.pids), 8))?,
    };
    let network = file.network.as_ref().map_or(Ok(Network::None), |text| network(text));
    let network_origin = match (&options.resources.network, &file.network) {
        (Some(_), _) => NetworkOrigin::Call,
        (None, Some(_)) => NetworkOrigin::Configuration,
        (None, None) => NetworkOrigin::Nobody,
    };
    Ok(SandboxConfig {
        network_origin,
        choice: file.sandbox.unwrap_or_default(),
        image: file.image.clone(),
        runtime: file.runtime.clone(),
        docker: options.backend.allow_docker,
        network: file.name_origin("network", network)?,
        limits,
        env: environment(&options.resources.env, &file.env)?,
        credentials: credentials::enabled(&options.resources.credential, &file.credentials)?,
        offered: credentials::offered(&options.resources.credential, &file.credentials)?,
        workspace_mode: options.copy.workspace_mode.unwrap_or_default(),
    })
}

fn hook(options: &HookOptions) -> Result<Hook> {
    let HookOptions { event, command, place, tools, timeout, required } = options.clone();
    let of_hook = |error: Error| Error::config(format!("[[hooks]] in config.toml: {error}"));
    if command.trim().is_empty() {
        return Err(of_hook(Error::config("a command is empty")));
    }
    let timeout = timeout.as_deref().map_or(Ok(DEFAULT_TIMEOUT), duration).map_err(of_hook)?;
    Ok(Hook { moment: event, command, place, tools, timeout, required })
}

/// The variables of `[env]`, and over them those of `--env`.
fn environment(flags: &[String], file: &BTreeMap<String, String>) -> Result<Vec<(String, String)>> {
    let mut variables = file.clone();
    for flag in flags {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = std::env::var(flag).map_err(|_| {
                    Error::config(format!("--env {flag}: this variable is not set here, or is not UTF-8"))
                        .hint(format!("set it, or give its value: --env {flag}=VALUE"))
                })?;
                (flag.as_str(), value)
            }
        };
        variables.insert(name.to_owned(), value);
    }
    for (name, value) in &variables {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        if !is_name {
            let message = format!("{:?} is not a valid name of a variable", name.replace('\0', "\\0"));
            return Err(Error::config(message).hint("write --env NAME=VALUE, or NAME = \"VALUE\" in [env]"));
        }
    }
    Ok(variables.into_iter().collect())
}

fn processors(cpus: f64) -> Result<f64> {
    match cpus.is_finite() && (0.01..=4096.0).contains(&cpus) {
        true => Ok(cpus),
        false => Err(Error::config(format!("{cpus} is not a valid number of processors"))),
    }
}

fn at_least(value: u64, least: u64) -> Result<u64> {
    match value >= least {
        true => Ok(value),
        false => Err(Error::config(format!("{value} is too small: at least {least}"))),
    }
}

fn amount(cost: f64) -> Result<f64> {
    match cost.is_finite() && cost >= 0.0 {
        true => Ok(cost),
        false => Err(Error::config(format!("{cost} is not a valid amount")).hint("write it like 0.5")),
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

fn bounds(file: &File, options: &Options) -> Result<Bounds> {
    let mut bounds = Bounds::default();
    if let Some(text) = &file.timeout {
        bounds.timeout = file.name_origin("timeout", duration(text))?;
        bounds.max_timeout = bounds.max_timeout.max(bounds.timeout);
    }
    if let Some(chars) = file.output_chars {
        let usable = match (4_000..=100_000).contains(&chars) {
            true => Ok(chars),
            false => Err(Error::config(format!("{chars} is out of range: 4000 to 100000"))),
        };
        bounds.output_chars = file.name_origin("output_chars", usable)?;
    }
    if let Some(text) = &options.check_time.check_timeout {
        bounds.check_timeout =
            duration(text).map_err(|error| Error::config(format!("--check-timeout: {error}")))?;
    }
    bounds.redact_secrets = file.redact_secrets.unwrap_or(bounds.redact_secrets);
    Ok(bounds)
}

fn limits(file: &File) -> Result<RunLimits> {
    let turns = at_least(file.max_turns.unwrap_or(DEFAULT_MAX_TURNS), 1);
    let tokens = file.max_tokens_total.map(|tokens| at_least(tokens, 1)).transpose();
    let cost = file.max_cost.map(amount).transpose();
    let time = file.max_time.as_deref().map(duration).transpose();
    // Used where the endpoint is set up.
    let answer = file.max_answer_tokens.map_or(Ok(0), |tokens| at_least(tokens.into(), 1));
    file.name_origin("max_answer_tokens", answer)?;
    file.name_origin("temperature", file.temperature.map_or(Ok(0.0), request::temperature))?;
    Ok(RunLimits {
        turns: file.name_origin("max_turns", turns)?,
        tokens: file.name_origin("max_tokens_total", tokens)?,
        cost: file.name_origin("max_cost", cost)?,
        time: file.name_origin("max_time", time)?,
    })
}
