//! The keys of the user. There is one reader at a time, which leaves the rest to the next.

use super::key::{Key, Keys, Press, is_control_c, is_rest_of_sequence};
use super::mode::typed_before;
use agent_base::error::{Error, Result};
use rustix::fs::{Mode as Permissions, OFlags};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, MutexGuard, Notify};

/// Bytes that are read at once.
const CHUNK: usize = 4 << 10;
/// Time after which an escape that nothing has followed is the key. A terminal sends a sequence at once, but a link may cut it.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(60);
/// The same where the link is known to be a network's.
const REMOTE_ESCAPE_TIMEOUT: Duration = Duration::from_millis(250);
/// Time after which a sequence that has begun, or the rest of one behind an escape, does not come any more.
const SEQUENCE_TIMEOUT: Duration = Duration::from_millis(500);
/// Silence that ends a paste whose end does not come.
const PASTE_TIMEOUT: Duration = Duration::from_secs(1);
/// Silence before a Ctrl-C that is a key and not part of a paste.
const PASTE_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at whether somebody else still needs the keyboard.
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// Terminals that ignore what asks them to tell keys apart, or obey it.
const KNOW_KEYS: [&str; 10] =
    ["xterm", "tmux", "alacritty", "foot", "kitty", "ghostty", "wezterm", "rio", "konsole", "contour"];

/// The keyboard of this process, held by its one reader: the prompt, a question, a program of the sandbox.
static KEYBOARD: Mutex<Keyboard> = Mutex::const_new(Keyboard {
    terminal: None,
    keys: Keys::new(),
    last_read: None,
    escaped: None,
    was_ahead: false,
    is_unmarked_paste: false,
});
/// The number of those who wait for it.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Somebody has begun to wait for it.
static ASKED: Notify = Notify::const_new();

/// The keyboard.
pub struct Keyboard {
    /// Opened for this alone, because it does not block: that belongs to the open file, and standard input is shared
    /// with other processes.
    terminal: Option<AsyncFd<File>>,
    /// The keys that were read and not taken.
    keys: Keys,
    last_read: Option<Instant>,
    /// The time when an escape was taken for the key, if nothing has followed it.
    escaped: Option<Instant>,
    /// Set if what was read last had arrived before anybody read.
    was_ahead: bool,
    /// Set while a paste arrives that the terminal does not mark: until a pause.
    is_unmarked_paste: bool,
}

/// Returns whether the terminal is known to tell keys apart, and so to mark pastes.
pub fn is_modern() -> bool {
    let term = std::env::var("TERM").unwrap_or_default();
    KNOW_KEYS.iter().any(|known| term.contains(known)) && std::env::var_os("STY").is_none()
}

/// Waits until nobody else reads the keyboard.
pub async fn keyboard() -> MutexGuard<'static, Keyboard> {
    let _waiting = WaitingReader::begin();
    KEYBOARD.lock().await
}

/// The keyboard, for a thread that may block; `None` where somebody else reads it for so long.
pub fn keyboard_within(time: Duration) -> Option<MutexGuard<'static, Keyboard>> {
    let _waiting = WaitingReader::begin();
    let deadline = Instant::now() + time;
    loop {
        match KEYBOARD.try_lock() {
            Ok(keyboard) => return Some(keyboard),
            Err(_) if Instant::now() > deadline => return None,
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

struct WaitingReader;

impl WaitingReader {
    fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::SeqCst);
        ASKED.notify_waiters();
        Self
    }
}

impl Drop for WaitingReader {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Keyboard {
    /// Waits until somebody else needs the keyboard, to ask the user something.
    pub async fn is_wanted() {
        loop {
            // Made before the number is read, so that nobody is missed in between.
            let asked = ASKED.notified();
            if WAITING.load(Ordering::SeqCst) > 0 {
                return;
            }
            asked.await;
        }
    }

    /// Waits until nobody needs the keyboard any more.
    pub async fn is_free() {
        while WAITING.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The next key; `None` once the terminal is closed. Dropping the future loses nothing.
    pub async fn press(&mut self) -> Result<Option<Press>> {
        loop {
            if let Some(press) = self.keys.next_press() {
                return Ok(Some(press));
            }
            let timeout = self.timeout();
            let bytes = self.read_terminal();
            let bytes = match timeout {
                None => bytes.await?,
                Some(timeout) => match tokio::time::timeout(timeout, bytes).await {
                    Ok(bytes) => bytes?,
                    Err(_) => match self.give_up_waiting() {
                        Some(press) => return Ok(Some(press)),
                        None => continue,
                    },
                },
            };
            if bytes.is_empty() {
                return Ok(self.keys.break_paste());
            }
            if let Some(press) = self.push(&bytes) {
                return Ok(Some(press));
            }
        }
    }

    /// Returns the time for which what has arrived waits for the rest of it; `None` if nothing waits.
    fn timeout(&self) -> Option<Duration> {
        if self.keys.is_pasting() {
            return Some(PASTE_TIMEOUT);
        }
        let is_remote = || ["SSH_CONNECTION", "SSH_TTY"].iter().any(|name| std::env::var_os(name).is_some());
        self.keys.is_ambiguous().then(|| match self.keys.is_within_sequence() {
            true => SEQUENCE_TIMEOUT,
            false if is_remote() => REMOTE_ESCAPE_TIMEOUT,
            false => ESCAPE_TIMEOUT,
        })
    }

    /// The key that has arrived if nothing follows it.
    fn give_up_waiting(&mut self) -> Option<Press> {
        if self.keys.is_pasting() {
            return self.keys.break_paste();
        }
        let press = self.keys.next_as_it_is();
        self.escaped = matches!(&press, Some(Press { key: Key::Escape, .. })).then(Instant::now);
        press
    }

    /// Adds what was read. A paste that Ctrl-C has ended is returned.
    fn push(&mut self, bytes: &[u8]) -> Option<Press> {
        let is_pause = self.last_read.replace(Instant::now()).is_none_or(|last| last.elapsed() > PASTE_PAUSE);
        if self.keys.is_pasting() && is_pause && is_control_c(bytes) {
            return self.keys.break_paste();
        }
        let is_late = self.escaped.take().is_some_and(|escaped| escaped.elapsed() < SEQUENCE_TIMEOUT);
        if is_late && is_rest_of_sequence(bytes) {
            self.keys.push(b"\x1b");
        }
        let continues = self.is_unmarked_paste && !is_pause;
        self.is_unmarked_paste =
            continues || !self.was_ahead && self.keys.is_unmarked_paste(bytes) && !is_modern();
        match self.is_unmarked_paste {
            true => self.keys.push_paste(bytes),
            false => self.keys.push(bytes),
        }
        None
    }

    /// A key that has arrived already.
    pub fn press_now(&mut self) -> Option<Press> {
        self.keys.next_press()
    }

    /// The next bytes as they are typed; empty once the terminal is closed. Lines that were typed ahead stay for the prompt.
    /// Dropping the future loses nothing.
    pub async fn read(&mut self) -> Result<Vec<u8>> {
        self.read_terminal().await
    }

    async fn read_terminal(&mut self) -> Result<Vec<u8>> {
        let terminal = self.terminal()?;
        let is_ahead = rustix::io::ioctl_fionread(terminal.get_ref()).is_ok_and(|waiting| waiting > 0);
        let mut buffer = vec![0; CHUNK];
        loop {
            let mut ready = terminal.readable_mut().await.map_err(failed)?;
            match ready.try_io(|terminal| terminal.get_mut().read(&mut buffer)) {
                Ok(Ok(length)) => {
                    buffer.truncate(length);
                    let before = typed_before(length);
                    buffer[..before].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
                    self.was_ahead = is_ahead;
                    return Ok(buffer);
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                // EIO: the terminal has been closed.
                Ok(Err(_)) => return Ok(Vec::new()),
                Err(_) => {}
            }
        }
    }

    fn terminal(&mut self) -> Result<&mut AsyncFd<File>> {
        if self.terminal.is_none() {
            let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::open("/dev/tty", flags, Permissions::empty());
            let file = File::from(file.map_err(failed)?);
            // SAFETY: the file is owned by the result alone, and nothing replaces its descriptor.
            let terminal = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
            self.terminal = Some(terminal.map_err(|error| failed(std::io::Error::from(error)))?);
        }
        self.terminal.as_mut().ok_or_else(|| Error::unexpected("the terminal was lost"))
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::unexpected("the terminal cannot be read").caused_by(error)
}
