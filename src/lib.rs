//! A coding agent for the terminal: let it do anything, nothing it does can hurt you, review one diff at the end.
//!
//! `docs/architecture.md` describes the modules. Data flows one way: `cli` → `session` → `agent` → {`model`, `tools`} → `sandbox` →
//! `guest`; events flow back out to `log` and `cli::ui`.

// A stream that cannot be written is an error, or for stderr (`ui::stderr`) nothing at all, but never a panic.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod agent;
pub mod approval;
pub mod batch;
pub mod cli;
pub mod error;
pub mod event;
pub mod exit_code;
pub mod front_matter;
pub mod hash;
pub mod head_writer;
pub mod host_process;
pub mod host_program;
pub mod lock;
pub mod log;
pub mod mcp;
pub mod model;
pub mod network;
pub mod paths;
pub mod picture;
pub mod plain_file;
pub mod sandbox;
pub mod sanitise;
pub mod secret_scan;
pub mod server;
pub mod session;
pub mod shorten;
pub mod syntax;
mod tls;
pub mod tools;
pub mod utf8_stream;
pub mod workspace;

pub use error::{Error, Result};
