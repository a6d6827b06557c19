//! Holding a race: its rules, its field, and the live table of its attempts.

use super::endpoint::ManyModels;
use super::sandbox_settings;
use super::signals::{Received, listen_with};
use crate::agent::{Budget, Price, Spent, Stop};
use crate::batch::race::{AttemptRecord, AttemptState, Contestant, RaceRecord, Rules, race as run_race};
use crate::batch::{Halt, Work};
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::ui::json::Json;
use crate::cli::ui::rows::Rows;
use crate::cli::ui::stderr;
use crate::count_text::counted;
use crate::error::Result;
use crate::event::{Event, Listener, Record, Usage};
use crate::exit_code::ExitCode;
use crate::log::{SessionId, Store};
use crate::sanitise::one_line;
use std::sync::Arc;
use tokio::sync::watch;

/// Returns what a race takes from the configuration: its limits are those of all attempts together.
pub async fn rules(config: &mut Config, prompt: String) -> Result<(Rules, Option<String>)> {
    let (mut sandbox, reason) = sandbox_settings::sandbox(config).await?;
    let limits = &mut config.limits;
    let budget = Arc::new(Budget::new(limits.cost, limits.tokens.take(), Spent::default()));
    let time = limits.time.take();
    sandbox_settings::for_one_directory(&mut sandbox, config, "a race")?;
    let mut governance = sandbox_settings::governance(config);
    governance.limits.cost = None;
    let rules = Rules {
        prompt,
        checks: config.options.checks.commands.clone(),
        check_rules: config.options.checks.rules(),
        all: false,
        judge: None,
        time,
        governance,
        workspace: sandbox_settings::workspace(config),
        sandbox,
        store: Store::open(&config.machine)?,
        budget,
        keeps_home: false,
    };
    Ok((rules, reason.map(sandbox_settings::text)))
}

/// The attempts of a race: their models and temperatures.
pub struct RaceField {
    attempts: Vec<(Option<String>, Option<f64>)>,
}

impl RaceField {
    /// So many attempts, of these models in turn, at these temperatures in turn.
    pub fn in_turn(count: usize, models: &[String], temperatures: &[f64]) -> Self {
        let attempt = |i: usize| {
            let model = models.get(i % models.len().max(1));
            let temperature = temperatures.get(i % temperatures.len().max(1));
            (model.cloned(), temperature.copied())
        };
        Self { attempts: (0..count).map(attempt).collect() }
    }

    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// With the sessions that they continue.
    pub fn contestants(
        &self,
        models: &ManyModels,
        max_cost: Option<f64>,
        forks: &[Option<SessionId>],
    ) -> Result<Vec<Contestant>> {
        let contestant =
            |((model, temperature), fork): (&(Option<String>, Option<f64>), &Option<SessionId>)| {
                let model = models.at(model.as_deref(), *temperature)?;
                if max_cost.is_some() {
                    model.check_price()?;
                }
                Ok(Contestant { model, temperature: *temperature, fork: fork.clone(), listeners: Vec::new() })
            };
        self.attempts.iter().zip(forks).map(contestant).collect()
    }
}

/// Runs the race with its live table. Ctrl-C ends it.
pub async fn hold(options: &Options, rules: Rules, mut contestants: Vec<Contestant>) -> Result<RaceRecord> {
    let rows = Rows::new(&head(), contestants.len(), options.is_quiet());
    for (index, contestant) in contestants.iter_mut().enumerate() {
        let (name, price) = (contestant.model.client.name().to_owned(), contestant.model.price);
        let row = AttemptRow {
            index,
            rows: rows.clone(),
            name,
            price,
            turns: 0,
            spent: Spent::default(),
            last: String::new(),
        };
        rows.set(index, &row.text("starting"));
        if rows.are_drawn() {
            contestant.listeners.push(Box::new(row));
        }
        if options.is_json() {
            contestant.listeners.push(Box::new(Json::new(std::io::stdout())));
        }
    }
    let halt = Arc::new(watch::Sender::new(Halt::No));
    let stopped = Arc::clone(&halt);
    let listening = listen_with(move |received| {
        let stop = match received {
            Received::Interrupt(1) => Stop::Interrupted,
            Received::Interrupt(_) => std::process::exit(ExitCode::Interrupted.code().into()),
            Received::End => Stop::Terminated,
        };
        stopped.send_replace(Halt::Stop(stop));
    })?;
    let is_plain = !options.is_quiet() && !rows.are_drawn();
    let on_change = |attempt: &AttemptRecord| {
        let is_over = !matches!(attempt.state, AttemptState::Starting | AttemptState::Running);
        if is_over {
            rows.end(attempt.number - 1);
        }
        rows.set(attempt.number - 1, &line(attempt, false));
        if is_plain {
            stderr::write(&format!("{}\n", line(attempt, false)));
        }
    };
    let record = run_race(rules, contestants, halt, &on_change).await;
    listening.abort();
    rows.clear();
    record
}

/// The row of one attempt while it runs: what its session does.
struct AttemptRow {
    index: usize,
    rows: Rows,
    name: String,
    price: Option<Price>,
    turns: u64,
    spent: Spent,
    last: String,
}

impl AttemptRow {
    fn text(&self, state: &str) -> String {
        AttemptCells {
            number: self.index + 1,
            model: &self.name,
            state,
            turns: self.turns,
            usage: self.spent.usage,
            cost: self.price.map(|_| self.spent.cost),
            last: &self.last,
        }
        .text()
    }
}

impl Listener for AttemptRow {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        match &record.event {
            Event::TurnStarted { .. } => self.turns += 1,
            Event::AssistantMessage { usage, .. } => self.spent.add_usage(*usage, self.price),
            Event::ToolStarted { name, arguments, .. } => {
                self.last = one_line(&format!("{name} {arguments}"), 200)
            }
            Event::CheckFinished { command, exit_code, .. } => {
                let how = if *exit_code == Some(0) { "passed" } else { "failed" };
                self.last = one_line(&format!("check {how}: {command}"), 200);
            }
            Event::Retry { reason, .. } => self.last = one_line(reason, 200),
            _ => return Ok(()),
        }
        self.rows.set(self.index, &self.text("running"));
        Ok(())
    }
}

pub fn head() -> String {
    format!(
        "{:>3} {:20} {:9} {:>5} {:>8} {:>8}  last action",
        "#", "model", "state", "turns", "tokens", "cost"
    )
}

/// The cells of a row of the table.
struct AttemptCells<'a> {
    number: usize,
    model: &'a str,
    state: &'a str,
    turns: u64,
    usage: Usage,
    cost: Option<f64>,
    last: &'a str,
}

impl AttemptCells<'_> {
    fn text(&self) -> String {
        let Self { number, state, turns, last, .. } = self;
        let (model, tokens) = (one_line(self.model, 20), self.usage.input + self.usage.output);
        let cost = self.cost.map(|cost| format!("{cost:.4}")).unwrap_or_default();
        format!("{number:>3} {model:20} {state:9} {turns:>5} {tokens:>8} {cost:>8}  {last}")
    }
}

/// An attempt in one line.
pub fn line(attempt: &AttemptRecord, with_session: bool) -> String {
    let AttemptRecord { number, state, lines, work, .. } = attempt;
    let Work { model, turns, usage, cost, session, error, changes, .. } = work;
    let files = changes.added + changes.modified + changes.deleted;
    let mut last = match (state, error) {
        (_, Some(error)) => one_line(error, 120),
        (AttemptState::Passed | AttemptState::Finished, None) => size(files, *lines),
        _ => String::new(),
    };
    if let Some(session) = session.as_ref().filter(|_| with_session) {
        last = format!("{} {last}", one_line(session, 64));
    }
    let (number, model, state, turns) = (*number, model.as_str(), state.as_str(), *turns);
    AttemptCells { number, model, state, turns, usage: *usage, cost: *cost, last: &last }.text()
}

/// Describes the size of an attempt's change.
pub fn size(files: u64, lines: u64) -> String {
    format!("{}, {}", counted(files, "file"), counted(lines, "line"))
}
