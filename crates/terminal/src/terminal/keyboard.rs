//! What the user types. There is one reader at a time, which leaves the rest to the next.

use super::key::{Keys, Press};
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
/// Between two looks at whether somebody else still needs the keyboard.
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// The keyboard of this process, held by its one reader: the prompt, a question, a program of the sandbox.
static KEYBOARD: Mutex<Keyboard> = Mutex::const_new(Keyboard { terminal: None, keys: Keys::new() });
/// How many wait for it.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Somebody has begun to wait for it.
static ASKED: Notify = Notify::const_new();

/// The keyboard.
pub struct Keyboard {
    /// Opened for this alone, because it does not block: that belongs to the open file, and standard input is shared
    /// with other processes.
    terminal: Option<AsyncFd<File>>,
    /// What was read and not taken.
    keys: Keys,
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
            let is_ambiguous = self.keys.is_ambiguous();
            let bytes = self.read_terminal();
            let bytes = match is_ambiguous {
                false => bytes.await?,
                true => match tokio::time::timeout(ESCAPE_TIMEOUT, bytes).await {
                    Ok(bytes) => bytes?,
                    Err(_) => return Ok(self.keys.next_as_it_is()),
                },
            };
            if bytes.is_empty() {
                return Ok(None);
            }
            self.keys.push(&bytes);
        }
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
        let mut buffer = vec![0; CHUNK];
        loop {
            let mut ready = terminal.readable_mut().await.map_err(failed)?;
            match ready.try_io(|terminal| terminal.get_mut().read(&mut buffer)) {
                Ok(Ok(length)) => {
                    buffer.truncate(length);
                    let before = typed_before(length);
                    buffer[..before].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
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
