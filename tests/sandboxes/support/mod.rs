//! Clients and stand-ins that only these tests use.

pub mod agent_sandbox;
pub mod container;
pub mod wire_tap;
