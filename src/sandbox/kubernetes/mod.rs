//! Kubernetes: a locked-down pod a session, with the guest as the first process of its container.
//!
//! The pod is `pod.rs`; the guest is brought into it through an exec (`start.rs`), which then carries the protocol (`stream.rs`).
//! Not through an attach to the container's own streams, which would need no second process inside: what a container prints goes
//! into the node's log as well, and from there to whatever collects logs.

mod settings;

#[cfg(feature = "kubernetes")]
mod access;
#[cfg(feature = "kubernetes")]
mod backend;
#[cfg(feature = "kubernetes")]
mod cluster;
#[cfg(feature = "kubernetes")]
mod failure;
#[cfg(feature = "kubernetes")]
mod pod;
#[cfg(feature = "kubernetes")]
mod policy;
#[cfg(feature = "kubernetes")]
mod start;
#[cfg(feature = "kubernetes")]
mod stream;
#[cfg(feature = "kubernetes")]
mod template;
#[cfg(feature = "kubernetes")]
mod users;
#[cfg(feature = "kubernetes")]
mod wait;
#[cfg(feature = "kubernetes")]
mod warm;
#[cfg(feature = "kubernetes")]
mod warm_check;

#[cfg(feature = "kubernetes")]
pub use access::{Finding, Severity};
#[cfg(feature = "kubernetes")]
pub use backend::Kubernetes;
pub use settings::{Isolation, Settings};

use super::{Capabilities, EnforcedLimits, Networks};

/// The backend's name.
pub const NAME: &str = "kubernetes";

/// What a pod can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    host_paths: false,
    maps_owners: false,
    images: true,
    runtimes: true,
    pause: false,
    networks: Networks { isolated: true, full: true },
    limits: EnforcedLimits::ALL,
};
