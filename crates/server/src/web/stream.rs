//! The events of a session as server-sent events: from the file what a tab has missed, then what happens.

use super::answers::FailedRequest;
use super::frame;
use super::visitors::Mine;
use agent_log::Lines;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// A proxy in between closes connections on which nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Frames read ahead from the file.
const READ_AHEAD: usize = 16;
/// A tab that takes nothing of what it has missed for so long is disconnected: a thread waits for it.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// An error ends the stream without its last chunk: the tab comes back for what it has missed.
type Frame = Result<Bytes, Error>;

/// `GET /api/session/{id}/events`
pub async fn events(
    Mine(scope): Mine,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, FailedRequest> {
    let live = scope.session(&id).await?;
    let after = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok()).unwrap_or(0);
    let subscription = live.feed.subscribe(|| live.status());
    let subscription = subscription.ok_or_else(|| {
        FailedRequest::new(StatusCode::SERVICE_UNAVAILABLE, "too many tabs show this session: close some")
    })?;
    let missed = missed(scope.store().events(&live.id), after, subscription.through);
    let now = stream::once(async move { Ok(subscription.partial) });
    let body = stream::once(async { Ok(Bytes::from_static(b": connected\n\n")) })
        .chain(missed)
        .chain(now)
        .chain(from_now_on(subscription.live));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, [("x-accel-buffering", "no")], Body::from_stream(body)).into_response())
}

/// Returns what the file holds of the events behind number `after`, up to number `through`.
fn missed(path: PathBuf, after: u64, through: u64) -> impl Stream<Item = Frame> + use<> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let reading = (after < through).then(|| {
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let mut lines = Lines::open(&path).map_err(Error::other)?;
            while let Some(record) = lines.next_record().map_err(Error::other)? {
                if record.seq > through {
                    break;
                }
                let Some(frame) = frame::of_record(&record).filter(|_| record.seq > after) else { continue };
                let sent = sender.send_timeout(frame, SEND_TIMEOUT);
                runtime.block_on(sent).map_err(|_| ErrorKind::TimedOut)?;
            }
            Ok(())
        })
    });
    stream::unfold((receiver, reading), |(mut receiver, mut reading)| async move {
        if let Some(frame) = receiver.recv().await {
            return Some((Ok(frame), (receiver, reading)));
        }
        let read = reading.take()?.await.unwrap_or_else(|panic| Err(Error::other(panic)));
        read.err().map(|error| (Err(error), (receiver, None)))
    })
}

/// Does not hold the session, which another process can open when it was closed here, however slowly the tab reads.
fn from_now_on(live: mpsc::Receiver<Bytes>) -> impl Stream<Item = Frame> {
    stream::unfold(live, |mut live| async move {
        let frame = match tokio::time::timeout(KEEP_ALIVE, live.recv()).await {
            Ok(frame) => frame?,
            Err(_) => Bytes::from_static(b": keep-alive\n\n"),
        };
        Some((Ok(frame), live))
    })
}
