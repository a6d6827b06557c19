//! Connections that cross the sandbox's wall over the guest's protocol.

use super::connection::Asked;
use super::stream::{Incoming, Sender};
use super::wire::{CHUNK, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// The connections that programs inside have made to the way out ([`super::Sandbox::listen`]), in order.
pub struct Tunnels {
    asked: mpsc::UnboundedReceiver<Asked>,
}

impl Tunnels {
    pub(super) fn new(asked: mpsc::UnboundedReceiver<Asked>) -> Self {
        Self { asked }
    }

    /// The next one; `None` when the connection to the guest has ended.
    pub async fn next(&mut self) -> Option<Tunnel> {
        self.asked.recv().await.map(|asked| Tunnel { asked })
    }
}

/// A connection of a program inside. Nothing that comes over it is to be trusted. Dropping it breaks it off.
pub struct Tunnel {
    asked: Asked,
}

impl Tunnel {
    /// Takes the connection: its bytes.
    pub fn accept(self) -> DuplexStream {
        self.asked.stream.sender().say(&Message::Opened {});
        join(self.asked.stream)
    }

    /// Closes it, and says why to the guest.
    pub fn refuse(mut self, why: &str) {
        self.asked.stream.sender().refuse(why);
        self.asked.stream.end();
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
            Ok(Message::Data { bytes }) => writer.write_all(&bytes.0).await.map_err(drop)?,
            Ok(Message::Eof {}) => {
                writer.shutdown().await.map_err(drop)?;
                // Kept until the other direction has ended as well.
                return Ok(stream);
            }
            _ => return Err(()),
        }
    }
}
