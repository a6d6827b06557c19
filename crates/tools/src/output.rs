//! A command's output as the model reads it: whole where it is short, else head and tail with a note in front.

use super::shown_lines::ShownLines;
use agent_sandbox::Output;
use std::collections::VecDeque;
use std::path::Path;

/// Gathers output in bounded memory, whatever the command writes.
pub struct Collector {
    chars: usize,
    /// `None` where the output is kept as it was written.
    shown: Option<ShownLines>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes that were written.
    total: u64,
    /// Bytes that the reader would see of all of it.
    seen: u64,
    gap: bool,
}

/// The text for the model.
pub struct Collected {
    /// The note, where something is missing, and the output.
    pub text: String,
    /// Set if something is missing.
    pub truncated: bool,
}

/// UTF-8 takes at most this many bytes a character.
const CHAR_BYTES: usize = 4;

impl Collector {
    /// Keeps up to `chars` characters of what a terminal would show: half from the beginning, half from the end.
    pub fn new(chars: usize) -> Self {
        Self { shown: Some(ShownLines::new()), ..Self::exact(chars) }
    }

    /// The same of the output as it was written, for a program that reads it.
    pub fn exact(chars: usize) -> Self {
        Self { chars, shown: None, head: Vec::new(), tail: VecDeque::new(), total: 0, seen: 0, gap: false }
    }

    /// Takes the next piece.
    pub fn push(&mut self, output: Output<'_>) {
        match output {
            Output::Gap(missing) => {
                self.flush();
                self.total = self.total.saturating_add(missing);
                // Output before a gap and output after it are never joined into one tail.
                self.tail.clear();
                self.gap = true;
            }
            Output::Data(stream, bytes) => {
                self.total = self.total.saturating_add(bytes.len() as u64);
                match &mut self.shown {
                    None => self.keep(bytes),
                    Some(shown) => {
                        let lines = shown.push(stream, bytes);
                        self.keep(lines.as_bytes());
                    }
                }
            }
        }
    }

    /// Takes what waits for the end of its line.
    fn flush(&mut self) {
        if let Some(rest) = self.shown.as_mut().map(ShownLines::finish) {
            self.keep(rest.as_bytes());
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        let room = if self.gap { 0 } else { self.capacity().saturating_sub(self.head.len()) };
        let room = room.min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        let keep = rest.len().min(self.capacity());
        let overflow = (self.tail.len() + keep).saturating_sub(self.capacity());
        self.tail.drain(..overflow.min(self.tail.len()));
        self.tail.extend(&rest[rest.len() - keep..]);
    }

    /// A line break, where the last output does not end with one.
    pub fn line_break(&self) -> &'static [u8] {
        if self.shown.as_ref().is_some_and(ShownLines::is_mid_line) {
            return b"\n";
        }
        let last = self.tail.back().or(self.head.last());
        if last.is_none_or(|byte| *byte == b'\n') { b"" } else { b"\n" }
    }

    /// The text for the model. `spool` is where the whole output is kept inside the sandbox.
    pub fn finish(mut self, spool: Option<&Path>) -> Collected {
        self.flush();
        let kept = self.head.len() + self.tail.len();
        let whole = kept as u64 == self.seen && !self.gap;
        let tail: Vec<u8> = self.tail.into();
        if whole {
            let all = [self.head, tail].concat();
            let text = String::from_utf8_lossy(&all);
            return match text.chars().count() <= self.chars {
                true => Collected { text: text.into_owned(), truncated: false },
                false => shorten(&text, &text, self.chars, self.total, spool),
            };
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        shorten(&head, &tail, self.chars, self.total, spool)
    }

    fn capacity(&self) -> usize {
        (self.chars / 2).max(1) * CHAR_BYTES
    }
}

/// Head and tail of a text that is too long to hand over.
fn shorten(head: &str, tail: &str, chars: usize, total: u64, spool: Option<&Path>) -> Collected {
    let half = (chars / 2).max(1);
    let head: String = head.chars().take(half).collect();
    let skip = tail.chars().count().saturating_sub(half);
    let tail: String = tail.chars().skip(skip).collect();
    let kept = match spool {
        Some(path) => format!("; the whole output is in {}", path.display()),
        None => String::new(),
    };
    let note = format!(
        "[output shortened: {total} bytes in all, the first {} and the last {} characters are shown{kept}]",
        head.chars().count(),
        tail.chars().count(),
    );
    Collected { text: format!("{note}\n{head}\n[…]\n{tail}"), truncated: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::Stream;

    fn collect(chars: usize, pieces: &[Output<'_>]) -> Collected {
        let mut collector = Collector::new(chars);
        pieces.iter().for_each(|piece| collector.push(*piece));
        collector.finish(Some(Path::new("/tmp/.agent/1")))
    }

    #[test]
    fn a_short_output_is_whole() {
        let collected =
            collect(10, &[Output::Data(Stream::Stdout, b"one "), Output::Data(Stream::Stderr, b"two")]);
        assert_eq!((collected.text.as_str(), collected.truncated), ("one two", false));
    }

    #[test]
    fn a_long_output_keeps_head_and_tail_with_the_note_first() {
        let bytes: Vec<u8> = (0..1000).map(|n| b'a' + (n % 26) as u8).collect();
        let collected = collect(20, &[Output::Data(Stream::Stdout, &bytes)]);
        assert_eq!(
            collected.text,
            "[output shortened: 1000 bytes in all, the first 10 and the last 10 characters are shown; \
             the whole output is in /tmp/.agent/1]\nabcdefghij\n[…]\ncdefghijkl"
        );
        assert!(collected.truncated);
    }

    #[test]
    fn a_gap_counts_and_parts_what_is_shown() {
        let pieces = [
            Output::Data(Stream::Stdout, b"begin"),
            Output::Gap(1 << 40),
            Output::Data(Stream::Stdout, b"end"),
        ];
        let collected = collect(20, &pieces);
        assert!(collected.text.contains("1099511627784 bytes in all"), "{}", collected.text);
        assert!(collected.text.ends_with("end"), "{}", collected.text);
        assert!(collected.truncated);
    }

    /// Progress of thousands of frames was as many lines of what the model reads, and hid the rest.
    #[test]
    fn frames_that_are_overwritten_take_no_space() {
        let frames: String = (1..=9000).map(|step| format!("\r{step}/9000")).collect();
        let collected = collect(20, &[Output::Data(Stream::Stderr, frames.as_bytes())]);
        assert_eq!((collected.text.as_str(), collected.truncated), ("9000/9000", false));
        let mut exact = Collector::exact(100);
        exact.push(Output::Data(Stream::Stdout, b"1\r2\x1b[m"));
        assert_eq!(exact.finish(None).text, "1\r2\x1b[m");
    }

    #[test]
    fn exactly_the_limit_is_not_shortened_and_wide_characters_count_once() {
        let text = "ä".repeat(20);
        let collected = collect(20, &[Output::Data(Stream::Stdout, text.as_bytes())]);
        assert_eq!((collected.text, collected.truncated), (text, false));
    }
}
