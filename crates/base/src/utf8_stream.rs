//! Decoding UTF-8 that arrives in pieces.

/// Decodes a stream whose pieces may end within a character. Invalid bytes become U+FFFD.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The beginning of a character whose other bytes have not arrived: at most three bytes.
    partial: Vec<u8>,
}

impl Utf8Stream {
    /// Decodes the next piece, without an incomplete character at its end.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let is_incomplete = chunks.peek().is_none()
                && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if is_incomplete {
                self.partial = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                text.push('\u{fffd}');
            }
        }
        text
    }

    /// Ends the stream: an incomplete character at its end becomes U+FFFD.
    pub fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.partial).is_empty() { "" } else { "\u{fffd}" }
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8Stream;

    #[test]
    fn a_character_may_be_cut_anywhere() {
        let text = "aé€😀z";
        for cut in 0..=text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            let mut stream = Utf8Stream::default();
            assert_eq!(stream.push(first) + &stream.push(second) + stream.finish(), text, "cut at {cut}");
        }
    }

    #[test]
    fn invalid_and_incomplete_bytes_are_replaced() {
        let mut stream = Utf8Stream::default();
        assert_eq!(
            stream.push(b"a\xff\xe2\x82") + &stream.push(b"b\xe2") + stream.finish(),
            "a\u{fffd}\u{fffd}b\u{fffd}"
        );
        assert_eq!(stream.finish(), "");
    }
}
