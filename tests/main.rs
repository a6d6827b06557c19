//! Every integration test, one module a capability, in one binary: it links once.

mod backends;
mod demo;
mod docker;
mod endpoint_client;
mod endpoint_faults;
mod endpoint_probe;
mod events_schema;
mod exit_codes;
mod guest;
mod hostile_guest;
mod json;
mod local;
mod markdown;
#[cfg(feature = "policy")]
mod policy;
mod repl;
mod resume;
mod run;
mod samples;
mod sanitise;
mod session_file;
mod session_history;
mod session_replay;
mod session_report;
mod session_samples;
mod session_store;
mod session_verify;
mod sessions;
mod support;
mod terminal;
mod trace;
mod wire;
mod workspace_apply;
mod workspace_commands;
mod workspace_session;
