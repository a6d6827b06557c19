//! The terminal's settings, put back on every way out.

use crate::lock::Lock;
use rustix::termios::{self, OptionalActions, Termios};
use rustix::{process, stdio};

/// The settings as they were found, and as they are to be now. `None` until they are first changed.
static SETTINGS: Lock<Option<Settings>> = Lock::new(None);

struct Settings {
    found: Termios,
    current: Termios,
}

/// Settings of the terminal for as long as this lives. Dropping it restores those before it.
pub struct Mode(Option<Termios>);

impl Mode {
    /// Every key as it is, for a program that has the terminal for itself. Nothing changes where standard input is no
    /// terminal or belongs to another process.
    pub fn raw() -> Self {
        Self::change(Termios::make_raw)
    }

    fn change(change: impl FnOnce(&mut Termios)) -> Self {
        let mut settings = SETTINGS.lock();
        let before = match &*settings {
            Some(settings) => Some(settings.current.clone()),
            None => termios::tcgetattr(stdio::stdin()).ok(),
        };
        let Some(before) = before else { return Self(None) };
        let mut current = before.clone();
        change(&mut current);
        if !set(&current) {
            return Self(None);
        }
        let settings =
            settings.get_or_insert_with(|| Settings { found: before.clone(), current: before.clone() });
        settings.current = current;
        Self(Some(before))
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        if let (Some(before), Some(settings)) = (self.0.take(), &mut *SETTINGS.lock()) {
            set(&before);
            settings.current = before;
        }
    }
}

/// Restores the settings as they were found, for a process that is about to end or to be stopped.
pub fn restore() {
    if let Some(settings) = &*SETTINGS.lock() {
        set(&settings.found);
    }
}

/// Sets the terminal. A process in the background would be stopped, so it leaves it alone.
fn set(settings: &Termios) -> bool {
    let is_ours = termios::tcgetpgrp(stdio::stdin()).is_ok_and(|group| group == process::getpgrp());
    is_ours && termios::tcsetattr(stdio::stdin(), OptionalActions::Drain, settings).is_ok()
}
