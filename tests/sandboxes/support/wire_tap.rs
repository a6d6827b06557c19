//! A TCP proxy in front of an API server: cuts connections, or passes them on a byte at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What it does with what passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Passes it on.
    Pass,
    /// Passes on a byte at a time.
    Drip,
    /// Ends every connection and takes no other.
    Cut,
}

/// A proxy that runs as long as its runtime.
pub struct WireTap {
    pub address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
}

impl WireTap {
    /// Starts one in front of `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let modes = mode.subscribe();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *modes.borrow() != Mode::Cut {
                    tokio::spawn(carry(near, target, modes.clone()));
                }
            }
        });
        Self { address, mode }
    }

    /// Sets its mode from now on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn carry(near: TcpStream, target: SocketAddr, mut modes: watch::Receiver<Mode>) {
    let Ok(far) = TcpStream::connect(target).await else { return };
    // Each byte is a packet of its own.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (up, down) = (modes.clone(), modes.clone());
    let (near_reader, near_writer) = near.into_split();
    let (far_reader, far_writer) = far.into_split();
    tokio::select! {
        _ = modes.wait_for(|mode| *mode == Mode::Cut) => {}
        () = pass(near_reader, far_writer, up) => {}
        () = pass(far_reader, near_writer, down) => {}
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    modes: watch::Receiver<Mode>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let step = if *modes.borrow() == Mode::Drip { 1 } else { length };
        for piece in buffer[..length].chunks(step) {
            if to.write_all(piece).await.is_err() {
                return;
            }
        }
    }
}
