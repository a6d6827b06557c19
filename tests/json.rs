//! `--json`: the stream itself.

use agent::cli::ui::json::Json;
use agent::error::Kind;
use agent::event::{Event, Events, Record};
use std::io::{self, ErrorKind, Write};
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

#[test]
fn each_event_is_one_flushed_line_and_harmless_on_a_terminal() {
    let kept = Kept::default();
    let events = Events::new(1);
    events.listen(Box::new(Json::new(kept.clone())));
    let nasty = "line\n\"quoted\" \x1b[2J \u{9b}31m \u{202e} \u{7f} ü".to_string();
    events.emit(Event::TextDelta { text: nasty.clone() }).unwrap();
    events.emit(Event::TurnStarted { turn: 1 }).unwrap();

    let (bytes, flushes) = kept.0.lock().unwrap().clone();
    assert_eq!(flushes, 2);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.chars().all(|c| !c.is_control() || c == '\n') && !text.contains('\u{202e}'), "{text:?}");
    let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records[0].event, Event::TextDelta { text: nasty });
    assert_eq!((records[1].seq, &records[1].event), (2, &Event::TurnStarted { turn: 1 }));
}

#[test]
fn a_reader_that_has_gone_ends_the_run_with_an_error_of_its_own() {
    let events = Events::new(1);
    events.listen(Box::new(Json::new(Closed)));
    let error = events.emit(Event::TurnStarted { turn: 1 }).unwrap_err();
    assert_eq!(error.kind(), Kind::OutputClosed);
}
