//! The last bytes that programs wrote to a terminal, by their place among all of them.

use std::collections::VecDeque;

/// Bytes that are kept.
pub const MAX_KEPT: usize = 256 << 10;

/// The end of an output.
#[derive(Debug, Default)]
pub struct Scrollback {
    bytes: VecDeque<u8>,
    end: u64,
}

impl Scrollback {
    /// Adds `bytes`; what is then too much is dropped from the beginning.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(MAX_KEPT)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(MAX_KEPT);
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
        self.end += bytes.len() as u64;
    }

    /// The place of the first byte that is kept.
    pub fn begin(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// The place behind the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// At most `limit` bytes from `place` on, which is not before [`Scrollback::begin`].
    pub fn read(&self, place: u64, limit: usize) -> Vec<u8> {
        let skipped = usize::try_from(place.saturating_sub(self.begin())).unwrap_or(usize::MAX);
        self.bytes.iter().skip(skipped).take(limit).copied().collect()
    }

    /// The place where somebody who has seen nothing begins to read: a line's, where the beginning is not kept any more.
    pub fn entry(&self) -> u64 {
        if self.begin() == 0 {
            return 0;
        }
        let line = self.bytes.iter().position(|byte| *byte == b'\n');
        self.begin() + line.map_or(0, |at| at as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_entered_at_a_line() {
        let mut output = Scrollback::default();
        output.push(b"one\ntwo\n");
        assert_eq!((output.begin(), output.entry(), output.end()), (0, 0, 8));
        assert_eq!(output.read(4, 2), b"tw");
        output.push(&b"0123456\n".repeat(MAX_KEPT / 8));
        assert_eq!((output.begin(), output.entry()), (8, 16));
        output.push(b"x");
        assert_eq!(output.read(output.entry(), 8), b"0123456\n");
        assert_eq!(output.read(output.end() - 1, 8), b"x");
        output.push(&vec![b'y'; 2 * MAX_KEPT]);
        assert_eq!(output.end() - output.begin(), MAX_KEPT as u64);
        assert!(output.bytes.capacity() <= 2 * MAX_KEPT);
        assert_eq!(output.entry(), output.begin(), "one long line is entered where it begins to be kept");
        assert!(output.read(output.end() + 9, 8).is_empty());
    }
}
