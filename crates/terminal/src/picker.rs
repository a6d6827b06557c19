//! A list on the terminal from which the user picks one line: arrows, or letters that filter it.

use super::progress::Progress;
use super::stderr;
use super::style::{BOLD, Colours, DIM};
use super::terminal::keyboard::keyboard;
use super::terminal::mode::TerminalMode;
use super::wrap::terminal_columns;
use agent_base::error::{Error, Result};
use agent_base::sanitise::{one_line, truncate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;

/// Lines that are shown at once.
const ROWS: usize = 10;
/// Lines that can be picked from; further ones are found by their ids and names.
const MAX_ITEMS: usize = 1000;
/// Columns of a line, and characters of a filter.
const MAX_LINE: usize = 300;
const MAX_FILTER: usize = 100;
/// After an escape character: a sequence arrives at once, a user does not type one this fast.
const SEQUENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Shows `items` below `title` and waits until the user picks one of them: its number, or `None` after Escape, Ctrl-C or
/// Ctrl-D. Begins at `selected`.
///
/// # Errors
/// The terminal cannot be read.
pub async fn pick(
    progress: &Progress,
    title: &str,
    items: &[String],
    selected: usize,
) -> Result<Option<usize>> {
    let _keyboard = keyboard().await;
    let _hold = progress.hold();
    let mode = TerminalMode::editing();
    let items = items.iter().take(MAX_ITEMS).map(|item| one_line(item, MAX_LINE)).collect();
    let list = PickList { items, filter: String::new(), selected };
    let title = one_line(title, MAX_LINE);
    let picking = tokio::task::spawn_blocking(move || run(list, &title));
    let picked = picking.await.map_err(|error| Error::unexpected("the list was lost").caused_by(error))?;
    drop(mode);
    picked.map_err(|error| Error::unexpected("the terminal could not be read").caused_by(error))
}

fn run(mut list: PickList, title: &str) -> io::Result<Option<usize>> {
    without_line_editing();
    let colours = Colours::of(&io::stderr());
    let mut drawn = 0;
    let picked = loop {
        let columns = terminal_columns(&io::stderr());
        let lines = list.lines(title, columns, colours);
        stderr::write(&format!("{}{}", erase(drawn), lines.concat()));
        drawn = lines.len();
        match list.press_all(&read_keys()?) {
            PickStep::Continue => {}
            PickStep::Pick(number) => break Some(number),
            PickStep::Leave => break None,
        }
    };
    stderr::write(&erase(drawn));
    Ok(picked)
}

/// Each key is read as it is typed, Ctrl-C too. The caller restores the terminal.
fn without_line_editing() {
    let mut mode = std::mem::MaybeUninit::uninit();
    // SAFETY: tcgetattr has written a whole termios if it returns 0, and only then it is read and set again.
    unsafe {
        if libc::tcgetattr(libc::STDIN_FILENO, mode.as_mut_ptr()) == 0 {
            let mut mode = mode.assume_init();
            mode.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
            mode.c_cc[libc::VMIN] = 1;
            mode.c_cc[libc::VTIME] = 0;
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, &mode);
        }
    }
}

/// Goes back over so many lines and removes them.
fn erase(lines: usize) -> String {
    match lines {
        0 => String::new(),
        lines => format!("\x1b[{lines}A\r\x1b[J"),
    }
}

/// Returns what was typed: one key, or several that were typed ahead or pasted.
fn read_keys() -> io::Result<Vec<u8>> {
    let stdin = rustix::stdio::stdin();
    let (mut typed, mut buffer) = (Vec::new(), [0; 64]);
    loop {
        let length = rustix::io::read(stdin, &mut buffer)?;
        typed.extend_from_slice(&buffer[..length]);
        // A sequence may arrive in two pieces.
        let is_whole = split(&typed).last().is_none_or(|last| !is_partial(last));
        if length == 0 || is_whole || typed.len() > MAX_FILTER {
            return Ok(typed);
        }
        if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&SEQUENCE))? == 0 {
            return Ok(typed);
        }
    }
}

/// The keys in what was typed: escape sequences, control characters, and text between them.
fn split(mut typed: &[u8]) -> Vec<&[u8]> {
    let mut keys = Vec::new();
    while let Some(first) = typed.first() {
        let length = match (first, typed.get(1)) {
            (0x1b, Some(b'[')) => {
                let end = typed[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
                end.map_or(typed.len(), |end| end + 3)
            }
            (0x1b, Some(b'O')) => typed.len().min(3),
            (byte, _) if byte.is_ascii_control() => 1,
            _ => typed.iter().position(u8::is_ascii_control).unwrap_or(typed.len()),
        };
        let (key, rest) = typed.split_at(length);
        keys.push(key);
        typed = rest;
    }
    keys
}

/// Returns whether this is the beginning of an escape sequence.
fn is_partial(key: &[u8]) -> bool {
    match key {
        b"\x1b" | b"\x1b[" | b"\x1bO" => true,
        [0x1b, b'[', .., last] => !(0x40..=0x7e).contains(last),
        _ => false,
    }
}

struct PickList {
    items: Vec<String>,
    /// The text that the shown lines contain.
    filter: String,
    /// Of those that are shown, counting from 0.
    selected: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum PickStep {
    Continue,
    Pick(usize),
    Leave,
}

impl PickList {
    /// The numbers of the items that the filter leaves.
    fn shown(&self) -> Vec<usize> {
        let filter = self.filter.to_lowercase();
        let matches =
            |item: &String| filter.split_whitespace().all(|word| item.to_lowercase().contains(word));
        (0..self.items.len()).filter(|number| matches(&self.items[*number])).collect()
    }

    /// Nothing at all is the end of the terminal.
    fn press_all(&mut self, typed: &[u8]) -> PickStep {
        if typed.is_empty() {
            return PickStep::Leave;
        }
        let mut steps = split(typed).into_iter().map(|key| self.press(key));
        steps.find(|step| *step != PickStep::Continue).unwrap_or(PickStep::Continue)
    }

    fn press(&mut self, key: &[u8]) -> PickStep {
        let shown = self.shown();
        let last = shown.len().saturating_sub(1);
        match key {
            b"\x1b" | b"\x03" | b"\x04" => return PickStep::Leave,
            b"\r" | b"\n" => {
                return shown.get(self.selected).map_or(PickStep::Continue, |number| PickStep::Pick(*number));
            }
            b"\x1b[A" | b"\x1bOA" | b"\x10" => self.selected = self.selected.saturating_sub(1),
            b"\x1b[B" | b"\x1bOB" | b"\x0e" | b"\t" => self.selected = last.min(self.selected + 1),
            b"\x1b[5~" => self.selected = self.selected.saturating_sub(ROWS),
            b"\x1b[6~" => self.selected = last.min(self.selected + ROWS),
            b"\x1b[H" | b"\x1b[1~" => self.selected = 0,
            b"\x1b[F" | b"\x1b[4~" => self.selected = last,
            b"\x7f" | b"\x08" => {
                self.filter.pop();
                self.selected = 0;
            }
            [0x1b, ..] => {}
            typed => self.type_text(typed),
        }
        PickStep::Continue
    }

    fn type_text(&mut self, typed: &[u8]) {
        let room = MAX_FILTER.saturating_sub(self.filter.chars().count());
        self.filter.extend(String::from_utf8_lossy(typed).chars().filter(|c| !c.is_control()).take(room));
        self.selected = 0;
    }

    /// Returns what is on the screen, each line with its line feed.
    fn lines(&self, title: &str, columns: usize, colours: Colours) -> Vec<String> {
        let fit = |text: &str| truncate(text, columns.saturating_sub(1).max(1));
        let shown = self.shown();
        let first = (self.selected + 1).saturating_sub(ROWS);
        let head = match self.filter.as_str() {
            "" => format!("{title} (arrows, letters to filter, Enter, Esc)"),
            filter => format!("{title} {filter}"),
        };
        let mut lines = vec![format!("{}\n", colours.paint(BOLD, fit(&head)))];
        for (at, number) in shown.iter().enumerate().skip(first).take(ROWS) {
            let line = match at == self.selected {
                true => colours.paint(BOLD, fit(&format!("› {}", self.items[*number]))),
                false => fit(&format!("  {}", self.items[*number])),
            };
            lines.push(line + "\n");
        }
        let (count, all) = (shown.len(), self.items.len());
        if count == 0 || all > ROWS {
            let which = if count == 0 { 0 } else { self.selected + 1 };
            lines.push(format!(
                "{}\n",
                colours.paint(DIM, fit(&format!("  {which} of {count} ({all} in all)")))
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> PickList {
        PickList {
            items: (1..=count).map(|number| format!("item {number}")).collect(),
            filter: String::new(),
            selected: 0,
        }
    }

    #[test]
    fn arrows_move_and_enter_picks() {
        let mut list = list(3);
        assert_eq!(list.press(b"\x1b[A"), PickStep::Continue);
        assert_eq!(list.press(b"\r"), PickStep::Pick(0));
        for _ in 0..5 {
            list.press(b"\x1b[B");
        }
        assert_eq!(list.press(b"\r"), PickStep::Pick(2));
        for key in [&b"\x1b"[..], b"\x03", b"\x04", b""] {
            assert_eq!(list.press_all(key), PickStep::Leave);
        }
        assert_eq!(list.press(b"\x1b[99~"), PickStep::Continue);
    }

    #[test]
    fn letters_filter_and_backspace_takes_them_back() {
        let mut list = list(20);
        list.press(b"1");
        list.press(b"9");
        assert_eq!(list.press(b"\r"), PickStep::Pick(18));
        list.press(b"x");
        assert_eq!(list.press(b"\r"), PickStep::Continue, "nothing is left to pick");
        for _ in 0..3 {
            list.press(b"\x7f");
        }
        assert_eq!(list.press_all(b"item 7\r"), PickStep::Pick(6));
    }

    #[test]
    fn keys_that_are_typed_ahead_are_separate() {
        assert_eq!(split(b"\x1b[Bab\r\x1b[5~\x1bOA"), [&b"\x1b[B"[..], b"ab", b"\r", b"\x1b[5~", b"\x1bOA"]);
        let mut list = list(3);
        assert_eq!(list.press_all(b"\x1b[B\x1b[B\x1b[A\r"), PickStep::Pick(1));
        assert!(is_partial(b"\x1b[5") && is_partial(b"\x1b") && !is_partial(b"\x1b[5~") && !is_partial(b"x"));
    }

    #[test]
    fn as_many_lines_as_fit_are_shown_around_the_selected_one() {
        let mut list = list(30);
        list.press(b"\x1b[F");
        let lines = list.lines("Which?", 20, Colours(false));
        assert_eq!(lines.len(), ROWS + 2);
        assert_eq!(lines[ROWS], "› item 30\n");
        assert_eq!(lines[ROWS + 1], "  30 of 30 (30 in …\n");
    }
}
