//! Reading requests within bounds: of size, and of how long a client may be silent.

use super::{Code, Codec, Failure, Wire};
use agent_envd::envelope::{Decoder, MAX_ENVELOPE};
use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;
use std::time::Duration;

/// A client that sends nothing of its body for this long has gone.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The message of a unary call.
///
/// # Errors
/// The body is too long, does not arrive, or is not a message.
pub async fn read_unary<M: Wire>(codec: Codec, body: Body) -> Result<M, Failure> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = piece(&mut stream, BODY_TIMEOUT).await? {
        if bytes.len() + piece.len() > MAX_ENVELOPE {
            let limit = MAX_ENVELOPE >> 20;
            return Err(Failure::new(
                Code::ResourceExhausted,
                format!("the request is longer than {limit} MiB"),
            ));
        }
        bytes.extend_from_slice(&piece);
    }
    codec.decode(&bytes)
}

/// The messages of a streamed request, one after the other.
pub struct IncomingMessages {
    codec: Codec,
    stream: BodyDataStream,
    decoder: Decoder,
    timeout: Duration,
}

impl IncomingMessages {
    /// The messages in `body`, each of which has to arrive within a minute.
    pub fn new(codec: Codec, body: Body) -> Self {
        Self { codec, stream: body.into_data_stream(), decoder: Decoder::default(), timeout: BODY_TIMEOUT }
    }

    /// From now on, a client may be silent for this long.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// As [`read_unary`].
    pub async fn next<M: Wire>(&mut self) -> Result<Option<M>, Failure> {
        loop {
            if let Some(envelope) = self.decoder.pop()? {
                return if envelope.is_end {
                    Ok(None)
                } else {
                    self.codec.decode(&envelope.payload).map(Some)
                };
            }
            match piece(&mut self.stream, self.timeout).await? {
                Some(bytes) => self.decoder.push(&bytes),
                None => return self.decoder.finish().map(|()| None).map_err(Failure::from),
            }
        }
    }

    /// The one message of a call whose answer is a stream. The request is read to its end, without which the connection could
    /// not be used again.
    ///
    /// # Errors
    /// As [`read_unary`]; or there is none.
    pub async fn only<M: Wire>(mut self) -> Result<M, Failure> {
        let missing = || Failure::new(Code::InvalidArgument, "the request has no message");
        let message = self.next().await?.ok_or_else(missing)?;
        match self.next::<M>().await? {
            None => Ok(message),
            Some(_) => Err(Failure::new(Code::InvalidArgument, "the request has more than one message")),
        }
    }
}

async fn piece(stream: &mut BodyDataStream, timeout: Duration) -> Result<Option<bytes::Bytes>, Failure> {
    match tokio::time::timeout(timeout, stream.next()).await {
        Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
        Ok(None) => Ok(None),
        Ok(Some(Err(_))) => Err(Failure::new(Code::InvalidArgument, "the request broke off")),
        Err(_) => Err(Failure::new(Code::DeadlineExceeded, "the request did not arrive in time")),
    }
}
