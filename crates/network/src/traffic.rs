//! Counting what goes over the network, and its limits.

use super::connection::CloseReason;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

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
pub(super) struct Meter<'a> {
    pub started: Instant,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    is_closing: AtomicBool,
    /// Bytes of the session.
    total: &'a AtomicU64,
    limit: u64,
}

/// Seen from the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
}

impl<'a> Meter<'a> {
    pub fn new(total: &'a AtomicU64, limit: u64) -> Self {
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
