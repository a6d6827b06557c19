//! The backend: machines of this user's, one a session.

mod archive;
mod checks;
mod cpio;
mod disk;
mod engine;
mod host;
mod images;
mod initial;
mod kernel;
mod modules;
mod named;
mod pause;
mod qemu;
mod snapshot;
mod start;
mod status;
mod tool;

pub use checks::{Checks, checks};

use crate::{CAPABILITIES, NAME};
use agent_base::error::Result;
use agent_base::machine::Machine;
use agent_event::SandboxInfo;
use agent_sandbox::local::Keeper;
use agent_sandbox::{Backend, Capabilities, Channel, Listed, OnProgress, Reopen, Reopened, Spec};
use async_trait::async_trait;
use futures_util::FutureExt;
use host::{Accelerator, Host};
use std::sync::Arc;
use std::time::Duration;

/// The directory of machines' private directories, in the data directory.
const STORE: &str = "machines";

/// The backend over QEMU.
#[derive(Clone)]
pub struct Vm {
    pub(crate) machine: Arc<Machine>,
    pub(crate) keeper: Keeper,
    host: Host,
}

impl Vm {
    /// Looks for what machines need.
    ///
    /// # Errors
    /// `Config`: what is missing, and what installs it.
    pub fn connect(machine: Arc<Machine>) -> Result<Self> {
        let host = Host::find(&machine)?;
        Ok(Self { keeper: Keeper::new(Arc::clone(&machine), STORE), machine, host })
    }

    /// The stream of a client, which learns why it was cut.
    pub(crate) fn reopened(&self, channel: Channel, session: &str) -> Channel {
        let (vm, session) = (self.clone(), session.to_owned());
        let reopen: Reopen = Arc::new(move || {
            let (vm, session) = (vm.clone(), session.clone());
            async move { vm.attach(&session).await.map_or_else(Reopened::Gone, Reopened::Open) }.boxed()
        });
        Channel { reopen: Some(reopen), ..channel }
    }
}

#[async_trait]
impl Backend for Vm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn location(&self) -> String {
        match &self.host.accelerator {
            Accelerator::Kvm { .. } => "QEMU with KVM on this machine".to_owned(),
            Accelerator::Emulated(why) => {
                format!("QEMU on this machine, which emulates the processor and is slow ({why})")
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        self.start_machine(spec, on_progress).await
    }

    async fn attach(&self, session: &str) -> Result<Channel> {
        let channel = self.keeper.attach(session).await?;
        let boot = Duration::from_secs(self.host.boot_timeout.into());
        Ok(self.reopened(status::admitted(channel, boot).await?, session))
    }

    async fn destroy(&self, session: &str) -> Result<()> {
        self.keeper.destroy(session).await
    }

    async fn pause(&self, session: &str) -> Result<()> {
        pause::pause(self, session).await
    }

    async fn resume(&self, session: &str) -> Result<()> {
        pause::resume(self, session).await
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        self.keeper.list().await
    }

    async fn sweep(&self) -> Result<()> {
        self.keeper.sweep().await
    }
}
