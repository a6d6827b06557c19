//! Every integration test, one module a capability.

mod endpoint_client;
mod endpoint_probe;
mod json;
mod markdown;
mod samples;
mod sanitise;
mod support;
mod terminal;
mod trace;
