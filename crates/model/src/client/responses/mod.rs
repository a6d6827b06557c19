//! OpenAI's Responses: <https://platform.openai.com/docs/api-reference/responses>. Nothing is kept at the endpoint: all items go back.

mod read;
mod write;

pub use read::ResponsesReader;
pub use write::{fields, instructions, written, written_tool};
