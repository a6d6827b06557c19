//! Frames that wait to be written, a queue for each stream. Streams take turns, a frame at a time.

use std::collections::{HashMap, VecDeque};

/// Frames that wait to be written.
#[derive(Debug, Default)]
pub struct Outbox {
    queues: HashMap<u32, VecDeque<Vec<u8>>>,
    /// Streams with frames, the next one first.
    turns: VecDeque<u32>,
    bytes: usize,
}

impl Outbox {
    /// Queues a frame behind the others of its stream.
    pub fn push(&mut self, stream: u32, frame: Vec<u8>) {
        self.bytes += frame.len();
        let queue = self.queues.entry(stream).or_default();
        if queue.is_empty() {
            self.turns.push_back(stream);
        }
        queue.push_back(frame);
    }

    /// The next frame.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let stream = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&stream)?;
        let frame = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&stream);
        } else {
            self.turns.push_back(stream);
        }
        self.bytes -= frame.len();
        Some(frame)
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
