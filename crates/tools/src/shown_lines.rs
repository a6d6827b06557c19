//! Output as a terminal would leave it on the screen: without sequences, and of a line that is overwritten the last frame.

use agent_base::sanitise::Sanitiser;
use agent_base::utf8_stream::Utf8Stream;
use agent_event::Stream;

/// A longer line is handed on in parts, which nothing overwrites any more, in bytes.
const MAX_LINE: usize = 64 << 10;

/// Takes the pieces of both outputs, cut anywhere, and hands on lines. Its memory is bounded.
pub struct ShownLines {
    stdout: CleanStream,
    stderr: CleanStream,
    line: String,
    /// The beginning of the line has been handed on.
    is_continued: bool,
    /// After a carriage return: the next text replaces the line.
    overwrites: bool,
}

struct CleanStream {
    decoder: Utf8Stream,
    sanitiser: Sanitiser,
}

impl CleanStream {
    fn new() -> Self {
        Self { decoder: Utf8Stream::default(), sanitiser: Sanitiser::for_model() }
    }

    fn push(&mut self, bytes: &[u8]) -> String {
        let mut clean = String::new();
        self.sanitiser.push(&self.decoder.push(bytes), &mut clean);
        clean
    }

    fn finish(&mut self) -> String {
        let mut clean = String::new();
        self.sanitiser.push(self.decoder.finish(), &mut clean);
        self.sanitiser.finish(&mut clean);
        clean
    }
}

impl ShownLines {
    pub fn new() -> Self {
        Self {
            stdout: CleanStream::new(),
            stderr: CleanStream::new(),
            line: String::new(),
            is_continued: false,
            overwrites: false,
        }
    }

    /// Takes a piece; returns what is complete.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) -> String {
        let clean = match stream {
            Stream::Stdout => self.stdout.push(bytes),
            Stream::Stderr => self.stderr.push(bytes),
        };
        self.add(&clean)
    }

    /// Ends the output; returns the rest.
    pub fn finish(&mut self) -> String {
        let clean = self.stdout.finish() + &self.stderr.finish();
        let mut shown = self.add(&clean);
        shown.push_str(&std::mem::take(&mut self.line));
        (self.is_continued, self.overwrites) = (false, false);
        shown
    }

    /// Returns whether a line has begun and not ended.
    pub fn is_mid_line(&self) -> bool {
        self.is_continued || !self.line.is_empty()
    }

    fn add(&mut self, clean: &str) -> String {
        let mut shown = String::new();
        for piece in clean.split_inclusive(['\n', '\r']) {
            let text = piece.trim_end_matches(['\n', '\r']);
            if !text.is_empty() {
                self.add_text(text, &mut shown);
            }
            if piece.ends_with('\r') {
                self.overwrites = true;
            } else if piece.ends_with('\n') {
                shown.push_str(&std::mem::take(&mut self.line));
                shown.push('\n');
                (self.is_continued, self.overwrites) = (false, false);
            }
        }
        shown
    }

    fn add_text(&mut self, text: &str, shown: &mut String) {
        if std::mem::take(&mut self.overwrites) {
            self.line.clear();
            if std::mem::take(&mut self.is_continued) {
                shown.push('\n');
            }
        }
        for (index, part) in text.split('\x08').enumerate() {
            if index > 0 {
                self.line.pop();
            }
            self.line.push_str(part);
        }
        if self.line.len() > MAX_LINE {
            shown.push_str(&std::mem::take(&mut self.line));
            self.is_continued = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut lines = ShownLines::new();
        let all: String = pieces.iter().map(|piece| lines.push(Stream::Stdout, piece)).collect();
        all + &lines.finish()
    }

    #[test]
    fn a_line_that_is_overwritten_is_its_last_frame() {
        let progress: String = (1..=300).map(|step| format!("\r{step}/300")).collect();
        for (written, expected) in [
            (format!("begin\n{progress}\nend"), "begin\n300/300\nend"),
            ("10%\r\x1b[K20%\r\x1b[K".to_owned(), "20%"),
            ("|\x08/\x08-\x08 done\n".to_owned(), " done\n"),
            ("dos\r\nends\r\r\n".to_owned(), "dos\nends\n"),
            ("N\x08NA\x08A\n".to_owned(), "NA\n"),
        ] {
            assert_eq!(shown(&[written.as_bytes()]), expected);
            let bytes: Vec<&[u8]> = written.as_bytes().chunks(1).collect();
            assert_eq!(shown(&bytes), expected, "cut anywhere");
        }
    }

    #[test]
    fn controls_are_shown_and_sequences_are_removed() {
        assert_eq!(shown(&[b"a\0b\x1b[31mred\x1b[0m\x01\n"]), "a\u{2400}bred\u{2401}\n");
        assert_eq!(shown(&["\u{9b}1mx\u{85}\u{202e}y\x7f\x07".as_bytes()]), "x\u{fffd}\u{202e}y\u{2421}");
    }

    #[test]
    fn a_character_may_be_parted_by_the_other_output() {
        let mut lines = ShownLines::new();
        let mut all = lines.push(Stream::Stdout, b"a\xc3");
        all += &lines.push(Stream::Stderr, b"error\n");
        all += &lines.push(Stream::Stdout, b"\xa4\n");
        assert_eq!(all + &lines.finish(), "aerror\n\u{e4}\n");
    }

    #[test]
    fn a_line_of_any_length_is_bounded_and_whole() {
        let long = "x".repeat(MAX_LINE);
        let piece = long.as_bytes();
        assert_eq!(shown(&[piece, piece, b"y\rz"]), format!("{long}{long}\nz"));
    }
}
