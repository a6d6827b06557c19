//! The guest as the host has it: the static program that `build.rs` compiles from `main.rs`, and the hash of its sources.

/// The program for this processor; empty where none could be built (not on Linux).
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));

/// The same, compressed with gzip: what is sent to a machine that is far away.
pub static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.gz"));

/// The hash of the sources, by which host and guest recognise each other: the same for every processor.
pub const BUILD: &str = env!("GUEST_BUILD");
