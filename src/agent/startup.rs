//! The sandbox starts while the model thinks: begun at once, waited for by the first tool call.

use crate::error::{Error, Kind, Result};
use crate::event::SandboxInfo;
use crate::network::Gateway;
use crate::sandbox::{Backend, Sandbox, Spec, sweep_once};
use crate::workspace::{CopyReport, Workspace, mode};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::sync::Arc;
use std::time::Duration;

/// How long the end of a session waits for its sandbox to be gone. The guest's idle time-to-live does the rest.
const END_WAIT: Duration = Duration::from_millis(1500);

/// A sandbox that is up, with the workspace in it.
pub struct Ready {
    /// The handle.
    pub sandbox: Sandbox,
    /// What it turned out to be.
    pub info: SandboxInfo,
    /// What it works on.
    pub workspace: Arc<Workspace>,
}

/// What is told while a sandbox starts.
#[derive(Debug, Clone, Copy)]
pub enum Starting<'a> {
    /// An image is pulled: its name or layer, bytes done, bytes in all.
    Pull(&'a str, u64, u64),
    /// The workspace is copied in: bytes done, bytes in all.
    Copy(u64, u64),
    /// Something the person should know.
    Notice(&'a str),
}

/// Where that goes.
pub type OnStarting = Box<dyn Fn(Starting<'_>) + Send + Sync>;

/// How the sandbox gets its workspace.
pub enum Source {
    /// A new session: the workspace is opened, and its files are brought in.
    Open(BoxFuture<'static, Result<Workspace>>),
    /// A session whose sandbox is gone: its workspace as it was left is brought back.
    BringBack(Arc<Workspace>),
    /// A session whose sandbox still runs: it is joined.
    Rejoin(Arc<Workspace>),
}

/// A sandbox on its way.
pub struct Startup {
    ready: Shared<BoxFuture<'static, Result<Arc<Ready>, Arc<Error>>>>,
    backend: Arc<dyn Backend>,
    gateway: Arc<Gateway>,
    session: String,
}

impl Startup {
    /// Begins to start (or to join) a sandbox, whose connections go through `gateway`.
    pub fn begin(
        backend: Arc<dyn Backend>,
        spec: Spec,
        source: Source,
        gateway: Arc<Gateway>,
        on_starting: OnStarting,
    ) -> Self {
        let session = spec.session.clone();
        let (starting, connecting) =
            (start(Arc::clone(&backend), spec, source, on_starting), Arc::clone(&gateway));
        let task = tokio::spawn(async move {
            let ready = starting.await?;
            connecting.attach(&ready.sandbox).await?;
            Ok(ready)
        });
        sweep_once(&backend);
        let ready = async move {
            match task.await {
                Ok(result) => result.map(Arc::new).map_err(Arc::<Error>::new),
                Err(panicked) => {
                    Err(Arc::new(Error::sandbox("the sandbox could not be started").caused_by(panicked)))
                }
            }
        };
        Self { ready: ready.boxed().shared(), backend, gateway, session }
    }

    /// Waits until the sandbox is up.
    pub async fn ready(&self) -> Result<Arc<Ready>> {
        self.ready.clone().await.map_err(|error| error.repeat())
    }

    /// The sandbox, if it is up already.
    pub fn if_ready(&self) -> Option<Arc<Ready>> {
        self.ready.clone().now_or_never()?.ok()
    }

    /// The backend it runs on.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// What its connections go through.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Ends the sandbox with everything in it. Bounded: what does not end in time ends by its time-to-live.
    pub async fn end(&self) {
        let end = async {
            // A container that is half made cannot be ended by its guest, so its start is waited for.
            if let Ok(ready) = self.ready().await {
                ready.sandbox.shutdown().await;
            }
            // Not there any more is the good case, and a failure is mended by the next start's sweep.
            let _ = self.backend.destroy(&self.session).await;
        };
        let _ = tokio::time::timeout(END_WAIT, end).await;
    }
}

async fn start(
    backend: Arc<dyn Backend>,
    mut spec: Spec,
    source: Source,
    on_starting: OnStarting,
) -> Result<Ready> {
    let (workspace, is_new) = match source {
        Source::Rejoin(workspace) => return rejoin(backend.as_ref(), &spec, workspace).await,
        Source::Open(opening) => (Arc::new(opening.await?), true),
        Source::BringBack(workspace) => {
            let notice = workspace.reopen(backend.capabilities().host_paths).await?;
            notice.iter().for_each(|notice| on_starting(Starting::Notice(notice)));
            (workspace, false)
        }
    };
    workspace.notices().iter().for_each(|notice| on_starting(Starting::Notice(notice)));
    spec.workspace = workspace.mount().await;
    match attempt(backend.as_ref(), &spec, &workspace, is_new, &on_starting).await {
        Err(error) if error.kind() == Kind::Sandbox && workspace.copy_instead().await? => {
            // What is left of it is in the way of the next.
            backend.destroy(&spec.session).await?;
            spec.workspace = workspace.mount().await;
            let ready = attempt(backend.as_ref(), &spec, &workspace, is_new, &on_starting).await?;
            on_starting(Starting::Notice(&mode::copied(&error.to_string())));
            Ok(ready)
        }
        result => result,
    }
}

async fn attempt(
    backend: &dyn Backend,
    spec: &Spec,
    workspace: &Arc<Workspace>,
    is_new: bool,
    on_starting: &OnStarting,
) -> Result<Ready> {
    let on_pull = |what: &str, done, total| on_starting(Starting::Pull(what, done, total));
    let mut on_copied = |done, total| on_starting(Starting::Copy(done, total));
    backend.capabilities().check(backend.name(), spec)?;
    let (channel, info) = backend.start(spec, &on_pull).await?;
    let sandbox = Sandbox::connect(channel).await?;
    let CopyReport { lost, .. } = match is_new {
        true => workspace.copy_in(&sandbox, &mut on_copied).await?,
        false => workspace.bring_back(&sandbox, &mut on_copied).await?,
    };
    if lost > 0 {
        on_starting(Starting::Notice(&format!(
            "{lost} file(s) of the workspace are as they are now: they changed since, and what they held is not kept."
        )));
    }
    Ok(Ready { sandbox, info, workspace: Arc::clone(workspace) })
}

/// Joins a sandbox that has been running all the time.
async fn rejoin(backend: &dyn Backend, spec: &Spec, workspace: Arc<Workspace>) -> Result<Ready> {
    let channel = backend.attach(&spec.session).await?;
    let sandbox = Sandbox::connect(channel).await?;
    workspace.rejoin(&sandbox).await?;
    let info = SandboxInfo { backend: backend.name().to_owned(), ..SandboxInfo::default() };
    Ok(Ready { sandbox, info, workspace })
}
