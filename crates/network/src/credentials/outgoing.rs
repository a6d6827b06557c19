//! The body of a request on its way to the host. One that breaks off never looks like one that has ended.

use super::head::Framing;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Pieces that wait for the host.
const WAITING: usize = 2;

enum Piece {
    Data(Bytes),
    End,
}

/// The host takes no more.
pub(super) struct Gone;

/// Where a body is written to.
pub(super) struct Feed(mpsc::Sender<Piece>);

impl Feed {
    pub async fn data(&self, bytes: Bytes) -> Result<(), Gone> {
        self.0.send(Piece::Data(bytes)).await.map_err(|_| Gone)
    }

    /// Without this the body counts as broken off.
    pub async fn end(&self) -> Result<(), Gone> {
        self.0.send(Piece::End).await.map_err(|_| Gone)
    }
}

/// The body as it is sent.
pub(super) struct Outgoing {
    pieces: Option<mpsc::Receiver<Piece>>,
    /// Bytes that are missing, where that is known.
    left: Option<u64>,
}

impl Outgoing {
    pub fn empty() -> Self {
        Self { pieces: None, left: Some(0) }
    }

    pub fn new(framing: Framing) -> (Feed, Self) {
        let (feed, pieces) = mpsc::channel(WAITING);
        let body = match framing {
            Framing::None => Self::empty(),
            Framing::Length(length) => Self { pieces: Some(pieces), left: Some(length) },
            Framing::Chunked => Self { pieces: Some(pieces), left: None },
        };
        (Feed(feed), body)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
        match ready!(pieces.poll_recv(context)) {
            Some(Piece::Data(bytes)) => {
                self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Piece::End) => {
                self.pieces = None;
                Poll::Ready(None)
            }
            None => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
