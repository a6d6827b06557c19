//! A virtual machine a session, of QEMU: a kernel of its own between the sandbox and this one.
//!
//! Two walls, one within the other. Inside the machine, the guest launches a sandbox as on this machine: namespaces, control groups,
//! filters, an ordinary user. Around it, QEMU runs in a `local` sandbox of its own, so that an escape from QEMU lands there. Its life,
//! directory and ownership are that sandbox's (`agent_sandbox::local::Keeper`).

mod settings;

#[cfg(feature = "qemu")]
mod backend;

#[cfg(feature = "qemu")]
pub use backend::{Checks, Vm, checks};
pub use settings::{Board, Settings};

use agent_sandbox::{Capabilities, EnforcedLimits, Networks};

/// The backend's name.
pub const NAME: &str = "vm";

/// The abilities of a virtual machine.
pub const CAPABILITIES: Capabilities = Capabilities {
    host_paths: false,
    own_paths: false,
    maps_owners: false,
    images: true,
    runtimes: false,
    pause: true,
    docker: true,
    // It has no network card.
    networks: Networks { isolated: true, full: false },
    limits: EnforcedLimits::ALL,
};
