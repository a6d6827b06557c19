//! The stream to a guest that listens on a port of a provider's machine: a WebSocket through the provider's proxies.

use super::guest::unreachable;
use agent_base::error::{Error, Result};
use agent_sandbox::{Channel, Greeting, bootstrap};
use agent_wire::websocket::{NONCE_HEADER, SECRET_HEADER};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use reqwest::{Response, StatusCode, Upgraded, Url};
use sha1::{Digest, Sha1};
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// The time limit for one attempt.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The least time between two attempts.
const PACE: Duration = Duration::from_millis(300);
/// Bytes of one message: what a proxy on the way takes is not known.
const MESSAGE: usize = 60 << 10;
/// Bytes of the largest message that is accepted.
const MAX_MESSAGE: usize = 1 << 20;
/// Bytes between the protocol and the socket, each way.
const BUFFER: usize = 256 << 10;
/// The time limit for sending one message. The protocol gives a silent link up before that, and with it this stream.
const SENDING: Duration = Duration::from_secs(90);
/// The time limit for a last message.
const GOODBYE: Duration = Duration::from_secs(5);

/// RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The reason why an attempt failed.
enum FailedAttempt {
    /// Another attempt may succeed.
    Early(String),
    Final(Error),
}

/// A WebSocket that is open.
pub struct Opened {
    stream: Upgraded,
    /// The greeting that went with the handshake.
    greeting: Greeting,
}

/// Opens a WebSocket at `url`. Nothing but the handshake is sent before it is answered.
///
/// # Errors
/// Nothing answers within `time`, or something answers that is not the guest of this session.
pub async fn open(
    provider: &str,
    http: &reqwest::Client,
    url: Url,
    headers: HeaderMap,
    secret: &str,
    time: Duration,
) -> Result<Opened> {
    let deadline = Instant::now() + time;
    loop {
        let begun = Instant::now();
        let attempt = timeout(ATTEMPT, upgrade(provider, http, &url, &headers, secret));
        let stalled = || Err(FailedAttempt::Early("the WebSocket's handshake was not answered".to_owned()));
        let why = match attempt.await.unwrap_or_else(|_| stalled()) {
            Ok(stream) => return Ok(stream),
            Err(FailedAttempt::Final(error)) => return Err(error),
            Err(FailedAttempt::Early(why)) => why,
        };
        if Instant::now() >= deadline {
            return Err(unreachable(provider, &why));
        }
        // A proxy that has held the request has waited already.
        sleep(PACE.saturating_sub(begun.elapsed())).await;
    }
}

async fn upgrade(
    provider: &str,
    http: &reqwest::Client,
    url: &Url,
    headers: &HeaderMap,
    secret: &str,
) -> Result<Opened, FailedAttempt> {
    let nonce = bootstrap::nonce();
    let key = STANDARD.encode(std::array::from_fn::<u8, 16, _>(|_| fastrand::u8(..)));
    let mut secret =
        HeaderValue::from_str(secret).map_err(|_| FailedAttempt::Early("an odd secret".to_owned()))?;
    secret.set_sensitive(true);
    let request = http
        .get(url.clone())
        .headers(headers.clone())
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key)
        .header(SECRET_HEADER, secret)
        .header(NONCE_HEADER, hex::encode(nonce));
    // Without the address: it may hold a token.
    let failed = |error: reqwest::Error| {
        FailedAttempt::Early(format!("{:#}", anyhow::Error::from(error.without_url())))
    };
    let response = request.send().await.map_err(failed)?;
    check(provider, &response, &key)?;
    let greeting = Greeting { nonce, is_noticed: response.headers().contains_key(NONCE_HEADER) };
    Ok(Opened { stream: response.upgrade().await.map_err(failed)?, greeting })
}

fn check(provider: &str, response: &Response, key: &str) -> Result<(), FailedAttempt> {
    let status = response.status();
    let refused = |message: String, hint: &str| Err(FailedAttempt::Final(Error::sandbox(message).hint(hint)));
    match status {
        StatusCode::SWITCHING_PROTOCOLS => {}
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            let message = format!("the {provider} sandbox refuses this session ({})", status.as_u16());
            return refused(
                message,
                "it was made with another key of the provider's; `agent resume` starts a fresh one",
            );
        }
        _ if status.is_redirection() => {
            let message = format!("{provider} redirects the connection to the sandbox ({})", status.as_u16());
            return refused(
                message,
                "the redirect is not followed, because the session's secret is in the request",
            );
        }
        _ => return Err(FailedAttempt::Early(format!("its port answers with status {}", status.as_u16()))),
    }
    let expected = STANDARD.encode(Sha1::digest(format!("{key}{MAGIC}")));
    let accept = response.headers().get("sec-websocket-accept").map(HeaderValue::as_bytes);
    match accept == Some(expected.as_bytes()) {
        true => Ok(()),
        false => refused(
            format!("what answers at the port of the {provider} sandbox is not a WebSocket"),
            "a proxy between here and there may have answered; `agent doctor` looks at the provider",
        ),
    }
}

/// The guest's stream in the WebSocket. `meanwhile` runs as long as the stream is open.
pub fn channel(opened: Opened, meanwhile: impl Future<Output = ()> + Send + 'static) -> Channel {
    let Opened { stream, greeting } = opened;
    let (near, far) = tokio::io::duplex(BUFFER);
    tokio::spawn(async move {
        tokio::select! {
            () = pump(stream, far) => {}
            () = meanwhile => {}
        }
    });
    let (reader, writer) = tokio::io::split(near);
    Channel { is_slow: true, greeted: Some(greeting), ..Channel::new(reader, writer) }
}

/// Carries bytes in both directions until either side ends: a WebSocket has no half that can be closed alone.
async fn pump(stream: impl AsyncRead + AsyncWrite + Unpin, far: DuplexStream) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .write_buffer_size(0);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await;
    let (mut sink, mut source) = socket.split();
    let (mut from_host, mut to_host) = tokio::io::split(far);
    let sending = async {
        let mut buffer = vec![0; MESSAGE];
        loop {
            let length = from_host.read(&mut buffer).await.unwrap_or(0);
            if length == 0 {
                let _ = timeout(GOODBYE, sink.close()).await;
                return;
            }
            let message = Message::binary(buffer[..length].to_vec());
            // A link that takes nothing is dead, though no error reports it.
            if !matches!(timeout(SENDING, sink.send(message)).await, Ok(Ok(()))) {
                return;
            }
        }
    };
    let receiving = async {
        while let Some(Ok(message)) = source.next().await {
            let sent = match message {
                Message::Binary(bytes) => to_host.write_all(&bytes).await.is_ok(),
                Message::Ping(_) | Message::Pong(_) => true,
                _ => false,
            };
            if !sent {
                return;
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// A bug: while a link took nothing, its sandbox was kept alive for ever.
    #[tokio::test(start_paused = true)]
    async fn a_link_that_takes_nothing_ends_the_stream() {
        let (near, far) = duplex(BUFFER);
        let (link, _stalled) = duplex(1);
        let pumping = tokio::spawn(pump(link, far));
        let (mut reader, mut writer) = tokio::io::split(near);
        writer.write_all(&[0; MESSAGE]).await.unwrap();
        let mut read = Vec::new();
        assert_eq!(timeout(SENDING * 2, reader.read_to_end(&mut read)).await.unwrap().unwrap(), 0);
        pumping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_a_message_of_bytes_ends_the_stream() {
        // An oversized frame, text, reserved bits, a masked frame from the server.
        let cases: [&[u8]; 4] = [
            &[0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0x81, 1, b'x'],
            &[0xf2, 0],
            &[0x82, 0x81, 0, 0, 0, 0, 1],
        ];
        for frame in cases {
            let (near, far) = duplex(BUFFER);
            let (link, mut server) = duplex(1 << 16);
            let pumping = tokio::spawn(pump(link, far));
            server.write_all(&[&[0x82, 2, b'o', b'k'], frame].concat()).await.unwrap();
            let (mut reader, _writer) = tokio::io::split(near);
            let mut read = Vec::new();
            timeout(SENDING, reader.read_to_end(&mut read)).await.unwrap().unwrap();
            assert_eq!(read, b"ok", "{frame:?}");
            pumping.await.unwrap();
        }
    }
}
