//! The state of a session, rebuilt from its events.

use agent_event::{Changes, Event, Record, Usage};
use agent_log::{Finished, History};
use agent_model::Message;
use agent_testing::session_samples::{
    SESSION, answer, call, finished, prompt, record, started, tool_finished,
};
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;

fn records(events: impl IntoIterator<Item = Event>) -> Vec<Record> {
    (1..).zip(events).map(|(seq, event)| record(seq, event)).collect()
}

fn history(events: impl IntoIterator<Item = Event>) -> History {
    History::of(&records(events))
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn tool(id: &str, text: &str) -> Message {
    Message::Tool { id: id.to_owned(), name: "run_commands".to_owned(), text: text.to_owned() }
}

/// In place of an answer that was never recorded.
fn unanswered() -> Message {
    let text = "[the session ended before this was answered]".to_owned();
    Message::Assistant { text, reasoning: None, tool_calls: Vec::new(), opaque: Default::default() }
}

const INTERRUPTED: &str = "interrupted: the session ended before this call was done; it may have run in part";

#[test]
fn the_conversation_and_the_usage_are_restored() {
    let calls = vec![call("c1", "run_commands", "{}")];
    let history = history([
        started(),
        prompt("list"),
        Event::TurnStarted { turn: 1 },
        answer("", calls.clone()),
        tool_finished("c1", "run_commands", "a b"),
        Event::Checkpoint { id: "k1".to_owned(), files: 1, names: Vec::new(), prompt: Some(1) },
        Event::TurnStarted { turn: 2 },
        answer("a and b", Vec::new()),
        finished("completed"),
    ]);
    assert_eq!(
        history.messages,
        [
            user("list"),
            Message::Assistant {
                text: String::new(),
                reasoning: None,
                tool_calls: calls,
                opaque: Default::default()
            },
            tool("c1", "a b"),
            Message::Assistant {
                text: "a and b".to_owned(),
                reasoning: None,
                tool_calls: Vec::new(),
                opaque: Default::default()
            },
        ]
    );
    assert_eq!((history.session.as_str(), history.model.as_str(), history.turns), (SESSION, "test-model", 2));
    assert_eq!(history.workspace, "/home/user/project");
    assert_eq!(history.usage, Usage { input: 20, output: 10, cached: 4, written: 0 });
    assert_eq!(history.checkpoints, ["k1"]);
    assert_eq!(history.prompts, 1);
    let changes = Changes { added: 1, modified: 2, deleted: 3 };
    assert_eq!(history.finished, Some(Finished { status: "completed".to_owned(), changes, error: None }));
}

#[test]
fn an_interrupted_call_gets_an_answer() {
    let calls = vec![call("c1", "run_commands", "{}"), call("c2", "run_commands", "{}")];
    let history = history([
        prompt("one"),
        answer("", calls),
        tool_finished("c1", "run_commands", "done"),
        // Killed here, resumed with:
        prompt("two"),
        answer("", vec![call("c1", "run_commands", "{}")]),
    ]);
    let answers: Vec<&Message> =
        history.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).collect();
    assert_eq!(answers, [&tool("c1", "done"), &tool("c2", INTERRUPTED), &tool("c1", INTERRUPTED)]);
    assert_eq!(history.messages[4], unanswered());
    assert_eq!(history.messages[5], user("two"));
    assert_eq!(history.finished, None);
}

#[test]
fn a_compaction_replaces_what_came_before_it() {
    let history = history([
        prompt("long ago"),
        answer("yes", Vec::new()),
        Event::Compacted {
            before: 9,
            after: 3,
            messages: json!([{"role": "system", "text": "you are"}, {"role": "user", "text": "summary"}]),
        },
        prompt("now"),
        Event::Compacted { before: 9, after: 3, messages: json!("not messages") },
    ]);
    assert_eq!(history.messages, [user("summary"), unanswered(), user("now"), unanswered()]);
    assert_eq!(history.usage.input, 10, "the usage before a compaction counts");
}

#[test]
fn a_cleared_conversation_is_not_restored() {
    let cleared = history([prompt("long ago"), answer("yes", Vec::new()), Event::Cleared {}, prompt("now")]);
    assert_eq!(cleared.messages, [user("now"), unanswered()]);
    assert_eq!(cleared.usage.input, 10, "the usage before counts");
}

#[test]
fn a_resumed_run_is_not_finished() {
    assert_eq!(history([started(), finished("completed"), prompt("more")]).finished, None);
}

fn any_event() -> impl Strategy<Value = Event> {
    let id = prop::sample::select(vec!["c1", "c2", "c3"]);
    prop_oneof![
        Just(prompt("p")),
        Just(Event::TurnStarted { turn: 1 }),
        prop::collection::vec(id.clone(), 0..4).prop_map(|ids| {
            answer("", ids.into_iter().map(|id| call(id, "run_commands", "{}")).collect())
        }),
        id.prop_map(|id| tool_finished(id, "run_commands", "done")),
    ]
}

proptest! {
    #[test]
    fn every_call_has_exactly_one_answer(events in prop::collection::vec(any_event(), 0..30)) {
        let messages = history(events).messages;
        let mut open = HashSet::new();
        for message in messages.iter().chain([&user("end")]) {
            match message {
                Message::Tool { id, .. } => prop_assert!(open.remove(id), "{id} has one answer, after its call"),
                _ => prop_assert!(open.is_empty(), "{open:?} have no answer"),
            }
            if let Message::Assistant { tool_calls, .. } = message {
                open.extend(tool_calls.iter().map(|call| call.id.clone()));
            }
        }
    }
}

#[test]
fn files_of_older_versions_are_still_read() {
    let lines = [
        r#"{"seq":1,"time":"2026-11-20T15:30:12.345Z","type":"session_started","session":"20261120-153012-k3f9","version":"0.1.0","model":"m","base_url":"","workspace":"/w","sandbox":{"backend":"local","id":"","image":null,"network":"none","limits":{"memory":1,"cpus":1.0,"pids":1,"disk":1}}}"#,
        r#"{"seq":2,"time":"2026-11-20T15:30:12.345Z","type":"checkpoint","id":"k1","files":1,"wish":1}"#,
    ];
    let records: Vec<Record> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(History::of(&records).session, SESSION);
    assert_eq!(
        records[1].event,
        Event::Checkpoint { id: "k1".to_owned(), files: 1, names: Vec::new(), prompt: Some(1) }
    );
}
