//! Starting the sandbox: in the background, so that the model's first answer and the start take place at the same time, or when
//! it is needed.

use super::frontend::{Frontend, Step};
use super::project_setup::Preparation;
use super::settings::{SandboxSettings, Starts};
use super::snapshot::{self, NotedSnapshot};
use super::waits::Waits;
use agent_backends::sweep_once;
use agent_base::count_text::counted;
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_base::sanitise::one_line;
use agent_event::{Event, Events, SandboxInfo};
use agent_log::SessionId;
use agent_network::Gateway;
use agent_sandbox::{
    AddedMount, Backend, Channel, EntryKind, HomeFile, Sandbox, Spec, WorkspaceMount, layer, own_place,
    removals,
};
use agent_tools::Reach;
use agent_workspace::{AddedDirectory, CopyReport, Workspace, added, mode};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time that the end of a session waits for a start that is under way.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that it waits for the guest to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time that it waits for its sandbox to be removed, whether or not the guest has answered: what has ended is still
/// an object of a cluster, and counts for its quota. After that the removal goes on beside it; the guest's idle timeout
/// and a later sweep remove what this process does not.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A sandbox that is up, with the workspace in it.
pub struct Ready {
    /// The handle.
    pub sandbox: Sandbox,
    /// The facts about the sandbox that the backend started.
    pub info: SandboxInfo,
    /// The workspace in it.
    pub workspace: Arc<Workspace>,
    /// Set if it ran before this process.
    pub reattached: bool,
}

/// The state of the workspace with which a sandbox starts, and where that comes from.
pub enum Population {
    /// A new session: the workspace is opened, and its files are copied in.
    Fill(BoxFuture<'static, Result<Workspace>>),
    /// The session's sandbox does not exist any more: its workspace is restored in a fresh one.
    Restore(Arc<Workspace>),
    /// A fork: its workspace is as another sandbox had it.
    Forked(Arc<Workspace>, ForkedFrom),
    /// The session's sandbox, with this id on its backend, still runs.
    Reattach(Arc<Workspace>, String),
}

/// The files that the sandbox of a fork begins with.
pub enum ForkedFrom {
    /// The directory of what the other sandbox had written.
    Layer(PathBuf),
    /// A copy of the other sandbox, at its backend.
    Snapshot(NotedSnapshot),
}

/// A sandbox that is starting, or that starts when it is needed.
pub struct Startup {
    phase: Lock<Phase>,
    backend: Arc<dyn Backend>,
    gateway: Arc<Gateway>,
    frontend: Arc<dyn Frontend>,
    session: String,
    announced: AtomicBool,
    reattaches: bool,
    removal: Option<PathBuf>,
}

type Starting = Shared<BoxFuture<'static, Result<Arc<Ready>, Arc<Error>>>>;

enum Phase {
    /// Nobody has needed it.
    Waiting(Box<(SandboxStart, Population)>),
    Begun(Starting),
    /// It was not needed, and is not any more.
    Ended,
}

impl Startup {
    /// Starts (or reattaches to) the sandbox of session `id`, whose connections go through `gateway`, when the settings say.
    pub fn begin(
        id: &SessionId,
        settings: &SandboxSettings,
        population: Population,
        gateway: Arc<Gateway>,
        frontend: Arc<dyn Frontend>,
    ) -> Self {
        let backend = Arc::clone(&settings.backend);
        let reattaches = matches!(population, Population::Reattach(..));
        let start = SandboxStart {
            backend: Arc::clone(&backend),
            spec: settings.spec(id),
            directory: settings.directory.clone(),
            env: settings.env.clone(),
            home: settings.home.clone(),
            added: settings.added.clone(),
            setup: settings.setup.clone().map(|setup| Preparation::new(setup, settings, &frontend)),
            gateway: Arc::clone(&gateway),
            frontend: Arc::clone(&frontend),
        };
        let phase = match settings.starts {
            Starts::AtOnce => Phase::Begun(start.begin(population)),
            Starts::WhenNeeded => Phase::Waiting(Box::new((start, population))),
        };
        let (phase, session, announced) = (Lock::new(phase), id.to_string(), AtomicBool::new(false));
        Self { phase, backend, gateway, frontend, session, announced, reattaches, removal: None }
    }

    /// Has its removal noted at `path`, for a session that may be resumed.
    pub(super) fn noting_removal(self, path: PathBuf) -> Self {
        Self { removal: Some(path), ..self }
    }

    /// Its start, which begins now if it has not begun yet.
    fn started(&self) -> Result<Starting> {
        let mut phase = self.phase.lock();
        let starting = match std::mem::replace(&mut *phase, Phase::Ended) {
            Phase::Waiting(waiting) => waiting.0.begin(waiting.1),
            Phase::Begun(starting) => starting,
            Phase::Ended => return Err(Error::sandbox("the session has ended")),
        };
        *phase = Phase::Begun(starting.clone());
        Ok(starting)
    }

    /// Its start, if that has begun.
    fn begun(&self) -> Option<Starting> {
        match &*self.phase.lock() {
            Phase::Begun(starting) => Some(starting.clone()),
            _ => None,
        }
    }

    /// Returns whether it is up, or starting.
    pub(super) fn has_begun(&self) -> bool {
        self.begun().is_some()
    }

    /// Waits until the sandbox is up, without reporting it.
    pub(super) async fn ready_silently(&self) -> Result<Arc<Ready>> {
        self.started()?.await.map_err(|error| error.repeat())
    }

    /// Waits until the sandbox is up, and reports it the first time.
    pub async fn ready(&self) -> Result<Arc<Ready>> {
        let ready = self.ready_silently().await?;
        if !self.announced.swap(true, Ordering::Relaxed) {
            let info = &ready.info;
            let event = Event::SandboxReady { backend: info.backend.clone(), id: info.id.clone() };
            self.frontend.events().emit(event)?;
        }
        Ok(ready)
    }

    /// The sandbox, if it is up already.
    pub fn if_ready(&self) -> Option<Arc<Ready>> {
        self.begun()?.now_or_never()?.ok()
    }

    /// Returns whether it is a sandbox that ran before this process.
    pub(super) async fn is_reattached(&self) -> bool {
        self.reattaches && self.ready_silently().await.is_ok_and(|ready| ready.reattached)
    }

    /// The backend it runs on.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Has an overlay of the workspace show what the user has on the host now; `is_prompt` says that a prompt begins.
    pub(super) async fn show_anew(&self, workspace: &Workspace, is_prompt: bool) -> Result<()> {
        self.backend.show_anew(&self.session, is_prompt || workspace.has_news().await).await
    }

    /// Returns what drives the session.
    pub(super) fn frontend(&self) -> &Arc<dyn Frontend> {
        &self.frontend
    }

    /// The session's bus.
    pub(super) fn events(&self) -> &Arc<Events> {
        self.frontend.events()
    }

    /// Returns what its connections go through.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Removes the sandbox with everything in it. Bounded: the idle timeout removes what does not end in time.
    pub async fn end(&self) {
        let starting = match &mut *self.phase.lock() {
            Phase::Begun(starting) => starting.clone(),
            phase => {
                *phase = Phase::Ended;
                return;
            }
        };
        // A container that is half created cannot be ended by its guest, so its start is awaited. A pod may wait for minutes.
        let started = tokio::time::timeout(START_TIMEOUT, starting).await;
        let ready = started.ok().and_then(Result::ok);
        let remove = || removals::remove(&self.backend, &self.session, self.removal.clone());
        let shutdown = async |ready: &Ready| {
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, ready.sandbox.shutdown()).await;
        };
        let removal = match &ready {
            Some(ready) if ready.sandbox.is_slow() => {
                // Beside each other: each takes a round trip, and the guest of what is removed cannot always answer.
                let removal = remove();
                tokio::select! {
                    () = shutdown(ready) => {}
                    () = removal.wait(REMOVAL_TIMEOUT) => {}
                }
                removal
            }
            Some(ready) => {
                // Usually the guest removes it.
                shutdown(ready).await;
                remove()
            }
            None => remove(),
        };
        removal.wait(REMOVAL_TIMEOUT).await;
    }
}

impl ForkedFrom {
    /// Removes what is of no use a second time. What is left is removed with the session.
    async fn discard(self) {
        let discard = move || match self {
            Self::Layer(layer) => drop(std::fs::remove_dir_all(layer)),
            Self::Snapshot(snapshot) => drop(snapshot.forget()),
        };
        let _ = tokio::task::spawn_blocking(discard).await;
    }
}

impl Reach for Startup {
    fn reach<'a>(&'a self, hosts: &'a [&'a str], purpose: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        async move { self.gateway.reach(&self.ready_silently().await?.sandbox, hosts, purpose).await }.boxed()
    }
}

/// The start of one sandbox.
struct SandboxStart {
    backend: Arc<dyn Backend>,
    spec: Spec,
    /// The directory of the workspace that commands start in.
    directory: PathBuf,
    env: Vec<(String, String)>,
    home: Vec<HomeFile>,
    added: Vec<AddedDirectory>,
    setup: Option<Preparation>,
    gateway: Arc<Gateway>,
    frontend: Arc<dyn Frontend>,
}

impl SandboxStart {
    /// Starts it in the background.
    fn begin(self, population: Population) -> Starting {
        let backend = Arc::clone(&self.backend);
        let task = tokio::spawn(self.run(population));
        sweep_once(&backend);
        let ready = async move {
            match task.await {
                Ok(result) => result.map(Arc::new).map_err(Arc::<Error>::new),
                Err(panicked) => {
                    Err(Arc::new(Error::sandbox("the sandbox could not be started").caused_by(panicked)))
                }
            }
        };
        ready.boxed().shared()
    }

    async fn run(mut self, population: Population) -> Result<Ready> {
        let (workspace, is_new) = match population {
            Population::Fill(opening) => (Arc::new(opening.await?), true),
            Population::Restore(workspace) => (workspace, false),
            Population::Forked(workspace, from) => {
                let ready = self.start_fork(&workspace, &from).await;
                if ready.is_err() {
                    destroy(self.backend.as_ref(), &self.spec.session).await?;
                }
                from.discard().await;
                match ready {
                    Ok(ready) => return Ok(ready),
                    Err(error) => {
                        self.spec.snapshot = None;
                        self.notice(format!(
                            "This sandbox has the workspace as it was recorded last, because it could not begin with the \
                             other one's files: {error}."
                        ));
                        (workspace, false)
                    }
                }
            }
            Population::Reattach(workspace, id) => match self.reattach(&workspace, id).await {
                Ok(ready) => return Ok(ready),
                Err(error) => {
                    self.discard(&error).await?;
                    (workspace, false)
                }
            },
        };
        self.spec.place = self.place_of(&workspace);
        if !is_new {
            let notices = workspace.reopen(self.backend.capabilities().host_paths).await?;
            notices.into_iter().for_each(|text| self.notice(text));
        }
        self.spec.added = self.added_mounts(&workspace).await?;
        self.spec.workspace = workspace.mount().await;
        if let Some(setup) = self.setup.as_ref().filter(|_| is_new && self.spec.is_overlay()) {
            setup.prepare(&workspace).await?;
        }
        self.spec.beneath = workspace.beneath().await;
        let ready = match self.attempt(&workspace, is_new).await {
            Err(error) if error.kind() == Kind::Sandbox && workspace.fall_back_to_copy().await? => {
                // The rest of the failed attempt would make the next one fail.
                self.backend.destroy(&self.spec.session).await?;
                self.spec.workspace = workspace.mount().await;
                self.spec.added = self.added_mounts(&workspace).await?;
                self.spec.beneath = None;
                let ready = self.attempt(&workspace, is_new).await?;
                self.notice(mode::copied(&error.to_string()));
                ready
            }
            result => result?,
        };
        workspace.new_notices().into_iter().for_each(|text| self.notice(text));
        if let Some(setup) = self.setup.as_ref().filter(|_| is_new && !self.spec.is_overlay()) {
            setup.run_in(&ready.sandbox, &self.gateway).await?;
        }
        self.gateway.attach(&ready.sandbox).await?;
        Ok(ready)
    }

    /// Shows the progress of a start. What it waits for is a notice too, once it is reported again: a pod may wait for minutes.
    fn show(&self, waits: &Waits, what: &str, done: u64, total: u64) {
        self.frontend.progress(Step::Pull(what, done, total));
        if waits.is_repeated(what) {
            self.notice(format!("The sandbox does not start yet: {what}."));
        }
    }

    async fn attempt(&self, workspace: &Arc<Workspace>, is_new: bool) -> Result<Ready> {
        self.backend.capabilities().check(self.backend.name(), &self.spec)?;
        let waits = Waits::default();
        let on_pull = |what: &str, done, total| self.show(&waits, what, done, total);
        let mut on_copied = |done, total| self.frontend.progress(Step::Copy(done, total));
        let (channel, info) = self.backend.start(&self.spec, &on_pull).await?;
        info.missing.iter().for_each(|text| self.notice(text.clone()));
        let sandbox = self.connect(channel, workspace).await?;
        self.check_runtime(&sandbox).await?;
        let CopyReport { lost, .. } = match is_new {
            true => {
                // Beside each other: over a slow link each takes a round trip or two.
                let copied = workspace.copy_in(&sandbox, &mut on_copied);
                let (copied, home) = tokio::join!(copied, self.put_home(&sandbox, workspace));
                home.and(copied)?
            }
            false => {
                // What is restored of `$HOME` comes first.
                let restored = workspace.restore_into(&sandbox, &mut on_copied).await?;
                self.put_home(&sandbox, workspace).await?;
                restored
            }
        };
        if lost > 0 {
            self.notice(format!(
                "The earlier content of {} in the workspace is not kept any more: the current one is used.",
                counted(lost, "file")
            ));
        }
        workspace.settle_filtered_files(&sandbox).await?;
        let sandbox = self.in_directory(sandbox).await?;
        Ok(Ready { sandbox, info, workspace: Arc::clone(workspace), reattached: false })
    }

    /// Starts it as the sandbox of another session was.
    async fn start_fork(&mut self, workspace: &Arc<Workspace>, from: &ForkedFrom) -> Result<Ready> {
        match from {
            ForkedFrom::Layer(layer) => {
                let (lower, layer) = (workspace.root().to_owned(), layer.clone());
                self.spec.workspace = WorkspaceMount::Forked { lower, layer };
            }
            ForkedFrom::Snapshot(snapshot) => self.spec.snapshot = Some(snapshot.id.clone()),
        }
        self.spec.beneath = workspace.beneath().await;
        self.spec.place = self.place_of(workspace);
        let notices = workspace.reopen_added(self.backend.capabilities().host_paths).await?;
        notices.into_iter().for_each(|text| self.notice(text));
        self.spec.added = self.added_mounts(workspace).await?;
        self.backend.capabilities().check(self.backend.name(), &self.spec)?;
        // The backend takes the layer.
        let has_home = match from {
            ForkedFrom::Layer(layer) => layer.join(layer::HOME).is_dir(),
            ForkedFrom::Snapshot(_) => true,
        };
        let waits = Waits::default();
        let on_pull = |what: &str, done, total| self.show(&waits, what, done, total);
        let (channel, info) = self.backend.start(&self.spec, &on_pull).await?;
        info.missing.iter().for_each(|text| self.notice(text.clone()));
        let sandbox = self.connect(channel, workspace).await?;
        if let ForkedFrom::Snapshot(_) = from {
            snapshot::take_mark(&sandbox, &self.spec.session).await?;
            workspace.rejoin(&sandbox).await?;
        }
        workspace.begin_forked(&sandbox, has_home).await?;
        workspace.restore_added_into(&sandbox, &mut |_, _| {}).await?;
        self.gateway.attach(&sandbox).await?;
        self.put_home(&sandbox, workspace).await?;
        let sandbox = self.in_directory(sandbox).await?;
        Ok(Ready { sandbox, info, workspace: Arc::clone(workspace), reattached: false })
    }

    async fn reattach(&self, workspace: &Arc<Workspace>, id: String) -> Result<Ready> {
        let channel = self.backend.attach(&self.spec.session).await?;
        let sandbox = self.connect(channel, workspace).await?;
        workspace.rejoin(&sandbox).await?;
        self.gateway.attach(&sandbox).await?;
        self.put_home(&sandbox, workspace).await?;
        let info = SandboxInfo { backend: self.backend.name().to_owned(), id, ..SandboxInfo::default() };
        let sandbox = self.in_directory(sandbox).await?;
        Ok(Ready { sandbox, info, workspace: Arc::clone(workspace), reattached: true })
    }

    /// Returns the mounts by which the backend shows the directories beside the workspace.
    async fn added_mounts(&self, workspace: &Workspace) -> Result<Vec<AddedMount>> {
        let (added, machine) = (self.added.clone(), workspace.machine());
        let read_only = move || {
            let read_only = added.iter().filter(|directory| directory.read_only);
            read_only.map(|directory| added::read_only_mount(&directory.path, &machine)).collect()
        };
        let found: Result<Vec<AddedMount>> =
            tokio::task::spawn_blocking(read_only).await.map_err(|error| {
                Error::unexpected("the added directories were not looked through").caused_by(error)
            })?;
        Ok([found?, workspace.added_mounts().await].concat())
    }

    /// The path of the workspace inside, where the backend gives it its own.
    fn place_of(&self, workspace: &Workspace) -> Option<PathBuf> {
        own_place(self.backend.as_ref(), workspace.root())
    }

    async fn connect(&self, channel: Channel, workspace: &Workspace) -> Result<Sandbox> {
        let place = self.place_of(workspace);
        let sandbox = Sandbox::connect(channel).await?.with_env(&self.env);
        Ok(sandbox.with_place(workspace.root(), place.as_deref(), &self.directory))
    }

    /// Reports what programs miss in the kernel of another runtime.
    async fn check_runtime(&self, sandbox: &Sandbox) -> Result<()> {
        if let Some(runtime) = &self.spec.runtime
            && !sandbox.facts(&[]).await?.takes_no_automount
        {
            self.notice(format!(
                "`ls -l`, `stat` and what calls them fail in this sandbox: the runtime {runtime} does not know a flag that they pass \
                 (AT_NO_AUTOMOUNT). A newer one does."
            ));
        }
        Ok(())
    }

    /// The sandbox, in whose workspace commands start where their directory is gone.
    async fn in_directory(&self, sandbox: Sandbox) -> Result<Sandbox> {
        if self.directory.as_os_str().is_empty() {
            return Ok(sandbox);
        }
        match sandbox.stat(&sandbox.locate(Path::new(""))).await {
            Ok(entry) if entry.kind == EntryKind::Directory => Ok(sandbox),
            Err(error) if error.kind() != Kind::InSandbox => Err(error),
            _ => {
                self.notice(format!(
                    "Commands start in the workspace, because {} is not a directory of it.",
                    one_line(&self.directory.to_string_lossy(), 200)
                ));
                Ok(sandbox.in_whole_workspace())
            }
        }
    }

    async fn put_home(&self, sandbox: &Sandbox, workspace: &Workspace) -> Result<()> {
        let of_credentials = self.gateway.home_files(sandbox).await;
        let files = [workspace.git_settings().await?, self.home.clone(), of_credentials].concat();
        match sandbox.put_home(&files).await? {
            0 => {}
            failed => self.notice(format!(
                "{failed} of the files that belong into $HOME of the sandbox could not be written."
            )),
        }
        Ok(())
    }

    /// Removes a sandbox that cannot be reattached to: it is ending, or another version's guest answers in it.
    async fn discard(&self, error: &Error) -> Result<()> {
        destroy(self.backend.as_ref(), &self.spec.session).await?;
        self.notice(format!(
            "The sandbox of this session cannot be used any more ({error}). The workspace is restored in a fresh one; \
             running processes and files outside of the workspace are lost."
        ));
        Ok(())
    }

    fn notice(&self, text: String) {
        // A session file that cannot be written fails at the next event of the turn itself.
        let _ = self.frontend.events().emit(Event::Notice { text });
    }
}

/// Attempts to remove a sandbox, and the pause between two of them: an engine refuses while it is removing the same one.
const DESTROY_ATTEMPTS: u32 = 20;
const DESTROY_PAUSE: Duration = Duration::from_millis(250);

/// Removes the sandbox of `session`, also while the engine itself is ending it.
pub(super) async fn destroy(backend: &dyn Backend, session: &str) -> Result<()> {
    let mut attempt = 1;
    loop {
        match backend.destroy(session).await {
            Err(error) if attempt == DESTROY_ATTEMPTS => return Err(error),
            Err(_) => tokio::time::sleep(DESTROY_PAUSE).await,
            Ok(()) => return Ok(()),
        }
        attempt += 1;
    }
}
