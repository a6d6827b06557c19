//! The user's terminal itself: its settings, its keyboard as bytes, and programs of the sandbox that have it for
//! themselves.

pub mod attach;
mod filter;
pub mod key;
pub mod keyboard;
pub mod mode;
