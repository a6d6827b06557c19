//! Where each prompt is in a conversation, so that it can be put back to before one.

use super::Message;

/// Prompts that are remembered.
const MAX_PROMPTS: usize = 1000;

/// A prompt of the user that the conversation may still hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompted {
    /// Its number in the session, counting from 1.
    pub prompt: u64,
    /// As the user wrote it.
    pub text: String,
    /// As it was sent, with notes and attachments.
    sent: String,
}

/// The prompts of a conversation, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompts(Vec<Prompted>);

impl Prompts {
    pub fn push(&mut self, prompt: u64, text: &str, sent: &str) {
        if self.0.len() == MAX_PROMPTS {
            self.0.remove(0);
        }
        self.0.push(Prompted { prompt, text: text.to_owned(), sent: sent.to_owned() });
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Those that `messages` still hold as they were sent, and where: what was summarised is not there any more.
    pub fn found<'a>(&'a self, messages: &[Message]) -> Vec<(&'a Prompted, usize)> {
        let mut end = messages.len();
        let mut found = Vec::new();
        for prompted in self.0.iter().rev() {
            let is_it =
                |message: &Message| matches!(message, Message::User { text } if *text == prompted.sent);
            let Some(at) = messages[..end].iter().rposition(is_it) else { break };
            found.push((prompted, at));
            end = at;
        }
        found.reverse();
        found
    }

    /// Returns whether `messages` still hold this prompt.
    pub fn holds(&self, prompt: u64, messages: &[Message]) -> bool {
        self.found(messages).iter().any(|(prompted, _)| prompted.prompt == prompt)
    }

    /// Removes all that follows this prompt from `messages`, which hold it.
    pub fn back_to(&mut self, prompt: u64, messages: &mut Vec<Message>) {
        let found = self.found(messages).into_iter().find(|(prompted, _)| prompted.prompt == prompt);
        if let Some((_, at)) = found {
            messages.truncate(at + 1);
            self.0.retain(|prompted| prompted.prompt <= prompt);
        }
    }

    /// Removes this prompt and all that follows from `messages`. `None` where it is not there any more.
    pub fn rewind(&mut self, prompt: u64, messages: &mut Vec<Message>) -> Option<String> {
        let (prompted, at) =
            self.found(messages).into_iter().find(|(prompted, _)| prompted.prompt == prompt)?;
        let text = prompted.text.clone();
        messages.truncate(at);
        self.0.retain(|prompted| prompted.prompt < prompt);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    fn answer(text: &str) -> Message {
        Message::Assistant {
            text: text.to_owned(),
            reasoning: None,
            tool_calls: Vec::new(),
            opaque: Default::default(),
        }
    }

    #[test]
    fn a_conversation_is_put_back_to_before_a_prompt_that_it_still_holds() {
        let mut prompts = Prompts::default();
        for (number, text) in [(1, "summarised"), (2, "again"), (3, "again"), (5, "last")] {
            prompts.push(number, text, &format!("[note]\n\n{text}"));
        }
        let sent = |text: &str| user(&format!("[note]\n\n{text}"));
        let mut messages = vec![
            user("a summary"),
            answer("a"),
            sent("again"),
            answer("b"),
            sent("again"),
            answer("c"),
            sent("last"),
        ];
        let numbers: Vec<u64> =
            prompts.found(&messages).iter().map(|(prompted, _)| prompted.prompt).collect();
        assert_eq!(numbers, [2, 3, 5]);
        assert!(prompts.holds(3, &messages) && !prompts.holds(1, &messages));
        let (mut again, mut left) = (prompts.clone(), messages.clone());
        again.back_to(3, &mut left);
        assert_eq!(left, messages[..5]);
        assert!(again.holds(3, &left) && !again.holds(5, &left));
        assert_eq!(prompts.rewind(1, &mut messages), None);
        assert_eq!(prompts.rewind(3, &mut messages).as_deref(), Some("again"));
        assert_eq!(messages.len(), 4);
        assert_eq!(prompts.rewind(5, &mut messages), None);
        assert_eq!(prompts.rewind(2, &mut messages).as_deref(), Some("again"));
        assert_eq!(messages.len(), 2);
    }
}
