//! The events of a session as server-sent events: from the file what a tab has missed, then what happens.

use super::answers::Failure;
use super::frame;
use super::live::Live;
use super::visitors::Mine;
use crate::log::Lines;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A proxy in between closes connections on which nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Frames read ahead from the file.
const READ_AHEAD: usize = 16;

type Frame = Result<Bytes, Infallible>;

/// `GET /api/session/{id}/events`
pub async fn events(
    Mine(scope): Mine,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let live = scope.session(&id).await?;
    let after = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok()).unwrap_or(0);
    let subscription = live.feed.subscribe(|| live.status());
    let subscription = subscription.ok_or_else(|| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many tabs show this session: close some")
    })?;
    let missed = missed(scope.store().events(&live.id), after, subscription.through);
    let now = stream::once(async move { Ok(subscription.partial) });
    let body = stream::once(async { Ok(Bytes::from_static(b": connected\n\n")) })
        .chain(missed)
        .chain(now)
        .chain(from_now_on(subscription.live, live));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, [("x-accel-buffering", "no")], Body::from_stream(body)).into_response())
}

/// What the file holds of the events behind number `after`, up to number `through`.
fn missed(path: PathBuf, after: u64, through: u64) -> impl Stream<Item = Frame> + use<> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    if after < through {
        tokio::task::spawn_blocking(move || {
            let Ok(mut lines) = Lines::open(&path) else { return };
            while let Ok(Some(record)) = lines.next_record() {
                if record.seq > through {
                    return;
                }
                let Some(frame) = frame::of_record(&record).filter(|_| record.seq > after) else { continue };
                if sender.blocking_send(frame).is_err() {
                    return;
                }
            }
        });
    }
    stream::unfold(receiver, |mut receiver| async move { Some((Ok(receiver.recv().await?), receiver)) })
}

/// Holds the session as long as the tab reads.
fn from_now_on(live: mpsc::Receiver<Bytes>, session: Arc<Live>) -> impl Stream<Item = Frame> {
    stream::unfold((live, session), |(mut live, session)| async move {
        let frame = match tokio::time::timeout(KEEP_ALIVE, live.recv()).await {
            Ok(frame) => frame?,
            Err(_) => Bytes::from_static(b": keep-alive\n\n"),
        };
        Some((Ok(frame), (live, session)))
    })
}
