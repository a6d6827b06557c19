//! The client for OpenAI-compatible endpoints.

mod answer;
mod encoded;
mod error_body;
mod facts;
mod failure;
mod http;
mod openai;
mod retry;
mod sse;
pub mod stream;
mod thinking;
mod wire;

pub use openai::OpenAi;
