//! What the tests share.

pub mod terminal;
