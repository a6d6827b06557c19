//! Standard error. A failed write (terminal closed, disk full) is ignored: there is nowhere to report it.

use crate::lock::Lock;
use indicatif::TermLike;
use std::io::{self, Write};

/// Rows and columns of a terminal that does not report them.
const DEFAULT_SIZE: (u16, u16) = (24, 80);

/// Writes sanitised `text`.
pub fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Standard error as the progress draws on it, without errors: the drawing library panics on them.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    /// What is drawn until the next flush.
    pending: Lock<String>,
}

impl Canvas {
    fn push(&self, text: &str) -> io::Result<()> {
        self.pending.lock().push_str(text);
        Ok(())
    }

    /// Moves the cursor `n` times in the `direction` of ECMA-48.
    fn move_cursor(&self, n: usize, direction: char) -> io::Result<()> {
        match n {
            0 => Ok(()),
            n => self.push(&format!("\x1b[{n}{direction}")),
        }
    }

    fn size() -> (u16, u16) {
        let size = terminal_size::terminal_size_of(io::stderr());
        size.map_or(DEFAULT_SIZE, |(columns, rows)| (rows.0, columns.0))
    }
}

impl TermLike for Canvas {
    fn width(&self) -> u16 {
        Self::size().1
    }

    fn height(&self) -> u16 {
        Self::size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.push(text)?;
        self.push("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.push(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        write(&std::mem::take(&mut *self.pending.lock()));
        Ok(())
    }
}
