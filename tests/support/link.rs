//! A slow link between host and guest: delays, limits and counts what passes.

use agent::sandbox::Channel;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Bytes under way in one direction where the link itself is not what holds them.
const BUFFER: usize = 1 << 20;

/// What a link is like.
#[derive(Clone, Copy)]
pub struct Link {
    /// Each way.
    pub delay: Duration,
    /// Each way; `None` is without limit.
    pub bytes_per_second: Option<u64>,
}

/// Counts how often the host has sent something after it had received something.
#[derive(Clone, Default)]
pub struct RoundTrips {
    count: Arc<AtomicUsize>,
    answered: Arc<AtomicBool>,
}

impl RoundTrips {
    /// How many since the last time.
    pub fn take(&self) -> usize {
        self.answered.store(true, Ordering::SeqCst);
        self.count.swap(0, Ordering::SeqCst)
    }

    fn host_sends(&self) {
        if self.answered.swap(false, Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn host_receives(&self) {
        self.answered.store(true, Ordering::SeqCst);
    }
}

impl Link {
    /// The channel at the other end of the link.
    pub fn to(self, channel: Channel) -> (Channel, RoundTrips) {
        let round_trips = RoundTrips::default();
        round_trips.host_receives();
        let (near, far) = tokio::io::duplex(BUFFER);
        let (reader, writer) = tokio::io::split(near);
        let (from_host, to_host) = tokio::io::split(far);
        let (sends, receives) = (round_trips.clone(), round_trips.clone());
        tokio::spawn(self.carry(from_host, channel.writer, move || sends.host_sends(), || ()));
        tokio::spawn(self.carry(channel.reader, to_host, || (), move || receives.host_receives()));
        (Channel { reader: Box::new(reader), writer: Box::new(writer) }, round_trips)
    }

    async fn carry(
        self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        entered: impl Fn(),
        left: impl Fn(),
    ) {
        // What is on the link is bounded by the protocol's windows.
        let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let deliver = async {
            while let Some((due, bytes)) = receiver.recv().await {
                sleep_until(due).await;
                left();
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            let _ = to.shutdown().await;
        };
        let accept = async move {
            let mut buffer = vec![0; 64 << 10];
            let mut free = Instant::now();
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                entered();
                free = free.max(Instant::now());
                if let Some(rate) = self.bytes_per_second {
                    free += Duration::from_nanos(length as u64 * 1_000_000_000 / rate);
                    sleep_until(free).await;
                }
                if sender.send((free + self.delay, buffer[..length].to_vec())).is_err() {
                    return;
                }
            }
        };
        tokio::join!(deliver, accept);
    }
}
