//! Kubernetes: a locked-down pod a session, with the guest as the first process of its container.
//!
//! The pod is `pod.rs`; the guest is brought into it through an exec (`start.rs`), which then carries the protocol (`stream.rs`).
//! Not through an attach to the container's own streams, which would need no second process inside: what a container prints goes
//! into the node's log as well, and from there to whatever collects logs.

mod settings;

#[cfg(feature = "client")]
mod access;
#[cfg(feature = "client")]
mod backend;
#[cfg(feature = "client")]
mod cluster;
#[cfg(feature = "client")]
mod failure;
#[cfg(feature = "client")]
mod pause;
#[cfg(feature = "client")]
mod pod;
#[cfg(feature = "client")]
mod policy;
#[cfg(feature = "client")]
mod removal;
#[cfg(feature = "client")]
mod start;
#[cfg(feature = "client")]
mod stream;
#[cfg(feature = "client")]
mod template;
#[cfg(feature = "client")]
mod users;
#[cfg(feature = "client")]
mod volumes;
#[cfg(feature = "client")]
mod wait;
#[cfg(feature = "client")]
mod warm;
#[cfg(feature = "client")]
mod warm_check;

#[cfg(feature = "client")]
pub use access::{Finding, Severity};
#[cfg(feature = "client")]
pub use backend::Kubernetes;
pub use settings::{Isolation, Settings};

use agent_sandbox::{Capabilities, EnforcedLimits, Networks};

/// The backend's name.
pub const NAME: &str = "kubernetes";

/// The abilities of a pod of its own. One of a warm pool can be paused as well.
pub const CAPABILITIES: Capabilities = Capabilities {
    host_paths: false,
    own_paths: false,
    maps_owners: false,
    images: true,
    runtimes: true,
    pause: false,
    docker: false,
    networks: Networks { isolated: true, full: true },
    limits: EnforcedLimits::ALL,
};
