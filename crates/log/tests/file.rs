//! Writing session files: an accepted event is kept, whatever happens to the process or the disk.

use agent_base::count_text::counted;
use agent_event::{Event, Events, Record};
use agent_log::{SessionFile, SessionId, Store, read_records, verify};
use agent_testing::session_samples::{
    answer, one_of_each, prompt, record, session_of, started, store, write,
};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn every_event_is_read_as_it_was_written() {
    let (_dir, store) = store();
    let (id, file) = store.create().unwrap();
    let events = Events::new(1);
    events.begin(id.as_str(), 1, Box::new(file));
    one_of_each().into_iter().for_each(|event| events.emit(event).unwrap());
    let read = read_records(&store.events(&id)).unwrap();
    let kept: Vec<(u64, Event)> =
        (1..).zip(one_of_each()).filter(|(_, event)| !event.is_live_only()).collect();
    assert_eq!(read.into_iter().map(|record| (record.seq, record.event)).collect::<Vec<_>>(), kept);
}

#[test]
fn a_line_is_the_event_as_json_with_the_hash_of_the_line_before() {
    let (_dir, store) = store();
    let (id, mut file) = store.create().unwrap();
    let records: Vec<Record> = (1..).zip(one_of_each()).map(|(seq, event)| record(seq, event)).collect();
    records.iter().for_each(|record| file.append(record).unwrap());
    let text = std::fs::read_to_string(store.events(&id)).unwrap();
    let mut prev = "0".repeat(64);
    for (line, record) in text.lines().zip(&records) {
        let shown = serde_json::to_string(record).unwrap();
        assert_eq!(line, format!("{},\"prev\":\"{prev}\"}}", shown.strip_suffix('}').unwrap()));
        prev = agent_base::hash::Hash::of(line.as_bytes()).to_string();
    }
    let head = std::fs::read_to_string(store.dir(&id).join("head")).unwrap();
    assert_eq!(head, format!("{:020} {prev}\n", records.len()));
}

#[test]
fn a_session_is_accessible_to_its_user_only() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started()]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&store.dir(&id)), 0o700);
    assert_eq!(mode(&store.events(&id)), 0o600);
    assert_eq!(mode(&store.dir(&id).join("head")), 0o600);
}

#[test]
fn a_second_writer_is_refused_until_the_first_has_ended() {
    let (_dir, store) = store();
    let (id, first) = store.create().unwrap();
    assert!(store.is_running(&id));
    let error = store.reopen(&id).unwrap_err();
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    assert!(error.hint_text().is_some());
    assert!(store.remove(&id).unwrap_err().to_string().contains("in use"));
    drop(first);
    assert!(!store.is_running(&id));
    store.reopen(&id).unwrap();
}

#[test]
fn a_reopened_session_continues_after_its_last_event() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started(), prompt("one")]);
    let mut reopened = store.reopen(&id).unwrap();
    assert_eq!((reopened.records.len(), reopened.file.next_seq(), reopened.losses.len()), (2, 3, 0));
    write(&mut reopened.file, &[prompt("two")]);
    assert_eq!(read_records(&store.events(&id)).unwrap().len(), 3);
    assert_eq!(verify(&store.events(&id)).unwrap().fault, None);
}

#[test]
fn a_torn_last_line_is_dropped_and_nothing_else() {
    for torn in [&b"{\"seq\":3,\"time\":\"2026-"[..], b"\0\0\0\0", b"{\"seq\":3\0\0\0}\n", b"x"] {
        let (_dir, store) = store();
        let id = session_of(&store, &[started(), prompt("one")]);
        let whole = std::fs::read(store.events(&id)).unwrap();
        std::fs::write(store.events(&id), [&whole, torn].concat()).unwrap();
        let before = verify(&store.events(&id)).unwrap();
        assert_eq!(before.fault, None);
        assert!(before.note.unwrap().contains("incomplete last line"));
        let mut reopened = store.reopen(&id).unwrap();
        assert_eq!(reopened.losses.len(), 1, "{:?}", reopened.losses);
        assert_eq!(std::fs::read(store.events(&id)).unwrap(), whole);
        write(&mut reopened.file, &[prompt("two")]);
        assert_eq!(verify(&store.events(&id)).unwrap().fault, None);
    }
}

/// Leaves only the first `count` lines of a session.
fn shorten(store: &Store, id: &SessionId, count: usize) {
    let text = std::fs::read_to_string(store.events(id)).unwrap();
    std::fs::write(store.events(id), text.split_inclusive('\n').take(count).collect::<String>()).unwrap();
}

#[test]
fn a_loss_of_lines_is_recorded_when_the_session_is_resumed() {
    // Resuming rewrites `head`, which was the only proof of the loss.
    for left in 1..=3 {
        let (_dir, store) = store();
        let id = session_of(&store, &[started(), prompt("one"), prompt("two"), prompt("three")]);
        shorten(&store, &id, left);
        let mut reopened = store.reopen(&id).unwrap();
        let missing = 4 - left;
        assert_eq!(
            reopened.losses,
            [format!(
                "the session file lacks {} at its end; `agent sessions verify` will report it",
                counted(missing, "line")
            )]
        );
        write(&mut reopened.file, &[prompt("continue")]);
        drop(reopened);
        assert!(store.reopen(&id).unwrap().losses.is_empty());
        let fault = verify(&store.events(&id)).unwrap().fault.unwrap();
        assert_eq!(fault.line, left as u64 + 1);
        assert!(
            fault.what.contains(&format!("where the session lacked {}", counted(missing, "line"))),
            "{}",
            fault.what
        );
    }
}

#[test]
fn a_fork_of_a_shortened_session_records_the_loss_of_lines() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started(), prompt("one"), prompt("two")]);
    shorten(&store, &id, 2);
    let fork = store.fork(&id).unwrap();
    let fault = verify(&store.events(&fork)).unwrap().fault.unwrap();
    assert!(fault.what.contains("where the session lacked 1 line"), "{}", fault.what);
}

#[test]
fn a_session_with_a_recorded_loss_and_an_old_head_can_be_resumed() {
    for left in 1..=3 {
        let (_dir, store) = store();
        let id = session_of(&store, &[started(), prompt("one"), prompt("two"), prompt("three")]);
        let head = std::fs::read(store.dir(&id).join("head")).unwrap();
        shorten(&store, &id, left);
        drop(store.reopen(&id).unwrap());
        std::fs::write(store.dir(&id).join("head"), head).unwrap();
        drop(store.reopen(&id).unwrap());
        assert!(verify(&store.events(&id)).unwrap().fault.is_some());
    }
}

#[test]
fn a_session_that_was_resumed_without_a_head_is_verified_with_a_note() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started(), prompt("one"), prompt("two")]);
    std::fs::remove_file(store.dir(&id).join("head")).unwrap();
    shorten(&store, &id, 2);
    let mut reopened = store.reopen(&id).unwrap();
    assert_eq!(
        reopened.losses,
        ["the end of the session file cannot be verified: its `head` file is missing"]
    );
    write(&mut reopened.file, &[prompt("continue")]);
    let verdict = verify(&store.events(&id)).unwrap();
    assert_eq!(verdict.fault, None);
    assert!(verdict.note.unwrap().contains("resumed at line 3"));
}

#[test]
fn a_session_whose_last_line_was_replaced_is_not_resumed() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started(), prompt("delete nothing")]);
    let text = std::fs::read_to_string(store.events(&id)).unwrap();
    std::fs::write(store.events(&id), text.replace("delete nothing", "delete all")).unwrap();
    let error = store.reopen(&id).unwrap_err();
    assert!(error.to_string().contains("line 2 was replaced"), "{error}");
}

#[test]
fn a_session_that_was_edited_is_not_resumed() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started(), prompt("delete nothing"), prompt("two")]);
    let text = std::fs::read_to_string(store.events(&id)).unwrap();
    std::fs::write(store.events(&id), text.replace("delete nothing", "delete all")).unwrap();
    let error = store.reopen(&id).unwrap_err();
    assert!(error.to_string().contains("line 3 does not follow"), "{error}");
}

#[test]
fn a_recording_has_the_same_format_and_replaces_an_existing_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    std::fs::write(&path, "something else\n").unwrap();
    let mut file = SessionFile::record(&path).unwrap();
    write(&mut file, &[started(), answer("hello", Vec::new())]);
    assert_eq!(read_records(&path).unwrap().len(), 2);
    assert_eq!(verify(&path).unwrap().fault, None);
    assert!(!dir.path().join("head").exists());
}

#[test]
fn a_full_disk_is_an_error_and_leaves_a_valid_file() {
    let mut file = SessionFile::record(Path::new("/dev/full")).unwrap();
    let error = file.append(&record(1, prompt("one"))).unwrap_err();
    assert!(error.to_string().contains("could not be written"), "{error}");

    // The kernel's limit on file sizes cuts a line in the middle, as a full disk does.
    let (dir, store) = store();
    let mut child = writer("fill", dir.path());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let output: Vec<String> =
        lines.filter(|line| line.starts_with("acknowledged ") || line.starts_with("error ")).collect();
    assert!(child.wait().unwrap().success(), "{output:?}");
    assert!(output.last().unwrap().starts_with("error "), "{output:?}");
    let id = store.ids().unwrap().remove(0);
    let verdict = verify(&store.events(&id)).unwrap();
    assert_eq!((verdict.fault, verdict.note), (None, None));
    assert_eq!(verdict.lines, output.len() as u64 - 1);
}

#[test]
fn kill_9_at_any_moment_loses_nothing_that_was_acknowledged() {
    for round in 0..20 {
        let (dir, store) = store();
        let mut child = writer("forever", dir.path());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        // At a different moment in each round.
        let mut last = 0;
        while last < 1 + round * 7 {
            last = acknowledged(&mut output).expect("the writer is alive").max(last);
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(..2000)));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        while let Some(number) = acknowledged(&mut output) {
            last = number;
        }
        let id = store.ids().unwrap().remove(0);
        let verdict = verify(&store.events(&id)).unwrap();
        assert_eq!(verdict.fault, None);
        assert!(verdict.lines >= last, "line {last} was acknowledged, {} are there", verdict.lines);
        let reopened = store.reopen(&id).unwrap();
        assert_eq!(reopened.records.len() as u64, verdict.lines);
    }
}

/// The next number that the writer printed, `None` at the end.
fn acknowledged(output: &mut impl BufRead) -> Option<u64> {
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            return None;
        }
        if let Some(number) = line.strip_prefix("acknowledged ") {
            return Some(number.trim().parse().unwrap());
        }
    }
}

/// Runs [`writer_process`] in a new process.
fn writer(what: &str, root: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["file::writer_process", "--exact", "--nocapture"]);
    command.env("SESSION_WRITER", what).env("SESSION_ROOT", root).stdout(Stdio::piped());
    if what == "fill" {
        // SAFETY: both calls are safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 20_000, rlim_max: 20_000 };
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
                Ok(())
            });
        }
    }
    command.spawn().unwrap()
}

/// Not a test by itself: writes a session and acknowledges each event that was accepted.
#[test]
fn writer_process() {
    let Ok(what) = std::env::var("SESSION_WRITER") else { return };
    let store = Store::at(std::env::var_os("SESSION_ROOT").unwrap());
    let (_, mut file) = store.create().unwrap();
    let mut out = std::io::stdout();
    for seq in 1..if what == "fill" { 1_000 } else { u64::MAX } {
        match file.append(&record(seq, prompt(&"x".repeat(seq as usize % 900)))) {
            Ok(()) => writeln!(out, "acknowledged {seq}").unwrap(),
            Err(error) => return writeln!(out, "error {error}").unwrap(),
        }
    }
}
