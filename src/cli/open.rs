//! From the settings of a call to a session and the exit code, for `run`, the REPL, `resume`, `demo` and `replay`.

use super::console::Console;
use super::sandbox_settings::{governance, sandbox, workspace};
use super::{hooks, print};
use crate::backends::SandboxChoice;
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::ui::{confirm, notify};
use crate::cli::working_directory::WorkingDirectory;
use crate::error::Result;
use crate::event::SandboxInfo;
use crate::exit_code::ExitCode;
use crate::log::SessionId;
use crate::machine::Machine;
use crate::sanitise::one_line;
use crate::session::{
    Builder, Frontend, ModelSettings, Notice, Population, Resume, Session, Start, WorkspaceSettings, finish,
};
use crate::workspace::{Mode, outer_repository};
use std::sync::Arc;

/// The state that a session starts from.
pub enum StartingPoint {
    /// The workspace.
    Workspace,
    /// An earlier session.
    Session(Box<Resume>),
    /// The workspace as it was when this other session began.
    BeginningOf(SessionId),
}

impl StartingPoint {
    /// The session that is resumed, or the workspace.
    pub fn of(resume: Option<Resume>) -> Self {
        resume.map_or(Self::Workspace, |resume| Self::Session(Box::new(resume)))
    }
}

/// The options of a call, with what the session had that it resumes where the call does not name something else. A session
/// stays with the workspace it was started on.
///
/// # Errors
/// The call names another workspace with `-C`.
pub fn resumed_options(
    machine: &Arc<Machine>,
    resume: Option<&Resume>,
    options: &Options,
) -> Result<Options> {
    let mut options = options.clone();
    let Some(resume) = resume else { return Ok(options) };
    if options.directory.workspace.is_some() {
        WorkingDirectory::of(machine, &options.directory)?.check(&resume.id, &resume.history)?;
    }
    let sandbox = &resume.history.sandbox;
    if let Some(place) = WorkingDirectory::of_session(&resume.history, &options.directory) {
        options.directory.workspace = Some(place.root.clone());
        options.directory.resumed = Some(place);
    }
    let backend = &mut options.backend;
    // Stronger isolation stays, unless the user chooses a backend that has none.
    if !backend.sandbox.is_some_and(SandboxChoice::lacks_runtimes) {
        backend.runtime = backend.runtime.take().or_else(|| sandbox.runtime.clone());
    }
    // A backend that this version does not know is replaced by the automatic choice.
    let former = sandbox.backend.parse().ok();
    backend.sandbox = backend.sandbox.or(former);
    backend.allow_docker |= sandbox.docker && backend.sandbox == former;
    backend.image = backend.image.take().or_else(|| sandbox.image.clone().filter(|image| image != "host"));
    Ok(options)
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
    let finished = match (&session, options.is_json()) {
        (None, false) => Ok(()),
        _ => {
            let finished = finish(&*console, session.as_ref(), &result).await;
            finished.and(console.screen.settle()).and(console.events().flush().await)
        }
    };
    match result.and(finished) {
        Ok(()) => ExitCode::Success,
        Err(error) => print::failure(&error),
    }
}

/// Opens a session with the settings of this call.
pub async fn open(
    config: &Config,
    model: ModelSettings,
    from: StartingPoint,
    console: &Arc<Console>,
) -> Result<Session> {
    console.screen.set_images(config.images());
    console.screen.set_trace(config.file.ui.trace);
    notify::set_up(config.file.ui.notify.clone(), config.notify_after, config.programs());
    let config = match from {
        StartingPoint::Workspace => &ask_about_project(config, console).await?,
        StartingPoint::Session(_) | StartingPoint::BeginningOf(_) => config,
    };
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

/// Asks whether what a file of the project asks for is done, once for each content. Where nobody can be asked, a notice says what it is.
pub async fn ask_about_project(config: &Config, console: &Console) -> Result<Config> {
    let Some(asked) = config.project.open.as_ref().filter(|_| confirm::is_possible()) else {
        return Ok(config.clone());
    };
    let question = format!(
        "{} of this project asks to {}. It happens in the sandbox alone. Approve?",
        asked.request.source.name(),
        asked.request.summary()
    );
    let _held = console.screen.hold();
    match confirm::ask(console.screen.progress(), &question, &["yes", "later", "no"]).await? {
        "yes" => {
            asked.approve(true, &config.machine)?;
            config.with_project()
        }
        "no" => {
            asked.refuse(&config.machine)?;
            config.with_project()
        }
        _ => Ok(config.clone()),
    }
}

/// A session with the settings of this call, to be opened.
pub async fn builder(config: &Config, model: ModelSettings, from: StartingPoint) -> Result<Builder> {
    let (sandbox, reason) = sandbox(config).await?;
    let mut builder = Builder {
        workspace: workspace(config),
        sandbox,
        ..Builder::new(Arc::clone(&config.machine), &config.workspace, model)?
    };
    builder.notices.extend(reason);
    builder.notices.extend(hooks::notice(&config.workspace));
    builder.notices.extend(config.mcp.notice.clone().map(Notice::Usual));
    builder.notices.extend(config.project.notice.clone().map(Notice::Usual));
    builder.start = match from {
        StartingPoint::Workspace => Start::New,
        StartingPoint::BeginningOf(other) => Start::Rewind(other),
        StartingPoint::Session(resume) => {
            let (backend, machine) = (&builder.sandbox.backend, Arc::clone(&config.machine));
            let population = resume.find_workspace(&builder.store, backend, machine).await?;
            if let Some(Population::Reattach(..)) = population {
                builder.notices.extend(without_effect(config, &resume.history.sandbox));
            }
            Start::Resume(resume, population)
        }
    };
    builder.offers_plan = config.file.tools.plan || config.options.plan.plan;
    builder.governance = governance(config);
    builder.delegates = config.file.delegate.unwrap_or(false);
    builder.record = config.options.record.record.clone();
    Ok(builder)
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
        ("--workspace-mode", options.copy.workspace_mode.is_some()),
        ("--include", !options.copy.include.is_empty()),
        ("--exclude", !options.copy.exclude.is_empty()),
        ("--image", options.backend.image.is_some() && image(&asked.image) != image(&existing.image)),
        ("--runtime", options.backend.runtime.is_some() && asked.runtime != existing.runtime),
        ("--allow-docker", options.backend.allow_docker && !existing.docker),
        ("--network", options.resources.network.is_some() && changes_network),
        ("--memory", options.resources.memory.is_some() && asked.limits.memory != existing.limits.memory),
        ("--cpus", options.resources.cpus.is_some() && asked.limits.cpus != existing.limits.cpus),
        ("--pids", options.resources.pids.is_some() && asked.limits.pids != existing.limits.pids),
        ("--disk", options.resources.disk.is_some() && asked.limits.disk != existing.limits.disk),
        ("--ttl", options.keep.ttl.is_some()),
        ("--delete-after", options.keep.delete_after.is_some()),
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
