//! Every integration test, one module a capability.

mod json;
mod markdown;
mod sanitise;
mod support;
mod terminal;
mod trace;
