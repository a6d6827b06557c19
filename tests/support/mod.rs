//! What the tests share.

pub mod tree;
