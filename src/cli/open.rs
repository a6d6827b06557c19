//! Opening a session: what `run`, the REPL, `resume`, `demo` and `replay` have in common.

use super::joined::joined;
use super::past::Past;
use super::verbosity;
use crate::agent::{
    Earlier, Interrupt, OnStarting, SandboxFacts, Session, Setup, Source, Spent, Starting, Startup, Window,
};
use crate::approval::policy::{self, Ask, Gate};
use crate::cli::config::{Config, SandboxConfig};
use crate::cli::options::Options;
use crate::cli::ui::confirm;
use crate::cli::ui::json::Json;
use crate::cli::ui::screen::Screen;
use crate::error::{Error, Kind, Result};
use crate::event::{Changes, Event, Events, SandboxInfo};
use crate::exit_code::ExitCode;
use crate::log::{History, SessionFile, SessionId, Store};
use crate::model::ChatModel;
use crate::network::{self, Gateway};
use crate::sandbox::host_tree::host_tree;
use crate::sandbox::{Backend, Chosen, Network, Spec, WorkspaceMount, choose};
use crate::tools::Registry;
use crate::workspace::{self, Mode, Workspace, mode, select};
use futures_util::FutureExt;
use serde_json::Value;
use std::path::Path;
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
    json: bool,
    quiet: bool,
}

impl Audience {
    /// The listeners that the options ask for. The session file joins later, in front of them.
    pub fn new(options: &Options) -> Self {
        let events = Arc::new(Events::new(1));
        if options.json {
            events.listen(Box::new(Json::new(std::io::stdout())));
        }
        let screen = Screen::new(verbosity(options), options.json, &events);
        Self { events, screen, json: options.json, quiet: options.quiet }
    }

    /// A notice that is printed under `-q` too: without it the user would not know what happened to the changes.
    pub fn always_notice(&self, text: String) -> Result<()> {
        if self.quiet {
            self.screen.notice(&text);
        }
        self.events.emit(Event::Notice { text })
    }

    /// Says which backend was chosen where none was named. That it is not the container is always said.
    fn say_choice(&self, chosen: &Chosen) -> Result<()> {
        match chosen.reason.clone() {
            Some(text) if chosen.is_fallback => self.always_notice(text),
            Some(text) => self.events.emit(Event::Notice { text }),
            None => Ok(()),
        }
    }

    /// Says that a sandbox without a conversation is not the container, where none was named.
    pub fn say_fallback(&self, chosen: &Chosen) -> Result<()> {
        if chosen.is_fallback { self.say_choice(chosen) } else { Ok(()) }
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
    /// Whether the sandbox outlives the session.
    pub keep: bool,
    /// Whether it goes on with an earlier run.
    pub goes_on: bool,
}

/// What a session is opened with.
pub struct Opening<'a> {
    /// The settings of the call.
    pub config: &'a Config,
    /// Who answers.
    pub answering: Answering,
    /// Who listens.
    pub audience: &'a Audience,
    /// The session to go on with; otherwise a new one.
    pub past: Option<Past>,
    /// The session whose workspace, as it began, a new one works on.
    pub like: Option<SessionId>,
    /// A JSON Schema that the final answer has to satisfy.
    pub answer_schema: Option<Value>,
}

impl Opening<'_> {
    /// Opens the session. Its sandbox starts at once, beside whatever is done next.
    pub async fn open(mut self) -> Result<Opened> {
        let (config, audience) = (self.config, self.audience);
        workspace::validate(&config.workspace, config.workspace_named)?;
        priced(config, self.answering.model.name())?;
        let chosen = backend(config).await?;
        let backend = Arc::clone(&chosen.backend);
        let (mut left, mut notices, mut earlier) = (None, Vec::new(), None);
        let mut has = config.sandbox.clone();
        let (id, file) = match self.past.take() {
            None => Store::open()?.create()?,
            Some(past) => {
                left = past.source(backend.as_ref()).await?;
                let spent = past.spent(config.price(self.answering.model.name()));
                let History { messages, prompts, sandbox, .. } = past.history;
                earlier = Some(Earlier { messages, spent, wishes: prompts });
                notices.extend(past.losses);
                if let Some(Source::Rejoin(_)) = left {
                    let (joined, notice) = joined(config, &sandbox);
                    has = joined;
                    notices.extend(notice);
                }
                (past.id, past.file)
            }
        };
        audience.events.begin(id.as_str(), file.next_seq(), Box::new(file));
        if let Some(path) = &config.options.record {
            audience.events.listen(Box::new(SessionFile::record(path)?));
        }
        self.announce(&id, backend.as_ref(), &has)?;
        audience.say_choice(&chosen)?;
        notices.into_iter().try_for_each(|text| audience.events.emit(Event::Notice { text }))?;
        if let Some(former) = &self.like {
            let store = Store::open()?;
            let began = Workspace::as_it_began(&store.dir(former), &store.dir(&id)).await?;
            left = began.map(|workspace| Source::BringBack(Arc::new(workspace)));
        }
        let source = match left {
            Some(left) => left,
            None => source(config, &Store::open()?.dir(&id), backend.as_ref())?,
        };
        // What goes on without an owner was kept, and stays so.
        let keep = config.options.keep || matches!(source, Source::Rejoin(_));
        let gateway = gateway(&has.network, audience)?;
        let startup = Startup::begin(backend, spec(config, &id), source, gateway, on_starting(audience));
        self.session(id, Arc::new(startup), has, earlier, keep)
    }

    fn announce(&self, id: &SessionId, backend: &dyn Backend, has: &SandboxConfig) -> Result<()> {
        let config = self.config;
        self.audience.events.emit(Event::SessionStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: self.answering.model.name().to_owned(),
            base_url: self.answering.base_url.clone(),
            workspace: config.workspace.display().to_string(),
            sandbox: SandboxInfo {
                backend: backend.name().to_owned(),
                id: format!("agent-{id}"),
                image: has.image.clone().or_else(|| default_image(backend)),
                runtime: has.runtime.clone(),
                network: has.network.to_string(),
                limits: has.limits.clone(),
            },
        })
    }

    fn session(
        self,
        id: SessionId,
        startup: Arc<Startup>,
        has: SandboxConfig,
        earlier: Option<Earlier>,
        keep: bool,
    ) -> Result<Opened> {
        let config = self.config;
        let SandboxConfig { network, limits, image, .. } = has;
        let here = startup.backend().capabilities().host_paths;
        let programs = if here { programs(image.as_deref()) } else { Vec::new() };
        let facts = SandboxFacts { network, limits, programs, image };
        let setup = Setup {
            price: config.price(self.answering.model.name()),
            window: Window::new(self.answering.window, config.file.compaction.unwrap_or(true)),
            model: self.answering.model,
            events: Arc::clone(&self.audience.events),
            startup: Arc::clone(&startup),
            tools: Registry::builtin(),
            bounds: config.bounds,
            limits: config.limits.clone(),
            gate: gate(config, &self.audience.screen)?,
            answer_schema: self.answer_schema,
        };
        let mut session = Session::new(setup, &facts, &config.workspace);
        let goes_on = earlier.is_some();
        if let Some(earlier) = earlier {
            session.go_on(earlier);
        }
        Ok(Opened { session, id, startup, keep, goes_on })
    }
}

/// The backend that the call asks for.
pub async fn backend(config: &Config) -> Result<Chosen> {
    let SandboxConfig { choice, image, runtime, .. } = &config.sandbox;
    choose(*choice, image.as_deref(), runtime.as_deref()).await
}

/// The image that a sandbox has where none was named, as far as that is known before it starts.
fn default_image(backend: &dyn Backend) -> Option<String> {
    // An engine to which this machine's paths mean something can show it as well.
    backend.capabilities().host_paths.then(|| "host".to_owned())
}

/// A cost limit means nothing without a price.
fn priced(config: &Config, model: &str) -> Result<()> {
    if config.limits.cost.is_none() || config.price(model).is_some() {
        return Ok(());
    }
    Err(Error::config(format!("--max-cost needs to know what {model} costs"))
        .hint(format!("put [prices.{model:?}] with input and output per million tokens into config.toml")))
}

/// The policy of the user's file. Where there is a terminal, the person at it is asked.
fn gate(config: &Config, screen: &Screen) -> Result<Gate> {
    let approve = config.options.approve.or(config.file.approve).unwrap_or_default();
    let screen = screen.clone();
    let ask: Ask = Box::new(move |question| {
        let (screen, text) = (screen.clone(), question.to_string());
        Box::pin(async move {
            Ok(match confirm::ask(screen.progress(), &text, &["yes", "no", "always"]).await? {
                "yes" => policy::Answer::Yes,
                "always" => policy::Answer::Always,
                _ => policy::Answer::No,
            })
        })
    });
    Gate::new(config.file.policy.clone(), approve, confirm::is_possible().then_some(ask))
}

/// The workspace of a new session that keeps its files in `directory`.
///
/// # Errors
/// It is to be bound, and the sandbox could not write to it; or what to include and to exclude are no globs.
pub fn source(config: &Config, directory: &Path, backend: &dyn Backend) -> Result<Source> {
    if config.sandbox.workspace_mode == Mode::Bind && !backend.capabilities().maps_owners {
        mode::bindable(&config.workspace)?;
    }
    let (root, directory) = (config.workspace.clone(), directory.to_owned());
    for (option, globs) in [("--include", &config.options.include), ("--exclude", &config.options.exclude)] {
        select::globs(&root, globs, option)?;
    }
    let options = workspace::Options {
        select: select::Options {
            include: config.options.include.clone(),
            exclude: config.options.exclude.clone(),
            ..select::Options::default()
        },
        mode: config.sandbox.workspace_mode,
        can_overlay: backend.capabilities().host_paths,
        named: config.workspace_named,
        max_kept: None,
    };
    Ok(Source::Open(async move { Workspace::open(&root, &directory, options).await }.boxed()))
}

/// Programs that the model need not look for: known beforehand where the sandbox shows this machine's own.
fn programs(image: Option<&str>) -> Vec<String> {
    match image {
        None | Some("host") => host_tree().programs(&PROGRAMS),
        Some(_) => Vec::new(),
    }
}

/// What a coding agent looks for first.
const PROGRAMS: [&str; 18] = [
    "bash", "git", "make", "cmake", "gcc", "clang", "rustc", "cargo", "go", "python3", "pip", "node", "npm",
    "java", "mvn", "ruby", "rg", "jq",
];

/// A sandbox without a conversation, with the workspace to be brought in; what is kept of that lies in `directory`.
pub fn begin(
    config: &Config,
    id: &SessionId,
    directory: &Path,
    backend: Arc<dyn Backend>,
    audience: &Audience,
) -> Result<Startup> {
    workspace::validate(&config.workspace, config.workspace_named)?;
    let source = source(config, directory, backend.as_ref())?;
    let gateway = gateway(&config.sandbox.network, audience)?;
    Ok(Startup::begin(backend, spec(config, id), source, gateway, on_starting(audience)))
}

/// What the connections of a session's sandboxes go through.
fn gateway(network: &Network, audience: &Audience) -> Result<Arc<Gateway>> {
    Gateway::new(network, Arc::clone(&audience.events), network::Limits::default())
}

/// Shows how the start of a sandbox gets on.
fn on_starting(audience: &Audience) -> OnStarting {
    let (progress, events) = (audience.screen.progress().clone(), Arc::clone(&audience.events));
    Box::new(move |starting| match starting {
        Starting::Pull(what, done, total) => progress.transfer(what, done, total),
        Starting::Copy(done, total) => progress.transfer("copying the workspace", done, total),
        // A session file that cannot be written fails at the next event of the turn itself.
        Starting::Notice(text) => drop(events.emit(Event::Notice { text: text.to_owned() })),
    })
}

/// What the backend is told.
pub fn spec(config: &Config, id: &SessionId) -> Spec {
    Spec {
        session: id.to_string(),
        image: config.sandbox.image.clone(),
        limits: config.sandbox.limits.clone(),
        network: config.sandbox.network.clone(),
        runtime: config.sandbox.runtime.clone(),
        idle_ttl: if config.options.keep { config.ttl } else { IDLE_TTL },
        ephemeral: !config.options.keep,
        delete_after: config.delete_after,
        workspace: WorkspaceMount::Empty,
    }
}

/// Says the last word of a session: `session_finished`, and on stderr what failed. Ends its sandbox.
pub async fn finish(audience: &Audience, opened: Option<Opened>, result: &Result<()>) -> ExitCode {
    let code = result.as_ref().map_or_else(Error::exit_code, |()| ExitCode::Success);
    let (mut total, mut changes) = (Spent::default(), Changes::default());
    if let Some(opened) = &opened {
        total = opened.session.total();
        changes = opened.session.changes().await.unwrap_or_default();
        opened.startup.gateway().end().await;
        if opened.keep {
            // It is there for the next time, also where the model asked for nothing. A failure was told, or concerns nobody.
            let _ = opened.startup.ready().await;
        } else {
            opened.startup.end().await;
        }
    }
    if opened.is_none() && !audience.json {
        return result.as_ref().map_or_else(super::fail, |()| code);
    }
    let said = audience.events.emit(Event::SessionFinished {
        status: status(result).to_owned(),
        exit_code: code.code(),
        turns: total.turns,
        usage: total.usage,
        changes,
        error: result.as_ref().err().map(ToString::to_string),
    });
    let said = said.and(audience.screen.settle()).and(audience.events.flush().await);
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
        Err(Kind::Difference) => "differs",
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
