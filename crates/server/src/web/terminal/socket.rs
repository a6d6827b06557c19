//! The WebSocket between a tab and a terminal.
//!
//! Binary messages are output down and input up. Texts are JSON: down `{"begin": place, "now": place}` (output from
//! `begin` on follows, which up to `now` was written before), `{"taken": count}` (of the messages with input), and
//! `{"end": how}`; up `{"size": [columns, rows]}`, `{"draw": [columns, rows]}` and `{"shown": place}`.

use super::bounded;
use super::handshake::{self, Socket};
use super::running::{Next, View};
use crate::web::Web;
use crate::web::answers::FailedRequest;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Sockets of the server at the same time.
pub const MAX_SOCKETS: usize = 256;
/// Bytes of one message with output.
const MAX_OUTPUT: usize = 32 << 10;
/// The time limit for the client to take one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// A proxy in between closes connections on which nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time limit for a client to answer a goodbye.
const GOODBYE: Duration = Duration::from_secs(2);
/// A client that has not answered for so long is gone.
const SILENCE: Duration = Duration::from_secs(50);

/// A text of the client's.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    /// The terminal is shown with this many columns and rows.
    Size(u16, u16),
    /// The same, and what runs in it is to draw itself.
    Draw(u16, u16),
    /// The output is shown up to this place.
    Shown(u64),
}

/// `GET /socket/{name}`: the request for a WebSocket, whose name is its ticket.
pub async fn connect(
    State(web): State<Arc<Web>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, FailedRequest> {
    let slot = Arc::clone(&web.sockets).try_acquire_owned();
    let slot = slot
        .map_err(|_| FailedRequest::new(StatusCode::SERVICE_UNAVAILABLE, "too many terminals are shown"))?;
    let (answer, upgrade) = handshake::accept(request)?;
    let terminal = web.tickets.take(&name);
    let terminal = terminal
        .ok_or_else(|| FailedRequest::new(StatusCode::FORBIDDEN, "this address was used, or is too old"))?;
    let view = terminal.view()?;
    tokio::spawn(async move {
        let _slot = slot;
        // A client that goes away before the answer is none.
        if let Ok(Ok(upgraded)) = timeout(SEND_TIMEOUT, upgrade).await {
            serve(handshake::socket(upgraded).await, view).await;
        }
    });
    Ok(answer)
}

/// Serves a tab until it goes away, breaks the protocol, does not read, or the terminal has ended.
async fn serve(mut socket: Socket, mut view: View) {
    let close = match exchange(&mut socket, &mut view).await {
        Ok(code) => CloseFrame { code, reason: "".into() },
        Err(()) => return,
    };
    drop(view);
    // The client's answer ends it: what it has sent until then is not lost in a reset.
    let goodbye = async {
        let _ = socket.close(Some(close)).await;
        while let Some(Ok(_)) = socket.next().await {}
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Exchanges messages until the end, and returns the code for it; an error where nothing can be said any more.
async fn exchange(socket: &mut Socket, view: &mut View) -> Result<CloseCode, ()> {
    text(socket, json!({"begin": view.entry, "now": view.end})).await?;
    let (mut taken, mut heard, mut pinged) = (0, Instant::now(), Instant::now());
    loop {
        if view.taken() != taken {
            taken = view.taken();
            text(socket, json!({"taken": taken})).await?;
        }
        let next = view.next(MAX_OUTPUT);
        let waits = matches!(next, Next::Wait);
        match next {
            Next::Wait => {}
            Next::Gap(begin) => text(socket, json!({"begin": begin, "now": begin})).await?,
            Next::Output(bytes) => send(socket, Message::binary(bytes)).await?,
            Next::End(how) => {
                text(socket, json!({"end": how})).await?;
                return Ok(CloseCode::Normal);
            }
        }
        let pause = KEEP_ALIVE.saturating_sub(pinged.elapsed());
        tokio::select! {
            biased;
            message = socket.next() => {
                heard = Instant::now();
                match message {
                    None => return Err(()),
                    // An answer says why: a message that is too long, a broken frame.
                    Some(Err(_)) => return Ok(CloseCode::Size),
                    Some(Ok(message)) => match take(view, message) {
                        Taken::All => {}
                        Taken::Goodbye => return Err(()),
                        Taken::Refused => return Ok(CloseCode::Policy),
                    },
                }
            }
            () = view.changed(), if waits => {}
            () = std::future::ready(()), if !waits => {}
            () = tokio::time::sleep(pause) => {}
        }
        if heard.elapsed() > SILENCE {
            return Err(());
        }
        if pinged.elapsed() >= KEEP_ALIVE {
            pinged = Instant::now();
            send(socket, Message::Ping(Vec::new().into())).await?;
        }
    }
}

/// The outcome of a message.
enum Taken {
    All,
    Goodbye,
    Refused,
}

fn take(view: &View, message: Message) -> Taken {
    let is_taken = match message {
        Message::Binary(bytes) => view.input(bytes.to_vec()).is_ok(),
        Message::Text(text) => match serde_json::from_str(&text) {
            Ok(said) => {
                match said {
                    Said::Size(columns, rows) => view.resize(bounded(columns, rows), false),
                    Said::Draw(columns, rows) => view.resize(bounded(columns, rows), true),
                    Said::Shown(place) => view.shown(place),
                }
                true
            }
            Err(_) => false,
        },
        Message::Close(_) => return Taken::Goodbye,
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => true,
    };
    if is_taken { Taken::All } else { Taken::Refused }
}

async fn text(socket: &mut Socket, value: Value) -> Result<(), ()> {
    send(socket, Message::text(value.to_string())).await
}

async fn send(socket: &mut Socket, message: Message) -> Result<(), ()> {
    match timeout(SEND_TIMEOUT, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(()),
    }
}
