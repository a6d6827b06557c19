//! What the user types, as bytes. There is one reader at a time.

use crate::error::{Error, Result};
use rustix::fs::{Mode as Permissions, OFlags};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, MutexGuard, Notify};

/// Bytes that are read at once.
const CHUNK: usize = 4 << 10;

/// The keyboard of this process, held by its one reader: the prompt, a question, a program of the sandbox.
static KEYBOARD: Mutex<Keyboard> = Mutex::const_new(Keyboard { terminal: None });
/// How many wait for it.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Somebody has begun to wait for it.
static ASKED: Notify = Notify::const_new();

/// The keyboard.
pub struct Keyboard {
    /// Opened for this alone, because it does not block: that belongs to the open file, and standard input is shared
    /// with other processes.
    terminal: Option<AsyncFd<File>>,
}

/// Waits until nobody else reads the keyboard.
pub async fn keyboard() -> MutexGuard<'static, Keyboard> {
    let _waiting = Waiting::begin();
    KEYBOARD.lock().await
}

/// The keyboard, unless somebody else reads it.
pub fn try_keyboard() -> Option<MutexGuard<'static, Keyboard>> {
    KEYBOARD.try_lock().ok()
}

struct Waiting;

impl Waiting {
    fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::SeqCst);
        ASKED.notify_waiters();
        Self
    }
}

impl Drop for Waiting {
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

    /// The next bytes that were typed; empty once the terminal is closed. Dropping the future loses nothing.
    pub async fn read(&mut self) -> Result<Vec<u8>> {
        let terminal = self.terminal()?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let mut ready = terminal.readable_mut().await.map_err(failed)?;
            match ready.try_io(|terminal| terminal.get_mut().read(&mut buffer)) {
                Ok(Ok(length)) => {
                    buffer.truncate(length);
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
