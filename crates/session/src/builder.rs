//! From settings to an open session.

use super::checkpoints::Checkpoints;
use super::delegate::{Delegate, DelegateState, Origin, Parent};
use super::environment::SessionEnvironment;
use super::facts::{facts, host_programs};
use super::frontend::Frontend;
use super::hooks::Hooks;
use super::mcp::SessionServers;
use super::observer::Observer;
use super::ports::Ports;
use super::settings::{Governance, ModelSettings, NetworkOrigin, SandboxSettings, WorkspaceSettings};
use super::startup::{ForkedFrom, Population, Startup};
use super::{Resume, Session};
use agent_assist::Helper;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_base::visible::visible_name;
use agent_core::{
    Budget, Conversation, Earlier, RunLimits, SandboxFacts, Setup, Shared, Skills, Spent, Window,
    instructions_not_followed,
};
use agent_event::Event;
use agent_event::Events;
use agent_log::ArtifactLimits;
use agent_log::Artifacts;
use agent_log::History;
use agent_log::SessionFile;
use agent_log::SessionId;
use agent_log::Store;
use agent_network as network;
use agent_network::Gateway;
use agent_policy::policy::Gate;
use agent_sandbox::local::Local;
use agent_tools::code::RunCode;
use agent_tools::{Plan, Registry, UpdatePlan};
use agent_workspace::{AddedDirectory, Mode, Workspace, secrets};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The parts that a session is built from.
pub struct Builder {
    /// Facts of this machine.
    pub machine: Arc<Machine>,
    /// The model.
    pub model: ModelSettings,
    /// The tools that the model may call.
    pub tools: Registry,
    /// Set if it may also hand parts of its work to sessions of their own.
    pub delegates: bool,
    /// Limits and policy.
    pub governance: Governance,
    /// The directory to work on.
    pub workspace: WorkspaceSettings,
    /// The sandbox.
    pub sandbox: SandboxSettings,
    /// The store of sessions.
    pub store: Store,
    /// The state that the workspace and the conversation start from.
    pub start: Start,
    /// Another file that receives the session's events.
    pub record: Option<PathBuf>,
    /// Set if the model is offered `update_plan` from the start.
    pub offers_plan: bool,
    /// Notices about the settings for the user, reported after `session_started`.
    pub notices: Vec<Notice>,
}

/// The state that a session starts from.
pub enum Start {
    /// The workspace as it is.
    New,
    /// An earlier session, and where its workspace is.
    Resume(Box<Resume>, Option<Population>),
    /// The workspace as it was when this other session began.
    Rewind(SessionId),
    /// The task that another session's model delegates.
    Delegated(Box<Origin>),
}

/// A notice for the user.
pub enum Notice {
    /// Shown unless the user asked for fewer messages.
    Usual(String),
    /// Always shown; see [`Frontend::always_notice`].
    Always(String),
}

impl Builder {
    /// A new session on `workspace` with the built-in tools, in a local sandbox without network, kept with the user's
    /// other sessions.
    ///
    /// # Errors
    /// The user has no home directory.
    pub fn new(
        machine: impl Into<Arc<Machine>>,
        workspace: impl Into<PathBuf>,
        model: ModelSettings,
    ) -> Result<Self> {
        let machine = machine.into();
        Ok(Self {
            model,
            tools: Registry::builtin(),
            delegates: false,
            governance: Governance::default(),
            workspace: WorkspaceSettings::new(Arc::clone(&machine), workspace),
            sandbox: SandboxSettings::new(Arc::new(Local::new(Arc::clone(&machine)))),
            store: Store::open(&machine)?,
            start: Start::New,
            record: None,
            offers_plan: false,
            notices: Vec::new(),
            machine,
        })
    }

    /// Opens the session. Its sandbox starts in the background, or when it is needed.
    pub async fn open(mut self, frontend: Arc<dyn Frontend>) -> Result<Session> {
        self.workspace.validate()?;
        self.sandbox.check_added(&self.workspace.root, &self.machine)?;
        self.check_price()?;
        self.check_delegation()?;
        let Opened { id, file, earlier, population, plan, parent, network } = self.open_file().await?;
        let asks = self.sandbox.asks_about_network(&*frontend);
        let (sandbox, workspace) = (self.sandbox.clone(), self.workspace.clone());
        let told = tokio::task::spawn_blocking(move || {
            let programs = host_programs(&sandbox, &workspace.machine);
            (facts(&sandbox, &workspace, programs.clone(), asks), programs)
        });
        let gate = self.gate(parent.as_ref(), &*frontend)?;
        let events = Arc::clone(frontend.events());
        listen(&events, &id, file, self.record.as_deref())?;
        if let Some(observer) = self.machine.kept::<Observer>() {
            events.listen(observer.listener());
        }
        self.announce(&id, &events, parent.as_ref())?;
        for notice in std::mem::take(&mut self.notices) {
            match notice {
                Notice::Usual(text) => events.emit(Event::Notice { text })?,
                Notice::Always(text) => frontend.always_notice(text)?,
            }
        }
        let directory = self.store.dir(&id);
        let rewound = match &self.start {
            Start::Rewind(other) => Some(self.store.dir(other)),
            _ => None,
        };
        let rewound = match rewound {
            Some(other) => Workspace::as_it_began(&other, &directory, Arc::clone(&self.machine)).await?,
            None => None,
        };
        let population = match (population, rewound) {
            (Some(population), _) => population,
            (None, Some(workspace)) => Population::Restore(Arc::new(workspace)),
            (None, None) => self.workspace.populate(&directory, &self.sandbox)?,
        };
        let network = network.filter(|_| self.sandbox.network_origin != NetworkOrigin::Call);
        let began_with = parent.as_ref().map(|parent| parent.network.clone()).or(network);
        let gateway = self.gateway(events, &*frontend, began_with)?;
        let skills = self.find_skills();
        // A part has those of the session that delegates to it.
        if parent.is_none() {
            self.sandbox.home.extend(skills.files.iter().cloned());
        }
        let startup = Startup::begin(&id, &self.sandbox, population, gateway, Arc::clone(&frontend))
            .noting_removal(self.store.removal(&id));
        let plan = Arc::new(plan);
        let told = told.await;
        let (facts, programs) =
            told.map_err(|error| Error::unexpected("this machine could not be looked at").caused_by(error))?;
        let beginning = Beginning { earlier, gate, skills, plan, facts, programs };
        self.session(id, Arc::new(startup), frontend, beginning)
    }

    /// The gateway, with the rules of the session that this one continues or is a part of.
    fn gateway(
        &self,
        events: Arc<Events>,
        frontend: &dyn Frontend,
        began_with: Option<network::Rules>,
    ) -> Result<Arc<Gateway>> {
        let gateway = Gateway::new(&self.sandbox.network, events, network::Limits::default())?;
        gateway.through_proxy_of(&self.machine);
        gateway.allow_with(frontend.network_command());
        gateway.keep_answers_in(network::Project::of(&self.workspace.root, &self.machine)?);
        if let Some(rules) = began_with {
            gateway.begin_with(rules);
        }
        let approver = frontend.approver();
        // Only who can be asked is offered one.
        let offered = approver.as_ref().map_or(&[][..], |_| self.sandbox.offered.as_slice());
        if let Some(approver) = approver {
            gateway.ask_with(approver);
        }
        gateway.bind(&self.sandbox.credentials, offered, &self.machine)?;
        if self.sandbox.asks_about_network(frontend) {
            gateway.ask_about_all();
        }
        Ok(gateway)
    }

    /// The skills, where the model can read them.
    fn find_skills(&self) -> Skills {
        match self.tools.get("read_file") {
            Some(_) => {
                let presence = |file: &Path| self.workspace.presence(file);
                let mut skills = Skills::find(&self.workspace.root, &self.machine, &presence);
                skills.files.retain(|file| !secrets::is_named_like_one(&file.path));
                skills
            }
            None => Skills::default(),
        }
    }

    /// The answer to one prompt, in a session without a user, which then ends.
    ///
    /// # Errors
    /// Those of [`Session::prompt`], and whatever keeps a session from being opened or ended.
    pub async fn answer(self, prompt: &str) -> Result<String> {
        let mut session = self.open(Arc::new(Arc::new(Events::new(1)))).await?;
        let answer = session.prompt(prompt).await;
        session.finish(&answer).await?;
        Ok(answer?.text)
    }

    /// Creates or reopens the session's file.
    async fn open_file(&mut self) -> Result<Opened> {
        let (resume, population) = match std::mem::replace(&mut self.start, Start::New) {
            Start::Resume(resume, population) => (resume, population),
            Start::Delegated(origin) => {
                let Origin { id, file, workspace, layer, parent } = *origin;
                let population = match layer {
                    Some(layer) => Population::Forked(workspace, ForkedFrom::Layer(layer)),
                    None => Population::Restore(workspace),
                };
                let (population, parent) = (Some(population), Some(parent));
                let (plan, earlier, network) = (Plan::default(), None, None);
                return Ok(Opened { id, file, earlier, population, plan, parent, network });
            }
            start => {
                self.start = start;
                let (id, file) = self.store.create()?;
                let (earlier, population, plan, parent) = (None, None, Plan::default(), None);
                return Ok(Opened { id, file, earlier, population, plan, parent, network: None });
            }
        };
        let population = self.take_recorded(&resume, population).await?;
        if let Some(Population::Reattach(..)) = population {
            self.sandbox = self.sandbox.clone().reattached(&resume.history.sandbox);
        }
        let spent = resume.spent(self.model.price);
        if let Some((model, form)) = &resume.history.form
            && model == self.model.client.name()
        {
            self.model.client.resume_form(*form);
        }
        let Resume { id, history, file, losses } = *resume;
        self.store.learned(&id).inspect(|learned| self.model.client.resume_learned(learned));
        let History { messages, artifacts, notes, prompts, prompted, plan, network, .. } = history;
        let network = network.map(|words| network::Rules::recorded(&words));
        // It has been offered, and is part of the conversation.
        self.offers_plan |= plan.is_some();
        let plan = plan.map(|(steps, read_only)| Plan::resumed(steps, read_only)).unwrap_or_default();
        self.notices.extend(losses.into_iter().map(Notice::Usual));
        let earlier = Some(Earlier { messages, artifacts, notes, spent, prompts, prompted });
        Ok(Opened { id, file, earlier, population, plan, parent: None, network })
    }

    /// Takes the directories over that the session has had beside its workspace. A sandbox that lacks one is started again.
    async fn take_recorded(
        &mut self,
        resume: &Resume,
        population: Option<Population>,
    ) -> Result<Option<Population>> {
        let given = std::mem::take(&mut self.sandbox.added);
        for agent_event::AddedDirectory { path, read_only } in &resume.history.added {
            let directory = AddedDirectory { path: path.into(), read_only: *read_only };
            let is_there = directory.path.is_dir()
                && directory.path.canonicalize().is_ok_and(|path| path == directory.path);
            let path = visible_name(path.as_bytes());
            match is_there {
                true => self.sandbox.added.push(directory),
                false if *read_only => {
                    let text = format!("{path} is not there any more: the session continues without it.");
                    self.notices.push(Notice::Always(text));
                }
                false => {
                    let text = format!("{path}, which the session writes to, is not there any more");
                    return Err(Error::usage(text)
                        .hint(format!("put it back; `agent diff {}` shows what changed in it", resume.id)));
                }
            }
        }
        let recorded = self.sandbox.added.clone();
        for directory in given {
            let overlapped = self.sandbox.added.iter_mut().find(|other| directory.overlaps(&other.path));
            match overlapped {
                Some(other) if other.path == directory.path => other.read_only &= directory.read_only,
                Some(_) => {
                    let text =
                        format!("{directory} is not added: the session has a directory that it overlaps.");
                    self.notices.push(Notice::Always(text));
                }
                None => self.sandbox.added.push(directory),
            }
        }
        self.sandbox.check_added(&self.workspace.root, &self.machine)?;
        match population {
            Some(population) if self.sandbox.added == recorded => Ok(Some(population)),
            Some(Population::Reattach(workspace, attached)) => {
                // It may hold what no checkpoint has yet.
                let given = std::mem::replace(&mut self.sandbox.added, recorded);
                let new = given.iter().filter(|directory| !self.sandbox.added.contains(directory));
                let names: Vec<String> = new.map(ToString::to_string).collect();
                let text = format!(
                    "{} cannot be added to the sandbox of this session, which is still running: /add-dir starts it again.",
                    names.join(", ")
                );
                self.notices.push(Notice::Always(text));
                Ok(Some(Population::Reattach(workspace, attached)))
            }
            Some(Population::Restore(workspace)) => {
                Ok(Some(Population::Restore(with_written(self.written(resume), workspace).await?)))
            }
            Some(Population::Forked(workspace, from)) => {
                Ok(Some(Population::Forked(with_written(self.written(resume), workspace).await?, from)))
            }
            population => Ok(population),
        }
    }

    /// The directories that the session writes to beside its workspace, and where its records of them are.
    fn written(&self, resume: &Resume) -> (PathBuf, Vec<PathBuf>) {
        let written = self.sandbox.written().map(|added| added.path.clone());
        (self.store.dir(&resume.id), written.collect())
    }

    fn announce(&self, id: &SessionId, events: &Events, parent: Option<&Parent>) -> Result<()> {
        events.emit(Event::SessionStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: self.model.client.name().to_owned(),
            base_url: self.model.base_url.clone(),
            workspace: self.workspace.root.display().to_string(),
            directory: self.sandbox.directory.display().to_string(),
            added: self.sandbox.added.iter().map(recorded).collect(),
            sandbox: self.sandbox.describe(id),
            parent: parent.map(|parent| parent.session.to_string()),
        })
    }

    fn session(
        self,
        id: SessionId,
        startup: Arc<Startup>,
        frontend: Arc<dyn Frontend>,
        beginning: Beginning,
    ) -> Result<Session> {
        let Beginning { earlier, gate, skills, plan, facts, programs } = beginning;
        let prompts = earlier.as_ref().map_or(0, |earlier| earlier.prompts);
        let checkpoints = Arc::new(Checkpoints::new(Arc::clone(&startup), Arc::clone(&frontend), prompts));
        let RunLimits { tokens, cost, .. } = self.governance.limits;
        let prompt = Arc::new(Budget::new(cost, tokens, Spent::default()));
        let shared = Shared { prompt, ..Shared::default() };
        let delegate = self.delegate(&id, &checkpoints, &gate, &shared);
        let tools = self.session_tools(&programs, earlier.as_ref(), &plan, delegate.as_ref())?;
        let Self { machine, model, governance, workspace, sandbox, store, .. } = self;
        let Governance { limits, bounds, hooks, servers, .. } = governance;
        let (root, events) = (workspace.root.clone(), Arc::clone(frontend.events()));
        let hooks = Arc::new(Hooks::new(hooks, id.to_string(), root, machine, events));
        let ports = Arc::new(Ports::new(Arc::clone(&startup)));
        let environment = Arc::new(SessionEnvironment {
            startup: Arc::clone(&startup),
            checkpoints: Arc::clone(&checkpoints),
            plan: Arc::clone(&plan),
            hooks: Arc::clone(&hooks),
            ports: Arc::clone(&ports),
        });
        let servers = SessionServers::new(&servers, &environment, (&workspace, &sandbox))?;
        let setup = Setup {
            model: model.client,
            events: Arc::clone(frontend.events()),
            environment,
            assist: Arc::new(Helper::default()),
            tools,
            artifacts: Artifacts::of_session(&store.dir(&id), ArtifactLimits::default()),
            bounds,
            limits,
            gate,
            shared,
            price: model.price,
            window: Window::new(model.context_window, model.compaction),
            answer_schema: model.answer_schema,
        };
        let facts = SandboxFacts { skills: skills.in_prompt(), ..facts };
        let resumed = earlier.is_some();
        let conversation = conversation(setup, &facts, &workspace.root.join(&facts.directory), earlier)?;
        Ok(Session {
            conversation,
            id,
            startup,
            checkpoints,
            frontend,
            store,
            workspace,
            sandbox,
            delegate,
            skills,
            plan,
            hooks,
            servers,
            begun: false,
            resumed,
            ports,
            learned: None,
        })
    }

    /// The tools that were set, and those that belong to this one session.
    fn session_tools(
        &self,
        programs: &[String],
        earlier: Option<&Earlier>,
        plan: &Arc<Plan>,
        delegate: Option<&Arc<Delegate>>,
    ) -> Result<Registry> {
        let (mut tools, sandbox) = (self.tools.clone(), &self.sandbox);
        let run_code =
            RunCode::of_sandbox(&self.machine, sandbox.backend.name(), sandbox.image.as_deref(), programs);
        if let Some(earlier) = earlier {
            run_code.resume(&earlier.messages);
        }
        tools.replace(Arc::new(run_code));
        if self.offers_plan {
            tools.add(Arc::new(UpdatePlan(Arc::clone(plan))))?;
        }
        if let Some(delegate) = delegate {
            tools.add(Arc::clone(delegate) as _)?;
        }
        Ok(tools)
    }

    /// Returns what stands before every tool call: that of the session that delegates to this one, or one of its own.
    fn gate(&self, parent: Option<&Parent>, frontend: &dyn Frontend) -> Result<Arc<Gate>> {
        let Governance { rules, approve, .. } = &self.governance;
        match parent {
            Some(parent) => Ok(Arc::clone(&parent.gate)),
            None => Gate::new(rules.clone(), *approve, frontend.approver()).map(Arc::new),
        }
    }

    /// The tool that delegates, where it is offered.
    fn delegate(
        &self,
        id: &SessionId,
        checkpoints: &Arc<Checkpoints>,
        gate: &Arc<Gate>,
        shared: &Shared,
    ) -> Option<Arc<Delegate>> {
        let delegate = || Delegate {
            parent: id.clone(),
            model: Lock::new(self.model.clone()),
            tools: self.tools.clone(),
            governance: self.governance.clone(),
            workspace: self.workspace.clone(),
            sandbox: self.sandbox.clone(),
            store: self.store.clone(),
            frontend: Arc::clone(&checkpoints.frontend),
            startup: Arc::clone(&checkpoints.startup),
            checkpoints: Arc::clone(checkpoints),
            gate: Arc::clone(gate),
            shared: shared.clone(),
            state: DelegateState::default(),
        };
        self.delegates.then(|| Arc::new(delegate()))
    }

    /// A part is done in a copy of the workspace.
    fn check_delegation(&self) -> Result<()> {
        if self.delegates {
            self.sandbox.refuse_written("a session that delegates (--delegate)")?;
        }
        match self.delegates && self.workspace.mode == Mode::Bind {
            true => Err(Error::config(
                "--delegate has no copy of the workspace to hand on with --workspace-mode bind",
            )
            .hint("use another mode, or --delegate=false")),
            false => Ok(()),
        }
    }

    /// A cost limit needs a price.
    fn check_price(&self) -> Result<()> {
        if self.governance.limits.cost.is_some() { self.model.check_price() } else { Ok(()) }
    }
}

/// A session's file, and what an earlier process recorded in it.
struct Opened {
    id: SessionId,
    file: SessionFile,
    earlier: Option<Earlier>,
    population: Option<Population>,
    plan: Plan,
    parent: Option<Parent>,
    /// The list of hosts as the user has changed it.
    network: Option<network::Rules>,
}

/// The beginning of a session, beside its sandbox.
struct Beginning {
    earlier: Option<Earlier>,
    gate: Arc<Gate>,
    skills: Skills,
    plan: Arc<Plan>,
    facts: SandboxFacts,
    programs: Vec<String>,
}

/// The session's workspace with the directories that it is to write to and has not had.
async fn with_written(
    (records, written): (PathBuf, Vec<PathBuf>),
    workspace: Arc<Workspace>,
) -> Result<Arc<Workspace>> {
    let Ok(workspace) = Arc::try_unwrap(workspace) else {
        return Err(Error::unexpected("the workspace of the session is in use"));
    };
    Ok(Arc::new(workspace.adding(&records, &written).await?))
}

/// A directory beside the workspace as `session_started` names it.
fn recorded(AddedDirectory { path, read_only }: &AddedDirectory) -> agent_event::AddedDirectory {
    agent_event::AddedDirectory { path: path.display().to_string(), read_only: *read_only }
}

/// The conversation so far. Instructions of the project that it lacks are named.
fn conversation(
    setup: Setup,
    facts: &SandboxFacts,
    directory: &Path,
    earlier: Option<Earlier>,
) -> Result<Conversation> {
    for text in instructions_not_followed(directory) {
        setup.events.emit(Event::Notice { text })?;
    }
    let mut conversation = Conversation::new(setup, facts, directory);
    if let Some(earlier) = earlier {
        conversation.resume(earlier);
    }
    Ok(conversation)
}

fn listen(events: &Events, id: &SessionId, file: SessionFile, record: Option<&Path>) -> Result<()> {
    events.begin(id.as_str(), file.next_seq(), Box::new(file));
    if let Some(path) = record {
        events.listen(Box::new(SessionFile::record(path)?));
    }
    Ok(())
}
