//! The lines that the user types while the model works: a queue, which can be edited until it is sent.

use super::input::{is_incomplete, join_continued};
use super::line_editor::{edit, text::Text};
use super::progress::Progress;
use super::terminal::key::{Key, Press};
use super::terminal::keyboard::{Keyboard, keyboard};
use agent_base::sanitise::one_line;
use std::collections::VecDeque;
use std::convert::Infallible;

/// Lines that wait.
const MAX_QUEUE: usize = 50;
/// Columns of a line that are shown at most; the window may be narrower.
const SHOWN: usize = 300;

/// The lines that wait, and the one that is being written.
#[derive(Default)]
pub struct Typing {
    text: Text,
    queue: VecDeque<String>,
    /// The user stopped the turn to send what waits.
    is_sent_now: bool,
}

impl Typing {
    /// With a line that waits already.
    pub fn of(line: Option<String>) -> Self {
        Self { queue: line.into_iter().collect(), ..Self::default() }
    }

    /// Reads keys until this is dropped, and shows what was typed beneath the progress. Escape calls `stop`, which ends the
    /// turn. A question has the keyboard first.
    pub async fn listen(&mut self, progress: &Progress, stop: &(dyn Fn() + Sync)) -> Infallible {
        self.show(progress);
        loop {
            Keyboard::is_free().await;
            let mut keyboard = keyboard().await;
            loop {
                let press = tokio::select! {
                    biased;
                    () = Keyboard::is_wanted() => break,
                    press = keyboard.press() => press,
                };
                match press {
                    Ok(Some(press)) => self.press(&press, stop),
                    // A terminal that is closed ends the process by a signal.
                    Ok(None) | Err(_) => std::future::pending().await,
                }
                self.show(progress);
            }
        }
    }

    fn press(&mut self, press: &Press, stop: &dyn Fn()) {
        match press {
            Press { key: Key::Escape, .. } => stop(),
            Press { key: Key::Enter, alt: false, shift: false, .. } if self.text.is_empty() => {
                if !self.queue.is_empty() {
                    self.is_sent_now = true;
                    stop();
                }
            }
            Press { key: Key::Enter, alt: false, shift: false, .. } if is_incomplete(self.text.as_str()) => {
                self.text.insert("\n");
            }
            Press { key: Key::Enter, alt: false, shift: false, .. } if self.queue.len() < MAX_QUEUE => {
                self.queue.push_back(join_continued(&self.text.take()));
            }
            Press { key: Key::Up, .. } if self.text.is_empty() => {
                if let Some(last) = self.queue.pop_back() {
                    self.text.insert(&last);
                }
            }
            press => drop(edit(&mut self.text, press)),
        }
    }

    /// Ends the turn. After one that the user stopped, what waited is text to be edited, unless it is to be sent now.
    pub fn end(&mut self, progress: &Progress, was_stopped: bool) {
        progress.typed(Vec::new());
        if !std::mem::take(&mut self.is_sent_now) && was_stopped && !self.queue.is_empty() {
            self.queue.push_back(self.text.take());
            let lines: Vec<String> = self.queue.drain(..).filter(|line| !line.is_empty()).collect();
            self.text.insert(&lines.join("\n"));
        }
    }

    /// The next line that waits.
    pub fn pop(&mut self) -> Option<String> {
        self.queue.pop_front()
    }

    /// Returns what was not complete yet.
    pub fn take_text(&mut self) -> String {
        self.text.take()
    }

    /// Text for the next prompt, to be edited.
    pub fn set_text(&mut self, text: &str) {
        self.text.take();
        self.text.insert(text);
    }

    fn show(&self, progress: &Progress) {
        let mut lines: Vec<String> =
            self.queue.iter().map(|line| format!("queued: {}", one_line(line, SHOWN))).collect();
        if !self.text.is_empty() {
            let (before, after) = self.text.as_str().split_at(self.text.cursor());
            lines.push(format!("› {}", one_line(&format!("{before}▏{after}"), SHOWN)));
        }
        match (self.queue.is_empty(), self.text.is_empty()) {
            (true, true) => {}
            (_, false) => lines.push("Enter: send after this turn · Esc: stop".to_owned()),
            (false, true) => lines.push("Enter: send now · ↑: edit · Esc: stop".to_owned()),
        }
        progress.typed(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Types `keys`; returns whether they stopped the turn.
    fn press(typing: &mut Typing, keys: &str) -> bool {
        let is_stopped = Cell::new(false);
        for character in keys.chars() {
            let key = match character {
                '\r' => Key::Enter,
                '\x1b' => Key::Escape,
                '^' => Key::Up,
                other => Key::Char(other),
            };
            typing.press(&Press::of(key), &|| is_stopped.set(true));
        }
        is_stopped.get()
    }

    #[test]
    fn lines_wait_can_be_edited_and_are_sent_in_order() {
        let mut typing = Typing::default();
        assert!(!press(&mut typing, "one\rtwo\r^!\rrest"));
        typing.end(&Progress::hidden(), false);
        assert_eq!((typing.pop().as_deref(), typing.pop().as_deref()), (Some("one"), Some("two!")));
        assert_eq!((typing.pop(), typing.take_text().as_str()), (None, "rest"));
    }

    #[test]
    fn a_line_that_is_continued_waits_with_the_lines_behind_it() {
        let mut typing = Typing::default();
        press(&mut typing, "one \\\rtwo\r```\rcode\r```\r");
        typing.end(&Progress::hidden(), false);
        assert_eq!(
            (typing.pop().as_deref(), typing.pop().as_deref()),
            (Some("one \ntwo"), Some("```\ncode\n```"))
        );
    }

    #[test]
    fn a_second_enter_sends_now_and_escape_gives_the_lines_back() {
        let mut typing = Typing::default();
        assert!(press(&mut typing, "one\r\r"));
        typing.end(&Progress::hidden(), true);
        assert_eq!(typing.pop().as_deref(), Some("one"));
        assert!(press(&mut typing, "two\rthree\rfo\x1b"));
        typing.end(&Progress::hidden(), true);
        assert_eq!((typing.pop(), typing.take_text().as_str()), (None, "two\nthree\nfo"));
    }
}
