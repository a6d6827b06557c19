//! Reading a file of events line by line. The length of a line is bounded.

use agent_base::error::{Error, Result};
use agent_event::Record;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The maximum length of a line in bytes, without its `\n`, for reading and for writing.
pub const MAX_LINE: usize = 64 << 20;

/// The lines of a file of events, as bytes. A torn last line is not returned but counted.
pub struct Lines<R> {
    reader: R,
    name: String,
    line: Vec<u8>,
    number: u64,
    complete: u64,
    torn: u64,
}

impl Lines<BufReader<File>> {
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path)
            .map_err(|error| Error::usage(format!("{name} could not be opened")).caused_by(error))?;
        Ok(Self::new(BufReader::with_capacity(64 << 10, file), name))
    }
}

impl<R: BufRead> Lines<R> {
    /// The lines of `reader`, which error messages call `name`.
    pub fn new(reader: R, name: impl Into<String>) -> Self {
        Self { reader, name: name.into(), line: Vec::new(), number: 0, complete: 0, torn: 0 }
    }

    /// The next whole line without its `\n`, or `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let bound = MAX_LINE as u64 + 1;
        let read = self.reader.by_ref().take(bound).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| {
            Error::unexpected(format!("{} could not be read", self.name)).caused_by(error)
        })?;
        if read == 0 {
            return Ok(None);
        }
        let whole = self.line.pop_if(|byte| *byte == b'\n').is_some();
        if !whole && read as u64 == bound {
            let message = format!("line {} of {} is longer than 64 MiB", self.number + 1, self.name);
            return Err(Error::unexpected(message).hint("this is not a file that agent wrote"));
        }
        if !whole || (self.line.contains(&0) && self.at_end()) {
            self.torn = read as u64;
            return Ok(None);
        }
        self.number += 1;
        self.complete += read as u64;
        Ok(Some(&self.line))
    }

    /// The next event, or `None` at the end.
    ///
    /// # Errors
    /// The line is not an event.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if self.next_line()?.is_none() {
            return Ok(None);
        }
        self.parse().map(Some)
    }

    /// The event in the line that was read last.
    pub(super) fn parse(&self) -> Result<Record> {
        serde_json::from_slice(&self.line).map_err(|error| {
            Error::unexpected(format!("line {} of {} is not an event", self.number, self.name))
                .caused_by(error)
                .hint("the file was damaged, or a newer version of agent wrote it")
        })
    }

    /// The number of the line that was read last, counting from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the whole lines read so far.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Bytes of the torn last line, once the end was reached; 0 if there is none.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    fn at_end(&mut self) -> bool {
        self.reader.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

/// Every event of the file at `path`. Neither the chain nor the end is checked: that is [`super::verify`].
pub fn read_records(path: &Path) -> Result<Vec<Record>> {
    match read_until_fault(path) {
        (_, Some(fault)) => Err(fault),
        (records, None) => Ok(records),
    }
}

/// The events before the first line that cannot be read, and the error of that line.
pub(super) fn read_until_fault(path: &Path) -> (Vec<Record>, Option<Error>) {
    let mut records = Vec::new();
    let mut lines = match Lines::open(path) {
        Ok(lines) => lines,
        Err(error) => return (records, Some(error)),
    };
    loop {
        match lines.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}
