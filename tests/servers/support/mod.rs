//! Clients and stand-ins that only these tests use.

pub mod client;
pub mod mcp_server;
pub mod rpc;
