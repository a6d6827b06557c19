//! Sandboxes on the machines of a provider: one backend over what the providers have in common.
//!
//! A provider makes a machine, takes a file, runs a command and forwards a port; that is all that is asked of it
//! ([`Provider`]). The guest is uploaded, makes the machine a sandbox (`guest/launch/detached.rs`) and listens on a port,
//! and everything from then on is the guest's own protocol over one WebSocket (`websocket.rs`). Where the provider's commands
//! have streams of their own (Modal), it is that of a command that joins the guest's socket instead.
//!
//! The session's secret, without which the guest talks to nobody, is derived from the provider's key, so that another
//! machine of the same user can attach; the sandbox gets its hash alone.

mod api;
mod daytona;
mod e2b;
mod envd;
#[cfg(feature = "modal")]
mod grpc;
mod guest;
#[cfg(feature = "modal")]
pub mod modal;
mod provider;
mod runloop;
mod settings;
mod snapshot;
mod uuid;
mod websocket;

pub use daytona::{Daytona, NAME as DAYTONA};
pub use e2b::{E2B, E2B_NAME, E2b, NOVITA, NOVITA_NAME, Vendor};
#[cfg(feature = "modal")]
pub use modal::Modal;
pub use provider::{CAPABILITIES, MODAL_CAPABILITIES};
pub use provider::{Cloud, Provider};
pub use runloop::{NAME as RUNLOOP, Runloop};
pub use settings::{ProviderSetting, SETTINGS};

/// The name of the backend at Modal.
pub const MODAL: &str = "modal";
