//! Numbers the events of one session and hands them to its listeners.

use super::json;
use super::queue::{Entry, Queue};
use super::record::{Record, now};
use super::types::Event;
use agent_base::error::Result;
use agent_base::lock::Lock;
use std::sync::Arc;

/// A reader of a session's events. A closure is one too.
pub trait Listener: Send {
    /// Handles one event; `line` is its JSON without a line feed. An error ends the run.
    fn on_event(&mut self, record: &Record, line: &[u8]) -> Result<()>;
}

impl<F> Listener for F
where
    F: FnMut(&Record, &[u8]) -> Result<()> + Send,
{
    fn on_event(&mut self, record: &Record, line: &[u8]) -> Result<()> {
        self(record, line)
    }
}

/// The events of one session. A process has as many of these as it has sessions.
///
/// The session file is written first and synchronously: an event that was emitted is kept. Every other listener runs on
/// a thread of its own and reads from a queue, so a slow one never delays the session; [`Events::flush`] waits for
/// all of them.
pub struct Events {
    state: Lock<State>,
}

struct State {
    session: String,
    seq: u64,
    log: Option<Box<dyn Listener>>,
    has_ended: bool,
    queues: Vec<Arc<Queue>>,
}

/// One listener of [`Events`], to wait for.
#[derive(Clone)]
pub struct Subscription(Arc<Queue>);

impl Events {
    /// A bus whose first event will have number `next_seq` (1 for a new session).
    pub fn new(next_seq: u64) -> Self {
        let state = State {
            session: String::new(),
            seq: next_seq.max(1),
            log: None,
            has_ended: false,
            queues: Vec::new(),
        };
        Self { state: Lock::new(state) }
    }

    /// Names the session that all further events belong to, and its `log`, which is written synchronously before any
    /// other listener gets the event. The next event has at least number `next_seq`.
    pub fn begin(&self, session: &str, next_seq: u64, log: Box<dyn Listener>) {
        let mut state = self.state.lock();
        session.clone_into(&mut state.session);
        state.seq = state.seq.max(next_seq);
        state.log = Some(log);
    }

    /// Adds a listener, which gets all further events on a thread of its own.
    pub fn listen(&self, listener: Box<dyn Listener>) -> Subscription {
        let queue = Queue::start(listener);
        self.state.lock().queues.push(Arc::clone(&queue));
        Subscription(queue)
    }

    /// Numbers `event`, writes it to the log and queues it for every other listener.
    ///
    /// # Errors
    /// The log could not be written (no listener gets the event then), or a listener has failed at an earlier event.
    pub fn emit(&self, event: Event) -> Result<()> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Ok(());
        }
        let record = Record { seq: state.seq, time: now(), session: state.session.clone(), event };
        let line = json::to_vec(&record)?;
        state.seq += 1;
        if let Some(log) = &mut state.log {
            log.on_event(&record, &line)?;
        }
        let entry = Arc::new(Entry { record, line });
        state.queues.iter().map(|queue| queue.push(&entry)).fold(Ok(()), Result::and)
    }

    /// Closes the log, so that it can be opened again for the same session, which then begins once more.
    pub fn close_log(&self) {
        self.state.lock().log = None;
    }

    /// Ends the session: its log is closed, so that another process can open it, and what is emitted from now on is dropped.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.log = None;
    }

    /// Waits until every listener has handled every event emitted so far: before the session ends.
    ///
    /// # Errors
    /// A listener has failed.
    pub async fn flush(&self) -> Result<()> {
        let queues = self.state.lock().queues.clone();
        let mut flushed = Ok(());
        for queue in queues {
            flushed = flushed.and(queue.flush().await);
        }
        flushed
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.state.lock().queues.iter().for_each(|queue| queue.close());
    }
}

impl Subscription {
    /// Waits until the listener has handled every event emitted so far: before a question is asked.
    pub async fn flush(&self) -> Result<()> {
        self.0.flush().await
    }

    /// [`Subscription::flush`] for a caller that may block.
    pub fn flush_blocking(&self) -> Result<()> {
        self.0.flush_blocking()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_kept_or_shown_after_the_end() {
        let (seen, kept) = (Arc::new(Lock::new(0)), Arc::new(Lock::new(0)));
        let counting = |count: &Arc<Lock<u32>>| {
            let count = Arc::clone(count);
            move |_: &Record, _: &[u8]| {
                *count.lock() += 1;
                Ok(())
            }
        };
        let events = Events::new(1);
        events.begin("session", 1, Box::new(counting(&kept)));
        events.listen(Box::new(counting(&seen)));
        events.emit(Event::Notice { text: "one".to_owned() }).expect("kept");
        events.end();
        assert_eq!(Arc::strong_count(&kept), 1, "the log is closed");
        events.emit(Event::Notice { text: "two".to_owned() }).expect("dropped");
        events.flush().await.expect("flushed");
        assert_eq!((*seen.lock(), *kept.lock()), (1, 1));
    }
}
