//! The guest's stream through the API server: an exec, whose channels are frames of a WebSocket.
//!
//! The first byte of a frame is its channel. The protocol `v4.channel.k8s.io` cannot close one direction alone and later ones can, so
//! neither side relies on it: the stream ends when the socket does.

use super::cluster::Cluster;
use super::failure::{self, quote};
use super::wait;
use agent_base::error::{Error, Result};
use agent_sandbox::{Channel, Reopen};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Bytes of one message: what a proxy on the way takes is not known.
const MESSAGE: usize = 60 << 10;
/// Bytes between the protocol and the socket on their way out, and messages on their way in.
const BUFFER: usize = 256 << 10;
const MESSAGES: usize = 8;
/// Bytes that are kept of what a command says about its failure.
const MAX_SAID: usize = 4 << 10;
/// The time limit for a last message.
const GOODBYE: Duration = Duration::from_secs(5);
/// The time limit for the API server to say what it knows about a pod whose stream has ended.
const REASON: Duration = Duration::from_secs(2);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A command in a container, with its streams.
pub(super) struct Exec {
    sink: SplitSink<Socket, Message>,
    source: SplitStream<Socket>,
}

/// A message of a command.
enum Arrived {
    Output(Bytes),
    /// A piece of its standard error.
    Said(Bytes),
    /// The end, with the failure; `None` without one.
    Ended(Option<String>),
    Nothing,
}

impl Exec {
    /// Starts `command`.
    pub async fn start(cluster: &Cluster, pod: &str, container: &str, command: &[&str]) -> Result<Self> {
        let connection = cluster.exec(pod, container, command).await;
        let connection = connection.map_err(|error| match failure::code(&error) {
            Some(404 | 409) => Error::sandbox(format!("the pod {pod} does not run")),
            _ => failure::error("the pod could not be connected to", error),
        })?;
        let (sink, source) = connection.into_stream().split();
        Ok(Self { sink, source })
    }

    /// Sends `bytes`, and reads until the command has printed `line`. Nothing else may be printed.
    ///
    /// # Errors
    /// The command ends first; with what it said.
    pub async fn send_until(&mut self, bytes: &Bytes, line: &str) -> Result<()> {
        let Self { sink, source } = self;
        let sending = async {
            for start in (0..bytes.len()).step_by(MESSAGE) {
                let piece = &bytes[start..bytes.len().min(start + MESSAGE)];
                // What went wrong is said on the other side.
                if sink.send(frame(piece)).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let answered = async {
            let (mut output, mut said) = (Vec::new(), Vec::new());
            while let Some(arrived) = arrived(source).await {
                match arrived {
                    Arrived::Output(bytes) => output.extend_from_slice(&bytes),
                    Arrived::Said(bytes) => said.extend_from_slice(&bytes[..bytes.len().min(MAX_SAID)]),
                    Arrived::Ended(why) => return Err(why.unwrap_or_default() + &text(&said)),
                    Arrived::Nothing => {}
                }
                if output == format!("{line}\n").as_bytes() {
                    return Ok(());
                }
                if output.len().max(said.len()) > MAX_SAID {
                    return Err(text(&output) + &text(&said));
                }
            }
            Err(format!("the connection ended {}{}", text(&output), text(&said)))
        };
        tokio::select! {
            () = sending => Ok(()),
            answered = answered => answered.map_err(Error::sandbox),
        }
    }

    /// The command's streams, which `reopen` opens again. When they end, `cluster` is asked why.
    pub fn channel(self, cluster: Cluster, pod: String, reopen: Reopen) -> Channel {
        let (near, far) = tokio::io::duplex(BUFFER);
        let (arrivals, incoming) = mpsc::channel(MESSAGES);
        let Self { sink, source } = self;
        tokio::spawn(async move {
            // Kept until the reason is known: a host that could not write before would only learn of a broken pipe.
            let mut sending = std::pin::pin!(send(far, sink));
            let why = tokio::select! {
                () = &mut sending => return,
                why = receive(source, &arrivals) => why,
            };
            let found = timeout(REASON, wait::read(&cluster, &pod)).await;
            let why = match found.as_ref().map(Result::as_ref) {
                Ok(Ok(Some(pod))) => wait::end(pod).map(|error| error.to_string()).or(why),
                Ok(Ok(None)) => Some(wait::deleted().to_string()),
                Ok(Err(_)) | Err(_) => why.or(Some("the API server cannot be reached".to_owned())),
            };
            let why = why.unwrap_or_else(|| "the connection through the API server ended".to_owned());
            let _ = arrivals.send(Err(why)).await;
        });
        let reader = Incoming { arrivals: incoming, rest: Bytes::new() };
        Channel { is_slow: true, reopen: Some(reopen), ..Channel::new(reader, near) }
    }
}

/// Carries what the host sends until it stops.
async fn send(mut from: DuplexStream, mut sink: SplitSink<Socket, Message>) {
    let mut buffer = vec![0; MESSAGE];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            let _ = timeout(GOODBYE, sink.close()).await;
            return;
        }
        if sink.send(frame(&buffer[..length])).await.is_err() {
            // Why is known to the side that reads.
            std::future::pending::<()>().await;
        }
    }
}

/// Carries what arrives until the command or the connection ends; why, where that was said.
async fn receive(
    mut source: SplitStream<Socket>,
    to: &mpsc::Sender<Result<Bytes, String>>,
) -> Option<String> {
    let mut said = Vec::new();
    loop {
        match arrived(&mut source).await? {
            Arrived::Output(bytes) => {
                if to.send(Ok(bytes)).await.is_err() {
                    return None;
                }
            }
            Arrived::Said(bytes) if said.len() < MAX_SAID => said.extend_from_slice(&bytes),
            Arrived::Ended(why) => return why.or((!said.is_empty()).then(|| text(&said))),
            Arrived::Said(_) | Arrived::Nothing => {}
        }
    }
}

async fn arrived(source: &mut SplitStream<Socket>) -> Option<Arrived> {
    let bytes = match source.next().await?.ok()? {
        Message::Binary(bytes) => bytes,
        Message::Text(text) => Bytes::from(text),
        Message::Close(_) => return None,
        _ => return Some(Arrived::Nothing),
    };
    let Some(channel) = bytes.first().copied() else { return Some(Arrived::Nothing) };
    let bytes = bytes.slice(1..);
    Some(match channel {
        // Servers begin with an empty message.
        STDOUT if !bytes.is_empty() => Arrived::Output(bytes),
        STDERR => Arrived::Said(bytes),
        STATUS => Arrived::Ended(failed(&bytes)),
        _ => Arrived::Nothing,
    })
}

/// Returns what a status says of a failure.
fn failed(status: &[u8]) -> Option<String> {
    let status: Value = serde_json::from_slice(status).ok()?;
    (wait::text(&status, "/status") != "Success")
        .then(|| format!("{} ", quote(wait::text(&status, "/message"))))
}

fn frame(piece: &[u8]) -> Message {
    let mut bytes = Vec::with_capacity(piece.len() + 1);
    bytes.push(STDIN);
    bytes.extend_from_slice(piece);
    Message::binary(bytes)
}

fn text(bytes: &[u8]) -> String {
    quote(&String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SAID)]))
}

/// The arrived output, as a stream of bytes that ends with the reason.
struct Incoming {
    arrivals: mpsc::Receiver<Result<Bytes, String>>,
    rest: Bytes,
}

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.arrivals.poll_recv(context)) {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(why)) => return Poll::Ready(Err(io::Error::other(why))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.rest.len().min(into.remaining());
        into.put_slice(&self.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}
