//! [`Sandbox`]: the handle that everything in the sandbox goes through.

mod connection;
mod expect;
mod files;
mod link;
mod listing;
mod long_text;
mod ports;
mod process;
mod stream;
mod tree;
mod tunnel;

pub use files::{Changes, FileBytes, WalkOptions};
pub use listing::Listing;
pub use process::{Controls, JobOutput, Piece, Process, ProcessEvent, reading_beside};
pub use tree::Put;
pub use tunnel::{Tunnel, Tunnels};

use super::Channel;
use super::WORKSPACE;
use super::wire::{Facts, Message};
use agent_base::error::{Error, Kind, Result};
use connection::Connection;
use expect::Expect;
use link::Link;
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stream::ANSWER_TIMEOUT;
use tokio::io::DuplexStream;

/// A running sandbox, over one connection to its guest. Cheap to clone; the connection is closed with the last clone. Where it
/// is cut and the backend can open it again, it is joined again, and what is asked for waits until then.
///
/// Commands are in `process.rs`, files in `files.rs` and `tree.rs`. Relative paths are relative to [`super::WORKSPACE`].
///
/// Errors are of two kinds everywhere: [`Kind::InSandbox`] is the sandbox's answer (no such file, …),
/// [`Kind::Sandbox`] says that the guest or the connection to it is broken.
#[derive(Clone)]
pub struct Sandbox {
    link: Arc<Link>,
    /// Variables that commands and jobs start with.
    env: Arc<[(OsString, OsString)]>,
    /// Set if nothing that goes through this handle changes the workspace.
    read_only: bool,
    /// The paths of the workspace on this machine and inside.
    place: Option<Arc<WorkspacePaths>>,
    /// The directory from which relative paths of files start, where that is not the workspace.
    base: Option<Arc<Path>>,
}

/// The workspace's two paths.
#[derive(Clone)]
struct WorkspacePaths {
    host: PathBuf,
    inside: PathBuf,
    /// The directory in which commands start, where that is a subdirectory.
    directory: Option<PathBuf>,
}

impl Sandbox {
    /// Greets the guest at the other end of `channel`. Must be called inside a tokio runtime, which serves the
    /// connection from then on.
    ///
    /// # Errors
    ///
    /// The guest is not there, does not answer for 20 s, or speaks another version of the protocol.
    pub async fn connect(channel: Channel) -> Result<Self> {
        Ok(Self {
            link: Link::open(channel).await?,
            env: Arc::new([]),
            read_only: false,
            place: None,
            base: None,
        })
    }

    /// Returns whether its stream crosses a network, so that each round trip counts.
    pub fn is_slow(&self) -> bool {
        self.link.is_slow
    }

    /// The same sandbox, in which commands and jobs of this handle start with these variables.
    pub fn with_env(self, env: &[(String, String)]) -> Self {
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { env, ..self }
    }

    /// The same sandbox, whose workspace is `host` on this machine and, where it has a path of its own, `inside` in the sandbox.
    /// Commands start in its subdirectory `directory`, to which the paths of [`Sandbox::locate`] are relative.
    pub fn with_place(self, host: &Path, inside: Option<&Path>, directory: &Path) -> Self {
        let inside = inside.unwrap_or(Path::new(WORKSPACE)).to_owned();
        let directory = (!directory.as_os_str().is_empty()).then(|| inside.join(directory));
        Self { place: Some(Arc::new(WorkspacePaths { host: host.to_owned(), inside, directory })), ..self }
    }

    /// The same sandbox as it is seen from `directory`, which has that path on this machine too: relative paths and commands start there.
    pub fn at(self, directory: &Path) -> Self {
        let place = WorkspacePaths {
            host: directory.to_owned(),
            inside: directory.to_owned(),
            directory: Some(directory.to_owned()),
        };
        Self { place: Some(Arc::new(place)), base: Some(directory.into()), ..self }
    }

    /// The path as the guest takes it.
    fn based(&self, path: &Path) -> PathBuf {
        self.base.as_ref().map_or_else(|| path.to_owned(), |base| base.join(path))
    }

    /// The same sandbox, in which commands start in the workspace itself.
    pub fn in_whole_workspace(self) -> Self {
        let place = self
            .place
            .map(|place| Arc::new(WorkspacePaths { directory: None, ..WorkspacePaths::clone(&place) }));
        Self { place, ..self }
    }

    /// Returns the path of the workspace inside.
    pub fn workspace(&self) -> &Path {
        self.place.as_ref().map_or(Path::new(WORKSPACE), |place| &place.inside)
    }

    /// Returns the directory in which commands start, where that is not the workspace itself.
    fn directory(&self) -> Option<&Path> {
        self.place.as_ref()?.directory.as_deref()
    }

    /// A path as somebody named it: relative to where commands start, by either of the workspace's names inside, or as on this
    /// machine.
    pub fn locate(&self, path: &Path) -> PathBuf {
        let root = self.workspace();
        let host = self.place.as_ref().map(|place| place.host.as_path());
        let below = path.strip_prefix(WORKSPACE).ok().or_else(|| path.strip_prefix(host?).ok());
        match below {
            Some(below) if below.as_os_str().is_empty() => root.to_owned(),
            Some(below) => root.join(below),
            None => self.directory().unwrap_or(root).join(path),
        }
    }

    /// The same relative to the workspace, if it is in it.
    pub fn in_workspace(&self, path: &Path) -> Option<PathBuf> {
        self.locate(path).strip_prefix(self.workspace()).map(Path::to_owned).ok()
    }

    /// Returns what programs printed, with the workspace under its name in every sandbox.
    pub fn with_usual_names<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let place = self.workspace().to_string_lossy();
        match place != WORKSPACE && text.contains(&*place) {
            true => Cow::Owned(text.replace(&*place, WORKSPACE)),
            false => Cow::Borrowed(text),
        }
    }

    /// The same sandbox, in which nothing that goes through this handle can change the workspace: neither commands, with all
    /// that they start, nor files that are written. Where the sandbox's kernel cannot keep it so, commands fail.
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Says that the guest is frozen, or not any more: while it is, its silence does not end the connection.
    pub fn set_frozen(&self, is_frozen: bool) {
        self.link.latest().state.lock().is_frozen = is_frozen;
    }

    /// Returns whether nothing that goes through this handle can change the workspace.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns what the guest knows about the sandbox, and which of `tools` are on its `PATH`.
    pub async fn facts(&self, tools: &[&str]) -> Result<Facts> {
        let tools = tools.iter().map(|tool| (*tool).into()).collect();
        let request = Message::GetFacts { tools };
        let message = self.ask(&request, Expect::Facts).await?;
        let Message::FactsAre { facts } = message else { return Err(unexpected_answer()) };
        Ok(facts)
    }

    /// Kills everything that runs inside but the guest. What is killed executes nothing any more afterwards.
    pub async fn end_processes(&self) -> Result<()> {
        self.link.request(&Message::EndProcesses {}, Expect::Done).await?.answer().await.map(drop)
    }

    /// Ends everything that runs inside, and the guest with it. Waits until it is gone, for at most 10 s.
    pub async fn shutdown(&self) {
        self.link.end();
        // The stream has no answer: it ends when the connection does.
        if let Ok(mut stream) = self.link.request(&Message::Shutdown {}, Expect::Done).await {
            let _ = stream.next(Some(Duration::from_secs(10))).await;
        }
    }

    /// The answer to a request that does the same twice as once, in one message.
    async fn ask(&self, request: &Message, expect: Expect) -> Result<Message> {
        let ask =
            |connection: Arc<Connection>| async move { connection.request(request, expect)?.answer().await };
        self.link.repeat(ask).await
    }

    /// Opens a connection to a server that listens on `port` of the sandbox's loopback.
    ///
    /// # Errors
    ///
    /// Nothing listens there.
    pub async fn connect_port(&self, port: u16) -> Result<DuplexStream> {
        let expect = Expect::Tunnel { open: false, guest_ended: false, host_ended: false };
        let mut stream = self.link.request(&Message::Connect { port }, expect).await?;
        match stream.next(Some(ANSWER_TIMEOUT)).await? {
            Message::Opened {} => Ok(tunnel::join(stream)),
            _ => Err(unexpected_answer()),
        }
    }

    /// Opens the outlet: connections to `port` of the sandbox's loopback come to [`Sandbox::tunnels`], and commands
    /// start with `env` from now on. Called again, it replaces the variables. It is closed with the connection.
    ///
    /// # Errors
    ///
    /// Something else listens there, or another client of the guest has the outlet.
    pub async fn listen(&self, port: u16, env: &[(String, String)]) -> Result<()> {
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.link.listen(Message::Listen { port, env }).await
    }

    /// The connections that programs inside make to the outlet. The first caller gets them; without one all are
    /// refused.
    pub fn tunnels(&self) -> Option<Tunnels> {
        self.link.take_offered().map(Tunnels::new)
    }
}

/// The connection checks the order of messages before it hands them over, so that this does not happen.
fn unexpected_answer() -> Error {
    Error::new(Kind::Sandbox, "the guest sent an answer to another request")
}
