//! QEMU's monitor (QMP): a line of JSON for each question, each answer and each event. QEMU holds the machine, so that what it says is
//! bounded and compared, and nothing of it is obeyed.

use crate::client::would_block;
use crate::sys::{POLLIN, Poll};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// The path of the socket that QEMU connects to, to send the machine's state.
const SOCKET: &str = "/tmp/state";
/// The time limit for an answer, and for a state.
const ANSWER: Duration = Duration::from_secs(60);
const TRANSFER: Duration = Duration::from_secs(300);
/// The most that a line may be, and that is read before others have their turn.
const MAX_LINE: usize = 64 << 10;
/// The most that a state may be: more memory than a machine has.
const MAX_STATE: u64 = 64 << 30;
/// So that a state is as quick as the disk.
const BYTES_PER_SECOND: u64 = 1 << 40;
const COMPLETED: &str = r#""status": "completed""#;
const NEXT_LOOK: Duration = Duration::from_millis(2);

/// The kind of a line, with its text.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Greeting,
    Answer(String),
    Refusal(String),
    Event(String),
}

pub struct Monitor {
    stream: UnixStream,
    received: Vec<u8>,
    /// Questions whose answers have not come.
    asked: usize,
}

impl Monitor {
    /// Begins to speak with the monitor at `stream`.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let mut monitor = Self { stream, received: Vec::new(), asked: 0 };
        monitor.send(r#"{"execute":"qmp_capabilities"}"#)?;
        Ok(monitor)
    }

    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads what there is, and returns whether QEMU has stopped the machine because this one's disk is full.
    pub fn disk_is_full(&mut self) -> io::Result<bool> {
        self.read()?;
        let mut is_full = false;
        while let Some(line) = self.next()? {
            is_full |= matches!(line, Line::Event(event) if says_full(&event));
        }
        Ok(is_full)
    }

    /// Stops the machine and writes its state to `file`.
    pub fn save(&mut self, file: &mut File) -> io::Result<()> {
        // One that was saved before has left it.
        let _ = fs::remove_file(SOCKET);
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        self.ask(r#"{"execute":"stop"}"#)?;
        self.ask(&format!(
            r#"{{"execute":"migrate-set-parameters","arguments":{{"max-bandwidth":{BYTES_PER_SECOND}}}}}"#
        ))?;
        self.ask(&format!(r#"{{"execute":"migrate","arguments":{{"uri":"unix:{SOCKET}"}}}}"#))?;
        let until = Instant::now() + TRANSFER;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if Instant::now() < until => std::thread::sleep(NEXT_LOOK),
                Err(error) => return Err(error),
            }
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ANSWER))?;
        io::copy(&mut stream.take(MAX_STATE), file)?;
        fs::remove_file(SOCKET)?;
        let ends = |status: &str| status.contains(COMPLETED) || status.contains(r#""status": "failed""#);
        let status = self.wait(r#"{"execute":"query-migrate"}"#, until, ends)?;
        if status.contains(COMPLETED) { Ok(()) } else { Err(io::Error::other(status)) }
    }

    /// Lets a machine go on that is being restored, or could not be saved.
    pub fn go_on(&mut self) -> io::Result<()> {
        let until = Instant::now() + TRANSFER;
        self.wait(r#"{"execute":"query-status"}"#, until, |status| !status.contains(r#""inmigrate""#))?;
        self.ask(r#"{"execute":"cont"}"#).map(drop)
    }

    /// Asks until the answer says that it is over.
    fn wait(&mut self, question: &str, until: Instant, is_over: fn(&str) -> bool) -> io::Result<String> {
        while Instant::now() < until {
            let answer = self.ask(question)?;
            if is_over(&answer) {
                return Ok(answer);
            }
            std::thread::sleep(NEXT_LOOK);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Asks, and returns the answer, which says no error.
    fn ask(&mut self, question: &str) -> io::Result<String> {
        self.send(question)?;
        let until = Instant::now() + ANSWER;
        let mut poll = Poll::default();
        loop {
            while let Some(line) = self.next()? {
                match line {
                    // Answers come in the order of the questions.
                    Line::Answer(answer) if self.asked == 0 => return Ok(answer),
                    Line::Refusal(error) if self.asked == 0 => return Err(io::Error::other(error)),
                    _ => {}
                }
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(io::ErrorKind::TimedOut)?;
            poll.clear();
            poll.add(self.fd(), POLLIN);
            poll.wait(Some(left));
            self.read()?;
        }
    }

    /// Questions are shorter than what a socket takes at once.
    fn send(&mut self, question: &str) -> io::Result<()> {
        self.asked += 1;
        self.stream.write_all(format!("{question}\n").as_bytes())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while self.received.len() <= MAX_LINE {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next whole line.
    fn next(&mut self) -> io::Result<Option<Line>> {
        let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else {
            return if self.received.len() > MAX_LINE {
                Err(wrong("a line without an end"))
            } else {
                Ok(None)
            };
        };
        let line: Vec<u8> = self.received.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let line = classify(line)?;
        if matches!(line, Line::Answer(_) | Line::Refusal(_)) {
            self.asked = self.asked.checked_sub(1).ok_or_else(|| wrong("an answer that nobody asked for"))?;
        }
        Ok(Some(line))
    }
}

fn classify(line: String) -> io::Result<Line> {
    Ok(match line {
        line if line.starts_with(r#"{"return""#) => Line::Answer(line),
        line if line.starts_with(r#"{"error""#) => Line::Refusal(line),
        line if line.starts_with(r#"{"QMP""#) => Line::Greeting,
        line if line.contains(r#""event": ""#) => Line::Event(line),
        _ => return Err(wrong("neither an answer nor an event")),
    })
}

/// A write for which there was no space: QEMU stops the machine then.
fn says_full(event: &str) -> bool {
    event.contains(r#""event": "BLOCK_IO_ERROR""#) && event.contains(r#""nospace": true"#)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("QEMU's monitor said {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor, and QEMU's end of it after the greeting.
    fn monitor() -> (Monitor, UnixStream) {
        let (mine, mut qemu) = UnixStream::pair().unwrap();
        qemu.write_all(b"{\"QMP\": {\"version\": {}}}\n{\"return\": {}}\n").unwrap();
        (Monitor::new(mine).unwrap(), qemu)
    }

    #[test]
    fn an_answer_is_told_from_events_and_former_answers() {
        let (mut monitor, mut qemu) = monitor();
        qemu.write_all(b"{\"timestamp\": {}, \"event\": \"STOP\"}\n{\"return\": {\"status\": \"paused\"}}\n")
            .unwrap();
        assert_eq!(monitor.ask("a question").unwrap(), r#"{"return": {"status": "paused"}}"#);
        qemu.write_all(b"{\"error\": {\"desc\": \"why\"}}\n").unwrap();
        assert!(monitor.ask("another").unwrap_err().to_string().contains("why"));
        drop(qemu);
        assert!(monitor.ask("a third").is_err());
    }

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        for (nospace, is_full) in [("true", true), ("false", false)] {
            let (mut monitor, mut qemu) = monitor();
            let event = format!("{{\"event\": \"BLOCK_IO_ERROR\", \"data\": {{\"nospace\": {nospace}}}}}\n");
            qemu.write_all(event.as_bytes()).unwrap();
            assert_eq!(monitor.disk_is_full().unwrap(), is_full);
            assert!(!monitor.disk_is_full().unwrap());
        }
    }

    #[test]
    fn what_no_monitor_says_is_an_error() {
        let long = vec![b' '; 2 * MAX_LINE];
        for said in [b"{\"return\": {}}\n".as_slice(), b"no JSON\n", &long] {
            let (mut monitor, mut qemu) = monitor();
            let writer = {
                let said = said.to_vec();
                // More than a socket takes at once.
                std::thread::spawn(move || qemu.write_all(&said).map(|()| qemu))
            };
            let until = Instant::now() + ANSWER;
            while monitor.disk_is_full().is_ok() {
                assert!(Instant::now() < until, "{said:?} is taken");
            }
            drop(monitor);
            let _ = writer.join().unwrap();
        }
    }
}
