//! The workspace between host and sandbox: every integration test of the crate, one module a concern.

#![allow(clippy::disallowed_methods)] // a test is a process of its own

mod apply;
mod links;
mod session;
