//! What the tests share.
#![allow(dead_code)] // each module offers more than every single test needs

pub mod action_runner;
pub mod agent;
#[cfg(feature = "kubernetes")]
pub mod agent_sandbox;
pub mod backends;
pub mod client;
#[cfg(feature = "kubernetes")]
pub mod cluster;
pub mod daytona;
pub mod e2b;
pub mod engine;
pub mod machines;
pub mod mcp_server;
#[cfg(feature = "modal")]
pub mod modal;
pub mod rpc;
pub mod runloop;
pub mod serve;
pub mod terminal;
#[cfg(feature = "kubernetes")]
pub mod wire_tap;

pub use agent_testing::{
    counterpart, debian_image, egress, endpoint, fields, guest, hostile_text, machine, metered_git,
    private_site, registry, site, skip, socks, tree,
};
