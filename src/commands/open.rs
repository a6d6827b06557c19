//! Opening a session: what `run`, the REPL, `resume`, `demo` and `replay` have in common.

use super::verbosity;
use crate::agent::{Interrupt, OnStarting, SandboxFacts, Session, Setup, Source, Starting, Startup, Window};
use crate::cli::Options;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::event::{Changes, Event, Events, SandboxInfo};
use crate::exit_code::ExitCode;
use crate::model::ChatModel;
use crate::sandbox::{Backend, Chosen, Spec, WorkspaceMount, choose, network_words};
use crate::session::{SessionFile, SessionId, Store};
use crate::ui::json::Json;
use crate::ui::screen::Screen;
use crate::workspace::{self, Workspace, select};
use futures_util::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// With nobody connected, the sandbox of a session that is not kept is gone after this long.
const IDLE_TTL: Duration = Duration::from_secs(10);

/// Who listens to a session: the screen and, where asked for, `--json`.
pub struct Audience {
    /// Where everything that happens is said.
    pub events: Arc<Events>,
    /// What the person sees.
    pub screen: Screen,
}

impl Audience {
    /// The listeners that the options ask for. The session file joins later, in front of them.
    pub fn new(options: &Options) -> Self {
        let events = Arc::new(Events::new(1));
        if options.json {
            events.listen(Box::new(Json::new(std::io::stdout())));
        }
        let screen = Screen::new(verbosity(options), options.json);
        events.listen(Box::new(screen.clone()));
        Self { events, screen }
    }
}

/// Who answers in a session.
pub struct Answering {
    /// The model.
    pub model: Arc<dyn ChatModel>,
    /// The endpoint as `session_started` names it.
    pub base_url: String,
    /// The model's context window in tokens, where it is known.
    pub window: Option<u64>,
}

/// A session that is open: its sandbox is starting.
pub struct Opened {
    /// The conversation.
    pub session: Session,
    /// The session's id.
    pub id: SessionId,
    /// Its sandbox.
    pub startup: Arc<Startup>,
}

/// Opens a new session. Its sandbox starts at once, beside whatever is done next.
pub async fn open(config: &Config, answering: Answering, audience: &Audience) -> Result<Opened> {
    let Chosen { backend, reason } = choose(config.sandbox.choice, config.sandbox.image.as_deref()).await?;
    let (id, file) = Store::open()?.create()?;
    audience.events.listen_first(Box::new(file));
    if let Some(path) = &config.options.record {
        audience.events.listen(Box::new(SessionFile::record(path)?));
    }
    let spec = spec(config, &id);
    audience.events.emit(Event::SessionStarted {
        session: id.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: answering.model.name().to_owned(),
        base_url: answering.base_url,
        workspace: config.workspace.display().to_string(),
        sandbox: SandboxInfo {
            backend: backend.name().to_owned(),
            id: format!("agent-{id}"),
            image: config.sandbox.image.clone(),
            network: network_words(&spec.network),
            limits: spec.limits.clone(),
        },
    })?;
    if let Some(text) = reason {
        audience.events.emit(Event::Notice { text })?;
    }
    let facts = SandboxFacts {
        network: spec.network.clone(),
        limits: spec.limits.clone(),
        image: config.sandbox.image.clone(),
        programs: Vec::new(),
    };
    let startup = Arc::new(begin(config, &id, backend, audience)?);
    let price = config.price(answering.model.name());
    let window = Window::new(answering.window, config.file.compaction.unwrap_or(true));
    let setup = Setup {
        model: answering.model,
        events: Arc::clone(&audience.events),
        startup: Arc::clone(&startup),
        bounds: config.bounds,
        limits: config.limits.clone(),
        price,
        window,
        answer_schema: None,
    };
    Ok(Opened { session: Session::new(setup, &facts, &config.workspace), id, startup })
}

/// Begins to start the sandbox of a session, with the workspace to be brought in.
pub fn begin(
    config: &Config,
    id: &SessionId,
    backend: Arc<dyn Backend>,
    audience: &Audience,
) -> Result<Startup> {
    workspace::validate(&config.workspace, config.workspace_named)?;
    let (root, directory) = (config.workspace.clone(), Store::open()?.dir(id));
    let options = workspace::Options {
        select: select::Options {
            include: config.options.include.clone(),
            exclude: config.options.exclude.clone(),
            ..select::Options::default()
        },
        mode: config.sandbox.workspace_mode,
        can_overlay: backend.can_overlay(),
        named: config.workspace_named,
    };
    let opening = async move { Workspace::open(&root, &directory, options).await };
    let source = Source::Open(opening.boxed());
    Ok(Startup::begin(backend, spec(config, id), source, on_starting(audience)))
}

/// Shows how the start of a sandbox gets on.
fn on_starting(audience: &Audience) -> OnStarting {
    let (progress, events) = (audience.screen.progress().clone(), Arc::clone(&audience.events));
    Box::new(move |starting| match starting {
        Starting::Pull(what, done, total) => progress.pull(what, done, total),
        Starting::Copy(done, total) => progress.pull("copying the workspace", done, total),
        // A session file that cannot be written fails at the next event of the turn itself.
        Starting::Notice(text) => drop(events.emit(Event::Notice { text: text.to_owned() })),
    })
}

fn spec(config: &Config, id: &SessionId) -> Spec {
    Spec {
        session: id.to_string(),
        image: config.sandbox.image.clone(),
        limits: config.sandbox.limits.clone(),
        network: config.sandbox.network.clone(),
        runtime: config.sandbox.runtime.clone(),
        idle_ttl: IDLE_TTL,
        ephemeral: true,
        workspace: WorkspaceMount::Empty,
    }
}

/// Says the last word of a session: `session_finished`, and on stderr what failed.
pub async fn finish(audience: &Audience, opened: Option<&Opened>, result: &Result<()>) -> ExitCode {
    let code = result.as_ref().map_or_else(Error::exit_code, |()| ExitCode::Success);
    let total = opened.map(|opened| opened.session.total()).unwrap_or_default();
    let changes = match opened {
        Some(opened) => opened.session.changes().await.unwrap_or_default(),
        None => Changes::default(),
    };
    let said = audience.events.emit(Event::SessionFinished {
        status: status(result).to_owned(),
        exit_code: code.code(),
        turns: total.turns,
        usage: total.usage,
        changes,
        error: result.as_ref().err().map(ToString::to_string),
    });
    let _ = audience.screen.settle();
    match (result, said) {
        (Err(error), _) => super::fail(error),
        (Ok(()), Err(error)) => super::fail(&error),
        (Ok(()), Ok(())) => code,
    }
}

fn status(result: &Result<()>) -> &'static str {
    match result.as_ref().map_err(Error::kind) {
        Ok(()) => "completed",
        Err(Kind::Interrupted) => "interrupted",
        Err(Kind::Terminated) => "terminated",
        Err(Kind::Limit) => "limit",
        Err(Kind::Check) => "check_failed",
        Err(Kind::Conflict) => "conflict",
        Err(_) => "failed",
    }
}

/// The interrupt of a session, wired to the process's signals for as long as `work` runs.
pub async fn with_signals<T>(interrupt: Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    let listening = super::signals::listen(interrupt)?;
    let result = work.await;
    listening.abort();
    result
}
