//! A slow link between host and guest: delays, limits and counts what passes.

use agent_sandbox::Channel;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Bytes under way in one direction where the link itself is not what holds them.
const BUFFER: usize = 1 << 20;

/// The part of its rate that a link that was idle, or whose timer woke late, makes up for.
const BURST: Duration = Duration::from_millis(10);

/// The properties of a link.
#[derive(Clone, Copy)]
pub struct Link {
    /// Each way.
    pub delay: Duration,
    /// Each way; `None` is without limit.
    pub bytes_per_second: Option<u64>,
}

/// Counts what passes a link.
#[derive(Clone, Default)]
pub struct Traffic {
    round_trips: Arc<AtomicUsize>,
    answered: Arc<AtomicBool>,
    bytes: Arc<AtomicUsize>,
}

impl Traffic {
    /// How often the host has sent something after it had received something, since the last time.
    pub fn take_round_trips(&self) -> usize {
        self.answered.store(true, Ordering::SeqCst);
        self.round_trips.swap(0, Ordering::SeqCst)
    }

    /// Bytes in both directions since the last time.
    pub fn take_bytes(&self) -> usize {
        self.bytes.swap(0, Ordering::SeqCst)
    }

    fn host_sends(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if self.answered.swap(false, Ordering::SeqCst) {
            self.round_trips.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn host_receives(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.answered.store(true, Ordering::SeqCst);
    }
}

impl Link {
    /// The channel at the other end of the link.
    pub fn to(self, channel: Channel) -> (Channel, Traffic) {
        let (traffic, greeted) = (Traffic::default(), channel.greeted);
        let (near, far) = tokio::io::duplex(BUFFER);
        let (reader, writer) = tokio::io::split(near);
        let (from_host, to_host) = tokio::io::split(far);
        let (sends, receives) = (traffic.clone(), traffic.clone());
        tokio::spawn(self.carry(from_host, channel.writer, move |bytes| sends.host_sends(bytes), |_| ()));
        tokio::spawn(self.carry(channel.reader, to_host, |_| (), move |bytes| receives.host_receives(bytes)));
        (Channel { is_slow: true, greeted, ..Channel::new(reader, writer) }, traffic)
    }

    /// An address at which `target` is reached over the link. Making a connection takes no time.
    pub async fn proxy(self, target: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(self.carry(from_client, to_server, |_| (), |_| ()));
                tokio::spawn(self.carry(from_server, to_client, |_| (), |_| ()));
            }
        });
        address
    }

    async fn carry(
        self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        entered: impl Fn(usize),
        left: impl Fn(usize),
    ) {
        // What is on the link is bounded by the protocol's windows.
        let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let deliver = async {
            while let Some((due, bytes)) = receiver.recv().await {
                sleep_until(due).await;
                left(bytes.len());
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
                entered(length);
                // A timer wakes late: what it missed is caught up on.
                free = free.max(Instant::now() - BURST);
                if let Some(rate) = self.bytes_per_second {
                    free += Duration::from_nanos(length as u64 * 1_000_000_000 / rate);
                    sleep_until(free).await;
                }
                if sender.send((free.max(Instant::now()) + self.delay, buffer[..length].to_vec())).is_err() {
                    return;
                }
            }
        };
        tokio::join!(deliver, accept);
    }
}
