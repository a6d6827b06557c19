//! The Model Context Protocol: what both sides of it share, and the client.

pub mod client;
pub mod jsonrpc;
pub mod protocol;
