//! One terminal: its shell, what it has written, and the tabs that see it.
//!
//! The shell is held up while a tab has not shown what it was sent, so that a flood stops with Ctrl-C and costs no
//! memory. A tab that shows nothing for [`STALL`] is no longer waited for; it misses what is not kept.

use super::scrollback::Scrollback;
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_sandbox::wire::TerminalSize;
use agent_sandbox::{Controls, Process, ProcessEvent};
use agent_tools::ending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Bytes that a tab is sent before it has said that it shows them.
pub const WINDOW: u64 = 128 << 10;
/// The time for which the shell waits for a tab that shows nothing.
const STALL: Duration = Duration::from_secs(2);
/// Tabs that see one terminal.
const MAX_VIEWERS: usize = 8;
/// Messages with input that wait for the shell to take them.
const MAX_INPUTS: usize = 32;

/// A shell in a terminal.
pub struct Terminal {
    /// Its number in its session.
    pub number: u64,
    controls: Controls,
    state: Lock<TerminalState>,
    /// Output, an end, input that was taken, what a tab has shown.
    news: watch::Sender<()>,
    input: mpsc::Sender<(u64, Vec<u8>)>,
    /// Called when the terminal was used, and with `true` when it has ended.
    watch: Arc<dyn Fn(bool) + Send + Sync>,
    tasks: Lock<Vec<AbortHandle>>,
}

struct TerminalState {
    output: Scrollback,
    end: Option<String>,
    viewers: Vec<Viewer>,
    next_viewer: u64,
    size: TerminalSize,
}

/// A tab that sees a terminal.
struct Viewer {
    number: u64,
    /// The place up to which it has shown the output.
    shown: u64,
    /// The time when it last showed something, or had less than [`WINDOW`] left to show.
    active: Instant,
    /// Messages of its input that the shell has taken.
    taken: u64,
}

/// The next thing that a tab is sent.
pub enum Next {
    /// Nothing, for now.
    Wait,
    /// The position from which on output was kept: all before is missed.
    Gap(u64),
    /// Output.
    Output(Vec<u8>),
    /// All was sent, and no more follows.
    End(String),
}

impl Terminal {
    /// The terminal that `process` runs in.
    pub fn follow(
        number: u64,
        process: Process,
        size: TerminalSize,
        watch: Arc<dyn Fn(bool) + Send + Sync>,
    ) -> Arc<Self> {
        let (input, inputs) = mpsc::channel(MAX_INPUTS);
        let state = TerminalState {
            output: Scrollback::default(),
            end: None,
            viewers: Vec::new(),
            next_viewer: 0,
            size,
        };
        let terminal = Arc::new(Self {
            number,
            controls: process.controls(),
            state: Lock::new(state),
            news: watch::Sender::new(()),
            input,
            watch,
            tasks: Lock::default(),
        });
        let reading = tokio::spawn(read(Arc::clone(&terminal), process));
        let feeding = tokio::spawn(feed(Arc::clone(&terminal), inputs));
        *terminal.tasks.lock() = vec![reading.abort_handle(), feeding.abort_handle()];
        terminal
    }

    /// Returns whether its shell has ended.
    pub fn has_ended(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// Kills what runs in it.
    pub fn close(&self) {
        self.end("closed".to_owned());
        // With the process itself, which is dropped with its reader.
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }

    fn end(&self, how: String) {
        self.state.lock().end.get_or_insert(how);
        self.news.send_replace(());
    }

    /// A tab that sees it from now on.
    ///
    /// # Errors
    /// `Conflict` where there are too many.
    pub fn view(self: &Arc<Self>) -> Result<View> {
        let mut state = self.state.lock();
        if state.viewers.len() >= MAX_VIEWERS {
            return Err(Error::new(Kind::Conflict, "too many tabs show this terminal").hint("close some"));
        }
        let number = state.next_viewer;
        state.next_viewer += 1;
        let (entry, end) = (state.output.entry(), state.output.end());
        state.viewers.push(Viewer { number, shown: entry, active: Instant::now(), taken: 0 });
        drop(state);
        Ok(View { terminal: Arc::clone(self), number, sent: entry, entry, end, news: self.news.subscribe() })
    }

    /// Returns the time until which the shell has to wait for a tab at most; `None` where it waits for none.
    fn held_until(&self) -> Option<Instant> {
        let state = self.state.lock();
        let end = state.output.end();
        let behind = state.viewers.iter().filter(|viewer| end - viewer.shown.min(end) >= WINDOW);
        behind.map(|viewer| viewer.active + STALL).filter(|until| *until > Instant::now()).max()
    }

    async fn wait_for_viewers(&self) {
        let mut news = self.news.subscribe();
        while let Some(until) = self.held_until() {
            let _ = tokio::time::timeout_at(until.into(), news.changed()).await;
        }
    }
}

async fn read(terminal: Arc<Terminal>, mut process: Process) {
    let how = loop {
        terminal.wait_for_viewers().await;
        match process.next().await {
            Ok(ProcessEvent::Output(_, bytes)) => terminal.wrote(&bytes),
            Ok(ProcessEvent::Gap(bytes)) => {
                terminal.wrote(format!("\r\n… {bytes} bytes are left out …\r\n").as_bytes());
            }
            Ok(ProcessEvent::Finished(finished)) => break ending(&finished),
            Err(error) => break error.to_string(),
        }
    };
    terminal.end(how);
    (terminal.watch)(true);
}

/// Feeds the shell, which may take nothing for long: the tabs are served meanwhile.
async fn feed(terminal: Arc<Terminal>, mut inputs: mpsc::Receiver<(u64, Vec<u8>)>) {
    while let Some((viewer, bytes)) = inputs.recv().await {
        if !terminal.controls.write(&bytes).await {
            return;
        }
        let mut state = terminal.state.lock();
        if let Some(viewer) = state.viewers.iter_mut().find(|known| known.number == viewer) {
            viewer.taken += 1;
        }
        drop(state);
        terminal.news.send_replace(());
    }
}

impl Terminal {
    fn wrote(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        // One that is not held up by what it has to show did not stall until now.
        let end = state.output.end();
        for viewer in state.viewers.iter_mut().filter(|viewer| end - viewer.shown.min(end) < WINDOW) {
            viewer.active = Instant::now();
        }
        state.output.push(bytes);
        self.news.send_replace(());
    }
}

/// One tab's sight of a terminal; dropped, the tab is forgotten.
pub struct View {
    terminal: Arc<Terminal>,
    number: u64,
    sent: u64,
    /// The place of the first byte that this tab is sent.
    pub entry: u64,
    /// The place up to which the output was written before this tab came.
    pub end: u64,
    news: watch::Receiver<()>,
}

impl View {
    /// Waits until there may be something else to send.
    pub async fn changed(&mut self) {
        let _ = self.news.changed().await;
    }

    /// Returns what to send now: output of at most `limit` bytes.
    pub fn next(&mut self, limit: usize) -> Next {
        self.news.mark_unchanged();
        let mut state = self.terminal.state.lock();
        let state = &mut *state;
        if self.sent == state.output.end() {
            return state.end.clone().map_or(Next::Wait, Next::End);
        }
        let viewer = state.viewers.iter_mut().find(|viewer| viewer.number == self.number);
        let Some(viewer) = viewer.filter(|viewer| self.sent.saturating_sub(viewer.shown) < WINDOW) else {
            return Next::Wait;
        };
        if self.sent < state.output.begin() {
            self.sent = state.output.entry();
            viewer.shown = self.sent;
            return Next::Gap(self.sent);
        }
        let bytes = state.output.read(self.sent, limit);
        self.sent += bytes.len() as u64;
        Next::Output(bytes)
    }

    /// Messages of its input that the shell has taken.
    pub fn taken(&self) -> u64 {
        let state = self.terminal.state.lock();
        state.viewers.iter().find(|viewer| viewer.number == self.number).map_or(0, |viewer| viewer.taken)
    }

    /// The tab shows the output up to `place`.
    pub fn shown(&self, place: u64) {
        let mut state = self.terminal.state.lock();
        if let Some(viewer) = state.viewers.iter_mut().find(|viewer| viewer.number == self.number) {
            // It cannot have shown what it was not sent.
            viewer.shown = viewer.shown.max(place.min(self.sent));
            viewer.active = Instant::now();
        }
        drop(state);
        self.terminal.news.send_replace(());
    }

    /// Passes on what was typed or pasted.
    ///
    /// # Errors
    /// More waits already than the page is to send before it is taken.
    pub fn input(&self, bytes: Vec<u8>) -> Result<()> {
        (self.terminal.watch)(false);
        match self.terminal.input.try_send((self.number, bytes)) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(Error::new(Kind::Limit, "more input waits than the program takes"))
            }
        }
    }

    /// The tab shows the terminal in this size. Where it has that size and `must_draw`, what runs in it draws itself anew.
    pub fn resize(&self, size: TerminalSize, must_draw: bool) {
        let old = std::mem::replace(&mut self.terminal.state.lock().size, size);
        if old == size && must_draw {
            let other = TerminalSize { rows: size.rows.saturating_sub(1).max(1), ..size };
            self.terminal.controls.resize(other);
        }
        if old != size || must_draw {
            self.terminal.controls.resize(size);
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.terminal.state.lock().viewers.retain(|viewer| viewer.number != self.number);
        self.terminal.news.send_replace(());
    }
}
