//! The definition of a backend: something that can run guests, and what it is able to do.

use super::image::ImageProgram;
use super::{Network, Spec, WorkspaceMount};
use agent_base::error::{Error, Result};
use agent_event::SandboxInfo;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// The guest's byte stream.
pub struct Channel {
    /// The stream from the guest.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The stream to the guest. Closing it tells the guest that its client is gone.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Set if it crosses a network: then packed files are compressed, and a tree that was listed before is listed again
    /// by its changes. Both cost more than they save within a machine.
    pub is_slow: bool,
    /// Opens another stream to the same guest, where this one may be cut while the guest continues.
    pub reopen: Option<Reopen>,
    /// The greeting that was sent while the stream was opened.
    pub greeted: Option<Greeting>,
}

/// A greeting that a guest gets while the stream to it is opened.
#[derive(Debug, Clone, Copy)]
pub struct Greeting {
    /// The number that the guest is to prove ([`bootstrap::nonce`]).
    ///
    /// [`bootstrap::nonce`]: super::bootstrap::nonce
    pub nonce: [u8; 32],
    /// Set if the guest has taken notice, so that its answer comes first. Otherwise it gets the same greeting again: a guest of an
    /// older build has not read it, and of a newer one a proxy may have lost the notice.
    pub is_noticed: bool,
}

/// Opens the stream to a guest again after it was cut.
pub type Reopen = Arc<dyn Fn() -> BoxFuture<'static, Reopened> + Send + Sync>;

/// The outcome of opening a stream again.
pub enum Reopened {
    /// Another stream.
    Open(Channel),
    /// Nothing: a later attempt may succeed.
    NotYet(Error),
    /// The sandbox is not there any more, for this reason.
    Gone(Error),
}

impl Channel {
    /// A stream within this machine. Over a network: `Channel { is_slow: true, ..Channel::new(reader, writer) }`.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Self { reader, writer, is_slow: false, reopen: None, greeted: None }
    }
}

/// Receives the progress of a start (an image that is pulled, a guest that is uploaded): the step, bytes done, bytes in
/// all. Both are 0 where a step has no size.
pub type OnProgress<'a> = &'a (dyn Fn(&str, u64, u64) + Send + Sync);

/// Something that can run guests. Nothing above it asks which one it is: what differs is in [`Capabilities`].
#[async_trait]
pub trait Backend: Send + Sync {
    /// Its name in the registry, on the command line and in the session file.
    fn name(&self) -> &'static str;

    /// Returns the place where it runs, for messages.
    fn location(&self) -> String;

    /// Returns what it can do here and now.
    fn capabilities(&self) -> Capabilities;

    /// Starts a sandbox and returns its guest's stream and its description.
    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)>;

    /// The program of the image `name`, which is pulled where it is missing.
    ///
    /// # Errors
    /// `name` is not a valid name, the image cannot be pulled or is not described, or the backend has no images.
    async fn image_program(&self, _name: &str, _on_progress: OnProgress<'_>) -> Result<ImageProgram> {
        Err(Error::sandbox(format!("the {} backend does not say what an image runs", self.name())))
    }

    /// Opens another stream to the guest of the running sandbox of `session`.
    async fn attach(&self, session: &str) -> Result<Channel>;

    /// Stops and removes the sandbox of `session`, whatever state it is in. A missing one is not an error.
    async fn destroy(&self, session: &str) -> Result<()>;

    /// The identity of the sandbox of `session` that this process has started or attached to last, where the backend tells it
    /// from another one that has been made in its place.
    fn identity(&self, _session: &str) -> Option<String> {
        None
    }

    /// [`Backend::destroy`] of the sandbox with this [`Backend::identity`] alone: another one of the session stays.
    async fn destroy_only(&self, session: &str, _identity: &str) -> Result<()> {
        self.destroy(session).await
    }

    /// Copies what the sandbox of `session` has written into the new directory `into`, as far as that is possible without its
    /// guest, for the start of a fork ([`WorkspaceMount::Forked`]). What `into` then lacks, the caller takes from the guest.
    async fn fork(&self, _session: &str, _into: &Path) -> Result<Copied> {
        Ok(Copied::default())
    }

    /// Makes a copy of the sandbox of `session` that stays with the backend, for the sandbox of the session `fork` to begin as
    /// ([`Spec::snapshot`]): its id, or `None` where the backend has no such copies. [`Backend::destroy`] of `fork` removes the copy.
    async fn snapshot(&self, _session: &str, _fork: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Has the overlays of the sandbox show what is underneath now: the kernel keeps what was looked up in them, and shows files and
    /// directories that others have taken the place of. With `has_news` the user may have changed what is under the workspace, so that it may
    /// take some tenths of a second; without, at most a few milliseconds. Without an effect where there are no overlays.
    ///
    /// # Errors
    /// The rights for it are missing.
    async fn show_anew(&self, _session: &str, _has_news: bool) -> Result<()> {
        Ok(())
    }

    /// Freezes every process of the sandbox, with its memory intact.
    async fn pause(&self, _session: &str) -> Result<()> {
        Err(cannot_pause(self.name()))
    }

    /// Undoes [`Backend::pause`], or starts a stopped sandbox again.
    async fn resume(&self, _session: &str) -> Result<()> {
        Err(cannot_pause(self.name()))
    }

    /// The sandboxes that this user made from this machine.
    async fn list(&self) -> Result<Vec<Listed>>;

    /// Removes the sandboxes that are left over: see [`super::ownership::Ownership::is_left_over`].
    async fn sweep(&self) -> Result<()>;
}

/// The parts of another sandbox that a fork has already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Set if what was written in the workspace is among them.
    pub workspace: bool,
    /// `$HOME`.
    pub home: bool,
}

fn cannot_pause(name: &str) -> Error {
    Error::sandbox(format!("the {name} backend cannot pause a sandbox"))
        .hint("leave it running, or remove it with `agent sandbox rm`: `agent resume` restores the workspace")
}

/// The abilities of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Paths of this machine can be mounted: [`WorkspaceMount::Overlay`], [`WorkspaceMount::Bind`], and the machine's own
    /// programs where no image is named.
    pub host_paths: bool,
    /// The workspace has the path inside that it has on this machine ([`Spec::place`]).
    pub own_paths: bool,
    /// A bound directory of another user appears inside as the sandbox user's own.
    pub maps_owners: bool,
    /// `--image` selects what is inside.
    pub images: bool,
    /// `--runtime` selects another OCI runtime.
    pub runtimes: bool,
    /// [`Backend::pause`] and [`Backend::resume`] work.
    pub pause: bool,
    /// A sandbox may have a container engine of its own ([`Spec::docker`]).
    pub docker: bool,
    /// The networks that it can provide.
    pub networks: Networks,
    /// The limits that it enforces for the sandbox as a whole.
    pub limits: EnforcedLimits,
}

/// The networks that a backend can provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Networks {
    /// Nothing but loopback: [`Network::None`], and [`Network::Hosts`] through the guest's proxy.
    pub isolated: bool,
    /// [`Network::Full`].
    pub full: bool,
}

/// The limits that a backend enforces for the sandbox as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnforcedLimits {
    /// Memory of all processes together.
    pub memory: bool,
    /// Processor time.
    pub cpus: bool,
    /// Number of processes.
    pub pids: bool,
}

impl EnforcedLimits {
    /// Every limit.
    pub const ALL: Self = Self { memory: true, cpus: true, pids: true };
}

impl Capabilities {
    /// Refuses an image or a runtime that the backend called `name` does not have. A runtime may be stronger isolation,
    /// so it is never ignored.
    ///
    /// # Errors
    /// `Config`.
    pub fn check_image(&self, name: &str, image: Option<&str>, runtime: Option<&str>) -> Result<()> {
        let image = image.filter(|image| *image != "host" || !self.host_paths);
        let (option, value) = match (image, runtime) {
            (Some(image), _) if !self.images => ("image", image),
            (_, Some(runtime)) if !self.runtimes => ("runtime", runtime),
            _ => return Ok(()),
        };
        Err(Error::config(format!("the {name} sandbox has no {option}s, so it cannot use {value}")).hint(
            format!(
                "leave --{option} out (or AGENT_{}, or {option} in config.toml), or use --sandbox docker",
                option.to_uppercase()
            ),
        ))
    }

    /// Refuses what the backend called `name` cannot provide of `spec`.
    ///
    /// # Errors
    /// `Config`, with the option that asks for it.
    pub fn check(&self, name: &str, spec: &Spec) -> Result<()> {
        self.check_image(name, spec.image.as_deref(), spec.runtime.as_deref())?;
        let network = match spec.network {
            Network::Full => self.networks.full,
            Network::None | Network::Hosts(_) => self.networks.isolated,
        };
        if !network {
            let asked = spec.network.to_string();
            return Err(Error::config(format!("the {name} sandbox cannot provide --network {asked}"))
                .hint("choose another --network, or another --sandbox"));
        }
        if spec.docker && !self.docker {
            return Err(Error::config(format!("Docker cannot run inside of the {name} sandbox"))
                .hint("leave --allow-docker out, or use --sandbox vm, which has a kernel of its own"));
        }
        if !self.host_paths && spec.workspace != WorkspaceMount::Empty {
            return Err(Error::config(format!(
                "the {name} sandbox cannot mount a directory of this machine"
            ))
            .hint("use --workspace-mode copy"));
        }
        Ok(())
    }
}

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The session it belongs to.
    pub session: String,
    /// The backend's own id of it.
    pub id: String,
    /// The state: starting, running, paused or stopped.
    pub state: State,
    /// The time when it was made, RFC 3339.
    pub created: String,
    /// The time from which it may be removed, RFC 3339; `None` where it has no such date.
    pub expires: Option<String>,
}

/// The state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Made, and not started yet.
    Starting,
    Running,
    Paused,
    Stopped,
}

impl State {
    /// The word for it in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Paused => "paused",
            State::Stopped => "stopped",
        }
    }
}
