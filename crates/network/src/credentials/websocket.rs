//! A WebSocket of a bound host: bytes pass in both directions, and those of the host are searched for the value.

use super::requests::{Requests, Unreadable};
use super::scrub::{Needles, Scrubber};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;

/// Bytes of one read.
const BUFFER: usize = 16 << 10;
/// The time for which bytes that may be the beginning of the value wait for more: a message may end with them.
const HELD: Duration = Duration::from_millis(50);

/// Carries it to its end.
pub(super) async fn carry(
    requests: &mut Requests<impl AsyncRead + Unpin>,
    to_program: &mut (impl AsyncWrite + Unpin),
    host: impl AsyncRead + AsyncWrite,
    needles: Arc<Needles>,
) -> Result<(), Unreadable> {
    let (from_host, mut to_host) = split(host);
    let outgoing = async {
        while let Some(bytes) = requests.next().await? {
            let sent = to_host.write_all(&bytes).await;
            sent.and(to_host.flush().await).map_err(|_| Unreadable::Gone)?;
        }
        to_host.shutdown().await.map_err(|_| Unreadable::Gone)
    };
    let incoming = searched(from_host, to_program, Scrubber::new(needles));
    // Either side ends it.
    tokio::select! {
        end = outgoing => end,
        end = incoming => end,
    }
}

async fn searched(
    mut from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    mut scrubber: Scrubber,
) -> Result<(), Unreadable> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = match timeout(HELD, from.read(&mut buffer)).await {
            Ok(read) => read,
            Err(_) => {
                pass(to, &scrubber.finish()).await?;
                from.read(&mut buffer).await
            }
        };
        match read {
            Ok(0) | Err(_) => return pass(to, &scrubber.finish()).await,
            Ok(length) => pass(to, &scrubber.push(&buffer[..length])).await?,
        }
    }
}

async fn pass(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Unreadable> {
    let passed = to.write_all(bytes).await;
    passed.and(to.flush().await).map_err(|_| Unreadable::Gone)
}
