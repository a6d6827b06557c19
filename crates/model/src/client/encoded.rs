//! The body of the last request, kept for the next one: each message is encoded once, and none is copied. So are the tools.

use crate::client::dialect;
use crate::client::schema;
use crate::client::wire::{self, Manner, Recipient};
use crate::messages::Version;
use crate::protocol::Protocol;
use crate::{Message, Messages, ToolSpec};
use agent_base::sanitise::with_visible_controls;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Bytes of images that one conversation sends; the model reads about further ones only.
const MAX_IMAGES: usize = 24 << 20;

/// The body of the last request.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The state of the messages in `body`.
    version: Option<Version>,
    manner: Manner,
    /// The part of the body before the messages.
    head: Vec<u8>,
    /// The part of `body` that the next request continues.
    kept: MessageBoundary,
    /// The head, the messages, separated by commas, and what was behind them. A request that is being sent shares it.
    body: Bytes,
    /// Images by the call that returned them or the text of the prompt that names them, as `data:` URLs.
    images: HashMap<String, Vec<String>>,
    image_bytes: usize,
    /// The tools of the last request, how they are written, and their JSON.
    tools: (Vec<ToolSpec>, Manner, Vec<u8>),
    /// The number of messages that were encoded over the whole session.
    #[cfg(test)]
    work: usize,
}

/// A place in the body between two messages.
#[derive(Debug, Clone, Copy, Default)]
struct MessageBoundary {
    /// The messages before it, and what the protocol made of them.
    messages: usize,
    items: usize,
    /// The bytes before it.
    end: usize,
}

impl Encoded {
    /// Adds images to the result of a call or to the prompt with this text, which is not encoded yet.
    pub fn add_images(&mut self, to: &str, images: Vec<String>) {
        let bytes = images.iter().map(String::len).sum::<usize>();
        if self.image_bytes + bytes <= MAX_IMAGES {
            self.image_bytes += bytes;
            self.images.insert(to.to_owned(), images);
        }
    }

    /// Returns whether the conversation has any.
    pub fn has_images(&self) -> bool {
        !self.images.is_empty()
    }

    /// The JSON of `tools`, which are the same in nearly every request.
    pub fn tools(&mut self, tools: &[ToolSpec], manner: Manner) -> serde_json::Result<&[u8]> {
        if self.tools.0 != tools || self.tools.1 != manner {
            let plain = |tool: &ToolSpec| {
                let parameters = schema::plain(&tool.parameters).into();
                ToolSpec { parameters, ..tool.clone() }
            };
            let plain: Vec<ToolSpec> =
                if manner.plain_schemas { tools.iter().map(plain).collect() } else { Vec::new() };
            let tools_as_sent = if manner.plain_schemas { &plain } else { tools };
            let json = serde_json::to_vec(&dialect::written_tools(tools_as_sent, manner))?;
            self.tools = (tools.to_vec(), manner, json);
        }
        Ok(&self.tools.2)
    }

    /// A body: `head`, the JSON of `messages`, separated by commas, and `tail`. If `messages` is the conversation of the last
    /// request, only what was added since is encoded. What is made for one request, as in the compact form, is encoded as a whole.
    pub fn body(
        &mut self,
        head: &[u8],
        messages: &Messages,
        recipient: Recipient<'_>,
        tail: &[u8],
    ) -> serde_json::Result<Bytes> {
        let (version, manner) = (Some(messages.version()), recipient.manner);
        let continues = (self.version, self.manner) == (version, manner)
            && self.head == head
            && self.kept.messages <= messages.len();
        let last = std::mem::take(&mut self.body);
        // It is copied only while the last request is still being sent.
        let mut body = last.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        if continues {
            body.truncate(self.kept.end);
        } else {
            body.clear();
            body.extend_from_slice(head);
            head.clone_into(&mut self.head);
            self.manner = manner;
            self.kept = MessageBoundary { end: body.len(), ..MessageBoundary::default() };
        }
        // Until all of them are there, the body is not one that can be continued.
        self.version = None;
        let kept = self.append(&mut body, messages, recipient)?;
        (self.version, self.kept) = (version, kept);
        body.extend_from_slice(tail);
        self.body = body.freeze();
        Ok(self.body.clone())
    }

    /// Encodes the messages that are not in `body` yet. The result is where the next request goes on: what has a mark for the
    /// cache is written once more then, without it.
    fn append(
        &mut self,
        body: &mut BytesMut,
        messages: &[Message],
        recipient: Recipient<'_>,
    ) -> serde_json::Result<MessageBoundary> {
        let mut place = self.kept;
        let first_mark = dialect::first_mark(messages, recipient.manner);
        let mut kept = None;
        while place.messages < messages.len() {
            let (start, end) =
                (place.messages, dialect::group_end(messages, place.messages, recipient.manner));
            if first_mark.is_some_and(|first| end > first) {
                kept.get_or_insert(place);
            }
            let values = match recipient.manner.protocol {
                Protocol::Chat => self.chat_messages(messages, start, recipient),
                _ => {
                    let images = (!self.manner.no_images).then_some(&self.images);
                    let has_mark = first_mark.is_some_and(|first| end > first);
                    dialect::written(&messages[start..end], recipient, images, has_mark)
                }
            };
            for value in values {
                if place.items > 0 {
                    body.put_u8(b',');
                }
                serde_json::to_writer((&mut *body).writer(), &value)?;
                place.items += 1;
            }
            (place.messages, place.end) = (end, body.len());
            #[cfg(test)]
            {
                self.work += 1;
            }
        }
        Ok(kept.unwrap_or(place))
    }

    /// A message in the chat protocol, and what follows it there.
    fn chat_messages(&self, messages: &[Message], index: usize, recipient: Recipient<'_>) -> Vec<Value> {
        let mut written = wire::written(&messages[index], recipient);
        if let Message::User { text } = &messages[index]
            && let Some(images) = self.images.get(text).filter(|_| !self.manner.no_images)
        {
            written["content"] = with_images(text, images);
        }
        std::iter::once(written).chain(self.images_of_round(messages, index)).collect()
    }

    /// After the last result of a round: a message with its images. In the results themselves few endpoints take images.
    fn images_of_round(&self, messages: &[Message], last: usize) -> Option<Value> {
        let call = |message: &Message| match message {
            Message::Tool { id, .. } => Some(id.clone()),
            _ => None,
        };
        if self.images.is_empty()
            || self.manner.no_images
            || messages.get(last + 1).is_some_and(|next| call(next).is_some())
        {
            return None;
        }
        let round: Vec<String> = messages[..=last].iter().rev().map_while(call).collect();
        let urls: Vec<&String> =
            round.iter().rev().filter_map(|call| self.images.get(call)).flatten().collect();
        if urls.is_empty() {
            return None;
        }
        let content = with_images("The images that the tools returned:", urls);
        Some(json!({ "role": "user", "content": content }))
    }
}

/// The content of a message that has images.
fn with_images<'a>(text: &str, urls: impl IntoIterator<Item = &'a String>) -> Value {
    let text = json!({ "type": "text", "text": with_visible_controls(text) });
    let image = |url: &String| json!({ "type": "image_url", "image_url": { "url": url } });
    std::iter::once(text).chain(urls.into_iter().map(image)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Recipient<'_> = Recipient {
        model: "m",
        base_url: "",
        manner: Manner {
            protocol: Protocol::Chat,
            no_reasoning: false,
            cache_marks: false,
            reasoning_echo: None,
            short_ids: false,
            no_images: false,
            plain_schemas: false,
        },
    };

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    fn sent(encoded: &mut Encoded, messages: &Messages) -> Vec<Value> {
        let body = encoded.body(b"[", messages, PLAIN, b"]").unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    fn texts(encoded: &mut Encoded, messages: &Messages) -> Vec<String> {
        let list = sent(encoded, messages);
        list.iter().map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_conversation_that_grows_is_encoded_once() {
        let mut encoded = Encoded::default();
        let mut messages = Messages::from(Vec::new());
        for turn in 0..1_000 {
            messages.push(user(&format!("message {turn}")));
            drop(encoded.body(b"[", &messages, PLAIN, b"]").unwrap());
        }
        assert_eq!(encoded.work, 1_000);
        assert_eq!(texts(&mut encoded, &messages).len(), 1_000);
        assert_eq!(encoded.work, 1_000);
    }

    #[test]
    fn a_conversation_that_was_changed_is_encoded_again() {
        let mut encoded = Encoded::default();
        let mut messages = Messages::from(vec![user("a"), user("b"), user("c")]);
        assert_eq!(texts(&mut encoded, &messages), ["a", "b", "c"]);
        messages.edit(|list| list[1] = user("x"));
        assert_eq!(texts(&mut encoded, &messages), ["a", "x", "c"]);
        assert_eq!(encoded.work, 6);
        messages.edit(|list| list.truncate(1));
        assert_eq!(texts(&mut encoded, &messages), ["a"]);
        messages.edit(Vec::clear);
        assert_eq!(texts(&mut encoded, &messages), Vec::<String>::new());
        messages.push(user("z"));
        assert_eq!(texts(&mut encoded, &messages), ["z"]);
    }

    #[test]
    fn another_conversation_in_between_is_not_taken_for_this_one() {
        let mut encoded = Encoded::default();
        let (mut one, other) = (Messages::from(vec![user("a")]), Messages::from(vec![user("b")]));
        assert_eq!(texts(&mut encoded, &one), ["a"]);
        assert_eq!(texts(&mut encoded, &other), ["b"]);
        one.push(user("c"));
        assert_eq!(texts(&mut encoded, &one), ["a", "c"]);
        encoded.body(b"[", &vec![user("d")].into(), PLAIN, b"]").unwrap();
        assert_eq!(texts(&mut encoded, &one), ["a", "c"]);
        let mut copy = one.clone();
        copy.push(user("e"));
        one.push(user("f"));
        assert_eq!(texts(&mut encoded, &copy), ["a", "c", "e"]);
        assert_eq!(texts(&mut encoded, &one), ["a", "c", "f"]);
    }

    #[test]
    fn images_follow_the_results_of_their_round_and_stay_there() {
        let mut encoded = Encoded::default();
        encoded.add_images("b", vec!["data:image/png;base64,AA==".into()]);
        encoded.add_images("a", vec!["data:image/png;base64,BB==".into()]);
        let tool = |id: &str| Message::Tool { id: id.into(), name: "run_code".into(), text: id.into() };
        let mut messages = Messages::from(vec![user("draw"), tool("a"), tool("b")]);
        let first = sent(&mut encoded, &messages);
        assert_eq!(first.len(), 4);
        let urls: Vec<&str> = first[3]["content"].as_array().unwrap()[1..]
            .iter()
            .map(|part| part["image_url"]["url"].as_str().unwrap())
            .collect();
        assert_eq!(
            (first[3]["role"].as_str(), urls),
            (Some("user"), vec!["data:image/png;base64,BB==", "data:image/png;base64,AA=="],)
        );
        messages.push(user("more"));
        messages.push(tool("c"));
        let second = sent(&mut encoded, &messages);
        assert_eq!((&second[..4], second.len()), (&first[..], 6));
        assert_eq!(encoded.work, 5, "what was sent is not encoded again");
    }

    #[test]
    fn the_images_of_a_prompt_are_part_of_it() {
        let mut encoded = Encoded::default();
        encoded.add_images("look", vec!["data:image/png;base64,AA==".into()]);
        let sent = sent(&mut encoded, &vec![user("look"), user("plain")].into());
        assert_eq!(sent[0]["content"][0]["text"], "look");
        assert_eq!(sent[0]["content"][1]["image_url"]["url"], "data:image/png;base64,AA==");
        assert_eq!(sent[1]["content"], "plain");
    }

    #[test]
    fn the_images_of_a_conversation_are_bounded() {
        let mut encoded = Encoded::default();
        encoded.add_images("a", vec!["x".repeat(MAX_IMAGES - 1)]);
        encoded.add_images("b", vec!["xx".into()]);
        encoded.add_images("c", vec!["x".into()]);
        assert_eq!((encoded.images.contains_key("b"), encoded.images.contains_key("c")), (false, true));
    }

    #[test]
    fn another_name_for_the_reasoning_encodes_all_of_it_again() {
        let reply = Message::Assistant {
            text: "t".into(),
            reasoning: Some("r".into()),
            tool_calls: Vec::new(),
            opaque: Default::default(),
        };
        let mut encoded = Encoded::default();
        let messages = Messages::from(vec![reply]);
        sent(&mut encoded, &messages);
        let manner = Manner { reasoning_echo: Some("reasoning_content"), ..Manner::default() };
        let echoed = Recipient { manner, ..PLAIN };
        let body = encoded.body(b"[", &messages, echoed, b"]").unwrap();
        assert!(String::from_utf8_lossy(&body).contains(r#""reasoning_content":"r""#));
    }

    #[test]
    fn a_body_that_is_still_being_sent_does_not_change() {
        let mut encoded = Encoded::default();
        let mut messages = Messages::from(vec![user("a")]);
        let first = encoded.body(b"[", &messages, PLAIN, b"]").unwrap();
        messages.push(user("b"));
        let second = encoded.body(b"[", &messages, PLAIN, b", 1]").unwrap();
        messages.edit(|list| list.pop());
        let third = encoded.body(b"{", &messages, PLAIN, b"}").unwrap();
        assert_eq!(first, r#"[{"role":"user","content":"a"}]"#);
        assert_eq!(second, r#"[{"role":"user","content":"a"},{"role":"user","content":"b"}, 1]"#);
        assert_eq!(third, r#"{{"role":"user","content":"a"}}"#);
        let pointer = third.as_ptr();
        drop(third);
        let fourth = encoded.body(b"{", &messages, PLAIN, b"}").unwrap();
        assert_eq!(fourth.as_ptr(), pointer, "what nobody uses any more is used again");
    }
}
