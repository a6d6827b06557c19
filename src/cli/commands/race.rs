//! `agent race`: several attempts at one prompt at the same time, and `agent race show`.

use crate::batch::Models;
use crate::batch::race::{AttemptState, Judge, RaceRecord, Races, Rules};
use crate::cli::apply::{Author, ChosenChanges, Files, remarks_on, write};
use crate::cli::config::Config;
use crate::cli::endpoint::ManyModels;
use crate::cli::options::{EndArgs, JsonArg, Options, PromptLimitArgs, WorkArgs};
use crate::cli::print::{self, counted, failure, print};
use crate::cli::prompt;
use crate::cli::race::{RaceField, head, hold, line, rules};
use crate::cli::ui::stderr;
use crate::cli::ui::wrap::terminal_columns;
use crate::duration_text::duration_text;
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::log::{SessionId, Store};
use crate::machine::Machine;
use crate::model::Limiter;
use crate::sanitise::{one_line, plain, truncate};
use crate::workspace::{Workspace, diff, risks};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fmt::Write;
use std::sync::Arc;
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
    end: EndArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    limits: PromptLimitArgs,
    #[command(flatten)]
    output: JsonArg,
}

#[derive(Debug, Subcommand)]
enum RaceCommand {
    /// Show a race: a table, and the diffs side by side
    Show {
        /// Its id, or the beginning of it (default: the last race)
        id: Option<String>,
        #[command(flatten)]
        output: JsonArg,
    },
}

impl RaceArgs {
    fn options(&self) -> Options {
        if let Some(RaceCommand::Show { output, .. }) = &self.command {
            return Options::of(&[output]);
        }
        Options::of(&[&self.end, &self.work, &self.limits, &self.output])
    }
}

/// Runs a race, or shows one.
pub async fn race(machine: &Arc<Machine>, arguments: RaceArgs) -> ExitCode {
    let options = &arguments.options();
    let result = match &arguments.command {
        Some(RaceCommand::Show { id, .. }) => show(machine, options, id.as_deref()).await,
        None => run(machine, options, &arguments).await,
    };
    result.unwrap_or_else(|error| failure(&error))
}

async fn run(machine: &Arc<Machine>, options: &Options, arguments: &RaceArgs) -> Result<ExitCode> {
    options.checks.refuse_empty()?;
    let judges = arguments.judge.is_some() || arguments.judge_model.is_some();
    if judges && !arguments.all && !options.checks.commands.is_empty() {
        return Err(Error::usage("with a check the first that passes wins, so there is nothing to judge")
            .hint("let all finish with --all"));
    }
    let mut config = Config::load(machine, options)?;
    let (prompt, notice) = prompt::read(arguments.prompt.clone()).await?;
    let field = field(arguments)?;
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
    if !options.is_quiet() {
        notices.iter().for_each(|text| print::notice(text));
    }
    let max_cost = config.limits.cost;
    let contestants = field.contestants(&models, max_cost, &vec![None; field.len()])?;
    let store = rules.store.clone();
    let record = hold(options, rules, contestants).await?;
    end(machine, options, &store, &record).await
}

/// Returns the models that race, with their temperatures.
fn field(arguments: &RaceArgs) -> Result<RaceField> {
    let RaceArgs { models, temperature, .. } = arguments;
    if let Some(bad) = temperature.iter().find(|value| !(0.0..=2.0).contains(*value)) {
        return Err(Error::config(format!("--temperature: {bad} is not a valid temperature"))
            .hint("use numbers from 0 to 2"));
    }
    let named = models.len().max(temperature.len());
    let count = arguments.count.map_or(if named > 1 { named } else { DEFAULT_ATTEMPTS }, usize::from);
    Ok(RaceField::in_turn(count, models, temperature))
}

const DEFAULT_ATTEMPTS: usize = 3;

/// The verdict, and what can be done with it.
async fn end(
    machine: &Arc<Machine>,
    options: &Options,
    store: &Store,
    record: &RaceRecord,
) -> Result<ExitCode> {
    if options.is_json() {
        print(options, "", &json!({ "race": record }))?;
    } else if !options.is_quiet() {
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
    if !options.is_json() {
        print(options, &format!("{}\n", plain(&winner.work.answer)), &())?;
    }
    let id = SessionId::parse(winner.work.session.as_deref().unwrap_or_default())?;
    if options.apply.apply {
        let workspace = Workspace::load(&store.dir(&id), Arc::clone(machine)).await?;
        if let Some(workspace) = &workspace {
            let chosen = ChosenChanges::all(workspace.recorded_changes().await?);
            risks::summary(&chosen.changes).iter().for_each(|risks| stderr::write(&format!("{risks}\n")));
            let files = Files { machine, workspace, sandbox: None };
            let applied = write(&mut Author::Kept { machine, options, id: &id }, &files, &chosen).await?;
            stderr::write(&format!("{} (`agent undo {id}` reverts it)\n", counted(applied.changes)));
            remarks_on(&applied).for_each(|line| stderr::write(&format!("{line}\n")));
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

async fn show(machine: &Arc<Machine>, options: &Options, id: Option<&str>) -> Result<ExitCode> {
    let store = Store::open(machine)?;
    let record = Races::of(&store).find(id)?;
    let mut diffs = Vec::new();
    for attempt in &record.attempts {
        let mut text = Vec::new();
        if let Some(session) = &attempt.work.session {
            let session = store.dir(&SessionId::parse(session)?);
            if !session.is_dir() {
                text.extend_from_slice(b"(its session was removed)\n");
            } else if let Some(workspace) = Workspace::load(&session, Arc::clone(machine)).await? {
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
