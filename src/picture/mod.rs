//! Images that programs in the sandbox made: what they claim to be, without trusting any of it.

mod header;

pub use header::{Format, Header, MAX_PIXELS, MAX_SIDE};
