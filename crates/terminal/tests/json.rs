//! The stream of `--json`.

use agent_base::error::Kind;
use agent_event::{Event, Events, Listener, Record};
use agent_terminal::json::Json;
use futures_util::FutureExt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<(Vec<u8>, usize)>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().1 += 1;
        Ok(())
    }
}

struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_event_is_one_flushed_line_without_terminal_controls() {
    let kept = Kept::default();
    let events = Events::new(1);
    events.listen(Box::new(Json::new(kept.clone())));
    let nasty = "line\n\"quoted\" \x1b[2J \u{9b}31m \u{202e} \u{7f} ü".to_string();
    events.emit(Event::TextDelta { text: nasty.clone() }).unwrap();
    events.emit(Event::TurnStarted { turn: 1 }).unwrap();
    events.flush().await.unwrap();

    let (bytes, flushes) = kept.0.lock().unwrap().clone();
    assert_eq!(flushes, 2);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.chars().all(|c| !c.is_control() || c == '\n') && !text.contains('\u{202e}'), "{text:?}");
    let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records[0].event, Event::TextDelta { text: nasty });
    assert_eq!((records[1].seq, &records[1].event), (2, &Event::TurnStarted { turn: 1 }));
}

#[tokio::test]
async fn a_closed_reader_ends_the_run_with_output_closed() {
    let events = Events::new(1);
    events.listen(Box::new(Json::new(Closed)));
    events.emit(Event::TurnStarted { turn: 1 }).unwrap();
    assert_eq!(events.flush().await.unwrap_err().kind(), Kind::OutputClosed);
    let error = events.emit(Event::TurnStarted { turn: 2 }).unwrap_err();
    assert_eq!(error.kind(), Kind::OutputClosed);
}

/// A session whose `--json` goes into a pipe.
fn session_into_pipe(id: &str) -> (Events, io::PipeReader) {
    struct Discard;
    impl Listener for Discard {
        fn on_event(&mut self, _: &Record, _: &[u8]) -> agent_base::Result<()> {
            Ok(())
        }
    }
    let (reader, writer) = io::pipe().unwrap();
    let events = Events::new(1);
    events.listen(Box::new(Json::new(writer)));
    events.begin(id, 1, Box::new(Discard));
    (events, reader)
}

/// Reads `count` events and checks that none is missing, in the wrong place, or another session's.
fn read_all(reader: io::PipeReader, session: &str, count: u64) {
    let mut lines = BufReader::new(reader).lines();
    for seq in 1..=count {
        let line = lines.next().expect("another line").unwrap();
        let record: Record = serde_json::from_str(&line).unwrap();
        assert_eq!((record.seq, record.session.as_str()), (seq, session));
    }
}

/// The reader of the first session does not read at all until the second session is over: no pause could be longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_delays_no_session_and_loses_no_event() {
    const EVENTS: u64 = 20_000;
    let (stalled, stalled_reader) = session_into_pipe("stalled");
    let (other, other_reader) = session_into_pipe("other");
    let reading = tokio::task::spawn_blocking(move || read_all(other_reader, "other", EVENTS));
    let text = "x".repeat(500);
    for _ in 0..EVENTS {
        stalled.emit(Event::TextDelta { text: text.clone() }).unwrap();
        other.emit(Event::TextDelta { text: text.clone() }).unwrap();
    }
    other.flush().await.unwrap();
    reading.await.unwrap();
    assert!(stalled.flush().now_or_never().is_none(), "10 MB do not fit into a pipe");

    let reading = tokio::task::spawn_blocking(move || read_all(stalled_reader, "stalled", EVENTS));
    stalled.flush().await.unwrap();
    reading.await.unwrap();
}

#[tokio::test]
async fn a_listener_that_panics_does_not_block_the_session() {
    struct Panics;
    impl Listener for Panics {
        fn on_event(&mut self, _: &Record, _: &[u8]) -> agent_base::Result<()> {
            panic!("a bug in a listener")
        }
    }
    let kept = Kept::default();
    let events = Events::new(1);
    events.listen(Box::new(Panics));
    events.listen(Box::new(Json::new(kept.clone())));
    for turn in 1..=3 {
        events.emit(Event::TurnStarted { turn }).unwrap();
        events.flush().await.unwrap();
    }
    assert_eq!(kept.0.lock().unwrap().1, 3);
}
