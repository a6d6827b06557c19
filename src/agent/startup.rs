//! The sandbox starts while the model thinks: begun at once, waited for by the first tool call.

use crate::error::{Error, Result};
use crate::event::SandboxInfo;
use crate::sandbox::{Backend, Sandbox, Spec};
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
}

/// What is done in a new sandbox before the first tool runs: the workspace is brought in.
pub type Prepare = Box<dyn FnOnce(Sandbox) -> BoxFuture<'static, Result<()>> + Send>;

/// What is told about an image that is pulled: its name or layer, bytes done, bytes in all.
pub type OnPull = Box<dyn Fn(&str, u64, u64) + Send + Sync>;

/// A sandbox on its way.
pub struct Startup {
    ready: Shared<BoxFuture<'static, Result<Arc<Ready>, Arc<Error>>>>,
    backend: Arc<dyn Backend>,
    session: String,
}

impl Startup {
    /// Begins to start a sandbox; `prepare` runs in it before anybody else does.
    pub fn begin(backend: Arc<dyn Backend>, spec: Spec, on_pull: OnPull, prepare: Prepare) -> Self {
        let session = spec.session.clone();
        let starting = Arc::clone(&backend);
        let task = tokio::spawn(async move {
            let (channel, info) = starting.start(&spec, &on_pull).await?;
            let sandbox = Sandbox::connect(channel).await?;
            prepare(sandbox.clone()).await?;
            Ok(Arc::new(Ready { sandbox, info }))
        });
        let ready = async move {
            match task.await {
                Ok(result) => result.map_err(Arc::new),
                Err(panicked) => {
                    Err(Arc::new(Error::sandbox("the sandbox could not be started").caused_by(panicked)))
                }
            }
        };
        Self { ready: ready.boxed().shared(), backend, session }
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
