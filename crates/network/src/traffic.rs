//! Counting what goes over the network, and its limits.

use super::connection::CloseReason;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Bytes of one read.
const BUFFER: usize = 32 << 10;

/// The limits of a session's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub at_once: usize,
    /// Connections in total, refused ones included.
    pub connections: u64,
    /// Bytes in total, both directions together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // npm and cargo open some dozens at once. A toolchain and its packages take a few GiB.
        Self { at_once: 128, connections: 20_000, bytes: 50 << 30 }
    }
}

/// Counts the bytes of one connection, and adds them to those of the session.
pub(super) struct Meter {
    pub started: Instant,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    is_closing: AtomicBool,
    /// Bytes of the session.
    total: Arc<AtomicU64>,
    limit: u64,
}

/// Seen from the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
}

impl Meter {
    pub fn new(total: Arc<AtomicU64>, limit: u64) -> Self {
        Self {
            started: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            total,
            limit,
        }
    }

    /// Counts bytes before they are moved.
    pub fn count(&self, direction: Direction, bytes: usize) -> Result<(), CloseReason> {
        let bytes = bytes as u64;
        if self.total.fetch_add(bytes, Relaxed).saturating_add(bytes) > self.limit {
            return Err(CloseReason::Limit(
                "network_bytes",
                format!("the limit of {} MiB is reached", self.limit >> 20),
            ));
        }
        let count = if direction == Direction::Out { &self.sent } else { &self.received };
        count.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Bytes in both directions.
    pub fn moved(&self) -> u64 {
        self.sent.load(Relaxed).saturating_add(self.received.load(Relaxed))
    }

    /// Notes that one side has finished sending.
    pub fn close(&self) {
        self.is_closing.store(true, Relaxed);
    }

    /// Returns whether one side has finished sending.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Writes and counts.
    pub async fn write(
        &self,
        direction: Direction,
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
    ) -> Result<(), CloseReason> {
        self.count(direction, bytes.len())?;
        to.write_all(bytes).await.map_err(|_| CloseReason::Gone)
    }

    /// Copies until the end of input, or exactly `length` bytes. The end of input is passed on where there is no `length`.
    pub async fn pump(
        &self,
        direction: Direction,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        length: Option<u64>,
    ) -> Result<(), CloseReason> {
        let mut buffer = vec![0; BUFFER];
        let mut left = length.unwrap_or(u64::MAX);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            match from.read(&mut buffer[..wanted]).await {
                Ok(0) if length.is_some() => return Err(CloseReason::Gone),
                Ok(0) => break,
                Ok(read) => {
                    self.write(direction, to, &buffer[..read]).await?;
                    left -= read as u64;
                }
                Err(_) => return Err(CloseReason::Gone),
            }
        }
        if length.is_none() {
            self.close();
            to.shutdown().await.map_err(|_| CloseReason::Gone)?;
        }
        Ok(())
    }
}

/// A connection to a host whose bytes are counted.
pub(super) struct Counted<T> {
    inner: T,
    meter: Arc<Meter>,
}

impl<T> Counted<T> {
    pub fn new(inner: T, meter: Arc<Meter>) -> Self {
        Self { inner, meter }
    }

    fn count(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        let counted = self.meter.count(direction, bytes);
        counted.map_err(|_| io::Error::other("the limit on bytes is reached"))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        Poll::Ready(self.count(Direction::In, buffer.filled().len() - before))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        Poll::Ready(self.count(Direction::Out, written).map(|()| written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A connection of which some bytes have been read already.
pub(super) struct Rewound<T> {
    read: Vec<u8>,
    inner: T,
}

impl<T> Rewound<T> {
    pub fn new(read: Vec<u8>, inner: T) -> Self {
        Self { read, inner }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.inner).poll_read(context, buffer);
        }
        let length = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..length]);
        self.read.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
