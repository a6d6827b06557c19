//! The servers of `agent`: what programs and browsers on this machine connect to.
//!
//! Each server is an [`axum::Router`]; [`Listener`] runs it with the same bounds for all of them.

pub mod listen;

pub use listen::{Address, Listener, Peer};
