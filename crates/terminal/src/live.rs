//! The last lines of output that is still being written.

use super::wrap;
use agent_base::sanitise::Sanitiser;
use std::collections::VecDeque;

/// Lines that are kept.
const MAX_LINES: usize = 5;
/// Bytes that are kept of the end of each.
const MAX_LINE_BYTES: usize = 1024;

/// Keeps the last lines of a stream as a terminal would show them: a line that is overwritten after a carriage return (a
/// progress bar) counts once. Its memory is bounded.
#[derive(Debug)]
pub struct Tail {
    sanitiser: Sanitiser,
    clean: String,
    complete: VecDeque<String>,
    line: String,
    /// After a carriage return: the next text replaces the line.
    overwrites: bool,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            sanitiser: Sanitiser::keeping_returns(),
            clean: String::new(),
            complete: VecDeque::with_capacity(MAX_LINES),
            line: String::new(),
            overwrites: false,
        }
    }
}

impl Tail {
    /// Adds a piece, cut anywhere.
    pub fn push(&mut self, data: &str) {
        self.clean.clear();
        self.sanitiser.push(data, &mut self.clean);
        let clean = std::mem::take(&mut self.clean);
        // Only the last lines are kept: earlier ones need not be split.
        let start = clean.rmatch_indices('\n').nth(MAX_LINES).map_or(0, |(at, _)| at);
        for piece in clean[start..].split_inclusive(['\n', '\r']) {
            self.push_piece(piece);
        }
        self.clean = clean;
    }

    fn push_piece(&mut self, piece: &str) {
        let text = piece.trim_end_matches(['\n', '\r']);
        if self.overwrites && !text.is_empty() {
            self.line.clear();
            self.overwrites = false;
        }
        self.line.push_str(text);
        if self.line.len() > MAX_LINE_BYTES {
            let excess = self.line.len() - MAX_LINE_BYTES;
            let start = (excess..=self.line.len()).find(|at| self.line.is_char_boundary(*at));
            self.line.drain(..start.unwrap_or(excess));
        }
        if piece.ends_with('\r') {
            self.overwrites = true;
        } else if piece.ends_with('\n') {
            self.overwrites = false;
            if self.complete.len() == MAX_LINES {
                self.complete.pop_front();
            }
            self.complete.push_back(std::mem::take(&mut self.line));
        }
    }

    /// The last lines, broken at `columns`, without empty ones at the end.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let mut rows = VecDeque::with_capacity(MAX_LINES);
        for line in self.complete.iter().chain([&self.line]).rev() {
            for row in wrap::chop(&line.replace('\t', "    "), columns).into_iter().rev() {
                let is_trailing = rows.is_empty() && row.trim().is_empty();
                if rows.len() < MAX_LINES && !is_trailing {
                    rows.push_front(row);
                }
            }
        }
        rows.into()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE_BYTES, MAX_LINES, Tail};

    fn tail(pieces: &[&str]) -> Vec<String> {
        let mut tail = Tail::default();
        pieces.iter().for_each(|piece| tail.push(piece));
        tail.lines(20)
    }

    #[test]
    fn the_last_lines_are_kept_the_incomplete_one_included() {
        assert_eq!(tail(&["1\n2\n3\n4\n5\n6\n7"]), ["3", "4", "5", "6", "7"]);
        assert_eq!(tail(&["a\n", "\n", "\n"]), ["a"]);
    }

    #[test]
    fn a_progress_bar_is_one_line() {
        assert_eq!(tail(&["10%\r50%\r", "100%\ndone\r\n"]), ["100%", "done"]);
        assert_eq!(tail(&["10%\r"]), ["10%"]);
    }

    #[test]
    fn long_output_is_bounded_and_lines_are_broken_at_the_width() {
        let mut tail = Tail::default();
        tail.push(&"x".repeat(1 << 20));
        tail.push(&"\nyy".repeat(1 << 18));
        assert!(
            tail.complete.len() <= MAX_LINES && tail.complete.iter().all(|line| line.len() <= MAX_LINE_BYTES)
        );
        tail.push(&format!("\n{}", "w".repeat(40)));
        assert_eq!(tail.lines(30)[3..], ["w".repeat(30), "w".repeat(10)]);
    }
}
