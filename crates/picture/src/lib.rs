//! Images that programs in the sandbox made: read without trusting them, decoded within bounds, and written again.

mod decode;
mod header;
mod pixels;

pub use decode::decode;
pub use header::{Format, Header, MAX_PIXELS, MAX_SIDE};
pub use pixels::Pixels;
