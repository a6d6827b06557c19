//! The last lines of an output that is still being written.

use super::sanitise::Sanitiser;
use super::wrap;
use std::collections::VecDeque;

/// Lines that are kept.
const LINES: usize = 5;
/// Bytes that are kept of the end of each.
const LINE_BYTES: usize = 1024;

/// Keeps the last few lines of a stream, as a terminal would show them: a line that is drawn over itself with
/// carriage returns (a progress bar) counts once. Bounded, whatever comes.
#[derive(Debug)]
pub struct Tail {
    sanitiser: Sanitiser,
    clean: String,
    complete: VecDeque<String>,
    line: String,
    /// After a carriage return: the next text draws over the line.
    draws_over: bool,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            sanitiser: Sanitiser::keeping_returns(),
            clean: String::new(),
            complete: VecDeque::with_capacity(LINES),
            line: String::new(),
            draws_over: false,
        }
    }
}

impl Tail {
    /// Takes the next piece, cut anywhere.
    pub fn push(&mut self, data: &str) {
        self.clean.clear();
        self.sanitiser.push(data, &mut self.clean);
        let clean = std::mem::take(&mut self.clean);
        // Of a flood only the end can be seen: what comes before the last lines need not be taken apart.
        let start = clean.rmatch_indices('\n').nth(LINES).map_or(0, |(at, _)| at);
        for piece in clean[start..].split_inclusive(['\n', '\r']) {
            self.piece(piece);
        }
        self.clean = clean;
    }

    fn piece(&mut self, piece: &str) {
        let text = piece.trim_end_matches(['\n', '\r']);
        if self.draws_over && !text.is_empty() {
            self.line.clear();
            self.draws_over = false;
        }
        self.line.push_str(text);
        if self.line.len() > LINE_BYTES {
            let excess = self.line.len() - LINE_BYTES;
            let start = (excess..=self.line.len()).find(|at| self.line.is_char_boundary(*at));
            self.line.drain(..start.unwrap_or(excess));
        }
        if piece.ends_with('\r') {
            self.draws_over = true;
        } else if piece.ends_with('\n') {
            self.draws_over = false;
            if self.complete.len() == LINES {
                self.complete.pop_front();
            }
            self.complete.push_back(std::mem::take(&mut self.line));
        }
    }

    /// The last lines, broken at `columns`, without empty ones at the end.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let mut rows = VecDeque::with_capacity(LINES);
        for line in self.complete.iter().chain([&self.line]).rev() {
            for row in wrap::chop(&line.replace('\t', "    "), columns).into_iter().rev() {
                let is_trailing = rows.is_empty() && row.trim().is_empty();
                if rows.len() < LINES && !is_trailing {
                    rows.push_front(row);
                }
            }
        }
        rows.into()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES, LINES, Tail};

    fn tail(pieces: &[&str]) -> Vec<String> {
        let mut tail = Tail::default();
        pieces.iter().for_each(|piece| tail.push(piece));
        tail.lines(20)
    }

    #[test]
    fn shows_the_last_lines_and_the_one_that_is_being_written() {
        assert_eq!(tail(&["1\n2\n3\n4\n5\n6\n7"]), ["3", "4", "5", "6", "7"]);
        assert_eq!(tail(&["a\n", "\n", "\n"]), ["a"]);
    }

    #[test]
    fn a_progress_bar_is_one_line() {
        assert_eq!(tail(&["10%\r50%\r", "100%\ndone\r\n"]), ["100%", "done"]);
        assert_eq!(tail(&["10%\r"]), ["10%"]);
    }

    #[test]
    fn a_flood_stays_bounded_and_lines_stay_narrow() {
        let mut tail = Tail::default();
        tail.push(&"x".repeat(1 << 20));
        tail.push(&"\nyy".repeat(1 << 18));
        assert!(tail.complete.len() <= LINES && tail.complete.iter().all(|line| line.len() <= LINE_BYTES));
        tail.push(&format!("\n{}", "w".repeat(40)));
        assert_eq!(tail.lines(30)[3..], ["w".repeat(30), "w".repeat(10)]);
    }
}
