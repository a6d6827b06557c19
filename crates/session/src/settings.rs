//! The settings that a session is built from: resolved, as plain data.

use super::frontend::Frontend;
use super::hooks::Hook;
use super::project_setup::ProjectSetup;
use super::startup::Population;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_core::{Presence, Price, RunLimits};
use agent_event::{Limits, SandboxInfo};
use agent_log::SessionId;
use agent_mcp::client::ServerSettings;
use agent_model::{ChatModel, Endpoint, OpenAi};
use agent_network::credentials::{Credential, Offered};
use agent_policy::Approve;
use agent_policy::policy::Rules;
use agent_sandbox::{Backend, HomeFile, Network, Spec, WorkspaceMount};
use agent_tools::Bounds;
use agent_workspace::tree_path::TreePath;
use agent_workspace::{self as workspace, AddedDirectory, Mode, Workspace, added, mode, select};
use futures_util::FutureExt;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A temporary sandbox without a client is removed after this long.
const IDLE_TTL: Duration = Duration::from_secs(10);

/// The model, and what is known about it.
#[derive(Clone)]
pub struct ModelSettings {
    /// The client.
    pub client: Arc<dyn ChatModel>,
    /// The endpoint, without any key, for `session_started`.
    pub base_url: String,
    /// The context window in tokens, where it is known.
    pub context_window: Option<u64>,
    /// The price of its tokens, where it is known.
    pub price: Option<Price>,
    /// Set if older turns are summarised when the context window fills up.
    pub compaction: bool,
    /// A JSON Schema that the final answer has to satisfy.
    pub answer_schema: Option<Value>,
}

impl ModelSettings {
    /// `client`, with nothing known about it.
    pub fn new(client: Arc<dyn ChatModel>) -> Self {
        let (base_url, compaction) = (String::new(), true);
        Self { client, base_url, context_window: None, price: None, compaction, answer_schema: None }
    }

    /// A model behind an OpenAI-compatible endpoint.
    ///
    /// # Errors
    /// `Config` where the key, a header or the file of certificates cannot be used.
    pub fn openai(endpoint: Endpoint) -> Result<Self> {
        let base_url = endpoint.base_url.clone();
        let context_window = endpoint.provider.context_window(&endpoint.model);
        Ok(Self { base_url, context_window, ..Self::new(Arc::new(OpenAi::new(endpoint)?)) })
    }
}

impl ModelSettings {
    /// Checks that the model has a price, which a limit on the cost needs.
    pub fn check_price(&self) -> Result<()> {
        if self.price.is_some() {
            return Ok(());
        }
        let model = self.client.name();
        Err(Error::config(format!("--max-cost needs the price of {model}, which is not configured"))
            .hint(format!("add [prices.{model:?}] with input and output per million tokens to config.toml")))
    }
}

/// Limits, and what needs the user's consent.
#[derive(Debug, Clone, Default)]
pub struct Governance {
    /// The limits that end the work on one prompt.
    pub limits: RunLimits,
    /// The bounds of one tool call.
    pub bounds: Bounds,
    /// The user's policy.
    pub rules: Rules,
    /// The rule by which the user is asked before a tool runs.
    pub approve: Approve,
    /// Commands of the user's that run at fixed moments.
    pub hooks: Vec<Hook>,
    /// MCP servers whose tools the model may call.
    pub servers: Vec<ServerSettings>,
}

/// The directory that a session works on.
#[derive(Debug, Clone)]
pub struct WorkspaceSettings {
    /// The machine that it is on.
    pub machine: Arc<Machine>,
    /// The host directory, absolute.
    pub root: PathBuf,
    /// Set if the user named it. If not, `$HOME` itself is refused.
    pub named: bool,
    /// The mode in which the sandbox gets it.
    pub mode: Mode,
    /// Globs of files that are copied although they would be excluded.
    pub include: Vec<String>,
    /// Globs of further files that are excluded.
    pub exclude: Vec<String>,
    /// Object directories of the user's git repositories that others of theirs may take objects from.
    pub object_stores: Vec<PathBuf>,
}

impl WorkspaceSettings {
    /// `root`, with the defaults for everything else.
    pub fn new(machine: Arc<Machine>, root: impl Into<PathBuf>) -> Self {
        let (include, exclude, object_stores) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            machine,
            root: root.into(),
            named: true,
            mode: Mode::default(),
            include,
            exclude,
            object_stores,
        }
    }

    /// Checks that this directory may be a workspace.
    pub(super) fn validate(&self) -> Result<()> {
        workspace::validate(&self.root, self.named, &self.machine).map(drop)
    }

    fn selection(&self) -> select::SelectOptions {
        select::SelectOptions {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            ..select::SelectOptions::new(Arc::clone(&self.machine))
        }
    }

    /// Returns the state in the sandbox of a file of this directory. Blocking.
    pub(super) fn presence(&self, file: &Path) -> Presence {
        let Ok(path) = TreePath::new(file.as_os_str().as_bytes()) else { return Presence::Excluded };
        let is_excluded = select::globs(&self.root, &self.exclude, "--exclude")
            .is_ok_and(|globs| globs.matched_path_or_any_parents(file, false).is_ignore());
        match self.mode {
            Mode::Bind => Presence::Copied,
            _ if is_excluded => Presence::Excluded,
            _ if select::is_selected(&self.root, &self.selection(), &path) => Presence::Copied,
            _ => Presence::Ignored,
        }
    }

    /// Fills a sandbox with this directory; the session's records of it are kept in `directory`.
    ///
    /// # Errors
    /// The sandbox could not write to a bound directory, or a glob is not valid.
    pub(super) fn populate(&self, directory: &Path, sandbox: &SandboxSettings) -> Result<Population> {
        let backend = sandbox.backend.as_ref();
        if self.mode == Mode::Bind {
            sandbox.refuse_written("--workspace-mode bind")?;
        }
        if self.mode == Mode::Bind && !backend.capabilities().maps_owners {
            mode::bindable(&self.root)?;
        }
        for (option, globs) in [("--include", &self.include), ("--exclude", &self.exclude)] {
            select::globs(&self.root, globs, option)?;
        }
        let (root, directory) = (self.root.clone(), directory.to_owned());
        let options = workspace::Options {
            select: self.selection(),
            mode: self.mode,
            can_overlay: backend.capabilities().host_paths,
            named: self.named,
            object_stores: self.object_stores.clone(),
            max_kept: None,
            is_layered: sandbox.setup.is_some(),
            added: sandbox.written().map(|added| added.path.clone()).collect(),
        };
        Ok(Population::Fill(async move { Workspace::open(&root, &directory, options).await }.boxed()))
    }
}

/// The settings of a session's sandboxes.
#[derive(Clone)]
pub struct SandboxSettings {
    /// The backend that runs them.
    pub backend: Arc<dyn Backend>,
    /// The image; `None` is the backend's default.
    pub image: Option<String>,
    /// Another OCI runtime.
    pub runtime: Option<String>,
    /// Set if a Docker engine runs inside ([`Spec::docker`]).
    pub docker: bool,
    /// The network that they may reach.
    pub network: Network,
    /// The origin of that.
    pub network_origin: NetworkOrigin,
    /// Their resources.
    pub limits: Limits,
    /// Their fate at the end of the session.
    pub retention: Retention,
    /// Variables that commands start with, beside the sandbox's own.
    pub env: Vec<(String, String)>,
    /// The directory of the workspace that commands start in, relative to it.
    pub directory: PathBuf,
    /// The event with which they start.
    pub starts: Starts,
    /// Files that are put into `$HOME`.
    pub home: Vec<HomeFile>,
    /// The command that prepares the workspace once.
    pub setup: Option<ProjectSetup>,
    /// The credentials that programs inside use without holding them.
    pub credentials: Arc<Vec<Credential>>,
    /// The same, once the user has been asked.
    pub offered: Arc<Vec<Offered>>,
    /// Directories of this machine beside the workspace that are shown at their own paths.
    pub added: Vec<AddedDirectory>,
}

/// The origin of the network that a sandbox may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkOrigin {
    /// The call: it is taken literally.
    #[default]
    Call,
    /// The user's configuration: what the user changed in a session holds again when it is resumed.
    Configuration,
    /// Nobody: as for [`NetworkOrigin::Configuration`], and a user who is there is asked about each host.
    Nobody,
}

/// The event with which the sandbox of a session starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Starts {
    /// With the session, while the model writes its first answer: a user waits for it.
    #[default]
    AtOnce,
    /// At the first need of it by a tool, a check or a mentioned file, if ever: many sessions share the machine.
    WhenNeeded,
}

/// The fate of a sandbox at the end of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// It is removed.
    Remove,
    /// It is kept.
    Keep {
        /// It stops after this long without a client.
        ttl: Duration,
        /// Once stopped, it is removed this long after it was created.
        delete_after: Option<Duration>,
    },
}

impl SandboxSettings {
    /// Temporary sandboxes of `backend` with its default image, no network and the default limits.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let (network, limits, retention) = (Network::None, Limits::default(), Retention::Remove);
        let (env, directory, starts, home) = (Vec::new(), PathBuf::new(), Starts::default(), Vec::new());
        let network_origin = NetworkOrigin::default();
        Self {
            backend,
            image: None,
            runtime: None,
            docker: false,
            network,
            network_origin,
            limits,
            retention,
            env,
            directory,
            starts,
            home,
            setup: None,
            credentials: Arc::default(),
            offered: Arc::default(),
            added: Vec::new(),
        }
    }

    /// Returns whether `frontend`'s user is asked about each host.
    pub(super) fn asks_about_network(&self, frontend: &dyn Frontend) -> bool {
        let is_open = self.network == Network::None && self.network_origin == NetworkOrigin::Nobody;
        is_open && frontend.asks_about_network()
    }

    /// The settings of a running sandbox: those that it was created with, but for its hosts, which are judged here.
    pub(super) fn reattached(self, existing: &SandboxInfo) -> Self {
        let network = match (existing.network.as_str(), self.network) {
            ("full", _) => Network::Full,
            (_, Network::Full) => Network::None,
            (_, network) => network,
        };
        let image = existing.image.clone().filter(|image| image != "host");
        let runtime = existing.runtime.clone();
        let docker = existing.docker;
        Self { image, runtime, docker, limits: existing.limits.clone(), network, ..self }
    }

    /// Returns what `session_started` reports.
    pub(super) fn describe(&self, id: &SessionId) -> SandboxInfo {
        // An engine that can mount this machine's paths can show this machine's programs as well.
        let default_image = || self.backend.capabilities().host_paths.then(|| "host".to_owned());
        SandboxInfo {
            backend: self.backend.name().to_owned(),
            id: format!("agent-{id}"),
            image: self.image.clone().or_else(default_image),
            runtime: self.runtime.clone(),
            docker: self.docker,
            network: self.network.to_string(),
            limits: self.limits.clone(),
            missing: Vec::new(),
        }
    }

    /// Refuses directories that sandboxes of this backend cannot show beside the workspace `root`.
    ///
    /// # Errors
    /// The backend mounts nothing of this machine, or one of them cannot be shown anywhere.
    pub(super) fn check_added(&self, root: &Path, machine: &Machine) -> Result<()> {
        let Some(first) = self.added.first() else { return Ok(()) };
        if !self.backend.capabilities().own_paths {
            let (path, name) = (first.path.display(), self.backend.name());
            let text =
                format!("{path} cannot be added: the {name} sandbox mounts no directories of this machine");
            return Err(
                Error::config(text).hint("use --sandbox local or docker, or copy it into the workspace")
            );
        }
        added::check(&self.added, root, machine)
    }

    /// The directories beside the workspace that are reviewed with it.
    pub fn written(&self) -> impl Iterator<Item = &AddedDirectory> {
        self.added.iter().filter(|added| !added.read_only)
    }

    /// Refuses directories that could be written to, for `what`, which is about one workspace.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse_written(&self, what: &str) -> Result<()> {
        let Some(added) = self.written().next() else { return Ok(()) };
        let path = added.path.display();
        Err(Error::config(format!("{path} cannot be added: {what} writes to one directory"))
            .hint(format!("add it to be read: --add-dir {path}:ro")))
    }

    pub fn spec(&self, id: &SessionId) -> Spec {
        let (idle_ttl, ephemeral, delete_after) = match self.retention {
            Retention::Remove => (IDLE_TTL, true, None),
            Retention::Keep { ttl, delete_after } => (ttl, false, delete_after),
        };
        Spec {
            session: id.to_string(),
            image: self.image.clone(),
            limits: self.limits.clone(),
            network: self.network.clone(),
            runtime: self.runtime.clone(),
            docker: self.docker,
            idle_ttl,
            ephemeral,
            delete_after,
            workspace: WorkspaceMount::Empty,
            place: None,
            snapshot: None,
            beneath: None,
            added: Vec::new(),
        }
    }
}
