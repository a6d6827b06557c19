//! Saving a virtual machine: QEMU, asked through its monitor, sends the state to a socket.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Where QEMU connects to.
const SOCKET: &str = "/tmp/state";
/// How long the state may take, and how long an answer.
const TIME: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(10);
/// The most that an answer of the monitor may be, and the state.
const MAX_ANSWER: u64 = 64 << 10;
const MAX_STATE: u64 = 4 << 30;
/// So that the state is as quick as the disk.
const BYTES_PER_SECOND: u64 = 1 << 40;

/// Writes the state of the machine with this monitor to `file`.
pub fn save(monitor: UnixStream, mut file: File) -> io::Result<()> {
    monitor.set_read_timeout(Some(ANSWER))?;
    let listener = UnixListener::bind(SOCKET)?;
    listener.set_nonblocking(true)?;
    let mut monitor = Monitor(BufReader::new(monitor.take(MAX_ANSWER)));
    monitor.line()?;
    monitor.ask(r#"{"execute":"qmp_capabilities"}"#)?;
    monitor.ask(&format!(
        r#"{{"execute":"migrate-set-parameters","arguments":{{"max-bandwidth":{BYTES_PER_SECOND}}}}}"#
    ))?;
    monitor.ask(&format!(r#"{{"execute":"migrate","arguments":{{"uri":"unix:{SOCKET}"}}}}"#))?;
    let until = Instant::now() + TIME;
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIME))?;
    io::copy(&mut stream.take(MAX_STATE), &mut file)?;
    fs::remove_file(SOCKET)?;
    while Instant::now() < until {
        let status = monitor.ask(r#"{"execute":"query-migrate"}"#)?;
        if status.contains(r#""status": "completed""#) {
            return Ok(());
        }
        if status.contains(r#""status": "failed""#) {
            return Err(io::Error::other(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// QEMU's monitor: a line of JSON for each question and each answer.
struct Monitor(BufReader<io::Take<UnixStream>>);

impl Monitor {
    /// Asks, and returns the answer, which says no error.
    fn ask(&mut self, question: &str) -> io::Result<String> {
        self.0.get_mut().set_limit(MAX_ANSWER);
        self.0.get_mut().get_mut().write_all(format!("{question}\n").as_bytes())?;
        loop {
            let line = self.line()?;
            if line.starts_with(r#"{"return""#) {
                return Ok(line);
            }
            // Between the answers there are events.
            if !line.contains(r#""event""#) {
                return Err(io::Error::other(line));
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }
}
