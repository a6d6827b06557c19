//! The handle and the guest: every integration test of the crate, one module a concern.

#![allow(clippy::disallowed_methods)] // a test is a process of its own

mod guest;
mod hostile_guest;
mod jobs;
mod rejoin;
