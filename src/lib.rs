//! A coding agent for the terminal: let it do anything, nothing it does can hurt you, review one diff at the end.
//!
//! `docs/architecture.md` describes the modules. Data flows one way: `cli` → `session` → `agent` → {`model`, `tools`} → `sandbox` →
//! `guest`; events flow back out to `log` and `cli::ui`.

// A stream that cannot be written is an error, or for stderr (`ui::stderr`) nothing at all, but never a panic.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod cli;
pub mod demo;

pub use agent_assist as assist;
pub use agent_backends as backends;
pub use agent_base::{
    Error, Result, count_text, duration_text, error, exit_code, exit_status, front_matter, hash, head_writer,
    host_process, host_program, lock, machine, paths, plain_file, sanitise, secret_scan, shorten,
    utf8_stream, visible,
};
pub use agent_batch as batch;
pub use agent_core as agent;
pub use agent_diff as diff;
pub use agent_envd as envd;
pub use agent_event as event;
pub use agent_log as log;
pub use agent_mcp as mcp;
pub use agent_model as model;
pub use agent_network as network;
pub use agent_picture as picture;
pub use agent_policy as approval;
pub use agent_policy::syntax;
pub use agent_server as server;
pub use agent_session as session;
pub use agent_tools as tools;
pub use agent_workspace as workspace;

/// The sandbox: where every tool runs, and the backends that start one.
pub mod sandbox {
    pub use agent_cloud as cloud;
    pub use agent_docker as docker;
    pub use agent_kubernetes as kubernetes;
    pub use agent_sandbox::*;
    pub use agent_vm as vm;
}
