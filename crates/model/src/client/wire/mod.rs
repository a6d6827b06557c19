//! The chat-completions format: strict in what is sent, lenient in what is read.
//!
//! A field of another type than expected counts as absent, so that one odd field never costs the answer.

mod read;
mod write;

pub use read::{Arguments, Choice, Chunk, Function, Said, WireCall};
use serde_json::Value;
pub use write::{Extras, Form, Manner, OWN_FIELDS, Recipient, body, further_fields, written, written_tool};

/// The key of what the other protocols keep of a message: the content of Messages, the output of Responses.
pub const CONTENT_BLOCKS: &str = "content_blocks";
/// See [`CONTENT_BLOCKS`].
pub const OUTPUT_ITEMS: &str = "output_items";
const OTHER_PROTOCOLS: [&str; 2] = [CONTENT_BLOCKS, OUTPUT_ITEMS];

/// The names in a list of models.
pub fn model_names(list: &Value) -> Option<Vec<String>> {
    Some(models(list)?.iter().filter_map(model_name).map(str::to_owned).collect())
}

/// The entry of `model` in a list of models; a server with a single model answers to any name.
pub fn model_entry<'a>(list: &'a Value, model: &str) -> Option<&'a Value> {
    let models = models(list)?;
    let named = models.iter().find(|entry| model_name(entry) == Some(model));
    named.or_else(|| models.first().filter(|_| models.len() == 1))
}

fn models(list: &Value) -> Option<&Vec<Value>> {
    list.get("data").or_else(|| list.get("models")).unwrap_or(list).as_array()
}

fn model_name(entry: &Value) -> Option<&str> {
    entry.get("id").or_else(|| entry.get("name")).unwrap_or(entry).as_str()
}
