//! Session files: every integration test of the crate, one module a concern.

#![allow(clippy::disallowed_methods)] // a test is a process of its own

mod events_schema;
mod file;
mod history;
mod replay;
mod report;
mod store;
mod verify;
