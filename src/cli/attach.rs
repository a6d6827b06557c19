//! A program of the sandbox that has the user's terminal for itself, as with `ssh` or `docker exec -it`.

use crate::agent::Stop;
use crate::cli::ui::json::output_error;
use crate::cli::ui::style::Colours;
use crate::cli::ui::terminal::filter::Filter;
use crate::cli::ui::terminal::keyboard::{Keyboard, keyboard};
use crate::cli::ui::terminal::mode::TerminalMode;
use crate::error::{Error, Result};
use crate::event::Stream;
use crate::sandbox::wire::TerminalSize;
use crate::sandbox::{Command, Controls, Finished, Output, Process, ProcessEvent, Sandbox};
use crate::tools::Collector;
use rustix::termios::tcgetwinsize;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The size that is used where nothing is known about the terminal.
const USUAL_SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };
/// Ctrl-], as often as this within [`LEAVE_WITHIN`], kills the program: everything else goes to it.
const LEAVE: (u8, usize) = (0x1d, 3);
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Families of terminals that the sandbox is likely to have a description of.
const DESCRIBED: [&str; 10] =
    ["xterm", "screen", "tmux", "linux", "vt100", "vt220", "rxvt", "dumb", "ansi", "putty"];

/// Runs `command` in a terminal of its own inside, which is shown on `screen`, and returns how it ended. What it wrote as
/// text, without what it drew on a full screen, goes to `copy`. A question to the user, about a host for example, has the
/// terminal in between.
///
/// The terminal is put back as it was in every case.
pub async fn run<S: Write + AsFd + IsTerminal>(
    sandbox: &Sandbox,
    mut command: Command,
    screen: S,
    copy: &mut Collector,
) -> Result<Finished> {
    let window = screen.as_fd().try_clone_to_owned().map_err(lost)?;
    command.env.splice(..0, environment(&screen));
    command.stdin = true;
    // From before the size is looked at, so that no change of it is missed.
    let mut resized = signal(SignalKind::window_change()).map_err(lost)?;
    let mut process = sandbox.spawn_in_terminal(command, size(&window)).await?;
    let controls = process.controls();
    let mut shown = AttachedScreen { screen, filter: Filter::default(), mode: None };
    loop {
        let mut keyboard = keyboard().await;
        shown.begin()?;
        if shown.filter.is_drawing() {
            redraw(&controls, size(&window));
        }
        controls.resize(size(&window));
        tokio::select! {
            biased;
            finished = shown.follow(&mut process, copy) => return finished,
            lost = feed(&mut keyboard, &controls) => return lost,
            never = follow_size(&mut resized, &window, &controls) => match never {},
            () = Keyboard::is_wanted() => shown.pause()?,
        }
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::unexpected("the terminal was lost").caused_by(error)
}

/// Passes keys on until the terminal is closed.
async fn feed(keyboard: &mut Keyboard, controls: &Controls) -> Result<Finished> {
    let mut leaving = Leaving::default();
    loop {
        let bytes = keyboard.read().await?;
        if bytes.is_empty() {
            return Err(Stop::Terminated.error());
        }
        if leaving.is_asked_for(&bytes) {
            controls.kill();
        }
        if !controls.write(&bytes).await {
            // It has ended; its last output is still to come.
            return std::future::pending().await;
        }
    }
}

/// Passes on each change of the window's size.
async fn follow_size(resized: &mut Signal, window: &OwnedFd, controls: &Controls) -> Infallible {
    while resized.recv().await.is_some() {
        controls.resize(size(window));
    }
    std::future::pending().await
}

/// The screen of the program. Dropping it undoes what the program left changed, and restores the terminal's settings.
struct AttachedScreen<S: Write> {
    screen: S,
    filter: Filter,
    mode: Option<TerminalMode>,
}

impl<S: Write> AttachedScreen<S> {
    /// Gives the terminal to the program, for the first time or again.
    fn begin(&mut self) -> Result<()> {
        self.mode = Some(TerminalMode::raw());
        let again = self.filter.begin_again();
        self.write(&again)
    }

    /// Takes the terminal from the program, whose output waits.
    fn pause(&mut self) -> Result<()> {
        let end = self.filter.pause();
        self.write(&end)?;
        self.mode = None;
        Ok(())
    }

    async fn follow(&mut self, process: &mut Process, copy: &mut Collector) -> Result<Finished> {
        loop {
            match process.next().await? {
                ProcessEvent::Output(_, bytes) => {
                    let filtered = self.filter.push(&bytes);
                    copy.push(Output::Data(Stream::Stdout, filtered.text.as_bytes()));
                    self.write(&filtered.screen)?;
                }
                ProcessEvent::Gap(bytes) => copy.push(Output::Gap(bytes)),
                ProcessEvent::Finished(finished) => return Ok(finished),
            }
        }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.screen.write_all(text.as_bytes()).and_then(|()| self.screen.flush()).map_err(output_error)
    }
}

impl<S: Write> Drop for AttachedScreen<S> {
    fn drop(&mut self) {
        let end = self.filter.pause();
        // A terminal that is gone needs nothing.
        let _ = self.write(&end);
    }
}

/// Has a program that draws on the whole screen draw everything again with the next size: what it does where that changes.
fn redraw(controls: &Controls, size: TerminalSize) {
    controls.resize(TerminalSize { columns: size.columns.saturating_sub(1).max(1), ..size });
}

/// Counts the keys that end a program which does not end by itself.
#[derive(Default)]
struct Leaving {
    pressed: usize,
    since: Option<Instant>,
}

impl Leaving {
    fn is_asked_for(&mut self, typed: &[u8]) -> bool {
        let (key, times) = LEAVE;
        for byte in typed {
            if *byte != key {
                *self = Self::default();
                continue;
            }
            if self.since.is_none_or(|since| since.elapsed() > LEAVE_WITHIN) {
                *self = Self { pressed: 0, since: Some(Instant::now()) };
            }
            self.pressed += 1;
        }
        self.pressed >= times
    }
}

fn size(terminal: impl AsFd) -> TerminalSize {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => USUAL_SIZE,
    }
}

/// The variables that say that there is a user: those of [`crate::sandbox::environment`] say that there is none.
fn environment(screen: &impl IsTerminal) -> Vec<(OsString, OsString)> {
    let term = std::env::var("TERM").unwrap_or_default();
    let family = term.split(['-', '.', '+']).next().unwrap_or_default();
    let is_plain = term.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+_".contains(&byte));
    let known =
        is_plain && DESCRIBED.contains(&family) && !term.contains("kitty") && !term.contains("ghostty");
    let term = if known { term } else { "xterm-256color".to_owned() };
    let colours = Colours::of(screen).0;
    let true_colour = std::env::var("COLORTERM").is_ok_and(|value| value == "truecolor" || value == "24bit");
    [
        ("TERM", term.as_str()),
        ("COLORTERM", if true_colour && colours { "truecolor" } else { "" }),
        ("NO_COLOR", if colours { "" } else { "1" }),
        ("CI", ""),
        ("GIT_TERMINAL_PROMPT", "1"),
        ("DEBIAN_FRONTEND", "dialog"),
        ("PIP_NO_INPUT", "0"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::Leaving;

    #[test]
    fn the_key_that_kills_must_be_pressed_three_times_in_a_row() {
        let mut leaving = Leaving::default();
        assert!(!leaving.is_asked_for(b"\x1d\x1dx"));
        assert!(!leaving.is_asked_for(b"\x1d"));
        assert!(!leaving.is_asked_for(b"\x1d"));
        assert!(leaving.is_asked_for(b"\x1d"));
    }
}
