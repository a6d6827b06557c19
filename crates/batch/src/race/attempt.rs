//! One attempt of a race.

use super::{AttemptRecord, AttemptState, Contestant, Report, Rules};
use crate::result::seconds;
use crate::runner::forward;
use crate::scheduler::Halt;
use agent_base::error::{Error, Kind, Result};
use agent_core::{Governed, Spent};
use agent_event::Events;
use agent_session::{Builder, Resume, Session, Start};
use agent_workspace::{diff, home};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc::UnboundedSender, watch};

pub(super) async fn run(
    rules: &Rules,
    contestant: Contestant,
    mut record: AttemptRecord,
    halt: &watch::Sender<Halt>,
    reports: &UnboundedSender<Report>,
) -> AttemptRecord {
    let began = Instant::now();
    let result = in_session(rules, contestant, &mut record, halt, reports).await;
    record.work.seconds = seconds(began.elapsed());
    let is_stopped = |error: &Error| {
        matches!(error.kind(), Kind::Interrupted | Kind::Terminated)
            || error.kind() == Kind::Limit && matches!(*halt.borrow(), Halt::Stop(_))
    };
    record.state = match &result {
        Ok(()) if rules.checks.is_empty() => AttemptState::Finished,
        Ok(()) => AttemptState::Passed,
        Err(error) if is_stopped(error) => AttemptState::Stopped,
        Err(error) => {
            (record.work.error, record.failure) = (Some(error.to_string()), Some(error.kind()));
            AttemptState::Failed
        }
    };
    record
}

async fn in_session(
    rules: &Rules,
    contestant: Contestant,
    record: &mut AttemptRecord,
    halt: &watch::Sender<Halt>,
    reports: &UnboundedSender<Report>,
) -> Result<()> {
    let Contestant { mut model, fork, listeners, .. } = contestant;
    let price = model.price;
    model.client = Governed::by(&[Arc::clone(&rules.budget)], model.client, price);
    let events = Arc::new(Events::new(1));
    listeners.into_iter().for_each(|listener| drop(events.listen(listener)));
    let machine = || Arc::clone(&rules.workspace.machine);
    let start = match fork {
        None => Start::New,
        Some(id) => {
            let resume = Resume::open(&rules.store, id)?;
            let workspace = resume.find_workspace(&rules.store, &rules.sandbox.backend, machine()).await?;
            Start::Resume(Box::new(resume), workspace)
        }
    };
    let builder = Builder {
        governance: rules.governance.clone(),
        workspace: rules.workspace.clone(),
        sandbox: rules.sandbox.clone(),
        store: rules.store.clone(),
        start,
        ..Builder::new(machine(), &rules.workspace.root, model)?
    };
    let mut session = builder.open(Arc::new(Arc::clone(&events))).await?;
    let index = record.number - 1;
    // The race may have ended meanwhile; then nobody listens.
    let _ = reports.send(Report::Opened(index, session.id().clone()));
    record.work.session = Some(session.id().to_string());
    let before = session.conversation.total();
    let (interrupt, mut halted) = (session.conversation.interrupt(), halt.subscribe());
    let result = tokio::select! {
        result = work(rules, &mut session, record) => result,
        never = forward(&mut halted, interrupt) => match never {},
    };
    let Spent { turns, usage, cost } = session.conversation.total();
    record.work.turns = turns.saturating_sub(before.turns);
    record.work.usage.input = usage.input.saturating_sub(before.usage.input);
    record.work.usage.output = usage.output.saturating_sub(before.usage.output);
    record.work.usage.cached = usage.cached.saturating_sub(before.usage.cached);
    record.work.cost = price.map(|_| cost - before.cost);
    let measured = measure(rules, &session, record, result.is_ok()).await;
    let result = result.and(measured);
    if result.is_ok() {
        // The others are stopped: from here on it cannot fail any more.
        let _ = reports.send(Report::Passed(index));
    }
    if let Err(error) = session.finish(&result).await {
        record.work.error = Some(error.to_string());
    }
    // A listener that failed is reported by the session's own events.
    let _ = events.flush().await;
    result
}

async fn work(rules: &Rules, session: &mut Session, record: &mut AttemptRecord) -> Result<()> {
    record.work.answer = session.prompt(&rules.prompt).await?.text;
    if rules.checks.is_empty() {
        return Ok(());
    }
    if let Some(answer) = session.run_checks(&rules.checks, rules.check_rules).await? {
        record.work.answer = answer;
    }
    Ok(())
}

/// Returns what it changed, as its checks saw it.
async fn measure(rules: &Rules, session: &Session, record: &mut AttemptRecord, passed: bool) -> Result<()> {
    let Some(ready) = session.startup().if_ready() else { return Ok(()) };
    let changes = ready.workspace.recorded_changes().await?;
    record.work.changes = changes.counts();
    let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
    for (path, change) in files {
        // What is not text counts as one line.
        record.lines += diff::lines(&changes, path, change, ready.workspace.store())?
            .map_or(1, |(added, removed)| added + removed);
    }
    if passed && rules.keeps_home {
        home::save(&ready.sandbox, &rules.store.dir(session.id())).await?;
    }
    Ok(())
}
