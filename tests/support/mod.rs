//! What several modules of this binary share.

pub mod action_runner;
pub mod agent_sandbox;
pub mod client;
pub mod container;
pub mod mcp_server;
pub mod rpc;
pub mod wire_tap;
