//! Pictures in the terminal.
//!
//! What a program in the sandbox wrote never reaches the terminal: an image is decoded to pixels, which are encoded again here.

pub mod answers;
mod artifact;
mod detect;
mod iterm;
mod kitty;

pub use artifact::{ArtifactFiles, is_drawable, path_line};
pub use detect::settle;

use agent_picture::{Pixels, decode};
use detect::{PictureTerminal, Protocol, TerminalEnvironment};
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// The time limit for decoding one picture.
const DECODING: Duration = Duration::from_secs(3);
/// The most cells that a picture takes, however large the terminal is.
const MAX_COLUMNS: u16 = 120;
const MAX_ROWS: u16 = 40;
/// Rows of the terminal that stay free above a picture.
const FREE_ROWS: u16 = 4;
/// The size of a cell in pixels where the terminal does not report it.
const USUAL_CELL: (u16, u16) = (10, 20);
/// The largest cell that is believed.
const MAX_CELL: u16 = 100;

/// When pictures are drawn in the terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Images {
    /// In a terminal.
    #[default]
    Auto,
    /// Also where the output is not a terminal.
    Always,
    /// Only a line with the file.
    Never,
}

/// Draws pictures. The terminal is asked once, before the first of them.
#[derive(Debug, Default)]
pub struct Pictures {
    pub images: Images,
    terminal: Option<PictureTerminal>,
}

impl Pictures {
    pub fn new(images: Images) -> Self {
        Self { images, terminal: None }
    }

    /// Returns what the terminal is sent for the image in `bytes`, ending in a line feed; `None` where nothing is to be drawn.
    ///
    /// # Errors
    /// Why the image cannot be shown.
    pub fn draw(&mut self, bytes: Vec<u8>) -> Result<Option<String>, String> {
        let Some((protocol, cell)) = self.protocol() else { return Ok(None) };
        let space = Space::of(terminal_size::terminal_size_of(io::stderr()), cell);
        let pixels = decode(bytes, space.pixels(), DECODING)?;
        let cells = space.cells_of(&pixels);
        let png = pixels.to_png().map_err(|error| error.to_string())?;
        let text = match protocol {
            Protocol::Kitty { tmux } => kitty::draw(&png, cells, tmux),
            Protocol::Iterm => iterm::draw(&png, cells.0),
        };
        Ok(Some(text + "\n"))
    }

    /// Returns the protocol by which pictures are drawn, and the size of a cell where it is known; `None` where they are
    /// not drawn.
    fn protocol(&mut self) -> Option<(Protocol, Option<(u16, u16)>)> {
        let environment = TerminalEnvironment::of_process();
        let wanted = match self.images {
            Images::Never => false,
            Images::Always => true,
            Images::Auto => environment.is_interactive(),
        };
        if !wanted {
            return None;
        }
        if self.terminal.is_none() {
            // Where the keyboard is in use, the terminal is asked before the next picture.
            self.terminal = detect::detect(&environment);
        }
        let PictureTerminal { protocol, cell } = self.terminal?;
        Some((protocol?, cell))
    }
}

/// The space that a picture may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Space {
    columns: u16,
    rows: u16,
    /// The size of a cell in pixels.
    cell: (u16, u16),
}

impl Space {
    fn of(size: Option<(terminal_size::Width, terminal_size::Height)>, cell: Option<(u16, u16)>) -> Self {
        let (columns, rows) = size.map_or((80, 24), |(columns, rows)| (columns.0, rows.0));
        let is_usable =
            |(width, height): &(u16, u16)| (1..=MAX_CELL).contains(width) && (1..=MAX_CELL).contains(height);
        Self {
            columns: columns.clamp(1, MAX_COLUMNS),
            rows: rows.saturating_sub(FREE_ROWS).clamp(1, MAX_ROWS),
            cell: cell.filter(is_usable).unwrap_or(USUAL_CELL),
        }
    }

    fn pixels(self) -> (u32, u32) {
        let side = |cells: u16, pixels: u16| u32::from(cells) * u32::from(pixels);
        (side(self.columns, self.cell.0), side(self.rows, self.cell.1))
    }

    /// Columns and rows that these pixels cover.
    fn cells_of(self, pixels: &Pixels) -> (u16, u16) {
        let cells = |pixels: u32, cell: u16, most: u16| {
            u16::try_from(pixels.div_ceil(u32::from(cell))).unwrap_or(most).clamp(1, most)
        };
        (cells(pixels.width, self.cell.0, self.columns), cells(pixels.height, self.cell.1, self.rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal_size::{Height, Width};

    #[test]
    fn a_picture_fits_the_terminal_whatever_it_reports() {
        let space = Space::of(Some((Width(100), Height(30))), Some((8, 16)));
        assert_eq!(space.pixels(), (800, 416));
        let pixels = Pixels { width: 81, height: 17, rgb: Vec::new() };
        assert_eq!(space.cells_of(&pixels), (11, 2));
        for size in [None, Some((Width(0), Height(0))), Some((Width(u16::MAX), Height(u16::MAX)))] {
            for cell in [None, Some((0, 0)), Some((u16::MAX, 1))] {
                let (width, height) = Space::of(size, cell).pixels();
                assert!((1..=12_000).contains(&width) && (1..=4_000).contains(&height), "{size:?} {cell:?}");
            }
        }
    }
}
