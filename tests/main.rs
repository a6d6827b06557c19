//! Every integration test, one module a capability.

mod endpoint_client;
mod json;
mod markdown;
mod samples;
mod sanitise;
mod support;
mod terminal;
mod trace;
mod events_schema;
mod session_file;
mod session_history;
mod session_replay;
mod session_report;
mod session_samples;
mod session_store;
mod session_verify;
//! All integration tests in one binary: it links once.

mod support;
mod workspace_apply;
