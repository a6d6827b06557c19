//! The conversation as JSON, kept from one request to the next: each message is encoded once.

use crate::model::Message;
use crate::model::client::wire;

/// The messages of the last request, and their JSON.
#[derive(Debug, Default)]
pub struct Encoded {
    reasoning_echo: Option<&'static str>,
    messages: Vec<Message>,
    /// Where each message's JSON ends in `json`.
    ends: Vec<usize>,
    /// The messages, separated by commas.
    json: Vec<u8>,
    /// How many messages were encoded over the whole session.
    #[cfg(test)]
    work: usize,
}

impl Encoded {
    /// The JSON of `messages`, separated by commas. Only what differs from the last request is encoded.
    pub fn update(
        &mut self,
        messages: &[Message],
        reasoning_echo: Option<&'static str>,
    ) -> serde_json::Result<&[u8]> {
        let kept = match self.reasoning_echo == reasoning_echo {
            true => self.messages.iter().zip(messages).take_while(|(old, new)| old == new).count(),
            false => 0,
        };
        self.reasoning_echo = reasoning_echo;
        self.messages.truncate(kept);
        self.ends.truncate(kept);
        self.json.truncate(self.ends.last().copied().unwrap_or(0));
        for message in &messages[kept..] {
            if !self.json.is_empty() {
                self.json.push(b',');
            }
            serde_json::to_writer(&mut self.json, &wire::written(message, reasoning_echo))?;
            self.ends.push(self.json.len());
            self.messages.push(message.clone());
            #[cfg(test)]
            {
                self.work += 1;
            }
        }
        Ok(&self.json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    fn texts(encoded: &mut Encoded, messages: &[Message]) -> Vec<String> {
        let json = encoded.update(messages, None).unwrap();
        let list: Vec<Value> = serde_json::from_slice(&[b"[", json, b"]"].concat()).unwrap();
        list.iter().map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_conversation_that_grows_is_encoded_once() {
        let mut encoded = Encoded::default();
        let mut messages = Vec::new();
        for turn in 0..1_000 {
            messages.push(user(&format!("message {turn}")));
            encoded.update(&messages, None).unwrap();
        }
        assert_eq!(encoded.work, 1_000);
        assert_eq!(texts(&mut encoded, &messages).len(), 1_000);
        assert_eq!(encoded.work, 1_000);
    }

    #[test]
    fn what_changed_is_encoded_again_from_there_on() {
        let mut encoded = Encoded::default();
        assert_eq!(texts(&mut encoded, &[user("a"), user("b"), user("c")]), ["a", "b", "c"]);
        assert_eq!(texts(&mut encoded, &[user("a"), user("x"), user("c")]), ["a", "x", "c"]);
        assert_eq!(encoded.work, 5);
        assert_eq!(texts(&mut encoded, &[user("a")]), ["a"]);
        assert_eq!(texts(&mut encoded, &[]), Vec::<String>::new());
        assert_eq!(texts(&mut encoded, &[user("z")]), ["z"]);
    }

    #[test]
    fn another_name_for_the_reasoning_encodes_all_of_it_again() {
        let reply =
            Message::Assistant { text: "t".into(), reasoning: Some("r".into()), tool_calls: Vec::new() };
        let mut encoded = Encoded::default();
        encoded.update(std::slice::from_ref(&reply), None).unwrap();
        let json = encoded.update(&[reply], Some("reasoning_content")).unwrap();
        assert!(String::from_utf8_lossy(json).contains(r#""reasoning_content":"r""#));
    }
}
