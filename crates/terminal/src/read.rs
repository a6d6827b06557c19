//! Reading at the terminal: keys go to an editor, whose view is kept on the screen.

use super::line_editor::draw::{Drawn, Label};
use super::line_editor::{Assistant, EditStep, Editor};
use super::stderr;
use super::style::Colours;
use super::terminal::keyboard::{Keyboard, is_modern, keyboard};
use super::terminal::mode::{self, TerminalMode};
use super::wrap::reflows;
use agent_base::error::{Error, Result};
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Rows and columns of a terminal that does not report them.
const USUAL_SIZE: (usize, usize) = (24, 80);
/// Pastes are marked.
const PASTES: (&str, &str) = ("\x1b[?2004h", "\x1b[?2004l");
/// Distinguishes keys that have no byte of their own, and reports those of the basic layout: kitty's way, and xterm's.
const KEYS: (&str, &str) = ("\x1b[>5u\x1b[>4;2m", "\x1b[>4m\x1b[<u");

/// The reason why reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// The text is complete.
    Submitted,
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the terminal is closed.
    End,
    /// The text is to be opened in the user's own editor.
    OpenEditor,
    /// Escape twice.
    Rewind,
    /// All of the last result is to be shown.
    ShowLast,
}

/// Reads until the text in the editor is complete, as soon as nobody else reads the keyboard. Dropping the future restores
/// the terminal.
pub async fn read(editor: &mut Editor, label: &Label, assistant: &dyn Assistant) -> Result<ReadEnd> {
    let mut keyboard = keyboard().await;
    if !can_draw() {
        return read_line(editor, label, &mut keyboard).await;
    }
    let mut reading = LineReading::begin()?;
    loop {
        reading.draw(editor, label, assistant);
        let press = tokio::select! {
            press = keyboard.press() => press?,
            _ = reading.resized.recv() => continue,
            _ = reading.continued.recv() => {
                mode::set_again();
                continue;
            }
        };
        let Some(mut press) = press else { return Ok(reading.end(ReadEnd::End, editor, label)) };
        loop {
            let ended = match editor.press(&press, assistant) {
                EditStep::Continue => None,
                EditStep::Submit => Some(ReadEnd::Submitted),
                EditStep::Interrupt => Some(ReadEnd::Interrupted),
                EditStep::End => Some(ReadEnd::End),
                EditStep::OpenEditor => Some(ReadEnd::OpenEditor),
                EditStep::Rewind => Some(ReadEnd::Rewind),
                EditStep::ShowLast => Some(ReadEnd::ShowLast),
                EditStep::Suspend => {
                    reading.suspend().await;
                    None
                }
                EditStep::ClearScreen => {
                    reading.clear_screen();
                    None
                }
            };
            if let Some(ended) = ended {
                return Ok(reading.end(ended, editor, label));
            }
            // What has arrived at once is drawn once.
            match keyboard.press_now() {
                Some(next) => press = next,
                None => break,
            }
        }
    }
}

/// The screen and the terminal's settings while the editor reads. Dropping it restores the settings.
struct LineReading {
    drawn: Drawn,
    resized: Signal,
    continued: Signal,
    _mode: TerminalMode,
}

impl LineReading {
    fn begin() -> Result<Self> {
        let receive = |kind| {
            signal(kind).map_err(|error| Error::unexpected("signals cannot be received").caused_by(error))
        };
        let resized = receive(SignalKind::window_change())?;
        let continued = receive(SignalKind::from_raw(libc::SIGCONT))?;
        let reading = Self { drawn: Drawn::default(), resized, continued, _mode: TerminalMode::editing() };
        set_keys(true);
        Ok(reading)
    }

    fn draw(&mut self, editor: &Editor, label: &Label, assistant: &dyn Assistant) {
        let (rows, columns) = size();
        let mut view = editor.view(label, assistant, columns, Colours::of(&io::stderr()));
        view.clip(rows);
        stderr::write(&self.drawn.redraw(view, columns, reflows()));
    }

    /// Leaves the text on the screen, without hints.
    fn end(mut self, ended: ReadEnd, editor: &Editor, label: &Label) -> ReadEnd {
        let (rows, columns) = size();
        let mut view = editor.final_view(label, columns);
        view.clip(rows);
        let shown = self.drawn.redraw(view, columns, reflows());
        stderr::write(&(shown + &self.drawn.leave()));
        ended
    }

    async fn suspend(&mut self) {
        stderr::write(&self.drawn.leave());
        set_keys(false);
        mode::suspend(&mut self.continued).await;
        set_keys(true);
    }

    fn clear_screen(&mut self) {
        self.drawn = Drawn::default();
        stderr::write("\x1b[H\x1b[2J");
    }
}

impl Drop for LineReading {
    fn drop(&mut self) {
        set_keys(false);
    }
}

/// Has the terminal mark pastes and tell keys apart, or not any more.
fn set_keys(on: bool) {
    let pick = |(begin, end): (&'static str, &'static str)| if on { begin } else { end };
    let keys = if is_modern() { pick(KEYS) } else { "" };
    stderr::write(&format!("{}{keys}", pick(PASTES)));
}

/// Reads a line as the terminal collects it, where nothing can be drawn.
async fn read_line(editor: &mut Editor, label: &Label, keyboard: &mut Keyboard) -> Result<ReadEnd> {
    let _mode = TerminalMode::as_found();
    stderr::write(&label.plain);
    let mut line = editor.text.take().into_bytes();
    loop {
        let bytes = keyboard.read().await?;
        let is_end = bytes.is_empty();
        line.extend(bytes);
        if is_end || line.ends_with(b"\n") || line.ends_with(b"\r") {
            editor.text.insert(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
            return Ok(if is_end { ReadEnd::End } else { ReadEnd::Submitted });
        }
    }
}

fn can_draw() -> bool {
    std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// Rows and columns.
fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(USUAL_SIZE, |(columns, rows)| (usize::from(rows.0), usize::from(columns.0)))
}
