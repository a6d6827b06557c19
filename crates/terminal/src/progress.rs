//! The progress display: a spinner with the elapsed time, the last lines of output, and the bar of a transfer. Drawn on
//! stderr if that is a terminal.

use super::live::Tail;
use super::stderr::Canvas;
use super::style::{Colours, DIM};
use agent_base::lock::Lock;
use agent_base::sanitise::{one_line, truncate};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval in which the spinner and the lines beneath it are redrawn.
const TICK: Duration = Duration::from_millis(100);
const DRAWS_A_SECOND: u8 = 12;
/// The elapsed time is shown from here on.
const SHOW_ELAPSED: Duration = Duration::from_secs(1);

/// A transfer that takes longer than this gets a bar.
const SHOW_TRANSFER: Duration = Duration::from_millis(300);

/// The spinner and what belongs to it. A cheap handle: clones draw on the same lines.
///
/// A piece of output costs a lock and a copy; drawing happens on a thread of its own, ten times a second.
#[derive(Clone)]
pub struct Progress {
    /// `None` if nothing is ever drawn.
    drawn: Option<Arc<DrawnProgress>>,
}

struct DrawnProgress {
    bars: MultiProgress,
    style: ProgressStyle,
    shown: Arc<Lock<ProgressText>>,
    running: Lock<RunningBars>,
}

/// The text beside and beneath the spinner.
#[derive(Default)]
struct ProgressText {
    activity: String,
    tail: Tail,
    /// The lines that the user types meanwhile.
    typed: Vec<String>,
}

#[derive(Default)]
struct RunningBars {
    spinner: Option<ProgressBar>,
    transfer: Option<Transfer>,
    /// Number of live [`Hold`]s.
    holds: u32,
}

/// A download or a copy. Most end before a bar is drawn.
struct Transfer {
    since: Instant,
    bar: Option<ProgressBar>,
}

/// Keeps [`Progress`] from drawing for as long as it lives.
pub struct Hold(Progress);

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(drawn) = &self.0.drawn {
            drawn.running.lock().holds -= 1;
        }
    }
}

/// Keeps [`Progress`] from drawing for as long as it lives, and shows what was there again after that.
pub struct Paused {
    hold: Option<Hold>,
    /// The time that the spinner showed.
    elapsed: Option<Duration>,
}

impl Drop for Paused {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        let progress = hold.0.clone();
        drop(hold);
        if let (Some(drawn), Some(elapsed)) = (&progress.drawn, self.elapsed) {
            drawn.spinner_since(elapsed);
        }
    }
}

impl Progress {
    /// Draws on stderr if that is a terminal that can move its cursor.
    pub fn stderr() -> Self {
        let Some(bars) = canvas() else { return Self::hidden() };
        let shown = Arc::default();
        let style = spinner_style(Colours::of(&std::io::stderr()), Arc::clone(&shown));
        Self { drawn: Some(Arc::new(DrawnProgress { bars, style, shown, running: Lock::default() })) }
    }

    /// Draws nothing.
    pub fn hidden() -> Self {
        Self { drawn: None }
    }

    /// Shows the spinner with `activity` (sanitised, one line) beside it, and restarts the time.
    pub fn show(&self, activity: &str) {
        let Some(drawn) = &self.drawn else { return };
        {
            let mut shown = drawn.shown.lock();
            activity.clone_into(&mut shown.activity);
            shown.tail.clear();
        }
        drawn.spinner().inspect(ProgressBar::reset_elapsed);
    }

    /// Changes the text beside the spinner; the time goes on.
    pub fn update(&self, activity: &str) {
        let Some(drawn) = &self.drawn else { return };
        activity.clone_into(&mut drawn.shown.lock().activity);
        drawn.spinner();
    }

    /// Shows what the user types (sanitised lines) beneath everything else, at once.
    pub fn typed(&self, lines: Vec<String>) {
        let Some(drawn) = &self.drawn else { return };
        if std::mem::replace(&mut drawn.shown.lock().typed, lines.clone()) != lines {
            drawn.running.lock().spinner.clone().inspect(ProgressBar::force_draw);
        }
    }

    /// Adds output, whose last lines are shown beneath the spinner.
    pub fn output(&self, data: &str) {
        if let Some(drawn) = &self.drawn {
            drawn.shown.lock().tail.push(data);
        }
    }

    /// Removes the output beneath the spinner.
    pub fn clear_output(&self) {
        if let Some(drawn) = &self.drawn {
            drawn.shown.lock().tail.clear();
        }
    }

    /// Shows the progress of a transfer, in bytes. It ends when `done` reaches `total`.
    pub fn transfer(&self, what: &str, done: u64, total: u64) {
        let Some(drawn) = &self.drawn else { return };
        let mut running = drawn.running.lock();
        if total > 0 && done >= total {
            running.transfer.take().and_then(|transfer| transfer.bar).inspect(ProgressBar::finish_and_clear);
            return;
        }
        let is_held = running.holds > 0;
        let transfer = running.transfer.get_or_insert_with(|| Transfer { since: Instant::now(), bar: None });
        if is_held || transfer.since.elapsed() < SHOW_TRANSFER {
            return;
        }
        let add = || drawn.bars.add(ProgressBar::no_length().with_style(transfer_style()));
        let bar = transfer.bar.get_or_insert_with(add);
        bar.set_prefix(one_line(what, 60));
        bar.set_length(total);
        bar.set_position(done);
    }

    /// Clears the progress and draws nothing until the hold is dropped, while the user is asked something.
    pub fn hold(&self) -> Hold {
        if let Some(drawn) = &self.drawn {
            drawn.running.lock().holds += 1;
        }
        self.clear();
        Hold(self.clone())
    }

    /// Clears the progress and draws nothing until the result is dropped, while the process is stopped.
    pub fn pause(&self) -> Paused {
        let Some(drawn) = &self.drawn else { return Paused { hold: None, elapsed: None } };
        let mut running = drawn.running.lock();
        running.holds += 1;
        let spinner = running.spinner.take();
        let elapsed = spinner.as_ref().map(ProgressBar::elapsed);
        spinner.inspect(ProgressBar::finish_and_clear);
        Paused { hold: Some(Hold(self.clone())), elapsed }
    }

    /// Runs `print` with the progress removed from the screen.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.drawn {
            Some(drawn) => drawn.bars.suspend(print),
            None => print(),
        }
    }

    pub fn clear(&self) {
        if let Some(drawn) = &self.drawn {
            drawn.clear();
        }
    }
}

/// Returns the place where progress is drawn: on stderr, if that is a terminal that can move its cursor.
pub(super) fn canvas() -> Option<MultiProgress> {
    let can_move = std::env::var("TERM").is_ok_and(|term| term != "dumb");
    if !std::io::stderr().is_terminal() || !can_move {
        return None;
    }
    let target = ProgressDrawTarget::term_like_with_hz(Box::<Canvas>::default(), DRAWS_A_SECOND);
    Some(MultiProgress::with_draw_target(target))
}

impl DrawnProgress {
    /// The spinner, unless the progress is held.
    fn spinner(&self) -> Option<ProgressBar> {
        self.spinner_since(Duration::ZERO)
    }

    /// The spinner, which shows this time at first if it was not there.
    fn spinner_since(&self, elapsed: Duration) -> Option<ProgressBar> {
        let mut running = self.running.lock();
        if running.holds > 0 {
            return None;
        }
        let start = || {
            let spinner = self.bars.insert(0, ProgressBar::no_length().with_style(self.style.clone()));
            let spinner = spinner.with_elapsed(elapsed);
            spinner.enable_steady_tick(TICK);
            spinner
        };
        Some(running.spinner.get_or_insert_with(start).clone())
    }

    fn clear(&self) {
        let mut running = self.running.lock();
        let transfer = running.transfer.as_mut().and_then(|transfer| transfer.bar.take());
        for bar in [running.spinner.take(), transfer].into_iter().flatten() {
            bar.finish_and_clear();
        }
        self.shown.lock().tail.clear();
    }
}

impl Drop for DrawnProgress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `⠋ running cargo test 12 s`, and the tail beneath.
fn spinner_style(colours: Colours, shown: Arc<Lock<ProgressText>>) -> ProgressStyle {
    let status = move |state: &ProgressState, out: &mut dyn Write| {
        let columns = super::wrap::terminal_columns(&std::io::stderr()).saturating_sub(1);
        let elapsed = elapsed_text(state.elapsed());
        let shown = shown.lock();
        let activity = truncate(&shown.activity, columns.saturating_sub(3 + elapsed.len()));
        let _ = write!(out, "{activity}{}", colours.paint(DIM, elapsed));
        for line in shown.tail.lines(columns.saturating_sub(4)) {
            let _ = write!(out, "\n{}", colours.paint(DIM, format_args!("  │ {line}")));
        }
        for line in &shown.typed {
            let line = truncate(line, columns.saturating_sub(2));
            let line = if line.starts_with('›') { line } else { colours.paint(DIM, line) };
            let _ = write!(out, "\n  {line}");
        }
    };
    // The template is a constant that parses.
    ProgressStyle::with_template("{spinner} {status}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .with_key("status", status)
}

fn transfer_style() -> ProgressStyle {
    // The template is a constant that parses.
    ProgressStyle::with_template("  {prefix} {bar:30} {bytes}/{total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn elapsed_text(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        _ if elapsed < SHOW_ELAPSED => String::new(),
        seconds @ 0..60 => format!(" {seconds} s"),
        seconds => format!(" {} min {} s", seconds / 60, seconds % 60),
    }
}
