//! The differences of two texts: their lines, in colours, and as a bounded excerpt.

pub mod excerpt;
pub mod hunks;
pub mod paint;
