//! Turns the output of a terminal program into an SVG picture: `docs/demo/make.sh` makes the one of the README.
//!
//! Reads what the program wrote to its terminal on standard input, and writes the picture to standard output.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::num::NonZero;

const COLUMNS: u16 = 104;
const WIDTH: NonZero<u16> = NonZero::new(COLUMNS).expect("not zero");
const ROWS: NonZero<u16> = NonZero::new(60).expect("not zero");
const CELL: (f32, f32) = (8.4, 19.0);
const MARGIN: f32 = 16.0;
/// The eight ordinary colours, then the bright ones.
const PALETTE: [&str; 16] = [
    "#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#cdd6f4", "#6c7086",
    "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#ffffff",
];

fn main() -> std::io::Result<()> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let mut terminal = vt100::Parser::new(ROWS, WIDTH, 0);
    terminal.process(&bytes);
    std::io::stdout().write_all(picture(terminal.screen()).as_bytes())
}

fn picture(screen: &vt100::Screen) -> String {
    let lines: Vec<String> = screen.rows(0, COLUMNS).collect();
    let used = lines.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    let (width, height) = (f32::from(COLUMNS) * CELL.0 + 2.0 * MARGIN, used as f32 * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"14\" fill=\"#cdd6f4\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e1e2e\"/>\n"
    );
    for row in 0..used as u16 {
        for (column, text, style) in runs(screen, row) {
            let (x, y) = (MARGIN + f32::from(column) * CELL.0, MARGIN + (f32::from(row) + 0.75) * CELL.1);
            let length = text.chars().count() as f32 * CELL.0;
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{style}>{text}</text>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Neighbouring cells of one style, with the column at which they start; blank ones are left out.
fn runs(screen: &vt100::Screen, row: u16) -> Vec<(u16, String, String)> {
    let mut runs: Vec<(u16, String, String)> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column) else { continue };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let style = style(cell);
        match runs.last_mut() {
            Some((_, run, last)) if *last == style => run.push_str(text),
            _ => runs.push((column, text.to_owned(), style)),
        }
    }
    for (_, text, _) in &mut runs {
        text.truncate(text.trim_end().len());
    }
    runs.retain(|(_, text, _)| !text.trim().is_empty());
    runs
}

fn style(cell: &vt100::Cell) -> String {
    let mut style = String::new();
    match cell.fgcolor() {
        vt100::Color::Idx(index) if usize::from(index) < PALETTE.len() => {
            let _ = write!(style, " fill=\"{}\"", PALETTE[usize::from(index)]);
        }
        vt100::Color::Rgb(red, green, blue) => {
            let _ = write!(style, " fill=\"#{red:02x}{green:02x}{blue:02x}\"");
        }
        _ => {}
    }
    if cell.bold() {
        style.push_str(" font-weight=\"bold\"");
    }
    if cell.italic() {
        style.push_str(" font-style=\"italic\"");
    }
    if cell.dim() {
        style.push_str(" opacity=\"0.6\"");
    }
    style
}
