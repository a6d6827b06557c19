//! The program's side of a bound connection: reading its requests.

use super::chunks::{Chunks, Step};
use super::head::{self, Framing, Head, Malformed};
use super::outgoing::{Feed, Gone};
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// How long a head may take from its first byte on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of one read.
const BUFFER: usize = 16 << 10;

/// What a program sends.
pub(super) struct Requests<R> {
    from: R,
    /// Read, and not yet used.
    bytes: BytesMut,
}

/// Why there is no request, or no body.
pub(super) enum Unreadable {
    /// The program is gone.
    Gone,
    /// It is refused.
    Malformed(Malformed),
}

impl From<&'static str> for Unreadable {
    fn from(reason: &'static str) -> Self {
        Self::Malformed(Malformed { status: http::StatusCode::BAD_REQUEST, reason })
    }
}

impl<R: AsyncRead + Unpin> Requests<R> {
    pub fn new(from: R) -> Self {
        Self { from, bytes: BytesMut::new() }
    }

    /// The next head; `None` at the end of the connection.
    pub async fn head(&mut self) -> Result<Option<Head>, Unreadable> {
        if self.bytes.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        timeout(HEAD_TIMEOUT, self.rest_of_head()).await.unwrap_or(Err(Unreadable::Gone)).map(Some)
    }

    async fn rest_of_head(&mut self) -> Result<Head, Unreadable> {
        loop {
            if let Some(head) = head::read(&self.bytes).map_err(Unreadable::Malformed)? {
                drop(self.bytes.split_to(head.length));
                return Ok(head);
            }
            if !self.fill().await? {
                return Err(Unreadable::Gone);
            }
        }
    }

    /// The method and the path of what could not be read, as far as they are there.
    pub fn attempted(&self) -> (String, String) {
        let line = self.bytes.as_ref().split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words =
            line.split(' ').map(|word| word.split(['?', '#']).next().unwrap_or_default().to_owned());
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }

    /// Passes on a body. Returns whether all of it was: the host may not want it.
    pub async fn body(&mut self, framing: Framing, to: Feed) -> Result<bool, Unreadable> {
        match framing {
            Framing::None => Ok(true),
            Framing::Length(length) => self.with_length(length, to).await,
            Framing::Chunked => self.in_chunks(to).await,
        }
    }

    async fn with_length(&mut self, mut left: u64, to: Feed) -> Result<bool, Unreadable> {
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX);
            let piece = self.piece(length).await?;
            left -= piece.len() as u64;
            if let Err(Gone) = to.data(piece).await {
                return Ok(false);
            }
        }
        // The host's side may have counted the bytes, and need no end.
        let _ = to.end().await;
        Ok(true)
    }

    async fn in_chunks(&mut self, to: Feed) -> Result<bool, Unreadable> {
        let mut chunks = Chunks::default();
        loop {
            match chunks.step(&self.bytes)? {
                Step::Data(length) => {
                    let piece = self.bytes.split_to(length).freeze();
                    if let Err(Gone) = to.data(piece).await {
                        return Ok(false);
                    }
                }
                Step::Skip(length) => drop(self.bytes.split_to(length)),
                Step::Ended => {
                    let _ = to.end().await;
                    return Ok(true);
                }
                Step::More if self.fill().await? => {}
                Step::More => return Err(Unreadable::Gone),
            }
        }
    }

    /// Some bytes, at most `most`.
    async fn piece(&mut self, most: usize) -> Result<Bytes, Unreadable> {
        if self.bytes.is_empty() && !self.fill().await? {
            return Err(Unreadable::Gone);
        }
        let length = most.min(self.bytes.len());
        Ok(self.bytes.split_to(length).freeze())
    }

    /// Reads more. Returns whether there was more.
    async fn fill(&mut self) -> Result<bool, Unreadable> {
        self.bytes.reserve(BUFFER);
        match self.from.read_buf(&mut self.bytes).await {
            Ok(length) => Ok(length > 0),
            Err(_) => Err(Unreadable::Gone),
        }
    }

    /// Reads what the program still sends, and drops it: until then it may not read its answer.
    pub async fn drain(&mut self, most: usize) {
        let mut read = 0;
        while read < most {
            self.bytes.clear();
            match self.fill().await {
                Ok(true) => read += self.bytes.len(),
                _ => return,
            }
        }
    }
}
