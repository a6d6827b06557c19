//! The client for endpoints: one for all protocols. What differs between them is in `dialect` and the modules below it.

mod address;
mod answer;
mod anthropic;
mod dialect;
mod encoded;
mod error_body;
mod facts;
mod failure;
mod halves;
mod http;
mod ids;
mod images;
mod opaque;
mod openai;
mod overflow;
mod responses;
mod retry;
mod schema;
pub mod sse;
pub mod stream;
mod thinking;
mod wire;

pub use facts::Facts;
pub use openai::OpenAi;
pub use schema::plain_without_null;
pub use wire::OWN_FIELDS;
