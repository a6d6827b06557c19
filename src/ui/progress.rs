//! The moving part of the screen: a spinner with the time that passes, the last lines of what is being
//! written, and the bar of an image that is pulled. On stderr, and only where that is a terminal.

use super::live::Tail;
use super::style::{Colours, DIM};
use super::wrap;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How often the spinner moves and the lines beneath it are drawn anew.
const TICK: Duration = Duration::from_millis(100);
/// The time that passes is shown from here on.
const SHOW_ELAPSED: Duration = Duration::from_secs(1);

/// The spinner and what belongs to it. A cheap handle: clones draw on the same lines.
///
/// A piece of output costs a lock and a copy; drawing happens on a thread of its own, ten times a second.
#[derive(Clone)]
pub struct Progress {
    /// None where nothing is ever drawn.
    drawn: Option<Arc<Drawn>>,
}

struct Drawn {
    bars: MultiProgress,
    style: ProgressStyle,
    shown: Arc<Mutex<Shown>>,
    running: Mutex<Running>,
}

/// What the spinner's lines say.
#[derive(Default)]
struct Shown {
    activity: String,
    tail: Tail,
}

#[derive(Default)]
struct Running {
    spinner: Option<ProgressBar>,
    pull: Option<ProgressBar>,
}

impl Progress {
    /// Draws on stderr, where that is a terminal that can move its cursor.
    pub fn stderr() -> Self {
        let stderr = std::io::stderr();
        if !stderr.is_terminal() || std::env::var("TERM").is_ok_and(|term| term == "dumb") {
            return Self::hidden();
        }
        let shown = Arc::default();
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(12));
        let style = spinner_style(Colours::of(&stderr), Arc::clone(&shown));
        Self { drawn: Some(Arc::new(Drawn { bars, style, shown, running: Mutex::default() })) }
    }

    /// Draws nothing.
    pub fn hidden() -> Self {
        Self { drawn: None }
    }

    /// Whether anything is ever drawn.
    pub fn is_visible(&self) -> bool {
        self.drawn.is_some()
    }

    /// Shows the spinner with `activity` (sanitised, one line) beside it; the time starts anew.
    pub fn show(&self, activity: &str) {
        let Some(drawn) = &self.drawn else { return };
        *lock(&drawn.shown) = Shown { activity: activity.to_string(), tail: Tail::default() };
        drawn.spinner().reset_elapsed();
    }

    /// Takes a piece of what is being written; its last lines are shown beneath the spinner.
    pub fn output(&self, data: &str) {
        if let Some(drawn) = &self.drawn {
            lock(&drawn.shown).tail.push(data);
        }
    }

    /// Shows nothing beneath the spinner any more.
    pub fn clear_output(&self) {
        if let Some(drawn) = &self.drawn {
            lock(&drawn.shown).tail.clear();
        }
    }

    /// Shows how far `what` is pulled: bytes done and bytes in all. Done is the end of it.
    pub fn pull(&self, what: &str, done: u64, total: u64) {
        let Some(drawn) = &self.drawn else { return };
        let mut running = lock(&drawn.running);
        if total > 0 && done >= total {
            running.pull.take().inspect(ProgressBar::finish_and_clear);
            return;
        }
        let bar = running
            .pull
            .get_or_insert_with(|| drawn.bars.add(ProgressBar::no_length().with_style(pull_style())));
        bar.set_prefix(super::sanitise::one_line(what, 60));
        bar.set_length(total);
        bar.set_position(done);
    }

    /// Runs `print` with nothing of this on the screen.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.drawn {
            Some(drawn) => drawn.bars.suspend(print),
            None => print(),
        }
    }

    /// Takes everything off the screen.
    pub fn clear(&self) {
        let Some(drawn) = &self.drawn else { return };
        let running = std::mem::take(&mut *lock(&drawn.running));
        for bar in [running.spinner, running.pull].into_iter().flatten() {
            bar.finish_and_clear();
        }
        lock(&drawn.shown).tail.clear();
    }
}

impl Drawn {
    fn spinner(&self) -> ProgressBar {
        let mut running = lock(&self.running);
        let start = || {
            let spinner = self.bars.insert(0, ProgressBar::no_length().with_style(self.style.clone()));
            spinner.enable_steady_tick(TICK);
            spinner
        };
        running.spinner.get_or_insert_with(start).clone()
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        let running = std::mem::take(&mut *lock(&self.running));
        for bar in [running.spinner, running.pull].into_iter().flatten() {
            bar.finish_and_clear();
        }
    }
}

/// `⠋ running cargo test 12 s`, and the tail beneath.
fn spinner_style(colours: Colours, shown: Arc<Mutex<Shown>>) -> ProgressStyle {
    let status = move |state: &ProgressState, out: &mut dyn Write| {
        let columns = super::wrap::terminal_columns(&std::io::stderr()).saturating_sub(1);
        let elapsed = elapsed_text(state.elapsed());
        let shown = lock(&shown);
        let activity = wrap::truncate(&shown.activity, columns.saturating_sub(3 + elapsed.len()));
        let _ = write!(out, "{activity}{}", colours.paint(DIM, elapsed));
        for line in shown.tail.lines(columns.saturating_sub(4)) {
            let _ = write!(out, "\n{}", colours.paint(DIM, format_args!("  │ {line}")));
        }
    };
    // The template is a constant that parses.
    ProgressStyle::with_template("{spinner} {status}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .with_key("status", status)
}

fn pull_style() -> ProgressStyle {
    // The template is a constant that parses.
    ProgressStyle::with_template("  pulling {prefix} {bar:30} {bytes}/{total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn elapsed_text(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        _ if elapsed < SHOW_ELAPSED => String::new(),
        seconds @ 0..60 => format!(" {seconds} s"),
        seconds => format!(" {} min {} s", seconds / 60, seconds % 60),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is drawn is allowed to be half-done for a moment.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
