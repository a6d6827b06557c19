//! `--json`: every event as one object a line.

use super::sanitise;
use crate::error::{Error, Kind, Result};
use crate::event::{Listener, Record};
use rustix::fs::FileType;
use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{self, ErrorKind, Write};

/// Writes each event as one line of JSON and flushes it, so that a reader sees it at once.
///
/// DEL, the 8-bit controls and the characters that reorder text are written as `\u` escapes: the stream stays
/// the same JSON and is harmless on a terminal too.
///
/// A reader that has gone away ends the run quietly: the error is of kind [`Kind::OutputClosed`].
pub struct Json<W> {
    output: W,
    line: Vec<u8>,
}

impl<W: Write + Send> Json<W> {
    /// Writes to `output`, unbuffered by itself: a line is one write.
    pub fn new(output: W) -> Self {
        Self { output, line: Vec::new() }
    }
}

impl<W: Write + Send> Listener for Json<W> {
    fn on_event(&mut self, record: &Record) -> Result<()> {
        self.line.clear();
        write(record, &mut self.line)?;
        self.line.push(b'\n');
        self.output.write_all(&self.line).and_then(|()| self.output.flush()).map_err(output_error)
    }
}

/// `value` as compact JSON on one line that is harmless on a terminal, as [`Json`] writes it.
pub fn to_vec(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    write(value, &mut line)?;
    Ok(line)
}

fn write(value: &impl Serialize, line: &mut Vec<u8>) -> Result<()> {
    Ok(value.serialize(&mut serde_json::Serializer::with_formatter(line, Harmless))?)
}

/// The error for output that could not be written.
pub fn output_error(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Error::new(Kind::OutputClosed, "nobody reads the output any more"),
        _ if is_hang_up(&error) => Error::new(Kind::Terminated, "the terminal was closed"),
        _ => Error::unexpected("the output could not be written").caused_by(error),
    }
}

/// What a write to a terminal says that was closed. The same from a disk is a failure.
fn is_hang_up(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
        && rustix::fs::fstat(io::stdout())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_char_device())
}

/// Compact JSON in which no character moves a terminal. Those that JSON itself does not escape all lie in the
/// basic plane, so one `\u` escape is enough.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(sanitise::is_dangerous) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let mut characters = rest[at..].chars();
            if let Some(character) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(character))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}
