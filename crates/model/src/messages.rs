//! A conversation's messages, which nearly always only grow, and totals over them that every turn needs.

use super::Message;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// A conversation's messages.
#[derive(Debug)]
pub struct Messages {
    list: Vec<Message>,
    version: Version,
    /// The ids of all tool calls.
    calls: HashSet<String>,
    /// Bytes of all messages but the first one.
    bytes: usize,
}

/// Equal for two states of a conversation between which messages were only added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Messages {
    /// Adds a message at the end.
    pub fn push(&mut self, message: Message) {
        if !self.list.is_empty() {
            self.bytes += message.bytes();
        }
        if let Message::Assistant { tool_calls, .. } = &message {
            self.calls.extend(tool_calls.iter().map(|call| call.id.clone()));
        }
        self.list.push(message);
    }

    /// Changes the messages in any other way than [`Messages::push`]; all of them are sent anew then.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Vec<Message>) -> T) -> T {
        let mut list = std::mem::replace(self, Vec::new().into()).list;
        let result = change(&mut list);
        *self = list.into();
        result
    }

    /// Returns the version of this state.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The number of different ids of tool calls.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether a tool call has this id.
    pub fn has_call(&self, id: &str) -> bool {
        self.calls.contains(id)
    }

    /// Bytes of the text of all messages but the first one.
    pub fn bytes_after_first(&self) -> usize {
        self.bytes
    }
}

impl Clone for Messages {
    /// A copy with a version of its own: both may grow.
    fn clone(&self) -> Self {
        self.list.clone().into()
    }
}

impl From<Vec<Message>> for Messages {
    fn from(list: Vec<Message>) -> Self {
        let mut messages =
            Self { list: Vec::new(), version: Version::next(), calls: HashSet::new(), bytes: 0 };
        for message in list {
            messages.push(message);
        }
        messages
    }
}

impl Deref for Messages {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.list
    }
}
