//! From the settings of a call to a session and the exit code, for `run`, the REPL, `resume`, `demo` and `replay`.

use super::console::Console;
use super::hooks;
use crate::agent::Interrupt;
use crate::backends::{Chosen, choose};
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::cli::ui::{confirm, notify};
use crate::error::Result;
use crate::event::SandboxInfo;
use crate::exit_code::ExitCode;
use crate::log::SessionId;
use crate::sanitise::one_line;
use crate::session::{
    Builder, Frontend, Governance, ModelSettings, Notice, Population, Resume, Retention, SandboxSettings,
    Session, Start, WorkspaceSettings, finish,
};
use crate::workspace::{Mode, outer_repository};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a session starts from.
pub enum From {
    /// The workspace.
    Workspace,
    /// An earlier session.
    Session(Box<Resume>),
    /// The workspace as it was when this other session began.
    BeginningOf(SessionId),
}

/// Runs `work`, which may open a session, and ends with `session_finished` whatever happens.
pub async fn drive(
    options: &Options,
    console: Console,
    work: impl AsyncFnOnce(&Arc<Console>, &mut Option<Session>) -> Result<()>,
) -> ExitCode {
    let console = Arc::new(console);
    let mut session = None;
    let result = work(&console, &mut session).await;
    let finished = match (&session, options.json) {
        (None, false) => Ok(()),
        _ => {
            let finished = finish(&*console, session.as_ref(), &result).await;
            finished.and(console.screen.settle()).and(console.events().flush().await)
        }
    };
    match result.and(finished) {
        Ok(()) => ExitCode::Success,
        Err(error) => super::fail(&error),
    }
}

/// Opens a session with the settings of this call.
pub async fn open(
    config: &Config,
    model: ModelSettings,
    from: From,
    console: &Arc<Console>,
) -> Result<Session> {
    console.screen.set_images(config.images());
    console.screen.set_trace(config.file.ui.trace);
    notify::set_up(config.file.ui.notify.clone(), config.notify_after, &config.workspace);
    let mut builder = builder(config, model, from).await?;
    if let Start::New = builder.start {
        ask_about_objects(&mut builder.workspace, console).await?;
    }
    builder.open(Arc::clone(console) as _).await
}

/// Asks whether the sandbox gets objects of other repositories, where the workspace's takes some from there: the list of them
/// may be anybody's. Where nobody can be asked, it gets none, with a notice.
pub async fn ask_about_objects(workspace: &mut WorkspaceSettings, console: &Console) -> Result<()> {
    if workspace.mode == Mode::Bind || !confirm::is_possible() {
        return Ok(());
    }
    let borrowed = outer_repository::borrowed(&workspace.root, &workspace.object_stores);
    if borrowed.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = borrowed.iter().map(|path| one_line(&path.display().to_string(), 200)).collect();
    let question = format!(
        "The repository of this workspace takes objects from {}. Its history then leads there, and the sandbox gets a copy \
         of it. Allow it? ({} in config.toml allows it for good)",
        names.join(", "),
        outer_repository::SETTING
    );
    let _held = console.screen.hold();
    if confirm::ask(console.screen.progress(), &question, &["yes", "no"]).await? == "yes" {
        workspace.object_stores.extend(borrowed);
    }
    Ok(())
}

/// A session with the settings of this call, to be opened.
pub async fn builder(config: &Config, model: ModelSettings, from: From) -> Result<Builder> {
    let (sandbox, reason) = sandbox(config).await?;
    let mut builder = Builder {
        workspace: workspace(config),
        sandbox,
        ..Builder::new(machine(), &config.workspace, model)?
    };
    builder.notices.extend(reason);
    builder.notices.extend(hooks::notice(&config.workspace));
    builder.notices.extend(config.mcp.notice.clone().map(Notice::Usual));
    builder.start = match from {
        From::Workspace => Start::New,
        From::BeginningOf(other) => Start::Rewind(other),
        From::Session(resume) => {
            let population =
                resume.find_workspace(&builder.store, builder.sandbox.backend.as_ref(), machine()).await?;
            if let Some(Population::Reattach(..)) = population {
                builder.notices.extend(without_effect(config, &resume.history.sandbox));
            }
            Start::Resume(resume, population)
        }
    };
    builder.offers_plan = config.file.tools.plan || config.options.plan;
    builder.governance = governance(config);
    builder.delegates = config.file.delegate.unwrap_or(false);
    builder.record = config.options.record.clone();
    Ok(builder)
}

/// Limits and policy of the call.
pub fn governance(config: &Config) -> Governance {
    Governance {
        limits: config.limits.clone(),
        bounds: config.bounds,
        rules: config.file.policy.clone(),
        approve: config.file.approve.unwrap_or_default(),
        hooks: config.hooks.clone(),
        servers: config.mcp.servers.clone(),
    }
}

/// The workspace that the call names.
pub fn workspace(config: &Config) -> WorkspaceSettings {
    WorkspaceSettings {
        machine: machine(),
        root: config.workspace.clone(),
        named: config.workspace_named,
        mode: config.sandbox.workspace_mode,
        include: config.options.include.clone(),
        exclude: config.options.exclude.clone(),
        object_stores: config.file.git_object_stores.iter().map(|path| in_home(path)).collect(),
    }
}

/// A path that may begin with `~`.
fn in_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), machine().home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// The sandbox that the call asks for; if it names none, with the reason for this backend.
pub async fn sandbox(config: &Config) -> Result<(SandboxSettings, Option<Notice>)> {
    let asked = config.sandbox.clone();
    let Chosen { backend, reason, is_fallback } =
        choose(asked.choice, asked.image.as_deref(), asked.runtime.as_deref(), &machine()).await?;
    // That it is not the container is always reported.
    let notice = if is_fallback { Notice::Always } else { Notice::Usual };
    let retention = match config.options.keep {
        true => Retention::Keep { ttl: config.ttl, delete_after: config.delete_after },
        false => Retention::Remove,
    };
    let settings = SandboxSettings {
        image: asked.image,
        runtime: asked.runtime,
        network: asked.network,
        limits: asked.limits,
        retention,
        env: asked.env,
        ..SandboxSettings::new(backend)
    };
    Ok((settings, reason.map(notice)))
}

/// A notice about the flags of this call that have no effect on a sandbox that exists already.
fn without_effect(config: &Config, existing: &SandboxInfo) -> Option<Notice> {
    let (asked, options) = (&config.sandbox, &config.options);
    let image = |image: &Option<String>| image.clone().filter(|image| image != "host");
    let changes_network = match (existing.network.as_str(), asked.network.to_string().as_str()) {
        ("full", asked) => asked != "full",
        (_, asked) => asked == "full",
    };
    let differs = [
        ("--workspace-mode", options.workspace_mode.is_some()),
        ("--include", !options.include.is_empty()),
        ("--exclude", !options.exclude.is_empty()),
        ("--image", options.image.is_some() && image(&asked.image) != image(&existing.image)),
        ("--runtime", options.runtime.is_some() && asked.runtime != existing.runtime),
        ("--network", options.network.is_some() && changes_network),
        ("--memory", options.memory.is_some() && asked.limits.memory != existing.limits.memory),
        ("--cpus", options.cpus.is_some() && asked.limits.cpus != existing.limits.cpus),
        ("--pids", options.pids.is_some() && asked.limits.pids != existing.limits.pids),
        ("--disk", options.disk.is_some() && asked.limits.disk != existing.limits.disk),
        ("--ttl", options.ttl.is_some()),
        ("--delete-after", options.delete_after.is_some()),
    ];
    let flags: Vec<&str> =
        differs.into_iter().filter_map(|(flag, differs)| differs.then_some(flag)).collect();
    (!flags.is_empty()).then(|| {
        Notice::Usual(format!(
            "The sandbox of this session still exists and stays as it was created: {} has no effect.",
            flags.join(", ")
        ))
    })
}

/// The interrupt of a session, connected to the process's signals for as long as `work` runs.
pub async fn with_signals<T>(interrupt: Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    let listening = super::signals::listen(interrupt)?;
    let result = work.await;
    listening.abort();
    result
}
