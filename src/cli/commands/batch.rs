//! `agent batch`: many tasks, and `agent batch status`.

use crate::agent::{Budget, Spent, Stop};
use crate::batch::{
    Batch, Halt, Models, Observer, Output, Settings, Status, Summary, Task, TaskResult, Update, read_tasks,
};
use crate::cli::config::Config;
use crate::cli::endpoint::ManyModels;
use crate::cli::options::{CheckTimeArg, JsonArg, LimitArgs, Options, WorkArgs};
use crate::cli::print::{self, print};
use crate::cli::sandbox_settings;
use crate::cli::signals::{Received, listen_with};
use crate::cli::ui::progress::Progress;
use crate::cli::ui::stderr;
use crate::cli::ui::style::{BAD, Colours, DIM, GOOD, WARN};
use crate::count_text::counted;
use crate::duration_text::duration_text;
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::lock::Lock;
use crate::log::Store;
use crate::machine::Machine;
use crate::model::Limiter;
use crate::sandbox::removals;
use crate::sanitise::one_line;
use crate::session::CheckRules;
use clap::{Args, Subcommand};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time for which the end of a batch waits until the sandboxes of its tasks are removed.
const REMOVALS: Duration = Duration::from_secs(120);

const EXAMPLES: &str = "\
Examples:
  agent batch tasks.jsonl --out results --parallel 16
  agent batch prompts/ --out results -C ~/project      one task for each prompts/NAME.md
  agent batch tasks.jsonl --out results --retry-failed again what failed
  agent batch status results                           from another terminal

Started again with the same --out it continues: what has a result does not run again.
Ctrl-C lets the running tasks finish; a second one stops them.

Exit codes: 0 all passed, 6 some failed, 5 --max-cost is reached, 130 stopped; others as for `agent run`";

/// `agent batch`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct BatchArgs {
    #[command(subcommand)]
    command: Option<BatchCommand>,
    /// The tasks: a .jsonl or .csv file, or a directory of .md prompts
    #[arg(required = true)]
    tasks: Option<PathBuf>,
    /// The directory for the results
    #[arg(long, value_name = "DIR", required = true, help_heading = "Batch")]
    out: Option<PathBuf>,
    /// Tasks at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Batch")]
    parallel: u16,
    /// Run tasks again whose result is a failure
    #[arg(long, help_heading = "Batch")]
    retry_failed: bool,
    /// How often a check is tried before its failure counts (default 1: it never goes back to the model)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Batch")]
    check_attempts: u32,
    /// Check the change alone, without what the session installed or built outside of it
    #[arg(long, help_heading = "Batch")]
    check_clean: bool,
    #[command(flatten, next_help_heading = "Batch")]
    check_time: CheckTimeArg,
    /// Cost of all tasks together, in the currency of the configured prices
    #[arg(long, value_name = "COST", help_heading = "Batch")]
    max_cost: Option<f64>,
    #[command(flatten, next_help_heading = "Limits for one task")]
    limits: LimitArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    output: JsonArg,
}

#[derive(Debug, Subcommand)]
enum BatchCommand {
    /// How far a batch is
    Status {
        /// The directory of --out
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        #[command(flatten)]
        output: JsonArg,
    },
}

impl BatchArgs {
    fn options(&self) -> Options {
        if let Some(BatchCommand::Status { output, .. }) = &self.command {
            return Options::of(&[output]);
        }
        Options::of(&[&self.work, &self.limits, &self.check_time, &self.output])
    }
}

/// Runs the tasks, or shows how far a batch is.
pub async fn batch(machine: &Arc<Machine>, arguments: BatchArgs) -> ExitCode {
    let options = &arguments.options();
    let result = match &arguments.command {
        Some(BatchCommand::Status { directory, .. }) => status(options, directory),
        None => run(machine, options, &arguments).await,
    };
    result.unwrap_or_else(|error| print::failure(&error))
}

async fn run(machine: &Arc<Machine>, options: &Options, arguments: &BatchArgs) -> Result<ExitCode> {
    let (Some(tasks), Some(out)) = (&arguments.tasks, &arguments.out) else {
        return Err(Error::usage("name the tasks, and a directory for the results with --out"));
    };
    let config = Config::load(machine, options)?;
    let file = read_tasks(tasks, machine)?;
    let limiter = Arc::new(Limiter::new(arguments.parallel.into()));
    let (models, mut notices) = ManyModels::connect(&config, limiter).await?;
    check_prices(&models, arguments.max_cost, &file.tasks)?;
    let (mut sandbox, reason) = sandbox_settings::sandbox(&config).await?;
    notices.extend(reason.map(sandbox_settings::text));
    sandbox_settings::for_one_directory(&mut sandbox, &config, "a batch")?;
    let store = Store::open(machine)?;
    let output = Output::open(out, &file, &store, arguments.retry_failed)?;
    let before = output.summary(file.tasks.len());
    let display = Arc::new(BatchDisplay::new(options, before));
    notices.iter().for_each(|notice| display.notice(notice));
    display.begin(before, output.forgotten());
    let spent = Spent { cost: output.spent(), ..Spent::default() };
    let budget = Arc::new(Budget::new(arguments.max_cost, None, spent));
    let settings = Settings {
        parallel: arguments.parallel.into(),
        check_rules: CheckRules { attempts: arguments.check_attempts, is_clean: arguments.check_clean },
        governance: sandbox_settings::governance(&config),
        workspace: sandbox_settings::workspace(&config),
        sandbox,
        store,
    };
    let halt = Arc::new(watch::Sender::new(Halt::No));
    let (models, observer) = (Arc::new(models), Arc::clone(&display) as _);
    let batch = Batch { file, output, settings, models, budget, observer, halt: Arc::clone(&halt) };
    let listening = listen(halt, Arc::clone(&display))?;
    let result = batch.run().await;
    let left = removals::settle(REMOVALS).await;
    if left > 0 {
        display
            .notice(&format!("sandboxes that could not be removed: {left}; `agent sandbox list` shows them"));
    }
    listening.abort();
    display.progress.clear();
    display.written()?;
    let summary = result?;
    let text = format!("{}; results in {}\n", summary_text(&summary), out.display());
    let details = serde_json::json!({ "summary": summary });
    print(options, &text, &details)?;
    Ok(if summary.failed == 0 { ExitCode::Success } else { ExitCode::Check })
}

/// A limit on the cost needs the price of every model that it is for: of all tasks, or of one.
fn check_prices(models: &ManyModels, cost: Option<f64>, tasks: &[Task]) -> Result<()> {
    if let Some(cost) = cost.filter(|cost| !cost.is_finite() || *cost < 0.0) {
        return Err(
            Error::config(format!("--max-cost: {cost} is not a valid amount")).hint("write it like 0.5")
        );
    }
    let limited = tasks.iter().filter(|task| cost.is_some() || task.limits.max_cost.is_some());
    let names: BTreeSet<Option<&str>> = limited.map(|task| task.model.as_deref()).collect();
    names.into_iter().try_for_each(|name| models.settings(name)?.check_price())
}

/// Ctrl-C: the running tasks finish; again: they are stopped; a third time: the process exits.
fn listen(halt: Arc<watch::Sender<Halt>>, display: Arc<BatchDisplay>) -> Result<tokio::task::JoinHandle<()>> {
    listen_with(move |received| {
        let next = match received {
            Received::Interrupt(1) => {
                display.notice("no further task begins, the running ones finish; Ctrl-C again stops them");
                Halt::Finish
            }
            Received::Interrupt(2) => Halt::Stop(Stop::Interrupted),
            Received::Interrupt(_) => std::process::exit(ExitCode::Interrupted.code().into()),
            Received::End => Halt::Stop(Stop::Terminated),
        };
        halt.send_modify(|halt| *halt = halt.and(next));
    })
}

/// The least time between two reports of a retry of the endpoint: an outage has many.
const RETRY_NOTICE: Duration = Duration::from_secs(10);

/// Shows a batch on standard error, and with `--json` its results on standard output.
struct BatchDisplay {
    progress: Progress,
    colours: Colours,
    is_quiet: bool,
    is_json: bool,
    began: Instant,
    /// Results of earlier processes.
    before: usize,
    state: Lock<BatchState>,
}

struct BatchState {
    summary: Summary,
    running: BTreeSet<String>,
    last_retry: Option<Instant>,
    /// The failure to write to standard output, if one occurred.
    failure: Option<Error>,
}

impl BatchDisplay {
    fn new(options: &Options, before: Summary) -> Self {
        let state = BatchState { summary: before, running: BTreeSet::new(), last_retry: None, failure: None };
        Self {
            progress: Progress::stderr(),
            colours: Colours::of(&std::io::stderr()),
            is_quiet: options.is_quiet(),
            is_json: options.is_json(),
            began: Instant::now(),
            before: before.done,
            state: Lock::new(state),
        }
    }

    fn begin(&self, before: Summary, again: usize) {
        let mut text = match before.done {
            0 => counted(before.tasks, "task"),
            done => format!("continuing: {done} of {} done", counted(before.tasks, "task")),
        };
        if again > 0 {
            let _ = write!(text, ", {again} that failed run again");
        }
        self.line(&text);
    }

    fn line(&self, text: &str) {
        if !self.is_quiet {
            self.progress.suspend(|| stderr::write(&format!("{text}\n")));
        }
    }

    fn notice(&self, text: &str) {
        self.line(&format!("{} {}", self.colours.paint(WARN, "[NOTICE]"), one_line(text, 300)));
    }

    fn redraw(&self, state: &BatchState) {
        let done = state.summary.done.saturating_sub(self.before);
        let left = state.summary.tasks.saturating_sub(state.summary.done);
        let mut text = format!("{}, {} running", summary_text(&state.summary), state.running.len());
        if done > 0 && left > 0 {
            let seconds = self.began.elapsed().as_secs_f64() / done as f64 * left as f64;
            let _ = write!(text, ", about {} left;", duration_text((seconds * 1000.0) as u64));
        }
        self.progress.update(&text);
    }

    fn done(&self, result: &TaskResult) {
        let (style, word) = if result.passed() { (GOOD, "passed") } else { (BAD, "failed") };
        let mut text = format!("{} {}", self.colours.paint(style, word), result.id);
        if let Some(error) = result.work.error.as_deref() {
            let _ = write!(text, ": {}", one_line(error, 160));
        }
        if let Some(first) = result.left_out.first() {
            let more = match result.left_out.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let _ = write!(text, ", without {}{more} in its patch: too large", one_line(first, 100));
        }
        let time = duration_text((result.work.seconds * 1000.0) as u64);
        let details = format!("({}, {time})", counted(result.work.turns, "turn"));
        self.line(&format!("{text} {}", self.colours.paint(DIM, details)));
    }

    /// # Errors
    /// Standard output could not be written.
    fn written(&self) -> Result<()> {
        self.state.lock().failure.take().map_or(Ok(()), Err)
    }
}

impl Observer for BatchDisplay {
    fn on(&self, update: Update<'_>) {
        let mut state = self.state.lock();
        match update {
            Update::Started { id, .. } => drop(state.running.insert(id.to_owned())),
            Update::Done { result, summary } => {
                state.running.remove(&result.id);
                state.summary = summary;
                self.done(result);
                if self.is_json {
                    match self.progress.suspend(|| print::json_line(result)) {
                        Err(error) if error.kind() != Kind::OutputClosed => {
                            state.failure.get_or_insert(error);
                        }
                        _ => {}
                    }
                }
            }
            Update::Again { id, error, pause } => {
                state.running.remove(id);
                let when = pause.map_or_else(String::new, |pause| {
                    format!("; the next start is in {} s", pause.as_secs())
                });
                self.notice(&format!("{id} begins again later: {error}{when}"));
            }
            Update::Retry { id, wait, reason } => {
                if state.last_retry.is_none_or(|last| last.elapsed() > RETRY_NOTICE) {
                    state.last_retry = Some(Instant::now());
                    let wait = duration_text(wait.as_millis() as u64);
                    self.notice(&format!("{id}: {reason}; the next attempt is in {wait}"));
                }
            }
        }
        self.redraw(&state);
    }
}

fn summary_text(summary: &Summary) -> String {
    let Summary { tasks, done, passed, failed, cost, .. } = summary;
    let cost = cost.map(|cost| format!(", cost {cost:.4}")).unwrap_or_default();
    format!("{done} of {} done: {passed} passed, {failed} failed{cost}", counted(*tasks, "task"))
}

fn status(options: &Options, directory: &std::path::Path) -> Result<ExitCode> {
    let status = Status::read(directory)?;
    let is_done = status.summary.done == status.summary.tasks;
    let word = match (status.is_running, is_done) {
        (true, _) => "running",
        (false, true) => "finished",
        (false, false) => "stopped (the same command continues)",
    };
    let mut text = format!("{word}: {}", summary_text(&status.summary));
    if let Some(seconds) = status.seconds_left {
        let _ = write!(text, ", about {} left", duration_text((seconds * 1000.0) as u64));
    }
    text.push('\n');
    for task in &status.running {
        let time = duration_text((task.seconds * 1000.0) as u64);
        let _ = writeln!(text, "  {}  {time}  {}", one_line(&task.id, 128), one_line(&task.session, 64));
    }
    print(options, &text, &status)
}
