//! Connections into and out of the sandbox over the guest's protocol.

use super::stream::{Incoming, Sender};
use agent_wire::{CHUNK, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// The connections that programs inside have made to the outlet ([`super::Sandbox::listen`]), in order.
pub struct Tunnels {
    offered: mpsc::UnboundedReceiver<Incoming>,
}

impl Tunnels {
    pub(super) fn new(offered: mpsc::UnboundedReceiver<Incoming>) -> Self {
        Self { offered }
    }

    /// The next one; `None` when the connection to the guest has ended.
    pub async fn next(&mut self) -> Option<Tunnel> {
        self.offered.recv().await.map(|stream| Tunnel { stream })
    }
}

/// A connection of a program inside. Nothing that arrives over it is trusted. Dropping it resets it.
pub struct Tunnel {
    stream: Incoming,
}

impl Tunnel {
    /// Accepts the connection: its bytes.
    pub fn accept(self) -> DuplexStream {
        self.stream.sender().send(&Message::Opened {});
        join(self.stream)
    }

    /// Closes it; the guest gets the reason.
    pub fn refuse(mut self, reason: &str) {
        self.stream.sender().refuse(reason);
        self.stream.end();
    }
}

/// Turns an open stream into bytes.
pub(super) fn join(stream: Incoming) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(CHUNK);
    let (reader, writer) = tokio::io::split(ours);
    let sender = stream.sender();
    tokio::spawn(async move {
        // Whichever direction ends badly drops the stream, which resets it.
        let _ = tokio::try_join!(inward(reader, sender), outward(stream, writer));
    });
    theirs
}

async fn inward(mut reader: ReadHalf<DuplexStream>, sender: Sender) -> Result<(), ()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) => break,
            Ok(length) => {
                if !sender.data(&buffer[..length]).await {
                    return Err(());
                }
            }
            Err(_) => return Err(()),
        }
    }
    sender.eof();
    Ok(())
}

async fn outward(mut stream: Incoming, mut writer: WriteHalf<DuplexStream>) -> Result<Incoming, ()> {
    loop {
        match stream.next(None).await {
            Ok(Message::Data { bytes }) => writer.write_all(&bytes).await.map_err(drop)?,
            Ok(Message::Eof {}) => {
                writer.shutdown().await.map_err(drop)?;
                // Kept until the other direction has ended as well.
                return Ok(stream);
            }
            _ => return Err(()),
        }
    }
}
