//! Parts that the tests and benchmarks of all crates share: servers that play the part of others, trees of files, a guest as a child process,
//! sample sessions. What needs the command itself is in `crates/testbed`.
//!
//! Whatever goes wrong here is a failed test: functions panic.

pub mod anthropic;
pub mod counterpart;
pub mod debian_image;
pub mod egress;
pub mod endpoint;
pub mod fields;
pub mod guest;
pub mod hostile_text;
pub mod link;
pub mod metered_git;
pub mod openai_responses;
pub mod prefix_cache;
pub mod private_site;
pub mod registry;
pub mod session_samples;
pub mod site;
pub mod skip;
pub mod socks;
pub mod tree;

use agent_base::machine::Machine;
use std::sync::Arc;

/// The directory of the sources, the workspace's root.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// This machine, as the process finds it.
pub fn machine() -> Arc<Machine> {
    Arc::new(Machine::of_this_process())
}
