//! The last words of a virtual machine's console and of QEMU's messages.

use crate::client::would_block;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;

/// The number of bytes that are kept of the console, and of QEMU's messages.
pub const LAST_WORDS: usize = 4 << 10;

/// The end of a text that has no end.
#[derive(Default)]
pub struct TextTail(VecDeque<u8>);

impl TextTail {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let surplus = self.0.len().saturating_sub(LAST_WORDS);
        self.0.drain(..surplus);
    }

    pub fn text(&self) -> String {
        let (front, back) = self.0.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).trim().to_owned()
    }
}

/// Reads what is there. `false` at the end.
pub fn read_some(file: &mut File, tail: &mut TextTail) -> bool {
    let mut buffer = [0; 4096];
    for _ in 0..16 {
        match file.read(&mut buffer) {
            Ok(0) => return false,
            Ok(length) => tail.push(&buffer[..length]),
            Err(error) => return would_block(&error),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_flood_is_kept() {
        let mut tail = TextTail::default();
        (0..1000).for_each(|number| tail.push(format!("line {number}\n").as_bytes()));
        assert!(tail.0.len() <= LAST_WORDS);
        assert!(tail.text().ends_with("line 999"));
    }
}
