//! Every integration test, one module a capability.

mod endpoint_client;
mod json;
mod markdown;
mod samples;
mod sanitise;
mod support;
mod terminal;
mod trace;
