//! The terminal's settings, put back on every way out.

use agent_base::lock::Lock;
use rustix::termios::{
    self, ControlModes, InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios,
};
use rustix::{process, stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::signal::unix::Signal;

/// The settings as they were found, and as they are to be now. `None` until they are first changed.
static SETTINGS: Lock<Option<TerminalSettings>> = Lock::new(None);
/// Bytes that the terminal had for us when they were first changed, in which a line feed is the key Enter.
static TYPED_BEFORE: AtomicUsize = AtomicUsize::new(0);

struct TerminalSettings {
    found: Termios,
    current: Termios,
}

/// Settings of the terminal for as long as this lives. Dropping it restores those before it.
pub struct TerminalMode(Option<Termios>);

impl TerminalMode {
    /// Every key as it is, for a program that has the terminal for itself. Nothing changes where standard input is not a
    /// terminal or belongs to another process.
    pub fn raw() -> Self {
        Self::change(|_, settings| settings.make_raw())
    }

    /// Every key as it is, for the editor; what is printed is handled as before.
    pub fn editing() -> Self {
        Self::change(|_, settings| {
            keys_as_they_are(settings);
            settings.local_modes.remove(LocalModes::ISIG);
        })
    }

    /// Keys are neither shown nor collected to lines, but Ctrl-C, Ctrl-Z and Ctrl-\ are signals.
    pub fn working() -> Self {
        Self::change(|_, settings| keys_as_they_are(settings))
    }

    /// As the terminal was found, for a program of this machine.
    pub fn as_found() -> Self {
        Self::change(|found, settings| *settings = found.clone())
    }

    fn change(change: impl FnOnce(&Termios, &mut Termios)) -> Self {
        let mut settings = SETTINGS.lock();
        if settings.is_none() {
            let Ok(found) = termios::tcgetattr(stdio::stdin()) else { return Self(None) };
            let waiting = rustix::io::ioctl_fionread(stdio::stdin()).unwrap_or(0);
            TYPED_BEFORE.store(usize::try_from(waiting).unwrap_or(0), Ordering::SeqCst);
            *settings = Some(TerminalSettings { current: found.clone(), found });
        }
        let Some(TerminalSettings { found, current }) = &mut *settings else { return Self(None) };
        let before = current.clone();
        change(found, current);
        set(current);
        Self(Some(before))
    }
}

fn keys_as_they_are(settings: &mut Termios) {
    settings.input_modes.remove(
        InputModes::BRKINT | InputModes::ICRNL | InputModes::INPCK | InputModes::ISTRIP | InputModes::IXON,
    );
    settings.control_modes.insert(ControlModes::CS8);
    settings
        .local_modes
        .remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::IEXTEN);
    settings.special_codes[SpecialCodeIndex::VMIN] = 1;
    settings.special_codes[SpecialCodeIndex::VTIME] = 0;
}

impl Drop for TerminalMode {
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

/// Sets the terminal again as it is to be, after a shell had it.
pub fn set_again() {
    if let Some(settings) = &*SETTINGS.lock() {
        set(&settings.current);
    }
}

/// Stops this process group, as Ctrl-Z does, with the terminal as it was found, until `continued` reports SIGCONT. This
/// thread may run on for a moment after the signal was sent, because any thread of the process takes it.
pub async fn suspend(continued: &mut Signal) {
    restore();
    // SAFETY: a system call with constants; group 0 is this process's own.
    unsafe { libc::kill(0, libc::SIGSTOP) };
    continued.recv().await;
    set_again();
}

/// Returns the number of the next bytes, of so many, that were typed while the terminal still turned Enter into a line
/// feed.
pub(super) fn typed_before(length: usize) -> usize {
    let take = |left: usize| Some(left.saturating_sub(length));
    TYPED_BEFORE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).map_or(0, |left| left.min(length))
}

/// Sets the terminal. A process in the background would be stopped, so it leaves it alone.
fn set(settings: &Termios) {
    let is_ours = termios::tcgetpgrp(stdio::stdin()).is_ok_and(|group| group == process::getpgrp());
    if is_ours {
        // A terminal that is gone has no settings.
        let _ = termios::tcsetattr(stdio::stdin(), OptionalActions::Drain, settings);
    }
}
