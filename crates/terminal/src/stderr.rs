//! Standard error. A failed write (terminal closed, disk full) is ignored: there is nowhere to report it.

use super::wrap::reflows;
use agent_base::lock::Lock;
use agent_base::sanitise::plain;
use indicatif::TermLike;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Rows and columns of a terminal that does not report them.
const DEFAULT_SIZE: (u16, u16) = (24, 80);

/// Writes sanitised `text`.
pub fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Standard error as the progress draws on it, without errors: the drawing library panics on them.
///
/// The drawing library pads each line to the width, so that the next one begins where the terminal breaks it. When the
/// window becomes narrower or wider, a terminal that breaks lines anew would break all of these as one, and what is erased
/// then is not what was drawn. Here lines end where their text does.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    drawing: Lock<Drawing>,
}

#[derive(Debug, Default)]
struct Drawing {
    /// The output that is drawn with the next flush.
    pending: String,
    /// The columns of the lines in it.
    widths: Vec<usize>,
    /// The next text fills the line up.
    is_filler: bool,
    /// The columns of the lines that are on the screen, and of the window when they were drawn.
    shown: (Vec<usize>, usize),
}

impl Drawing {
    /// Returns what erases the lines on the screen where the window has become narrower and has broken them, with the cursor where
    /// the library expects it: as many rows below the first as there are lines.
    fn erase_broken(&self, columns: usize) -> String {
        let (widths, drawn) = &self.shown;
        let rows: usize = widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        if columns >= *drawn || rows <= widths.len() || !reflows() {
            return String::new();
        }
        format!("\x1b[{}A\r\x1b[J{}", rows - 1, "\n".repeat(widths.len() - 1))
    }
}

impl Canvas {
    fn push(&self, text: &str) -> io::Result<()> {
        self.drawing.lock().pending.push_str(text);
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

    /// A line, and then what fills it up.
    fn write_str(&self, text: &str) -> io::Result<()> {
        let mut drawing = self.drawing.lock();
        drawing.is_filler = !drawing.is_filler;
        if drawing.is_filler {
            if !drawing.widths.is_empty() {
                drawing.pending.push_str("\r\n");
            }
            drawing.pending.push_str(text);
            drawing.widths.push(plain(text).width());
        }
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let columns = usize::from(Self::size().1);
        let mut drawing = self.drawing.lock();
        let text = drawing.erase_broken(columns) + &drawing.pending;
        *drawing = Drawing { shown: (std::mem::take(&mut drawing.widths), columns), ..Drawing::default() };
        write(&text);
        Ok(())
    }
}
