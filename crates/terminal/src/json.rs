//! `--json`: every event as one object a line.

use agent_base::error::{Error, Kind, Result};
use agent_event::{Listener, Record};
use rustix::fs::FileType;
use std::io::{self, ErrorKind, Write};

/// Writes each event as one line of JSON and flushes it, so that a reader sees it at once.
///
/// If the reader has closed the output, the error is of kind [`Kind::OutputClosed`], which ends the run without a message.
pub struct Json<W> {
    output: W,
    buffer: Vec<u8>,
}

impl<W: Write + Send> Json<W> {
    /// Writes each line to `output` with one write.
    pub fn new(output: W) -> Self {
        Self { output, buffer: Vec::new() }
    }
}

impl<W: Write + Send> Listener for Json<W> {
    fn on_event(&mut self, _: &Record, line: &[u8]) -> Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        self.output.write_all(&self.buffer).and_then(|()| self.output.flush()).map_err(output_error)
    }
}

/// The error for output that could not be written.
pub fn output_error(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Error::new(Kind::OutputClosed, "the reader of the output has closed it"),
        _ if is_hang_up(&error) => Error::new(Kind::Terminated, "the terminal was closed"),
        _ => Error::unexpected("the output could not be written").caused_by(error),
    }
}

/// Returns whether a write failed because the terminal was closed. On a disk the same error is an I/O failure.
fn is_hang_up(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
        && rustix::fs::fstat(io::stdout())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_char_device())
}
