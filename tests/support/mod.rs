//! What the tests share.
#![allow(dead_code)] // each module offers more than every single test needs

pub mod action_runner;
pub mod agent;
#[cfg(feature = "kubernetes")]
pub mod agent_sandbox;
pub mod anthropic;
pub mod backends;
pub mod client;
#[cfg(feature = "kubernetes")]
pub mod cluster;
pub mod counterpart;
pub mod daytona;
pub mod debian_image;
pub mod e2b;
pub mod egress;
pub mod endpoint;
pub mod engine;
pub mod fields;
pub mod guest;
pub mod hostile_text;
pub mod link;
pub mod machines;
pub mod mcp_server;
pub mod metered_git;
#[cfg(feature = "modal")]
pub mod modal;
pub mod openai_responses;
pub mod prefix_cache;
pub mod private_site;
pub mod registry;
pub mod rpc;
pub mod runloop;
pub mod serve;
pub mod site;
pub mod skip;
pub mod socks;
pub mod terminal;
pub mod tree;
#[cfg(feature = "kubernetes")]
pub mod wire_tap;

use ::agent::machine::Machine;
use std::sync::Arc;

/// This machine, as the process finds it.
pub fn machine() -> Arc<Machine> {
    Arc::new(Machine::of_this_process())
}
