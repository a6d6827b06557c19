//! All integration tests, linked once. One module a capability.

mod support;

mod endpoint_client;
mod samples;
