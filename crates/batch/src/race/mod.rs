//! Several attempts at one prompt at the same time, each in a session of its own from the same state. One of them wins.

mod attempt;
mod judge;
mod record;

pub use judge::Judge;
pub use record::{AttemptRecord, AttemptState, RaceRecord, Races};

use super::scheduler::Halt;
use agent_base::error::{Error, Kind, Result};
use agent_core::{Budget, Stop};
use agent_event::{Listener, now};
use agent_log::{SessionId, Store};
use agent_session::{CheckRules, Governance, ModelSettings, SandboxSettings, WorkspaceSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// One of those that race.
pub struct Contestant {
    pub model: ModelSettings,
    /// The sampling temperature, where one was asked for.
    pub temperature: Option<f64>,
    /// The session that it continues, a fork of its own. Without one it begins on the workspace.
    pub fork: Option<SessionId>,
    /// Get the events of its session.
    pub listeners: Vec<Box<dyn Listener>>,
}

/// The rules of a race.
pub struct Rules {
    pub prompt: String,
    /// Commands that have to pass with the change. Without one there is no winner unless `judge` names one.
    pub checks: Vec<String>,
    /// The rules for running them.
    pub check_rules: CheckRules,
    /// Set if all finish. Otherwise the first that passes wins, and the others are stopped.
    pub all: bool,
    /// Names the winner of those that passed. Without one it is that with the smallest diff.
    pub judge: Option<Judge>,
    /// Wall time of all together.
    pub time: Option<Duration>,
    /// Limits of each attempt, and policy.
    pub governance: Governance,
    pub workspace: WorkspaceSettings,
    pub sandbox: SandboxSettings,
    pub store: Store,
    /// The budget of all attempts together.
    pub budget: Arc<Budget>,
    /// Set if the winner's `$HOME` is saved with its session.
    pub keeps_home: bool,
}

/// Receives each change of an attempt's state.
pub type OnChange<'a> = &'a (dyn Fn(&AttemptRecord) + Send + Sync);

/// A report of an attempt that runs.
enum Report {
    Opened(usize, SessionId),
    Passed(usize),
}

/// Runs the race. `halt` ends it early.
///
/// # Errors
/// It was stopped, or its record cannot be written.
pub async fn race(
    rules: Rules,
    contestants: Vec<Contestant>,
    halt: Arc<watch::Sender<Halt>>,
    on_change: OnChange<'_>,
) -> Result<RaceRecord> {
    let races = Races::of(&rules.store);
    races.prune(&rules.store);
    let mut record = RaceRecord::new(&rules, &contestants);
    races.save(&record)?;
    // Also when this future is dropped.
    let _stop = StopOnDrop(Arc::clone(&halt));
    let (sender, mut reports) = mpsc::unbounded_channel();
    let (time, first_wins) = (rules.time, !rules.all && !rules.checks.is_empty());
    let rules = Arc::new(rules);
    let mut running = JoinSet::new();
    for (index, contestant) in contestants.into_iter().enumerate() {
        let (rules, halt, sender) = (Arc::clone(&rules), Arc::clone(&halt), sender.clone());
        let state = record.attempts[index].clone();
        running.spawn(async move { attempt::run(&rules, contestant, state, &halt, &sender).await });
    }
    let mut is_late = std::pin::pin!(async move {
        match time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    });
    let mut out_of_time = false;
    loop {
        tokio::select! {
            biased;
            Some(report) = reports.recv() => match report {
                Report::Opened(index, id) => {
                    let attempt = &mut record.attempts[index];
                    (attempt.work.session, attempt.state) = (Some(id.to_string()), AttemptState::Running);
                    on_change(attempt);
                }
                Report::Passed(index) if first_wins && record.winner.is_none() => {
                    record.winner = Some(record.attempts[index].number);
                    halt.send_replace(Halt::Stop(Stop::Interrupted));
                }
                Report::Passed(_) => {}
            },
            ended = running.join_next() => match ended {
                None => break,
                Some(Ok(attempt)) => {
                    on_change(&attempt);
                    let index = attempt.number - 1;
                    record.attempts[index] = attempt;
                }
                // It panicked; its state is what was known last.
                Some(Err(_)) => {}
            },
            () = &mut is_late, if !out_of_time => {
                out_of_time = true;
                halt.send_replace(Halt::Stop(Stop::OutOfTime));
            }
        }
        races.save(&record)?;
    }
    record.ended = Some(now());
    let mut halted = halt.subscribe();
    let verdict = finish(&rules, &mut record, out_of_time, &mut halted).await;
    races.save(&record)?;
    verdict?;
    mark_losers(&rules, &record).map(|()| record)
}

/// Notes in the losers' sessions that they are attempts of the winner's.
fn mark_losers(rules: &Rules, record: &RaceRecord) -> Result<()> {
    match record.winning().and_then(|attempt| attempt.work.session.as_deref()) {
        Some(winner) => record.mark_losers(&rules.store, &SessionId::parse(winner)?),
        None => Ok(()),
    }
}

/// The verdict.
async fn finish(
    rules: &Rules,
    record: &mut RaceRecord,
    out_of_time: bool,
    halt: &mut watch::Receiver<Halt>,
) -> Result<()> {
    let halted = *halt.borrow_and_update();
    if record.winner.is_none() && !out_of_time && halted != Halt::No {
        return Err(stopped(halted, &record.id));
    }
    record.limit = match (out_of_time, rules.budget.exhausted()) {
        (true, _) => Some("the time limit is reached".to_owned()),
        (false, Some(error)) => Some(error.to_string()),
        (false, None) => None,
    };
    if record.winner.is_some() {
        return Ok(());
    }
    let wanted = if rules.checks.is_empty() { AttemptState::Finished } else { AttemptState::Passed };
    let candidates: Vec<AttemptRecord> =
        record.attempts.iter().filter(|attempt| attempt.state == wanted).cloned().collect();
    record.winner = match &rules.judge {
        Some(_) if candidates.is_empty() => None,
        Some(judge) => tokio::select! {
            chosen = judge.choose(rules, &candidates) => Some(chosen?),
            Ok(()) = halt.changed() => return Err(stopped(*halt.borrow(), &record.id)),
        },
        None if rules.checks.is_empty() => None,
        None => candidates
            .iter()
            .min_by_key(|attempt| (attempt.lines, attempt.number))
            .map(|attempt| attempt.number),
    };
    Ok(())
}

fn stopped(halt: Halt, race: &str) -> Error {
    let kind = match halt {
        Halt::Stop(Stop::Terminated) => Kind::Terminated,
        _ => Kind::Interrupted,
    };
    Error::new(kind, "the race was stopped").hint(format!("`agent race show {race}` shows how far it was"))
}

struct StopOnDrop(Arc<watch::Sender<Halt>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_if_modified(|halt| {
            let goes_on = !matches!(halt, Halt::Stop(_));
            if goes_on {
                *halt = Halt::Stop(Stop::Interrupted);
            }
            goes_on
        });
    }
}
