//! [`Sandbox`]: the handle that everything in the sandbox goes through.

use super::Channel;
use super::connection::Connection;
use super::expect::Expect;
use super::stream::PATIENCE;
use super::tunnel::{self, Tunnels};
use super::wire::{self, Message};
use crate::error::{Error, Kind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::DuplexStream;

/// A running sandbox, over one connection to its guest. Cheap to clone; the connection is closed with the last clone.
///
/// Commands are in `process.rs`, files in `files.rs`. Relative paths are relative to [`super::WORKSPACE`].
///
/// Errors are of two kinds everywhere: [`Kind::InSandbox`] is the sandbox's answer (no such file, …),
/// [`Kind::Sandbox`] says that the guest or the connection to it is broken.
#[derive(Clone)]
pub struct Sandbox {
    pub(super) connection: Arc<Connection>,
}

impl Sandbox {
    /// Greets the guest at the other end of `channel`. Must be called inside a tokio runtime, which serves the
    /// connection from then on.
    ///
    /// # Errors
    ///
    /// The guest is not there, says nothing for 20 s, or speaks another version of the protocol.
    pub async fn connect(channel: Channel) -> Result<Self> {
        Ok(Self { connection: Connection::open(channel).await? })
    }

    /// What the guest knows about the sandbox, and which of `tools` are on its `PATH`.
    pub async fn facts(&self, tools: &[&str]) -> Result<Facts> {
        let tools = tools.iter().map(|tool| (*tool).into()).collect();
        let message = self.connection.request(&Message::GetFacts { tools }, Expect::Facts)?.answer().await?;
        let Message::FactsAre { facts } = message else { return Err(out_of_place()) };
        Ok(Facts::from(facts))
    }

    /// Ends everything that runs inside, and the guest with it. Waits until it is gone, for at most 10 s.
    pub async fn shutdown(&self) {
        // The stream has no answer: it ends when the connection does.
        if let Ok(mut stream) = self.connection.request(&Message::Shutdown {}, Expect::Done) {
            let _ = stream.next(Some(Duration::from_secs(10))).await;
        }
    }

    /// Opens a connection to a server that listens on `port` of the sandbox's loopback.
    ///
    /// # Errors
    ///
    /// Nothing listens there.
    pub async fn connect_port(&self, port: u16) -> Result<DuplexStream> {
        let expect = Expect::Tunnel { open: false, guest_ended: false, host_ended: false };
        let mut stream = self.connection.request(&Message::Connect { port }, expect)?;
        match stream.next(Some(PATIENCE)).await? {
            Message::Opened {} => Ok(tunnel::join(stream)),
            _ => Err(out_of_place()),
        }
    }

    /// Opens the way out: connections to `port` of the sandbox's loopback come to [`Sandbox::tunnels`], and commands
    /// start with `env` from now on. Called again, it replaces the variables. It is closed with the connection.
    ///
    /// # Errors
    ///
    /// Something else listens there, or another client of the guest has the way out.
    pub async fn listen(&self, port: u16, env: &[(String, String)]) -> Result<()> {
        let bytes = |text: &String| wire::Bytes::from(text.as_bytes());
        let env = env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        self.connection.request(&Message::Listen { port, env }, Expect::Done)?.answer().await.map(drop)
    }

    /// The connections that programs inside make to the way out. The first caller gets them; without one all are
    /// refused.
    pub fn tunnels(&self) -> Option<Tunnels> {
        self.connection.take_tunnels().map(Tunnels::new)
    }
}

/// The connection checks the order of messages before it hands them over, so that this does not happen.
pub(super) fn out_of_place() -> Error {
    Error::new(Kind::Sandbox, "the guest gave an answer to another question")
}

/// What the guest knows about its sandbox. What it cannot find out is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Whether there is a bash; shell text runs in `sh` otherwise.
    pub bash: bool,
    /// Those of the tools asked for that are on `PATH`.
    pub tools: Vec<String>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// The memory limit, in bytes.
    pub memory_limit: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Their limit.
    pub pids_limit: Option<u64>,
    /// Bytes in use on the workspace's file system.
    pub disk_bytes: Option<u64>,
    /// Bytes that are free there.
    pub disk_free: Option<u64>,
    /// Processes killed for want of memory since the sandbox started.
    pub oom_kills: u64,
}

impl From<wire::Facts> for Facts {
    fn from(facts: wire::Facts) -> Self {
        Self {
            bash: facts.bash,
            tools: facts.tools.iter().map(|tool| String::from_utf8_lossy(&tool.0).into_owned()).collect(),
            memory_bytes: facts.memory_bytes,
            memory_limit: facts.memory_limit,
            pids: facts.pids,
            pids_limit: facts.pids_limit,
            disk_bytes: facts.disk_bytes,
            disk_free: facts.disk_free,
            oom_kills: facts.oom_kills,
        }
    }
}
