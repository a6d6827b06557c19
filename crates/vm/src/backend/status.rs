//! Messages of a virtual machine's keeper before the guest's protocol begins (`guest/src/machine/keeper.rs`).

use agent_base::error::{Error, Result};
use agent_base::sanitise;
use agent_sandbox::Channel;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The most that is read of why there is no guest.
const MAX_WORDS: u64 = 16 << 10;
/// The time by which this side waits longer than the keeper.
const GRACE: Duration = Duration::from_secs(15);

/// Waits until the keeper hands the stream to the guest.
///
/// # Errors
/// There is no guest, and why; or nothing is said within `time`.
pub async fn admitted(mut channel: Channel, time: Duration) -> Result<Channel> {
    match timeout(time + GRACE, first_words(&mut channel.reader)).await {
        Ok(Ok(())) => Ok(channel),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ended("its keeper does not answer")),
    }
}

async fn first_words(reader: &mut (dyn AsyncRead + Send + Unpin)) -> Result<()> {
    let mut first = [0; 1];
    match reader.read(&mut first).await {
        Ok(1) if first == *b"r" => Ok(()),
        Ok(1) if first == *b"f" => {
            let mut words = Vec::new();
            // A stream that breaks has ended.
            let _ = reader.take(MAX_WORDS).read_to_end(&mut words).await;
            // The console is the machine's to write.
            let words = String::from_utf8_lossy(&words).into_owned();
            Err(Error::sandbox(sanitise::plain(&words).into_owned()).hint(HINT))
        }
        Ok(_) => Err(ended("its keeper has ended")),
        Err(error) => Err(ended("its keeper has ended").caused_by(error)),
    }
}

const HINT: &str =
    "`agent doctor --sandbox vm` tries a machine; `agent resume` restores a session in a fresh one";

fn ended(why: &str) -> Error {
    Error::sandbox(format!("the virtual machine has ended: {why}")).hint(HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(text: &[u8]) -> Result<Channel> {
        let (reader, writer) = (std::io::Cursor::new(text.to_vec()), tokio::io::sink());
        admitted(Channel::new(reader, writer), Duration::ZERO).await
    }

    #[tokio::test]
    async fn the_protocol_begins_after_one_byte() {
        let mut rest = Vec::new();
        said(b"rrest").await.unwrap().reader.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"rest");
        let error = said(b"fit has \x1b[31mpanicked\nwhy").await.err().unwrap();
        assert_eq!(error.to_string(), "it has panicked\nwhy");
        for other in [b"".as_slice(), b"x"] {
            assert!(said(other).await.err().unwrap().to_string().contains("its keeper has ended"));
        }
    }
}
