//! Requests of the page about terminals.

use super::bounded;
use crate::web::Web;
use crate::web::answers::FailedRequest;
use crate::web::live::no_terminal;
use crate::web::visitors::Mine;
use crate::web::work::to_end;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A terminal that a tab is to show.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenTerminal {
    /// One that is open; else a new one.
    #[serde(default)]
    terminal: Option<u64>,
    columns: u16,
    rows: u16,
}

/// `POST …/terminal`: the terminal's number, and the address of a socket to it.
pub async fn open(
    State(web): State<Arc<Web>>,
    Mine(scope): Mine,
    Path(id): Path<String>,
    Json(open): Json<OpenTerminal>,
) -> Result<Json<Value>, FailedRequest> {
    let live = scope.session(&id).await?;
    let terminal = match open.terminal {
        Some(number) => live.terminals.find(number).ok_or_else(no_terminal)?,
        None => to_end(async move { live.open_terminal(bounded(open.columns, open.rows)).await }).await?,
    };
    let socket = format!("/socket/{}", web.tickets.give(&terminal)?);
    Ok(Json(json!({"terminal": terminal.number, "socket": socket})))
}

/// A terminal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedTerminal {
    terminal: u64,
}

/// `POST …/terminal/close`
pub async fn close(
    Mine(scope): Mine,
    Path(id): Path<String>,
    Json(named): Json<NamedTerminal>,
) -> Result<StatusCode, FailedRequest> {
    scope.session(&id).await?.close_terminal(named.terminal)?;
    Ok(StatusCode::ACCEPTED)
}
