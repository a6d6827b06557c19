//! A writer that keeps the beginning of what is written, for texts of any length of which a bounded part is shown.

use std::io::{self, Write};

/// Keeps the first bytes and accepts the rest, so that the writer need not know of the bound.
pub struct HeadWriter {
    head: Vec<u8>,
    max: usize,
    is_cut: bool,
}

impl HeadWriter {
    /// Keeps at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { head: Vec::new(), max, is_cut: false }
    }

    /// Returns whether more was written than is kept.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns what is kept, as text. A character at the cut may be replaced.
    pub fn into_text(self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }
}

impl Write for HeadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let kept = &bytes[..bytes.len().min(self.max - self.head.len())];
        self.head.extend_from_slice(kept);
        self.is_cut |= kept.len() < bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::HeadWriter;
    use std::io::Write;

    #[test]
    fn the_beginning_is_kept_and_the_rest_accepted() {
        let mut writer = HeadWriter::new(5);
        writer.write_all(b"123").unwrap();
        assert!(!writer.is_cut());
        writer.write_all(b"45").unwrap();
        assert!(!writer.is_cut(), "exactly as much as is kept");
        writer.write_all(b"6789").unwrap();
        assert!(writer.is_cut());
        assert_eq!(writer.into_text(), "12345");
    }
}
