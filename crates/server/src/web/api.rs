//! Requests of the page.

use super::Web;
use super::answers::FailedRequest;
use super::chips::thousands;
use super::conflict;
use super::decisions::Decisions;
use super::frame::visible;
use super::live::Live;
use super::review::{self, AcceptedChanges};
use super::scope::Scope;
use super::upload;
use super::visitors::{Audience, Mine};
use super::work::{blocking, to_end};
use agent_base::error::{Error, Result};
use agent_batch::race::{AttemptRecord, RaceRecord, Races};
use agent_log::SessionId;
use agent_session::{Fork, Ready, Session};
use agent_workspace::ChangeSet;
use agent_workspace::notices::listed;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::SemaphorePermit;

/// Sessions that are listed.
const MAX_LISTED: usize = 50;
/// Races that are listed.
const MAX_RACES: usize = 10;
/// Models that are offered.
const MAX_MODELS: usize = 500;
/// Files that a note for the model names.
const NAMED: usize = 30;

pub type JsonAnswer = Result<Json<Value>, FailedRequest>;

/// Accepted: what follows is an event.
pub const ACCEPTED: Result<StatusCode, FailedRequest> = Ok(StatusCode::ACCEPTED);

/// The sessions that are looked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Part of what the list shows of them.
    #[serde(default)]
    search: String,
}

/// `GET /api/sessions`
pub async fn sessions(Mine(scope): Mine, Query(Search { search }): Query<Search>) -> JsonAnswer {
    let facts = scope.facts().clone();
    let listed = blocking(move || Ok((scope.list(&search, MAX_LISTED)?, races(&scope))));
    let (sessions, races) = listed.await?;
    Ok(Json(json!({
        "sessions": sessions,
        "races": races,
        "can_apply": facts.can_apply,
        "limits": facts.limits,
        "visitors": !facts.can_apply,
        "ttl": facts.ttl.map(|ttl| ttl.as_secs()),
        "version": env!("CARGO_PKG_VERSION"),
    })))
}

/// The newest races on the workspace, as tables.
fn races(scope: &Scope) -> Value {
    let races = Races::of(scope.store()).on(scope.workspace());
    races.iter().rev().take(MAX_RACES).map(race).collect()
}

fn race(race: &RaceRecord) -> Value {
    let attempt = |attempt: &AttemptRecord| {
        let (work, won) = (&attempt.work, race.winner == Some(attempt.number));
        let cells = [
            format!("{}{}", attempt.number, if won { " ★ won" } else { "" }),
            attempt.state.as_str().to_owned(),
            visible(&work.model),
            work.turns.to_string(),
            thousands(work.usage.input + work.usage.output),
            format!("{:.1} s", work.seconds),
            attempt.lines.to_string(),
        ];
        json!({"cells": cells, "session": work.session.as_deref().map(visible)})
    };
    let attempts: Vec<Value> = race.attempts.iter().take(MAX_LISTED).map(attempt).collect();
    let title = format!("Race: {}", visible(race.prompt.lines().next().unwrap_or_default()));
    let head = ["", "state", "model", "turns", "tokens", "time", "lines", ""];
    json!({"title": title, "head": head, "attempts": attempts})
}

/// A new session, or an earlier one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// The earlier one.
    #[serde(default)]
    session: Option<String>,
    /// The model of a new one; else the configured one.
    #[serde(default)]
    model: Option<String>,
}

/// `POST /api/sessions`
pub async fn open(Mine(scope): Mine, Json(open): Json<Open>) -> JsonAnswer {
    let live = match open.session {
        Some(id) => scope.open(Some(SessionId::parse(&id)?)).await?,
        None => {
            // One that is not configured begins no session.
            let model = match open.model {
                Some(name) => Some(scope.model(&name).await?),
                None => None,
            };
            let live = scope.open(None).await?;
            if let Some(model) = model {
                live.set_model(model).await?;
            }
            live
        }
    };
    Ok(Json(json!({"session": live.id})))
}

/// `POST …/title`
pub async fn set_title(
    Mine(scope): Mine,
    Path(id): Path<String>,
    Json(title): Json<Text>,
) -> Result<StatusCode, FailedRequest> {
    let id = SessionId::parse(&id)?;
    scope.check(&id).await?;
    let store = scope.store().clone();
    blocking(move || store.set_title(&id, &title.text)).await?;
    ACCEPTED
}

/// `POST …/remove`
pub async fn remove(Mine(scope): Mine, Path(id): Path<String>) -> Result<StatusCode, FailedRequest> {
    let id = SessionId::parse(&id)?;
    to_end(async move { scope.remove(&id).await }).await?;
    ACCEPTED
}

pub async fn find(Mine(scope): Mine, Path(id): Path<String>) -> Result<Arc<Live>, FailedRequest> {
    scope.session(&id).await
}

/// A text of the user's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    text: String,
}

/// A prompt of the user's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentPrompt {
    text: String,
    /// The same in a request that repeats one whose answer was lost.
    #[serde(default)]
    key: Option<String>,
}

/// `POST …/prompt`
pub async fn prompt(
    mine: Mine,
    id: Path<String>,
    Json(prompt): Json<SentPrompt>,
) -> Result<StatusCode, FailedRequest> {
    mine.0.allow()?;
    find(mine, id).await?.prompt(prompt.text, prompt.key.as_deref())?;
    ACCEPTED
}

/// `POST …/stop`
pub async fn stop(mine: Mine, id: Path<String>) -> Result<StatusCode, FailedRequest> {
    find(mine, id).await?.stop();
    ACCEPTED
}

/// `POST …/command`
pub async fn command(
    mine: Mine,
    id: Path<String>,
    Json(command): Json<Text>,
) -> Result<StatusCode, FailedRequest> {
    find(mine, id).await?.command(command.text)?;
    ACCEPTED
}

/// An answer to a question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    question: u64,
    answer: String,
    /// With the answer `said`: what the user says instead.
    #[serde(default)]
    said: String,
}

/// `POST …/answer`
pub async fn answer(
    mine: Mine,
    id: Path<String>,
    Json(reply): Json<Reply>,
) -> Result<StatusCode, FailedRequest> {
    match find(mine, id).await?.questions.answer(reply.question, &reply.answer, &reply.said) {
        true => ACCEPTED,
        false => Err(FailedRequest::new(StatusCode::CONFLICT, "the question was answered already")),
    }
}

/// `GET /api/models`
pub async fn models(Mine(scope): Mine) -> JsonAnswer {
    let mut models = scope.opener().models().await?;
    models.truncate(MAX_MODELS);
    Ok(Json(json!({"models": models.iter().map(|name| visible(name)).collect::<Vec<_>>()})))
}

/// `POST …/model`
pub async fn set_model(
    Mine(scope): Mine,
    id: Path<String>,
    Json(name): Json<Text>,
) -> Result<StatusCode, FailedRequest> {
    let model = scope.model(&name.text).await?;
    find(Mine(scope), id).await?.set_model(model).await?;
    ACCEPTED
}

/// Returns what the sandbox changed, as of now.
async fn changes(live: &Live) -> Result<(Arc<Ready>, ChangeSet)> {
    let ready = live.ready().await?;
    let changes = ready.workspace.changes(&ready.sandbox).await?;
    Ok((ready, changes))
}

/// The change as the page shows it.
async fn shown(ready: &Arc<Ready>, changes: ChangeSet) -> Result<Value> {
    let ready = Arc::clone(ready);
    let written = ready.workspace.last_written().await.len();
    let mut shown = blocking(move || {
        let store = ready.workspace.store();
        review::to_json(&changes, store, &Decisions::load(store)?)
    })
    .await?;
    shown["can_unapply"] = json!(written > 0);
    Ok(shown)
}

/// `GET …/diff`
pub async fn diff(mine: Mine, id: Path<String>) -> JsonAnswer {
    let live = find(mine, id).await?;
    let (ready, changes) = changes(&live).await?;
    Ok(Json(shown(&ready, changes).await?))
}

/// The decisions about the change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    decided: Decisions,
}

/// `POST …/decisions`: keeps what is refused of the change.
pub async fn decide(mine: Mine, id: Path<String>, Json(decided): Json<Decided>) -> JsonAnswer {
    let live = find(mine, id).await?;
    let _one = live.deciding.lock().await;
    let ready = live.ready().await?;
    blocking(move || Decisions::add(ready.workspace.store(), decided.decided)).await?;
    Ok(Json(json!({})))
}

/// A part of the change that was shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The change.
    pub digest: String,
    /// The number of the file.
    pub file: usize,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    side: String,
}

/// The change, which has to be the one that was shown.
async fn same(live: &Live, digest: &str) -> Result<(Arc<Ready>, ChangeSet), FailedRequest> {
    let (ready, changes) = changes(live).await?;
    match review::digest(&changes)? == digest {
        true => Ok((ready, changes)),
        false => {
            let failure = FailedRequest::new(
                StatusCode::CONFLICT,
                "the sandbox has changed since: look at the change again",
            );
            Err(failure.with("diff", shown(&ready, changes).await?))
        }
    }
}

/// The change that was shown, for a request about a part of it: a turn among the large requests, and what has the contents.
pub async fn shown_change<'a>(
    web: &'a Web,
    mine: Mine,
    id: Path<String>,
    digest: &str,
) -> Result<(SemaphorePermit<'a>, Arc<Ready>, ChangeSet), FailedRequest> {
    let turn = web.large().await?;
    let live = find(mine, id).await?;
    let (ready, changes) = same(&live, digest).await?;
    Ok((turn, ready, changes))
}

/// `GET …/diff/part`: lines of a file that is too long to be shown at once.
pub async fn part(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
    Query(part): Query<Part>,
) -> JsonAnswer {
    let (_turn, ready, changes) = shown_change(&web, mine, id, &part.digest).await?;
    let lines = blocking(move || review::part(&changes, part.file, part.from, ready.workspace.store()));
    Ok(Json(lines.await?))
}

/// `GET …/diff/picture`: a side of a file of the change, as it is.
pub async fn picture(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
    Query(part): Query<Part>,
) -> Result<Response, FailedRequest> {
    let (_turn, ready, changes) = shown_change(&web, mine, id, &part.digest).await?;
    let is_before = part.side == "before";
    let store = move || review::content(&changes, part.file, is_before, ready.workspace.store());
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"picture\""),
    ];
    Ok((headers, blocking(store).await?).into_response())
}

/// `GET …/patch`
pub async fn patch(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
) -> Result<Response, FailedRequest> {
    let _turn = web.large().await?;
    let live = find(mine, id).await?;
    let (ready, changes) = changes(&live).await?;
    let patch = blocking(move || review::patch(&changes, ready.workspace.store())).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}.patch\"", live.id)),
    ];
    Ok((headers, patch).into_response())
}

/// `GET …/zip`: the new and changed files.
pub async fn zip(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
) -> Result<Response, FailedRequest> {
    let _turn = web.large().await?;
    let live = find(mine, id).await?;
    let (ready, changes) = changes(&live).await?;
    let archive = blocking(move || upload::archive(&changes, ready.workspace.store())).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}.zip\"", live.id)),
    ];
    Ok((headers, archive).into_response())
}

/// `POST …/apply`: writes what the user chose of the change that was shown.
pub async fn apply(mine: Mine, id: Path<String>, Json(choice): Json<AcceptedChanges>) -> JsonAnswer {
    to_end(write(mine, id, choice)).await
}

async fn write(Mine(scope): Mine, id: Path<String>, choice: AcceptedChanges) -> JsonAnswer {
    if !scope.facts().can_apply {
        return Err(FailedRequest::new(
            StatusCode::FORBIDDEN,
            "nothing is written on this server: download the patch",
        ));
    }
    let live = find(Mine(scope), id).await?;
    let mut session = live.idle().await?;
    let (ready, changes) = same(&live, &choice.digest).await?;
    let (all, store) = (changes.clone(), Arc::clone(&ready));
    let (chosen, over) = blocking(move || {
        let store = store.workspace.store();
        Ok((review::chosen(&changes, &choice, store)?, choice.written_over(&changes, store)?))
    })
    .await?;
    if chosen.is_empty() {
        return Err(Error::usage("nothing is chosen").hint("choose a file or a hunk").into());
    }
    let chosen = ready.workspace.over_host(chosen, &over.keys().cloned().collect()).await?;
    conflict::check(&chosen, &over)?;
    let is_all = chosen.changes.keys().eq(all.changes.keys())
        && chosen.changes.iter().all(|(path, change)| all.changes[path].after == change.after);
    session.before_apply(&chosen).await?;
    let applied = match ready.workspace.apply(&chosen, Some(&ready.sandbox)).await {
        Ok(applied) => applied,
        Err(error) => return Err(conflict::failed(error, &chosen, &ready.workspace).await),
    };
    note_applied(&mut session, &chosen, !is_all)?;
    live.changed(&session).await;
    let merged: Vec<String> = applied.merged.iter().map(|path| visible(&path.to_string())).collect();
    Ok(Json(json!({"applied": applied.changes, "merged": merged})))
}

/// Tells the model with the next prompt what was written.
fn note_applied(session: &mut Session, chosen: &ChangeSet, is_part: bool) -> Result<()> {
    let Some(names) = listed(chosen.changes.keys().map(ToString::to_string), NAMED) else { return Ok(()) };
    let rest = if is_part { " They left the rest of your changes out." } else { "" };
    session.conversation.note(&format!("The user wrote these changes to their own files: {names}.{rest}"))
}

/// `POST …/unapply`: takes the last apply back in the user's files.
pub async fn unapply(mine: Mine, id: Path<String>) -> JsonAnswer {
    to_end(take_back(mine, id)).await
}

async fn take_back(Mine(scope): Mine, id: Path<String>) -> JsonAnswer {
    if !scope.facts().can_apply {
        return Err(FailedRequest::new(StatusCode::FORBIDDEN, "nothing was written on this server"));
    }
    let live = find(Mine(scope), id).await?;
    let mut session = live.idle().await?;
    let changes = live.ready().await?.workspace.undo_apply().await?;
    session.conversation.note("The user took back what was written to their own files last.")?;
    live.changed(&session).await;
    Ok(Json(json!({"applied": changes})))
}

/// `POST …/undo`: undoes the last prompt in the sandbox.
pub async fn undo(mine: Mine, id: Path<String>) -> JsonAnswer {
    to_end(async move {
        let live = find(mine, id).await?;
        let mut session = live.idle().await?;
        let Some((restored, _)) = session.undo(1).await? else {
            return Err(Error::usage("there is nothing to undo").into());
        };
        let files = restored.files.len();
        session.conversation.note("The user undid the changes of the last prompt in the sandbox.")?;
        live.changed(&session).await;
        Ok(Json(json!({"files": files})))
    })
    .await
}

/// `POST …/redo`
pub async fn redo(mine: Mine, id: Path<String>) -> JsonAnswer {
    to_end(async move {
        let live = find(mine, id).await?;
        let mut session = live.idle().await?;
        let files = session.checkpoints().redo().await?.files.len();
        session.conversation.note("The user redid what they had undone.")?;
        live.changed(&session).await;
        Ok(Json(json!({"files": files})))
    })
    .await
}

/// `POST …/fork`: a second session from the state of this one.
pub async fn fork(mine: Mine, id: Path<String>) -> JsonAnswer {
    to_end(async move {
        mine.0.count_session()?;
        let live = find(mine, id).await?;
        let Fork { id, .. } = live.idle().await?.fork().await?;
        let id: SessionId = id;
        Ok(Json(json!({"session": id})))
    })
    .await
}

/// `POST /api/shutdown`: ends the server.
pub async fn shutdown(State(web): State<Arc<Web>>) -> Result<StatusCode, FailedRequest> {
    if web.guard.is_behind_proxy || matches!(web.audience, Audience::Visitors(_)) {
        return Err(FailedRequest::new(StatusCode::FORBIDDEN, "this server is not ended from its page"));
    }
    web.stop.notify_one();
    ACCEPTED
}
