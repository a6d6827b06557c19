//! Finding, listing and removing sessions.

use agent_base::error::Kind;
use agent_event::Event;
use agent_log::list::{parse_age, to_text};
use agent_log::{History, SessionId, Store, verify};
use agent_testing::session_samples::{answer, finished, prompt, session_of, started, store, write};
use std::collections::HashSet;
use std::fs::{File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Sets the time of the last write to `age` ago.
fn set_age(store: &Store, id: &SessionId, age: Duration) {
    let file = File::options().append(true).open(store.events(id)).unwrap();
    file.set_times(FileTimes::new().set_modified(SystemTime::now() - age)).unwrap();
}

#[test]
fn ids_are_short_and_sort_by_time() {
    let (_dir, store) = store();
    let id = session_of(&store, &[]);
    let text = id.as_str();
    assert_eq!((text.len(), &text[8..9], &text[15..16]), (20, "-", "-"));
    assert!(text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')));
    assert!(text.starts_with("20"));
}

#[test]
fn a_session_is_found_by_a_prefix_of_its_id() {
    let (_dir, store) = store();
    let id = session_of(&store, &[]);
    assert_eq!(store.find(id.as_str()).unwrap(), id);
    assert_eq!(store.find(&id.as_str()[..18]).unwrap(), id);
    let other = session_of(&store, &[]);
    let error = store.find("20").unwrap_err();
    assert_eq!((error.to_string().as_str(), error.kind()), ("2 sessions begin with 20", Kind::Usage));
    assert!(error.hint_text().unwrap().contains(other.as_str()));
    assert!(store.find("1999").unwrap_err().to_string().contains("unknown session 1999"));
    for hostile in ["", "..", "../x", "a/b", "-x", "A", "\u{1b}[31m", "ä", &"x".repeat(65)] {
        let error = store.find(hostile).unwrap_err();
        assert!(error.to_string().contains("is not a session id"), "{error}");
        assert!(!error.to_string().contains('\u{1b}'));
    }
}

#[test]
fn the_last_session_is_the_one_written_last_in_a_workspace_or_at_all() {
    let (_dir, store) = store();
    assert!(store.last(None).unwrap_err().to_string().contains("no session yet"));
    let here = session_of(&store, &[started()]);
    let elsewhere = session_of(
        &store,
        &[Event::SessionStarted {
            version: String::new(),
            model: String::new(),
            base_url: "http://127.0.0.1/v1".to_owned(),
            workspace: "/elsewhere".to_owned(),
            directory: String::new(),
            added: Vec::new(),
            sandbox: Default::default(),
            parent: None,
        }],
    );
    set_age(&store, &elsewhere, Duration::from_secs(60));
    set_age(&store, &here, Duration::from_secs(3600));
    assert_eq!(store.last(None).unwrap(), elsewhere);
    assert_eq!(store.last(Some(Path::new("/home/user/project"))).unwrap(), here);
    assert!(store.last(Some(Path::new("/nowhere"))).is_err());
    // A session of a parent directory is not used, but the hint names it.
    let below = store.last(Some(Path::new("/elsewhere/src/deep"))).unwrap_err();
    let hint = below.hint_text().unwrap();
    assert_eq!(hint, format!("the last session of /elsewhere is {elsewhere}: name it"));
}

#[test]
fn a_key_always_names_the_same_session() {
    let (dir, store) = store();
    let id = store.for_key("thread/42: \"ü\" ../../etc").unwrap();
    assert_eq!(store.for_key("thread/42: \"ü\" ../../etc").unwrap(), id);
    assert_ne!(store.for_key("thread/43").unwrap(), id);
    store.reopen(&id).unwrap();
    store.remove(&id).unwrap();
    let again = store.for_key("thread/42: \"ü\" ../../etc").unwrap();
    assert!(store.events(&again).exists());
    assert_ne!(again, id);
    // A key's file that a power failure damaged is replaced.
    let keys = std::fs::read_dir(dir.path().join("keys")).unwrap();
    keys.for_each(|key| std::fs::write(key.unwrap().path(), b"\0\0\0").unwrap());
    assert!(store.events(&store.for_key("thread/43").unwrap()).exists());
}

#[test]
fn a_key_is_removed_with_its_session() {
    let (dir, store) = store();
    let keys = || std::fs::read_dir(dir.path().join("keys")).unwrap().count();
    let ids = ["one", "two", "three"].map(|key| store.for_key(key).unwrap());
    store.remove(&ids[0]).unwrap();
    assert_eq!(keys(), 2);
    // A copy has no key.
    store.remove(&store.fork(&ids[1]).unwrap()).unwrap();
    assert_eq!(store.for_key("two").unwrap(), ids[1]);
    set_age(&store, &ids[1], Duration::from_secs(3600));
    store.prune(Duration::from_secs(60)).unwrap();
    assert_eq!(keys(), 1);
    // A key that names another session now is kept.
    std::fs::remove_file(store.events(&ids[2])).unwrap();
    let third = store.for_key("three").unwrap();
    store.remove(&ids[2]).unwrap();
    assert_eq!(store.for_key("three").unwrap(), third);
}

#[test]
fn a_key_that_is_removed_while_it_is_looked_up_is_created_again() {
    let (_dir, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let id = store.for_key("one").unwrap();
                    // Another thread may have removed it first.
                    let _ = store.remove(&id);
                }
            });
        }
    });
    let id = store.for_key("one").unwrap();
    assert_eq!(store.for_key("one").unwrap(), id);
    assert_eq!(store.ids().unwrap(), [id]);
}

#[test]
fn concurrent_lookups_of_a_key_find_one_session() {
    let (_dir, store) = store();
    let ids: HashSet<SessionId> = std::thread::scope(|scope| {
        let lookups: Vec<_> = (0..16).map(|_| scope.spawn(|| store.for_key("one").unwrap())).collect();
        lookups.into_iter().map(|lookup| lookup.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 1);
    assert_eq!(store.ids().unwrap().len(), 1);
}

#[test]
fn the_list_shows_status_usage_and_first_prompt() {
    let (_dir, store) = store();
    let done = session_of(
        &store,
        &[
            started(),
            prompt(&format!("fix\n  the \u{1b}[31mtest {}", "x".repeat(100))),
            Event::TurnStarted { turn: 1 },
            answer("ok", Vec::new()),
            finished("completed"),
        ],
    );
    let killed = session_of(&store, &[started(), prompt("short")]);
    let empty = session_of(&store, &[]);
    let broken = session_of(&store, &[started()]);
    std::fs::write(store.events(&broken), b"\xff\xfe\n\x00").unwrap();
    let (running, _file) = store.create().unwrap();
    std::fs::create_dir(store.dir(&running).with_file_name("NOT AN ID")).unwrap();
    for (id, minutes) in [(&done, 1), (&killed, 2), (&empty, 3), (&broken, 4), (&running, 5)] {
        set_age(&store, id, Duration::from_secs(60 * minutes));
    }
    let list = store.list().unwrap();
    let status: Vec<&str> = list.iter().map(|summary| summary.status.as_str()).collect();
    assert_eq!(status, ["completed", "unfinished", "empty", "broken", "running"]);
    assert_eq!(list[0].preview.chars().count(), 72);
    assert!(list[0].preview.starts_with("fix ⏎ the test xxx") && list[0].preview.ends_with('…'));
    assert_eq!((list[0].turns, list[0].usage.input, list[0].changes.modified), (1, 10, 2));
    assert_eq!(list[1].preview, "short");
    assert!(list[3].error.as_ref().unwrap().contains("line 1 of"));
    let text = to_text(&list, None);
    assert_eq!(text.lines().count(), 5);
    assert!(
        text.lines().next().unwrap().contains("completed       1 turn       15 tokens  fix ⏎ the"),
        "{text}"
    );
    assert_eq!(serde_json::to_value(&list).unwrap()[1]["id"], killed.as_str());
}

#[test]
fn old_sessions_are_pruned_but_not_running_ones() {
    let (_dir, store) = store();
    let old = session_of(&store, &[started()]);
    let young = session_of(&store, &[started()]);
    let (running, _file) = store.create().unwrap();
    let day = Duration::from_secs(24 * 3600);
    [&old, &running].into_iter().for_each(|id| set_age(&store, id, day * 8));
    set_age(&store, &young, day * 6);
    std::fs::create_dir(store.dir(&old).join("workspace")).unwrap();
    std::fs::write(store.dir(&old).join("workspace/x"), "x").unwrap();
    let removed = store.prune(parse_age("7d").unwrap()).unwrap();
    assert_eq!((removed.len(), &removed[0].id, removed[0].sandbox.as_str()), (1, &old, "docker"));
    let mut left = [young, running];
    left.sort();
    assert_eq!(store.ids().unwrap(), left);
}

#[test]
fn ages_are_parsed_in_common_notation() {
    for (text, seconds) in
        [("90s", 90), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600), ("1 day", 86_400)]
    {
        assert_eq!(parse_age(text).unwrap(), Duration::from_secs(seconds), "{text}");
    }
    for text in ["", "7", "x", "-7d", "99999999999999999999d"] {
        assert_eq!(parse_age(text).unwrap_err().kind(), Kind::Usage, "{text}");
    }
}

#[test]
fn a_fork_has_the_history_of_its_source_and_its_own_events() {
    let (_dir, store) = store();
    let events = [started(), prompt("one"), answer("yes", Vec::new())];
    let source = session_of(&store, &events);
    std::fs::create_dir_all(store.dir(&source).join("workspace/blobs/ab")).unwrap();
    std::fs::write(store.dir(&source).join("workspace/blobs/ab/cd"), "content").unwrap();
    std::fs::write(store.dir(&source).join("workspace/base.json"), "{}").unwrap();
    let fork = store.fork(&source).unwrap();
    let links = |path: &str| std::fs::metadata(store.dir(&fork).join(path)).unwrap().nlink();
    assert_eq!((links("workspace/blobs/ab/cd"), links("workspace/base.json")), (2, 2));
    assert_eq!(verify(&store.events(&fork)).unwrap().fault, None);
    assert_eq!(std::fs::read(store.dir(&fork).join("workspace/blobs/ab/cd")).unwrap(), b"content");
    assert_eq!(std::fs::read(store.dir(&fork).join("workspace/base.json")).unwrap(), b"{}");
    let mut reopened = store.reopen(&fork).unwrap();
    let history = History::of(&reopened.records);
    assert_eq!((history.session.as_str(), history.messages.len()), (fork.as_str(), 2));
    let notice = Event::Notice { text: format!("forked from session {source}") };
    assert_eq!(reopened.records.last().unwrap().event, notice);
    write(&mut reopened.file, &[prompt("two")]);
    assert_eq!(store.reopen(&source).unwrap().records.len(), events.len());
}

#[test]
fn a_fork_of_a_damaged_session_fails_and_leaves_nothing() {
    let (_dir, store) = store();
    let source = session_of(&store, &[started()]);
    std::fs::write(store.events(&source), "junk\n").unwrap();
    store.fork(&source).unwrap_err();
    assert_eq!(store.ids().unwrap(), [source]);
}
