//! The queue between a session and one listener, bounded in memory and spilled to a temporary file beyond.

use super::bus::Listener;
use super::record::Record;
use agent_base::error::{Error, Result};
use agent_base::lock::{Lock, wait};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar};
use std::thread;
use tokio::sync::Notify;

/// Bytes of waiting events that stay in memory.
const MAX_MEMORY: usize = 4 << 20;
/// Bytes of waiting events in the temporary file from which live-only events are left out: `seq` shows the gap.
const MAX_SPOOL: u64 = 1 << 30;
/// Bytes in the temporary file at which the listener is stopped with an error.
const SPOOL_LIMIT: u64 = 2 * MAX_SPOOL;

/// A numbered event and its JSON, without a line feed.
pub(super) struct Entry {
    pub record: Record,
    pub line: Vec<u8>,
}

/// Waiting events of one listener, which runs on a thread of its own.
pub(super) struct Queue {
    backlog: Lock<Backlog>,
    /// Something was pushed, or the queue was closed.
    pushed: Condvar,
    /// Something was delivered, or the listener ended: for threads and for tasks.
    delivered: Condvar,
    delivered_async: Notify,
}

#[derive(Default)]
struct Backlog {
    /// The oldest events.
    memory: VecDeque<Arc<Entry>>,
    memory_bytes: usize,
    /// The events after those in memory.
    spool: Option<Spool>,
    pushed: u64,
    delivered: u64,
    /// No event will follow.
    is_closed: bool,
    /// The listener takes no more events.
    has_ended: bool,
    failure: Option<Error>,
}

impl Queue {
    /// Starts the thread of `listener`.
    pub(super) fn start(listener: Box<dyn Listener>) -> Arc<Self> {
        let queue = Arc::new(Self {
            backlog: Lock::default(),
            pushed: Condvar::new(),
            delivered: Condvar::new(),
            delivered_async: Notify::new(),
        });
        let reader = Arc::clone(&queue);
        let started = thread::Builder::new().name("events".to_owned()).spawn(move || reader.run(listener));
        if let Err(error) = started {
            let error =
                Error::unexpected("the thread of an event listener could not be started").caused_by(error);
            queue.end(Some(error));
        }
        queue
    }

    /// Adds an event without waiting for the listener.
    ///
    /// # Errors
    /// The listener has failed, or is too far behind.
    pub(super) fn push(&self, entry: &Arc<Entry>) -> Result<()> {
        let mut backlog = self.backlog.lock();
        if let Some(failure) = &backlog.failure {
            return Err(failure.repeat());
        }
        if backlog.has_ended {
            return Ok(());
        }
        let pushed = backlog.push(entry);
        drop(backlog);
        self.pushed.notify_one();
        pushed.inspect_err(|error| self.end(Some(error.repeat())))
    }

    /// Tells the listener's thread to end after the waiting events.
    pub(super) fn close(&self) {
        self.backlog.lock().is_closed = true;
        self.pushed.notify_one();
    }

    /// Waits until the listener has handled every event pushed so far.
    pub(super) async fn flush(&self) -> Result<()> {
        let target = self.backlog.lock().pushed;
        loop {
            // Registered before the check, so that no delivery in between is missed.
            let mut delivered = std::pin::pin!(self.delivered_async.notified());
            delivered.as_mut().enable();
            if let Some(result) = self.backlog.lock().flushed(target) {
                return result;
            }
            delivered.await;
        }
    }

    /// [`Queue::flush`] for a caller that may block.
    pub(super) fn flush_blocking(&self) -> Result<()> {
        let mut backlog = self.backlog.lock();
        let target = backlog.pushed;
        loop {
            match backlog.flushed(target) {
                Some(result) => return result,
                None => backlog = wait(&self.delivered, backlog),
            }
        }
    }

    fn run(&self, mut listener: Box<dyn Listener>) {
        // Also when the listener panics.
        let _end = EndOnDrop(self);
        loop {
            let handled = match self.next() {
                Ok(Some(entry)) => listener.on_event(&entry.record, &entry.line),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                return self.end(Some(error));
            }
            self.backlog.lock().delivered += 1;
            self.notify_delivered();
        }
    }

    /// The next event; `None` if the queue is closed and empty, or the listener has failed.
    fn next(&self) -> Result<Option<Arc<Entry>>> {
        let mut backlog = self.backlog.lock();
        loop {
            if backlog.has_ended {
                return Ok(None);
            }
            if let Some(entry) = backlog.pop()? {
                return Ok(Some(entry));
            }
            if backlog.is_closed {
                return Ok(None);
            }
            backlog = wait(&self.pushed, backlog);
        }
    }

    fn end(&self, failure: Option<Error>) {
        let mut backlog = self.backlog.lock();
        backlog.has_ended = true;
        backlog.failure = backlog.failure.take().or(failure);
        (backlog.memory, backlog.spool) = (VecDeque::new(), None);
        drop(backlog);
        self.notify_delivered();
    }

    fn notify_delivered(&self) {
        self.delivered.notify_all();
        self.delivered_async.notify_waiters();
    }
}

struct EndOnDrop<'a>(&'a Queue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

impl Backlog {
    fn push(&mut self, entry: &Arc<Entry>) -> Result<()> {
        let is_spooled = self.spool.as_ref().is_some_and(|spool| !spool.is_empty());
        if !is_spooled && self.memory_bytes + entry.line.len() <= MAX_MEMORY {
            self.memory_bytes += entry.line.len();
            self.memory.push_back(Arc::clone(entry));
            self.pushed += 1;
            return Ok(());
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => none.insert(Spool::create()?),
        };
        match spool.size() {
            size if size >= SPOOL_LIMIT => {
                return Err(Error::unexpected(format!(
                    "a reader of the session's events is {} GiB behind",
                    SPOOL_LIMIT >> 30
                ))
                .hint("the session file is complete: read it instead"));
            }
            size if size >= MAX_SPOOL && entry.record.event.is_live_only() => return Ok(()),
            _ => spool.push(&entry.line)?,
        }
        self.pushed += 1;
        Ok(())
    }

    fn pop(&mut self) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) = self.memory.pop_front() {
            self.memory_bytes -= entry.line.len();
            return Ok(Some(entry));
        }
        let line = match &mut self.spool {
            Some(spool) => spool.pop()?,
            None => None,
        };
        let entry = |line: Vec<u8>| Ok(Arc::new(Entry { record: serde_json::from_slice(&line)?, line }));
        line.map(entry).transpose()
    }

    /// The result of a flush up to event `target`; `None` while the listener is behind.
    fn flushed(&self, target: u64) -> Option<Result<()>> {
        match &self.failure {
            Some(failure) => Some(Err(failure.repeat())),
            None => (self.has_ended || self.delivered >= target).then_some(Ok(())),
        }
    }
}

/// Lines in a temporary file that has no name, each after its length.
struct Spool {
    file: File,
    read: u64,
    written: u64,
}

impl Spool {
    fn create() -> Result<Self> {
        let file = tempfile::tempfile().map_err(|error| {
            Error::unexpected("a temporary file for waiting events could not be created")
                .caused_by(error)
                .hint("set TMPDIR to a directory that you can write to")
        })?;
        Ok(Self { file, read: 0, written: 0 })
    }

    fn is_empty(&self) -> bool {
        self.read == self.written
    }

    fn size(&self) -> u64 {
        self.written
    }

    fn push(&mut self, line: &[u8]) -> Result<()> {
        let length = line.len() as u64;
        self.file.write_all_at(&length.to_le_bytes(), self.written)?;
        self.file.write_all_at(line, self.written + 8)?;
        self.written += 8 + length;
        Ok(())
    }

    fn pop(&mut self) -> Result<Option<Vec<u8>>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut length = [0; 8];
        self.file.read_exact_at(&mut length, self.read)?;
        // At most the length of a line that was in memory when it was written.
        let mut line = vec![0; u64::from_le_bytes(length) as usize];
        self.file.read_exact_at(&mut line, self.read + 8)?;
        self.read += 8 + line.len() as u64;
        if self.is_empty() {
            (self.read, self.written) = (0, 0);
            self.file.set_len(0)?;
        }
        Ok(Some(line))
    }
}
