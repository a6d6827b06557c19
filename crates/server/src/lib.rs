//! The servers of `agent`: what programs, editors and browsers on this machine connect to.
//!
//! Those that speak HTTP are an [`axum::Router`]; [`Listener`] runs it with the same bounds for all of them. Those that a
//! program starts as its child speak JSON-RPC over standard input and output: [`rpc`].

pub mod acp;
pub mod e2b;
pub mod listen;
pub mod mcp;
pub mod opener;
pub mod rpc;
pub mod tls;
pub mod web;

pub use listen::{Address, Listener, Peer};
pub use opener::{Opener, StartFrom};

use agent_base::error::Result;
use agent_base::random;

/// Bytes of a token that nobody can guess.
const TOKEN_BYTES: usize = 32;

/// A token that nobody can guess, in hexadecimal.
pub fn random_token() -> Result<String> {
    Ok(hex::encode(random::bytes::<TOKEN_BYTES>()?))
}

/// Shortens a text to at most so many bytes. Whether it was longer.
fn cut(text: &mut String, bytes: usize) -> bool {
    if text.len() <= bytes {
        return false;
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    true
}
