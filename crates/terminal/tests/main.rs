//! How sessions are shown: every integration test of the crate, one module a concern.

#![allow(clippy::disallowed_methods)] // a test is a process of its own

mod json;
mod markdown;
mod trace;
