//! The messages of a conversation, which nearly always only grow.

use super::Message;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// A conversation's messages, and whether they have only grown since they were last sent.
#[derive(Debug, Clone)]
pub struct Messages {
    list: Vec<Message>,
    version: Version,
}

/// The same for two states of one conversation where the later one begins with all messages of the earlier one.
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
        self.list.push(message);
    }

    /// The messages, for any other change than another one at the end.
    pub fn edit(&mut self) -> &mut Vec<Message> {
        self.version = Version::next();
        &mut self.list
    }

    /// The version of the messages.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl From<Vec<Message>> for Messages {
    fn from(list: Vec<Message>) -> Self {
        Self { list, version: Version::next() }
    }
}

impl Deref for Messages {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.list
    }
}
