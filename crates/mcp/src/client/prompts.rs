//! Prompts of servers, which the user sends by a command: `/mcp__SERVER__PROMPT ARGUMENTS`.

use super::names::tool_name;
use super::server::Server;
use crate::protocol::{Block, PromptArgument, PromptDescription, PromptMessage};
use agent_base::error::{Error, Kind, Result};
use agent_base::sanitise::{one_line, plain};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Messages of one prompt.
const MAX_MESSAGES: usize = 100;
/// Bytes of one prompt.
const MAX_BYTES: usize = 64 << 10;
/// Columns of the name of an argument that is shown.
const SHOWN_NAME: usize = 30;

/// A prompt that a server offers.
#[derive(Clone)]
pub struct ServerPrompt {
    /// `mcp__server__prompt`, without a slash.
    pub command: String,
    /// The server that offers it.
    pub server: Arc<Server>,
    description: PromptDescription,
}

impl ServerPrompt {
    /// A prompt of `server`.
    pub(super) fn new(server: &Arc<Server>, description: PromptDescription) -> Self {
        let command = tool_name(&server.settings.name, &description.name);
        Self { command, server: Arc::clone(server), description }
    }

    /// Its arguments, as help shows them.
    pub fn usage(&self) -> String {
        usage(&self.description.arguments)
    }

    /// Returns what it does, on one line.
    pub fn about(&self) -> String {
        let PromptDescription { name, title, description, .. } = &self.description;
        let about = description.as_deref().or(title.as_deref()).unwrap_or(name);
        one_line(about.trim(), 60)
    }

    /// Its text with these arguments.
    ///
    /// # Errors
    /// The arguments do not fit; or the server fails, as with a call.
    pub async fn text(&self, arguments: &str) -> Result<String> {
        let arguments = read_arguments(&self.description.arguments, arguments)
            .map_err(|error| error.hint(format!("/{} {}", self.command, self.usage()).trim_end()))?;
        let messages = self.server.prompt(&self.description.name, arguments).await?;
        text_of(&messages).map_err(|why| {
            let server = &self.server.settings.name;
            Error::new(Kind::InSandbox, format!("the prompt of the MCP server {server} {why}"))
        })
    }
}

fn usage(arguments: &[PromptArgument]) -> String {
    let shown = |argument: &PromptArgument| match one_line(&argument.name, SHOWN_NAME) {
        name if argument.required => name,
        name => format!("[{name}]"),
    };
    arguments.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Words in the order of the arguments, or `NAME=VALUE`. The last argument takes all words that are left.
fn read_arguments(known: &[PromptArgument], text: &str) -> Result<Map<String, Value>> {
    let words = shell_words::split(text).map_err(|_| Error::usage("a quotation mark is not closed"))?;
    let (mut given, mut in_order) = (Map::new(), Vec::new());
    for word in words {
        match word.split_once('=').filter(|(name, _)| known.iter().any(|argument| argument.name == *name)) {
            Some((name, value)) => {
                given.insert(name.to_owned(), value.into());
            }
            None => in_order.push(word),
        }
    }
    let free: Vec<&PromptArgument> =
        known.iter().filter(|argument| !given.contains_key(&argument.name)).collect();
    let mut in_order = in_order.into_iter().peekable();
    for (index, argument) in free.iter().enumerate() {
        let value = match index + 1 == free.len() {
            true => in_order.by_ref().collect::<Vec<_>>().join(" "),
            false => in_order.next().unwrap_or_default(),
        };
        if !value.is_empty() {
            given.insert(argument.name.clone(), value.into());
        }
    }
    if let Some(word) = in_order.next() {
        return Err(Error::usage(format!("the prompt has no argument for {:?}", one_line(&word, 40))));
    }
    match known.iter().find(|argument| argument.required && !given.contains_key(&argument.name)) {
        Some(missing) => {
            Err(Error::usage(format!("the prompt needs {}", one_line(&missing.name, SHOWN_NAME))))
        }
        None => Ok(given),
    }
}

/// The messages as the one prompt that a turn begins with. Where some are to be the model's, each says whose it is.
fn text_of(messages: &[PromptMessage]) -> Result<String, &'static str> {
    if messages.len() > MAX_MESSAGES {
        return Err("has too many messages");
    }
    let has_answers = messages.iter().any(|message| message.role != "user");
    let mut text = String::new();
    for message in messages {
        if !text.is_empty() {
            text += "\n\n";
        }
        if has_answers {
            text += if message.role == "user" { "User: " } else { "Assistant: " };
        }
        text += &block(&message.content);
        if text.len() > MAX_BYTES {
            return Err("is longer than 64 KiB");
        }
    }
    match text.trim() {
        "" => Err("is empty"),
        text => Ok(text.to_owned()),
    }
}

fn block(block: &Block) -> String {
    let left_out = |what: &str, media_type: &str| format!("[{what} left out: {}]", one_line(media_type, 50));
    match block {
        Block::Text { text } => plain(text).into_owned(),
        Block::Image { mime_type, .. } => left_out("an image was", mime_type),
        Block::Audio { mime_type, .. } => left_out("a sound was", mime_type),
        Block::Resource { resource } => match &resource.text {
            Some(text) => format!("{}:\n{}", one_line(&resource.uri, 500), plain(text)),
            None => left_out("a file was", &resource.uri),
        },
        Block::ResourceLink { uri, name, .. } => {
            format!("[resource {}: {}]", one_line(uri, 500), one_line(name, 200))
        }
        Block::Other => "[a part of a kind that is not known here was left out]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known() -> Vec<PromptArgument> {
        let argument =
            |name: &str, required| PromptArgument { name: name.to_owned(), description: None, required };
        vec![argument("file", true), argument("how", false)]
    }

    fn read(text: &str) -> Value {
        match read_arguments(&known(), text) {
            Ok(given) => Value::Object(given),
            Err(error) => error.to_string().into(),
        }
    }

    fn message(role: &str, text: &str) -> PromptMessage {
        PromptMessage { role: role.to_owned(), content: Block::Text { text: text.to_owned() } }
    }

    #[test]
    fn arguments_are_given_in_order_or_by_name() {
        assert_eq!(usage(&known()), "file [how]");
        assert_eq!(read("a.rs"), json!({ "file": "a.rs" }));
        assert_eq!(read("'a b.rs' very well"), json!({ "file": "a b.rs", "how": "very well" }));
        assert_eq!(read("how=well a.rs"), json!({ "file": "a.rs", "how": "well" }));
        assert_eq!(read("a.rs x=1"), json!({ "file": "a.rs", "how": "x=1" }));
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        assert_eq!(read(""), "the prompt needs file");
        assert_eq!(read("how=well"), "the prompt needs file");
        assert_eq!(read("'a"), "a quotation mark is not closed");
        assert_eq!(read("file=a how=b c"), "the prompt has no argument for \"c\"");
    }

    #[test]
    fn messages_become_one_prompt_within_bounds() {
        assert_eq!(text_of(&[message("user", "a\x1b[2J"), message("user", "b")]).unwrap(), "a\n\nb");
        let both = text_of(&[message("user", "a"), message("assistant", "b")]).unwrap();
        assert_eq!(both, "User: a\n\nAssistant: b");
        assert!(text_of(&[]).is_err());
        assert!(text_of(&[message("user", &"x".repeat(MAX_BYTES + 1))]).is_err());
        assert!(text_of(&vec![message("user", "a"); MAX_MESSAGES + 1]).is_err());
    }
}
