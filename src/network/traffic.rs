//! How much goes over the network, and how much may.

use super::connection::End;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Read at once.
const BUFFER: usize = 32 << 10;

/// What a session's network may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub at_once: usize,
    /// Connections in all, refused ones included.
    pub connections: u64,
    /// Bytes in all, both ways together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // npm and cargo open some dozens at once. A toolchain and its packages take a few GiB.
        Self { at_once: 128, connections: 20_000, bytes: 50 << 30 }
    }
}

/// What one connection has moved, and where it counts towards the whole.
pub(super) struct Meter<'a> {
    pub begun: Instant,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    is_closing: AtomicBool,
    /// Bytes of the whole session.
    total: &'a AtomicU64,
    limit: u64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

impl<'a> Meter<'a> {
    pub fn new(total: &'a AtomicU64, limit: u64) -> Self {
        Self {
            begun: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            total,
            limit,
        }
    }

    /// Counts bytes before they are moved.
    pub fn count(&self, way: Way, bytes: usize) -> Result<(), End> {
        let bytes = bytes as u64;
        if self.total.fetch_add(bytes, Relaxed).saturating_add(bytes) > self.limit {
            return Err(End::Limit(
                "network_bytes",
                format!("the limit of {} MiB is reached", self.limit >> 20),
            ));
        }
        let count = if way == Way::Out { &self.sent } else { &self.received };
        count.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Bytes in both directions.
    pub fn moved(&self) -> u64 {
        self.sent.load(Relaxed).saturating_add(self.received.load(Relaxed))
    }

    /// One side has sent its last.
    pub fn close(&self) {
        self.is_closing.store(true, Relaxed);
    }

    /// Whether one side has sent its last.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Writes and counts.
    pub async fn write(&self, way: Way, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), End> {
        self.count(way, bytes.len())?;
        to.write_all(bytes).await.map_err(|_| End::Gone)
    }

    /// Moves what comes until its end, or at most `length` bytes. The end is handed on where there is no `length`.
    pub async fn pump(
        &self,
        way: Way,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        length: Option<u64>,
    ) -> Result<(), End> {
        let mut buffer = vec![0; BUFFER];
        let mut left = length.unwrap_or(u64::MAX);
        while left > 0 {
            let room = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            match from.read(&mut buffer[..room]).await {
                Ok(0) if length.is_some() => return Err(End::Gone),
                Ok(0) => break,
                Ok(read) => {
                    self.write(way, to, &buffer[..read]).await?;
                    left -= read as u64;
                }
                Err(_) => return Err(End::Gone),
            }
        }
        if length.is_none() {
            self.close();
            to.shutdown().await.map_err(|_| End::Gone)?;
        }
        Ok(())
    }
}
