//! A sandbox that an MCP server has for itself: for the program of an image, or for limits of its own. Its workspace is empty.

use super::OneShot;
use super::frontend::Step;
use super::settings::{Retention, SandboxSettings, Starts, WorkspaceSettings};
use super::startup::Startup;
use agent_backends::{self as backends, SandboxChoice};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_core::Interrupt;
use agent_mcp::client::{Launch, OwnSandbox, ServerSettings};
use agent_sandbox::image::ImageProgram;
use agent_sandbox::{Network, Sandbox};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tempfile::TempDir;

/// The directory of one-shot sandboxes, in that for data.
const SCRATCH: &str = "scratch";

struct ServerSandbox {
    one_shot: OneShot,
    program: ImageProgram,
    /// The empty directory that its workspace is filled from.
    _empty: TempDir,
}

impl OwnSandbox for ServerSandbox {
    fn sandbox(&self) -> &Sandbox {
        &self.one_shot.sandbox
    }

    fn program(&self) -> &ImageProgram {
        &self.program
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        self.one_shot.end().boxed()
    }
}

/// Starts one for `server` of a session whose sandbox has these settings: on the same backend, or in a container where it is
/// for an image. It reaches the server's hosts, but for those that the user denies in the session of `startup`, and nobody is
/// asked about others.
///
/// # Errors
/// There is no container engine for an image, or the sandbox does not start.
pub(super) async fn start(
    server: &ServerSettings,
    session: &SandboxSettings,
    machine: &Arc<Machine>,
    startup: &Startup,
) -> Result<Arc<dyn OwnSandbox>> {
    let frontend = startup.frontend();
    let (mut settings, mut program) = (of_server(server, session), ImageProgram::default());
    if let Launch::Image { image, .. } = &server.launch {
        let engine = backends::choose(SandboxChoice::Auto, Some(image), None, machine).await?.backend;
        program = engine
            .image_program(image, &|what, done, all| frontend.progress(Step::Pull(what, done, all)))
            .await?;
        if session.backend.name() != engine.name() {
            settings.runtime = None;
        }
        settings.backend = engine;
        settings.image = Some(image.clone());
    }
    let empty = TempDir::new()
        .map_err(|error| Error::unexpected("a temporary directory could not be created").caused_by(error))?;
    let workspace = WorkspaceSettings::new(Arc::clone(machine), empty.path());
    let directory = machine.data_dir()?.join(SCRATCH);
    let stop = Interrupt::default();
    let one_shot = OneShot::start(&workspace, &settings, &directory, Arc::clone(frontend), &stop).await?;
    one_shot.startup().gateway().deny_like(startup.gateway());
    Ok(Arc::new(ServerSandbox { one_shot, program, _empty: empty }))
}

/// The settings of its sandbox: the session's, but for what is the server's own.
fn of_server(server: &ServerSettings, session: &SandboxSettings) -> SandboxSettings {
    let mut settings = SandboxSettings {
        added: Vec::new(),
        docker: false,
        retention: Retention::Remove,
        starts: Starts::AtOnce,
        network: Network::None,
        env: Vec::new(),
        directory: std::path::PathBuf::new(),
        home: Vec::new(),
        setup: None,
        credentials: Arc::default(),
        offered: Arc::default(),
        ..session.clone()
    };
    let limits = &mut settings.limits;
    limits.memory = server.limits.memory.unwrap_or(limits.memory);
    limits.cpus = server.limits.cpus.unwrap_or(limits.cpus);
    limits.pids = server.limits.pids.unwrap_or(limits.pids);
    if !server.network.is_empty() {
        settings.network = Network::Hosts(server.network.clone());
    }
    settings
}
