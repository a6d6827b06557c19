//! Requests about the conversation itself: back to before a prompt, planning, a shorter memory.

use super::answers::FailedRequest;
use super::api::{ACCEPTED, JsonAnswer, find};
use super::frame::visible;
use super::visitors::Mine;
use super::work::to_end;
use agent_base::error::Error;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;

/// A prompt, counting from 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbered {
    prompt: u64,
}

/// `POST …/rewind`: back to before a prompt, conversation and files; the prompt's text.
pub async fn rewind(mine: Mine, id: Path<String>, Json(to): Json<Numbered>) -> JsonAnswer {
    to_end(async move {
        let live = find(mine, id).await?;
        let mut session = live.idle().await?;
        let Some((text, restored)) = session.rewind(to.prompt).await? else {
            return Err(Error::usage("the conversation does not hold this prompt any more")
                .hint("fork the session, or send the prompt again")
                .into());
        };
        live.changed(&session).await;
        Ok(Json(json!({"text": text, "files": restored.map_or(0, |restored| restored.files.len())})))
    })
    .await
}

/// The request about planning.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Planning {
    /// Nothing can be changed until the user accepts a plan.
    Begin,
    /// The plan is accepted.
    Accept,
    /// There is to be none.
    Leave,
}

/// `POST …/plan`
pub async fn plan(
    mine: Mine,
    id: Path<String>,
    Json(planning): Json<Planning>,
) -> Result<StatusCode, FailedRequest> {
    to_end(async move {
        let live = find(mine, id).await?;
        let mut session = live.idle().await?;
        match planning {
            Planning::Begin => session.begin_plan().await?,
            Planning::Accept => session.end_plan(true).await?,
            Planning::Leave => session.end_plan(false).await?,
        }
        live.changed(&session).await;
        ACCEPTED
    })
    .await
}

/// `POST …/compact`: summarises the older part of the conversation.
pub async fn compact(mine: Mine, id: Path<String>) -> JsonAnswer {
    to_end(async move {
        mine.0.allow()?;
        let live = find(mine, id).await?;
        let mut session = live.idle().await?;
        let is_shorter = session.conversation.compact().await?;
        live.changed(&session).await;
        Ok(Json(json!({"shorter": is_shorter, "model": visible(session.conversation.model_name())})))
    })
    .await
}

/// `POST …/clear`: the model forgets the conversation; the sandbox stays.
pub async fn clear(mine: Mine, id: Path<String>) -> Result<StatusCode, FailedRequest> {
    to_end(async move {
        let live = find(mine, id).await?;
        let mut session = live.idle().await?;
        session.conversation.clear()?;
        live.changed(&session).await;
        ACCEPTED
    })
    .await
}
