//! Lines that change in place on stderr: a live table. On anything but a terminal, nothing.

use super::progress::canvas;
use super::wrap::terminal_columns;
use agent_base::sanitise::truncate;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);

/// A table whose rows are set one by one. Cheap to clone.
#[derive(Clone)]
pub struct Rows {
    bars: Option<(MultiProgress, Vec<ProgressBar>)>,
}

impl Rows {
    /// So many rows, below a `head`. Nothing is drawn where stderr is not a terminal, or `hidden`.
    pub fn new(head: &str, count: usize, hidden: bool) -> Self {
        let Some(bars) = canvas().filter(|_| !hidden) else { return Self { bars: None } };
        // Both templates are constants that parse.
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        let title = bars.add(ProgressBar::no_length().with_style(style("  {msg}")));
        title.set_message(head.to_owned());
        let rows = (0..count).map(|_| {
            let row = bars.add(ProgressBar::no_length().with_style(style("{spinner} {msg}")));
            row.enable_steady_tick(TICK);
            row
        });
        let rows = rows.collect();
        title.tick();
        Self { bars: Some((bars, [vec![title], rows].concat())) }
    }

    /// Returns whether the rows are drawn.
    pub fn are_drawn(&self) -> bool {
        self.bars.is_some()
    }

    /// Sets a row, counting from 0, to sanitised text, of which what fits is shown.
    pub fn set(&self, row: usize, text: &str) {
        if let Some((_, rows)) = &self.bars {
            let columns = terminal_columns(&std::io::stderr()).saturating_sub(3);
            rows.get(row + 1).inspect(|row| row.set_message(truncate(text, columns)));
        }
    }

    /// Stops the spinner of a row.
    pub fn end(&self, row: usize) {
        if let Some((_, rows)) = &self.bars {
            rows.get(row + 1).inspect(|row| row.disable_steady_tick());
        }
    }

    /// Removes the table from the screen.
    pub fn clear(&self) {
        if let Some((_, rows)) = &self.bars {
            rows.iter().for_each(ProgressBar::finish_and_clear);
        }
    }
}
