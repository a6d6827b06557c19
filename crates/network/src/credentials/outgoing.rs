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

/// The sender of a body's pieces.
pub(super) struct Feed(Option<mpsc::Sender<Piece>>);

impl Feed {
    pub async fn data(&self, bytes: Bytes) -> Result<(), Gone> {
        self.send(Piece::Data(bytes)).await
    }

    /// Without this the body counts as broken off.
    pub async fn end(&self) -> Result<(), Gone> {
        self.send(Piece::End).await
    }

    async fn send(&self, piece: Piece) -> Result<(), Gone> {
        let Some(to) = &self.0 else { return Err(Gone) };
        to.send(piece).await.map_err(|_| Gone)
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
        let left = match framing {
            Framing::None => return (Feed(None), Self::empty()),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        let (feed, pieces) = mpsc::channel(WAITING);
        (Feed(Some(feed)), Self { pieces: Some(pieces), left })
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
