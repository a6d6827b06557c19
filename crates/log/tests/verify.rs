//! Changes to a session file are found, with the line.

use agent_log::{Verdict, verify};
use agent_testing::session_samples::{one_of_each, prompt, session_of, started, store};
use proptest::prelude::*;
use std::path::Path;

/// Verifies a session of `one_of_each` after `change` was made to its bytes.
fn after(change: impl FnOnce(&mut Vec<u8>)) -> Verdict {
    let (_dir, store) = store();
    let id = session_of(&store, &one_of_each());
    let path = store.events(&id);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    verify(&path).unwrap()
}

fn lines_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The line that `verify` names after `change` was made to the lines.
fn fault_line(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> u64 {
    let verdict = after(|bytes| {
        let mut lines = lines_of(bytes);
        change(&mut lines);
        *bytes = lines.concat();
    });
    verdict.fault.expect("the change is found").line
}

#[test]
fn an_unchanged_session_is_valid() {
    let verdict = after(|_| {});
    assert_eq!(verdict, Verdict { lines: one_of_each().len() as u64, fault: None, note: None });
}

#[test]
fn the_faulty_line_is_named() {
    let last = one_of_each().len();
    for line in [1, 2, 7, last - 1, last] {
        let at = line - 1;
        let number = line as u64;
        assert_eq!(fault_line(|lines| lines[at][10] ^= 1), number, "changed");
        assert_eq!(
            fault_line(|lines| *lines[at].iter_mut().rev().nth(20).unwrap() ^= 1),
            number,
            "changed hash"
        );
        assert_eq!(fault_line(|lines| drop(lines.remove(at))), number, "removed");
        assert_eq!(fault_line(|lines| lines.insert(at, lines[at].clone())), number + 1, "repeated");
        if line < last {
            assert_eq!(fault_line(|lines| lines.swap(at, at + 1)), number, "swapped");
        }
    }
}

#[test]
fn the_error_describes_the_change() {
    let error = |change: fn(&mut Vec<u8>)| after(change).into_result().unwrap_err().to_string();
    let removed = error(|bytes| {
        let mut lines = lines_of(bytes);
        lines.remove(4);
        *bytes = lines.concat();
    });
    assert_eq!(removed, "line 5 does not follow: 1 missing before it");
    let cut = error(|bytes| bytes.truncate(lines_of(bytes)[..3].concat().len()));
    let lines = one_of_each().len();
    assert_eq!(cut, format!("line 4 and what follows is missing: {lines} were written"));
    let swapped = error(|bytes| {
        let mut lines = lines_of(bytes);
        lines.swap(4, 9);
        *bytes = lines.concat();
    });
    assert_eq!(swapped, "line 5 is out of place: it belongs after line 9");
}

#[test]
fn without_a_head_the_end_cannot_be_verified() {
    let (_dir, store) = store();
    let id = session_of(&store, &[started(), prompt("one")]);
    std::fs::remove_file(store.dir(&id).join("head")).unwrap();
    let verdict = verify(&store.events(&id)).unwrap();
    assert_eq!(verdict.fault, None);
    assert!(verdict.note.unwrap().contains("the head file is missing"));
}

#[test]
fn hostile_files_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let long = std::fs::File::create(&path).unwrap();
    long.set_len(100 << 20).unwrap();
    let error = verify(&path).unwrap_err();
    assert!(
        error.to_string().contains("line 1 of") && error.to_string().contains("longer than 64 MiB"),
        "{error}"
    );

    std::fs::write(&path, random_bytes(1 << 20)).unwrap();
    assert!(verify(&path).unwrap().fault.is_some());
    assert!(agent_log::read_records(&path).is_err());
    assert!(verify(Path::new("/nowhere/events.jsonl")).is_err());
    assert!(verify(dir.path()).is_err());
}

fn random_bytes(count: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(count).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_flipped_byte_is_found(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let verdict = after(|bytes| {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        });
        prop_assert!(verdict.fault.is_some());
    }

    #[test]
    fn any_removed_range_of_lines_is_found(from in any::<prop::sample::Index>(), count in 1usize..5) {
        fault_line(|lines| {
            let from = from.index(lines.len());
            lines.drain(from..(from + count).min(lines.len()));
        });
    }

    #[test]
    fn any_two_swapped_lines_are_found(one in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
        let count = one_of_each().len();
        prop_assume!(one.index(count) != other.index(count));
        fault_line(|lines| lines.swap(one.index(count), other.index(count)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, bytes).unwrap();
        let _ = verify(&path);
        let _ = agent_log::read_records(&path);
    }
}
