//! The program's side of a bound connection: reading its requests.

use super::chunks::{Chunks, Step};
use super::head::{self, Framing, Head, RefusedHead};
use super::outgoing::{Feed, Gone};
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The time limit for a head from its first byte on.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of one read.
const BUFFER: usize = 16 << 10;

/// The reader of a program's requests.
pub(super) struct Requests<R> {
    from: R,
    /// Read, and not yet used.
    bytes: BytesMut,
}

/// The rest of a body.
pub(super) enum Rest {
    /// There is no body.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunks(Chunks),
}

impl From<Framing> for Rest {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::None,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunks(Chunks::default()),
        }
    }
}

/// The reason why there is no request, or no body.
pub(super) enum Unreadable {
    /// The program is gone.
    Gone,
    /// It is refused.
    Malformed(RefusedHead),
}

impl From<&'static str> for Unreadable {
    fn from(reason: &'static str) -> Self {
        Self::Malformed(RefusedHead { status: http::StatusCode::BAD_REQUEST, reason })
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

    /// Passes on a body, of which some pieces have been read. Returns whether all of it was: the host may not want it.
    pub async fn body(&mut self, mut rest: Rest, first: Vec<Bytes>, to: Feed) -> Result<bool, Unreadable> {
        if let Rest::None = rest {
            return Ok(true);
        }
        for piece in first {
            if let Err(Gone) = to.data(piece).await {
                return Ok(false);
            }
        }
        while let Some(piece) = self.piece(&mut rest).await? {
            if let Err(Gone) = to.data(piece).await {
                return Ok(false);
            }
        }
        // The host's side may have counted the bytes, and need no end.
        let _ = to.end().await;
        Ok(true)
    }

    /// The next piece of a body; `None` at its end.
    pub async fn piece(&mut self, rest: &mut Rest) -> Result<Option<Bytes>, Unreadable> {
        match rest {
            Rest::None | Rest::Length(0) => Ok(None),
            Rest::Length(left) => {
                if self.bytes.is_empty() && !self.fill().await? {
                    return Err(Unreadable::Gone);
                }
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(self.bytes.len());
                *left -= length as u64;
                Ok(Some(self.bytes.split_to(length).freeze()))
            }
            Rest::Chunks(chunks) => loop {
                match chunks.step(&self.bytes)? {
                    Step::Data(length) => return Ok(Some(self.bytes.split_to(length).freeze())),
                    Step::Skip(length) => drop(self.bytes.split_to(length)),
                    Step::Ended => return Ok(None),
                    Step::More if self.fill().await? => {}
                    Step::More => return Err(Unreadable::Gone),
                }
            },
        }
    }

    /// Returns the next bytes, whatever they are; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Unreadable> {
        if self.bytes.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        Ok(Some(self.bytes.split().freeze()))
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
