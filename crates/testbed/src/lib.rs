//! What the tests of the command share: the program itself, at a terminal too, with every backend that this machine has, a cluster,
//! and made-up providers. The tests of the root package use it, for which cargo builds the program.
//!
//! Whatever goes wrong here is a failed test: functions panic.

pub mod agent;
pub mod backends;
pub mod batch;
pub mod cluster;
pub mod daytona;
pub mod e2b;
pub mod engine;
mod machines;
pub mod modal;
mod provider;
pub mod runloop;
pub mod serve;
pub mod terminal;
