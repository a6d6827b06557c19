//! `agent race`: several attempts at one prompt at the same time, and `agent race show`.

use super::arguments::{CheckArgs, JsonArg, LimitArgs, WorkArgs};
use super::endpoint::ManyModels;
use super::print::print;
use super::run::{CHECK_ATTEMPTS, refuse_empty_checks};
use super::signals::{Received, listen_with};
use super::{machine, open, prompt};
use crate::agent::{Budget, Price, Spent, Stop};
use crate::batch::Work;
use crate::batch::race::{
    AttemptRecord, AttemptState, Contestant, Judge, RaceRecord, Races, Rules, race as run_race,
};
use crate::batch::{Halt, Models};
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::ui::json::Json;
use crate::cli::ui::rows::Rows;
use crate::cli::ui::stderr;
use crate::cli::ui::wrap::terminal_columns;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Listener, Record, Usage};
use crate::exit_code::ExitCode;
use crate::log::report::duration_text;
use crate::log::{SessionId, Store};
use crate::model::Limiter;
use crate::sanitise::{one_line, truncate};
use crate::session::Notice;
use crate::workspace::{Workspace, diff};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fmt::Write;
use std::sync::Arc;
use tokio::sync::watch;
use unicode_width::UnicodeWidthStr;

const EXAMPLES: &str = "\
Examples:
  agent race -n 4 \"fix the failing test\" --check \"cargo test\"
  agent race --models small,large \"…\" --check \"make test\" --all     the smallest diff that passes
  agent race -n 3 \"write the parser\" --judge-model large             no check: a model names the winner
  agent race show                                                    the last race: a table, and the diffs side by side

The first attempt whose checks pass in a fresh sandbox wins, and the others are stopped. The winner is an ordinary session:
`agent diff`, `agent apply`, `agent resume`. --max-cost, --max-tokens-total and --max-time are limits of the race as a whole.

Exit codes: 0 there is a winner, or no check and all finished; 6 no attempt passed; others as for `agent run`";

/// `agent race`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct RaceArgs {
    #[command(subcommand)]
    command: Option<RaceCommand>,
    /// The prompt; `-` reads standard input
    prompt: Option<String>,
    /// Number of attempts (default: one for each model, or 3)
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), help_heading = "Race")]
    count: Option<u8>,
    /// The models of the attempts, in turn
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', help_heading = "Race")]
    models: Vec<String>,
    /// The temperatures of the attempts, in turn
    #[arg(long, value_name = "T,…", value_delimiter = ',', help_heading = "Race")]
    temperature: Vec<f64>,
    /// Let all finish; of those that pass, the one with the smallest diff wins
    #[arg(long, help_heading = "Race")]
    all: bool,
    /// With --all or without a check: a command on this machine that gets the attempts as JSON lines and prints a number
    #[arg(long, value_name = "CMD", conflicts_with = "judge_model", help_heading = "Race")]
    judge: Option<String>,
    /// With --all or without a check: a model that names the winner
    #[arg(long, value_name = "MODEL", help_heading = "Race")]
    judge_model: Option<String>,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Debug, Subcommand)]
enum RaceCommand {
    /// Show a race: a table, and the diffs side by side
    Show {
        /// Its id, or the beginning of it (default: the last race)
        id: Option<String>,
        #[command(flatten)]
        json: JsonArg,
    },
}

impl RaceArgs {
    pub fn options(&self) -> Options {
        if let Some(RaceCommand::Show { json, .. }) = &self.command {
            return Options::of(&[json]);
        }
        Options::of(&[&self.check, &self.work, &self.limits, &self.json])
    }
}

/// Runs a race, or shows one.
pub async fn race(options: &Options, arguments: RaceArgs) -> ExitCode {
    let result = match &arguments.command {
        Some(RaceCommand::Show { id, .. }) => show(options, id.as_deref()).await,
        None => run(options, arguments).await,
    };
    result.unwrap_or_else(|error| super::fail(&error))
}

async fn run(options: &Options, arguments: RaceArgs) -> Result<ExitCode> {
    refuse_empty_checks(&options.check)?;
    let judges = arguments.judge.is_some() || arguments.judge_model.is_some();
    if judges && !arguments.all && !options.check.is_empty() {
        return Err(Error::usage("with a check the first that passes wins, so there is nothing to judge")
            .hint("let all finish with --all"));
    }
    let mut config = Config::load(options)?;
    let (prompt, notice) = prompt::read(arguments.prompt.clone()).await?;
    let field = Field::from(&arguments)?;
    let (models, mut notices) = ManyModels::connect(&config, Arc::new(Limiter::new(field.len()))).await?;
    notices.extend(notice);
    let judge = match (&arguments.judge, &arguments.judge_model) {
        (Some(command), _) => Some(Judge::Command(command.clone())),
        (None, Some(model)) => Some(Judge::Model(Box::new(models.settings(Some(model))?))),
        (None, None) => None,
    };
    let (rules, reason) = rules(&mut config, prompt).await?;
    let rules = Rules { all: arguments.all, judge, ..rules };
    notices.extend(reason);
    if !options.quiet {
        notices.iter().for_each(|notice| stderr::write(&format!("[NOTICE] {}\n", one_line(notice, 300))));
    }
    let max_cost = config.limits.cost;
    let contestants = field.contestants(&models, max_cost, &vec![None; field.len()])?;
    let store = rules.store.clone();
    let record = hold(options, rules, contestants).await?;
    end(options, &store, &record).await
}

/// What a race takes from the configuration: its limits are those of all attempts together.
pub(super) async fn rules(config: &mut Config, prompt: String) -> Result<(Rules, Option<String>)> {
    let (sandbox, reason) = open::sandbox(config).await?;
    let limits = &mut config.limits;
    let budget = Arc::new(Budget::new(limits.cost, limits.tokens.take(), Spent::default()));
    let time = limits.time.take();
    let mut governance = open::governance(config);
    governance.limits.cost = None;
    let reason = reason.map(|reason| match reason {
        Notice::Usual(text) | Notice::Always(text) => text,
    });
    let rules = Rules {
        prompt,
        checks: config.options.check.clone(),
        check_attempts: config.options.check_attempts.unwrap_or(CHECK_ATTEMPTS),
        all: false,
        judge: None,
        time,
        governance,
        workspace: open::workspace(config),
        sandbox,
        store: Store::open(&machine())?,
        budget,
        keeps_home: false,
    };
    Ok((rules, reason))
}

/// Which models race, at which temperatures.
pub(super) struct Field {
    attempts: Vec<(Option<String>, Option<f64>)>,
}

impl Field {
    fn from(arguments: &RaceArgs) -> Result<Self> {
        if let Some(bad) = arguments.temperature.iter().find(|value| !(0.0..=2.0).contains(*value)) {
            return Err(Error::config(format!("--temperature: {bad} is not a valid temperature"))
                .hint("use numbers from 0 to 2"));
        }
        let named = arguments.models.len().max(arguments.temperature.len());
        let count = arguments.count.map_or(if named > 1 { named } else { DEFAULT_ATTEMPTS }, usize::from);
        let attempt = |i: usize| {
            let model = arguments.models.get(i % arguments.models.len().max(1));
            let temperature = arguments.temperature.get(i % arguments.temperature.len().max(1));
            (model.cloned(), temperature.copied())
        };
        Ok(Self { attempts: (0..count).map(attempt).collect() })
    }

    /// So many attempts of one model.
    pub fn of(count: usize, model: &str) -> Self {
        Self { attempts: vec![(Some(model.to_owned()), None); count] }
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

const DEFAULT_ATTEMPTS: usize = 3;

/// Runs the race with its live table. Ctrl-C ends it.
pub(super) async fn hold(
    options: &Options,
    rules: Rules,
    mut contestants: Vec<Contestant>,
) -> Result<RaceRecord> {
    let rows = Rows::new(&head(), contestants.len(), options.quiet);
    for (index, contestant) in contestants.iter_mut().enumerate() {
        let (name, price) = (contestant.model.client.name().to_owned(), contestant.model.price);
        let row = Row {
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
        if options.json {
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
    let is_plain = !options.quiet && !rows.are_drawn();
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

/// The verdict, and what can be done with it.
async fn end(options: &Options, store: &Store, record: &RaceRecord) -> Result<ExitCode> {
    if options.json {
        print(options, "", &json!({ "race": record }))?;
    } else if !options.quiet {
        stderr::write(&table(record));
    }
    let Some(winner) = record.winning() else {
        if let Some(limit) = &record.limit {
            return Err(Error::new(Kind::Limit, format!("no attempt won: {limit}")));
        }
        let show = format!("agent race show {}", record.id);
        if record.checks.is_empty()
            && record.attempts.iter().any(|attempt| attempt.state == AttemptState::Finished)
        {
            stderr::write(&format!(
                "There is no check, so there is no winner: `{show}` compares them, `agent apply SESSION` writes one.\n"
            ));
            return Ok(ExitCode::Success);
        }
        return Err(verdict_error(record).hint(format!("`{show}` shows the attempts")));
    };
    if !options.json {
        print(options, &format!("{}\n", crate::sanitise::plain(&winner.work.answer)), &())?;
    }
    let id = SessionId::parse(winner.work.session.as_deref().unwrap_or_default())?;
    if options.apply {
        let workspace = Workspace::load(&store.dir(&id), machine()).await?;
        if let Some(workspace) = workspace {
            let changes = workspace.recorded_changes().await?;
            super::hooks::before_apply(options, &id, &changes).await?;
            let applied = workspace.apply(&changes, false, None).await?;
            stderr::write(&format!(
                "{} (`agent undo {id}` reverts it)\n",
                super::apply::counted(applied.changes)
            ));
        }
    } else {
        stderr::write(&format!(
            "Attempt {} won: `agent diff {id}` shows its change, `agent apply {id}` writes it, `agent resume {id}` continues\n",
            winner.number
        ));
    }
    Ok(ExitCode::Success)
}

fn verdict_error(record: &RaceRecord) -> Error {
    let count = record.attempts.len();
    let reasons: Vec<&str> =
        record.attempts.iter().filter_map(|attempt| attempt.work.error.as_deref()).collect();
    let reason = reasons.first().map(|reason| format!(": {}", one_line(reason, 200))).unwrap_or_default();
    let failures: Vec<Option<Kind>> = record.attempts.iter().map(|attempt| attempt.failure).collect();
    // An endpoint or an engine that is away is not the attempts' failure.
    let kind =
        failures.first().copied().flatten().filter(|kind| failures.iter().all(|it| *it == Some(*kind)));
    Error::new(kind.unwrap_or(Kind::Check), format!("none of {count} attempts passed{reason}"))
}

/// The row of one attempt while it runs: what its session does.
struct Row {
    index: usize,
    rows: Rows,
    name: String,
    price: Option<Price>,
    turns: u64,
    spent: Spent,
    last: String,
}

impl Row {
    fn text(&self, state: &str) -> String {
        Cells {
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

impl Listener for Row {
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

fn head() -> String {
    format!(
        "{:>3} {:20} {:9} {:>5} {:>8} {:>8}  last action",
        "#", "model", "state", "turns", "tokens", "cost"
    )
}

/// What a row of the table shows.
struct Cells<'a> {
    number: usize,
    model: &'a str,
    state: &'a str,
    turns: u64,
    usage: Usage,
    cost: Option<f64>,
    last: &'a str,
}

impl Cells<'_> {
    fn text(&self) -> String {
        let Self { number, state, turns, last, .. } = self;
        let (model, tokens) = (one_line(self.model, 20), self.usage.input + self.usage.output);
        let cost = self.cost.map(|cost| format!("{cost:.4}")).unwrap_or_default();
        format!("{number:>3} {model:20} {state:9} {turns:>5} {tokens:>8} {cost:>8}  {last}")
    }
}

/// An attempt in one line.
fn line(attempt: &AttemptRecord, with_session: bool) -> String {
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
    Cells { number, model, state, turns, usage: *usage, cost: *cost, last: &last }.text()
}

/// How much an attempt has changed.
pub(super) fn size(files: u64, lines: u64) -> String {
    let counted =
        |count: u64, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    format!("{}, {}", counted(files, "file"), counted(lines, "line"))
}

/// All attempts, the winner marked.
fn table(record: &RaceRecord) -> String {
    let mut text = format!("  {}\n", head());
    for attempt in &record.attempts {
        let mark = if Some(attempt.number) == record.winner { '*' } else { ' ' };
        let _ = writeln!(text, "{mark} {}", line(attempt, true));
    }
    text
}

/// The narrowest column that a diff is shown in.
const MIN_COLUMN: usize = 30;

async fn show(options: &Options, id: Option<&str>) -> Result<ExitCode> {
    let store = Store::open(&machine())?;
    let record = Races::of(&store).find(id)?;
    let mut diffs = Vec::new();
    for attempt in &record.attempts {
        let mut text = Vec::new();
        if let Some(session) = &attempt.work.session {
            let session = store.dir(&SessionId::parse(session)?);
            if !session.is_dir() {
                text.extend_from_slice(b"(its session was removed)\n");
            } else if let Some(workspace) = Workspace::load(&session, machine()).await? {
                diff::write_text(&mut text, &workspace.recorded_changes().await?, workspace.store(), false)?;
            }
        }
        diffs.push(String::from_utf8_lossy(&text).into_owned());
    }
    let began = duration_text(
        (record.attempts.iter().map(|attempt| attempt.work.seconds).fold(0.0, f64::max) * 1000.0) as u64,
    );
    let state = if record.ended.is_some() { "" } else { ", not finished" };
    let mut text =
        format!("race {} ({began}{state}): {}\n", one_line(&record.id, 64), one_line(&record.prompt, 200));
    text += &table(&record);
    text.push('\n');
    let width = terminal_columns(&std::io::stdout()).max(80) / diffs.len().max(1);
    text += &match width >= MIN_COLUMN {
        true => side_by_side(&diffs, width - 3),
        false => one_below_another(&diffs),
    };
    print(options, &text, &record)
}

/// Texts that are too many for columns of a readable width.
fn one_below_another(texts: &[String]) -> String {
    let numbered = texts.iter().zip(1..);
    numbered.map(|(text, number)| format!("attempt {number}\n{}\n\n", text.trim_end())).collect()
}

/// Texts in columns of this width.
fn side_by_side(texts: &[String], width: usize) -> String {
    let columns: Vec<Vec<&str>> = texts.iter().map(|text| text.lines().collect()).collect();
    let heads = (1..=texts.len()).map(|number| format!("attempt {number}")).collect::<Vec<_>>();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut result = String::new();
    for row in 0..=height {
        let cells = columns.iter().zip(&heads).map(|(column, head)| {
            let text =
                if row == 0 { head.as_str() } else { column.get(row - 1).copied().unwrap_or_default() };
            let text = truncate(&text.replace('\t', "    "), width);
            let padding = width.saturating_sub(text.width());
            format!("{text}{}", " ".repeat(padding))
        });
        let _ = writeln!(result, "{}", cells.collect::<Vec<_>>().join(" | ").trim_end());
    }
    result
}
