//! The engine's hijacked stream as the guest's byte stream.

use super::endpoint::Address;
use agent_sandbox::Channel;
use bollard::container::LogOutput;
use bytes::{Buf, Bytes};
use futures_util::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Frames = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;

/// The guest's standard output and input. Its standard error is not part of the protocol and is dropped.
pub(super) fn channel(engine: &Address, output: Frames, input: Pin<Box<dyn AsyncWrite + Send>>) -> Channel {
    let output = Stdout { frames: output, rest: Bytes::new() };
    Channel { is_slow: !engine.is_near(), ..Channel::new(output, input) }
}

struct Stdout {
    frames: Frames,
    /// The bytes of the last frame that nobody has read yet. The engine's frames are at most 32 KiB.
    rest: Bytes,
}

impl AsyncRead for Stdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.frames.as_mut().poll_next(cx)) {
                Some(Ok(LogOutput::StdOut { message })) => self.rest = message,
                Some(Ok(LogOutput::StdErr { .. } | LogOutput::StdIn { .. })) => {}
                Some(Ok(LogOutput::Console { .. })) => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the engine's stream is not framed",
                    )));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..n]);
        self.rest.advance(n);
        Poll::Ready(Ok(()))
    }
}
