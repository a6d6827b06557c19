//! The contents of the model's context window, by kind.

use super::conversation::Conversation;
use agent_model::Message;
use std::collections::BTreeMap;

/// A part of what is sent with each request, and about how many tokens it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The part, in a few words.
    pub name: String,
    /// About how many tokens.
    pub tokens: u64,
}

impl Conversation {
    /// The parts of the next request: the system prompt, the tools, then the messages by who wrote them, and the results by tool.
    pub fn contents(&self) -> Vec<Part> {
        let of_tools: usize = self
            .setup
            .tools
            .specs()
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
            .sum();
        let part = |name: &str, tokens: u64| Part { name: name.to_owned(), tokens };
        let of = |is_it: &dyn Fn(&Message) -> bool| {
            self.window.estimate(self.messages.iter().filter(|message| is_it(message)))
        };
        let mut results: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
        for message in self.messages.iter() {
            if let Message::Tool { name, .. } = message {
                results.entry(name).or_default().push(message);
            }
        }
        let mut results: Vec<Part> = results
            .into_iter()
            .map(|(name, messages)| part(&format!("results of {name}"), self.window.estimate(messages)))
            .collect();
        results.sort_by_key(|part| std::cmp::Reverse(part.tokens));
        let mut parts = vec![
            part("system prompt and instructions", of(&|message| matches!(message, Message::System { .. }))),
            part("tools", self.window.tokens_of(of_tools)),
            part("prompts and attached files", of(&|message| matches!(message, Message::User { .. }))),
            part("answers and calls", of(&|message| matches!(message, Message::Assistant { .. }))),
        ];
        parts.extend(results);
        parts
    }

    /// The last answer of the model, if there is one with text.
    pub fn last_answer(&self) -> Option<&str> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Assistant { text, .. } if !text.trim().is_empty() => Some(text.as_str()),
            _ => None,
        })
    }
}
