//! A table, fitted to the width of the terminal.

use crate::style::DIM;
use crate::wrap::{self, Span, StyledLine};
use anstyle::Style;
use pulldown_cmark::Alignment;

/// Columns are not made narrower than this.
const MIN_COLUMN: usize = 6;
const BETWEEN: &str = " │ ";

pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The first row is the head.
    rows: Vec<Vec<StyledLine>>,
    row: Vec<StyledLine>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new(), row: Vec::new() }
    }

    pub(super) fn cell(&mut self, cell: StyledLine) {
        self.row.push(cell);
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    /// The lines of the table in `columns` columns. Cells that are too long are wrapped.
    pub(super) fn lines(&self, columns: usize) -> Vec<StyledLine> {
        let widths = self.widths(columns);
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            self.row_lines(row, &widths, &mut lines);
            if index == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(vec![Span { text: rule.join("─┼─"), style: DIM }]);
            }
        }
        lines
    }

    /// The natural width of each column; the widest are reduced until the table fits.
    fn widths(&self, columns: usize) -> Vec<usize> {
        let mut widths = vec![1; self.alignments.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(wrap::line_width(cell));
            }
        }
        let between = wrap::width(BETWEEN) * widths.len().saturating_sub(1);
        let available = columns.saturating_sub(between);
        let fits = |limit: &usize| widths.iter().map(|width| width.min(limit)).sum::<usize>() <= available;
        let limit = if fits(&usize::MAX) {
            usize::MAX
        } else {
            (MIN_COLUMN..=available).rev().find(fits).unwrap_or(MIN_COLUMN)
        };
        widths.iter().map(|width| *width.min(&limit)).collect()
    }

    fn row_lines(&self, row: &[StyledLine], widths: &[usize], lines: &mut Vec<StyledLine>) {
        let cells: Vec<Vec<StyledLine>> =
            row.iter().zip(widths).map(|(cell, width)| wrap::wrap(cell, *width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for index in 0..height {
            let mut line = StyledLine::new();
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                if column > 0 {
                    line.push(Span { text: BETWEEN.to_string(), style: DIM });
                }
                let content = cell.get(index).cloned().unwrap_or_default();
                let is_last = column + 1 == cells.len();
                let alignment = self.alignments.get(column).copied().unwrap_or(Alignment::None);
                line.extend(aligned(content, *width, alignment, is_last));
            }
            lines.push(line);
        }
    }
}

fn aligned(content: StyledLine, width: usize, alignment: Alignment, is_last: bool) -> StyledLine {
    let missing = width.saturating_sub(wrap::line_width(&content));
    let left = match alignment {
        Alignment::Right => missing,
        Alignment::Center => missing / 2,
        Alignment::Left | Alignment::None => 0,
    };
    let right = if is_last { 0 } else { missing - left };
    let blank = |count: usize| Span { text: " ".repeat(count), style: Style::new() };
    [vec![blank(left)], content, vec![blank(right)]].concat()
}
