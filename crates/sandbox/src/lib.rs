//! The sandbox: where every tool runs.
//!
//! A [`Backend`] starts the guest somewhere and hands back its byte stream; [`Sandbox`] speaks the guest's
//! protocol over that stream. Whatever is written once over [`Sandbox`] works on every backend.

mod backend;
pub mod bootstrap;
pub mod caches;
pub mod cgroup;
pub mod environment;
mod handle;
pub mod host_tree;
pub mod image;
pub mod layer;
pub mod local;
pub mod ownership;
mod place;
pub mod project;
pub mod removals;
pub mod seccomp;
mod toolchains;
pub use agent_wire as wire;

pub use backend::{
    Backend, Capabilities, Channel, Copied, EnforcedLimits, Greeting, Listed, Networks, OnProgress, Reopen,
    Reopened, State,
};
pub use handle::{
    Changes, Controls, FileBytes, JobOutput, Listing, Piece, Process, ProcessEvent, Put, Sandbox, Tunnel,
    Tunnels, WalkOptions, reading_beside,
};
pub use place::{own_place, with_inside_paths};
pub use wire::{
    Attribute, Command, Entry, EntryKind, Facts, FileWrite, Finished, Node, Outcome, Program, TerminalSize,
};

use agent_base::hash::Hash;
use agent_event::{Limits, SandboxInfo, Stream};
use rustix::process::{getegid, geteuid};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// The path in every sandbox that leads to the workspace.
pub const WORKSPACE: &str = "/workspace";
/// `$HOME` inside every sandbox.
pub const HOME: &str = "/home/agent";

/// Addresses that answer whatever has a way out: public resolvers, PyPI, which the lists of small plans have, and the clouds' data
/// of the machine. Where there is to be no network, the guest tries them from inside (`guest/launch/probe.rs`).
pub const PUBLIC_ADDRESSES: &str = "1.1.1.1:443/one.one.one.one,8.8.8.8:53,9.9.9.9:443/dns.quad9.net,151.101.0.223:443/pypi.org,\
     169.254.169.254:80";

/// The id that stands in for root inside. No distribution, no service manager and no `useradd` gives it to an account, and
/// it is among the 65,536 ids that an engine with mapped users (`userns-remap`, rootless) has.
const NOT_ROOT: u32 = 65_521;

/// The user and group that run inside: the caller's own, but never root (root is replaced by an id that no account has).
pub fn sandbox_ids() -> (u32, u32) {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let not_root = |id| if id == 0 { NOT_ROOT } else { id };
    (not_root(uid), not_root(gid))
}

/// An id of the session's own, from 2^28 that nobody has.
pub fn own_id(session: &str) -> u32 {
    const FIRST: u32 = 0x7000_0000;
    let [a, b, c, d, ..] = Hash::of(session).0;
    FIRST + u32::from_le_bytes([a, b, c, d]) % (1 << 28)
}

/// The user and group of one session's local sandbox. Where the caller is root, each session has an id of its own, from
/// 2^28 that nobody has: no account and no other sandbox shares its processes, or what the kernel counts by user.
/// A user namespace that does not map these ids has [`sandbox_ids`].
pub fn session_ids(session: &str) -> (u32, u32) {
    let id = own_id(session);
    match geteuid().is_root() && is_mapped((id, id)) {
        true => (id, id),
        false => sandbox_ids(),
    }
}

/// The owner, as this process sees it, of the files that the user inside, `ids`, writes. Root in a user namespace that maps nobody
/// else (`unshare -U -r`, a rootless CI job) cannot give files away: it is that user itself, under another number.
pub fn host_ids(ids: (u32, u32)) -> (u32, u32) {
    if is_mapped(ids) { ids } else { (geteuid().as_raw(), getegid().as_raw()) }
}

/// Returns whether the user namespace of this process has that user and that group.
fn is_mapped((uid, gid): (u32, u32)) -> bool {
    // They are written once, when the namespace is made.
    static MAPS: LazyLock<[Option<String>; 2]> = LazyLock::new(|| {
        ["/proc/self/uid_map", "/proc/self/gid_map"].map(|file| std::fs::read_to_string(file).ok())
    });
    let maps =
        |map: &Option<String>, id| map.as_ref().is_none_or(|map| map.lines().any(|line| maps_id(line, id)));
    maps(&MAPS[0], uid) && maps(&MAPS[1], gid)
}

/// Returns whether a line of `uid_map` or `gid_map` (user_namespaces(7)) maps `id`.
fn maps_id(line: &str, id: u32) -> bool {
    let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or_default());
    let (first, count) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
    (first..first.saturating_add(count)).contains(&u64::from(id))
}

/// The size of `/run` where a sandbox has `memory`: with half for `/tmp` and a quarter for `/dev/shm`, full file systems
/// leave room for programs. All in bytes.
pub fn run_bytes(memory: u64) -> u64 {
    (memory / 16).min(64 << 20)
}

/// The port of the proxy on a sandbox's loopback.
pub const PROXY_PORT: u16 = 3128;

/// The address that a sandbox has on the bridge of its own container engine: as other engines have it by default.
pub const DOCKER_BRIDGE: &str = "172.17.0.1";

/// The settings of the client `docker`, `config.json`: containers and builds of an engine inside reach the proxy by its bridge.
pub fn docker_client_settings() -> serde_json::Value {
    let proxy = format!("http://{DOCKER_BRIDGE}:{PROXY_PORT}");
    let default =
        serde_json::json!({ "httpProxy": proxy, "httpsProxy": proxy, "noProxy": "localhost,127.0.0.1,::1" });
    serde_json::json!({ "proxies": { "default": default } })
}

/// The network that a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// No interface but loopback.
    #[default]
    None,
    /// No interface but loopback; named hosts through the guest's proxy. `registries` is expanded into names.
    Hosts(Vec<String>),
    /// The engine's ordinary network.
    Full,
}

/// As `--network` takes it and `session_started` reports it.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::None => f.write_str("none"),
            Network::Full => f.write_str("full"),
            Network::Hosts(hosts) => f.write_str(&hosts.join(",")),
        }
    }
}

/// Everything that a backend needs to know to start a sandbox.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The session's id: `[a-z0-9-]`, at most 64 characters. Names and labels derive from it.
    pub session: String,
    /// The image asked for by `--image`; `None` is the backend's default (`host` where it can serve).
    pub image: Option<String>,
    /// Resources.
    pub limits: Limits,
    /// Reach.
    pub network: Network,
    /// Another OCI runtime (`runsc`, `kata`); docker only.
    pub runtime: Option<String>,
    /// A Docker engine runs inside, and commands are root there: on a kernel of the sandbox's own.
    pub docker: bool,
    /// With no client for this long the guest exits and the sandbox is gone.
    pub idle_ttl: Duration,
    /// Removed when it stops. Otherwise it stays, stopped, until somebody removes it.
    pub ephemeral: bool,
    /// One that is not ephemeral is removed this long after it was made, by the next start that finds it stopped or
    /// paused. `None`: never.
    pub delete_after: Option<Duration>,
    /// The source of `/workspace`.
    pub workspace: WorkspaceMount,
    /// The path that the workspace has on this machine, for a backend that can give it the same one inside.
    pub place: Option<PathBuf>,
    /// The state that the sandbox begins as, in place of the image: the id of what [`Backend::snapshot`] made for this session.
    pub snapshot: Option<String>,
    /// The layer that an earlier sandbox over the same workspace wrote, to lie under what this one writes: a directory
    /// like that of [`Backend::fork`], which stays as it is. Only with an overlay.
    pub beneath: Option<PathBuf>,
    /// Directories of this machine beside the workspace, which are shown at their own paths.
    pub added: Vec<AddedMount>,
}

impl Spec {
    /// A sandbox with the backend's image and the usual limits, without a network and with an empty workspace. It ends a minute after its
    /// last client, and is removed then.
    pub fn new(session: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            image: None,
            limits: Limits::default(),
            network: Network::None,
            runtime: None,
            docker: false,
            idle_ttl: Duration::from_secs(60),
            ephemeral: true,
            delete_after: None,
            workspace: WorkspaceMount::Empty,
            place: None,
            snapshot: None,
            beneath: None,
            added: Vec::new(),
        }
    }

    /// The description of the sandbox that `backend` made and calls `id`.
    pub fn describe(&self, backend: &str, id: String, image: Option<String>) -> SandboxInfo {
        SandboxInfo {
            backend: backend.to_owned(),
            id,
            image,
            runtime: self.runtime.clone(),
            docker: self.docker,
            network: self.network.to_string(),
            limits: self.limits.clone(),
            missing: Vec::new(),
        }
    }
}

/// A directory of this machine beside the workspace, at its own path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedMount {
    /// Its path, here and inside: absolute and without symlinks.
    pub path: PathBuf,
    /// Parts of it that are not there in the sandbox: relative paths, whose parents are directories of it.
    pub hidden: Vec<PathBuf>,
    /// Names at its top that are hidden should they be made.
    pub to_come: Vec<PathBuf>,
    /// The access that programs inside have.
    pub access: Access,
}

/// The access that programs inside have to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    ReadOnly,
    /// Everything; what they write stays in a layer of the sandbox's own.
    CopyOnWrite,
    /// Everything, in a directory of the sandbox's own that the host fills.
    Copy,
}

/// The source of `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkspaceMount {
    /// Empty and writable; the host copies files in through the guest.
    #[default]
    Empty,
    /// A host directory read-only underneath, writes going to a layer of the sandbox's own.
    Overlay {
        /// The directory.
        lower: PathBuf,
        /// Parts of it that are not there in the sandbox: relative paths, whose parents are directories of `lower`.
        hidden: Vec<PathBuf>,
    },
    /// The host directory itself, writable. Only ever chosen by name.
    Bind(PathBuf),
    /// As [`WorkspaceMount::Overlay`], with what another sandbox had written.
    Forked {
        /// The directory underneath.
        lower: PathBuf,
        /// The layer that [`Backend::fork`] made. It is not needed any more once the sandbox has started.
        layer: PathBuf,
    },
}

impl WorkspaceMount {
    /// Returns what another sandbox had written, where it begins with that.
    pub fn forked(&self) -> Option<&Path> {
        match self {
            Self::Forked { layer, .. } => Some(layer),
            Self::Empty | Self::Overlay { .. } | Self::Bind(_) => None,
        }
    }
}

/// A file that is put below `$HOME` of a sandbox before anything runs in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    /// Relative to `$HOME`.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Set if it can be executed.
    pub executable: bool,
}

/// The number of bytes at the end of an output that are kept past `live_bytes`.
pub const TAIL_BYTES: usize = 256 << 10;

/// A piece of output, or a gap in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<'a> {
    /// Bytes as the command wrote them.
    Data(Stream, &'a [u8]),
    /// This many bytes were left out here.
    Gap(u64),
}
