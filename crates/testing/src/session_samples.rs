//! Sample events and sessions.

use agent_event::Opaque;
use agent_event::{
    Artifact, Changes, Event, PlanStep, Record, SandboxInfo, StepStatus, Stream, ToolCall, Usage, now,
};
use agent_log::{SessionFile, SessionId, Store};
use serde_json::json;

/// A store in a temporary directory, which is removed when the first of the two is dropped.
pub fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    (dir, store)
}

/// The session that all sample events belong to.
pub const SESSION: &str = "20261120-153012-k3f9";

pub fn record(seq: u64, event: Event) -> Record {
    Record { seq, time: now(), session: SESSION.to_owned(), event }
}

pub fn started() -> Event {
    Event::SessionStarted {
        version: "0.1.0".to_owned(),
        model: "test-model".to_owned(),
        base_url: "http://127.0.0.1:1/v1".to_owned(),
        workspace: "/home/user/project".to_owned(),
        directory: String::new(),
        added: Vec::new(),
        sandbox: SandboxInfo {
            backend: "docker".to_owned(),
            runtime: None,
            network: "none".to_owned(),
            ..Default::default()
        },
        parent: None,
    }
}

pub fn prompt(text: &str) -> Event {
    Event::UserMessage { text: text.to_owned() }
}

pub fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.into() }
}

pub fn answer(text: &str, tool_calls: Vec<ToolCall>) -> Event {
    Event::AssistantMessage {
        text: text.to_owned(),
        reasoning: None,
        tool_calls,
        finish_reason: Some("stop".to_owned()),
        usage: Some(Usage { input: 10, output: 5, cached: 2, written: 0 }),
        opaque: Default::default(),
    }
}

pub fn tool_started(id: &str, name: &str, arguments: serde_json::Value) -> Event {
    Event::ToolStarted { id: id.to_owned(), name: name.to_owned(), arguments }
}

pub fn tool_finished(id: &str, name: &str, result: &str) -> Event {
    Event::ToolFinished {
        id: id.to_owned(),
        name: name.to_owned(),
        ok: true,
        exit_code: Some(0),
        duration_ms: 12,
        truncated: false,
        result: result.to_owned(),
        content: Vec::new(),
        edits: Vec::new(),
    }
}

pub fn artifact(name: &str, media_type: &str) -> Artifact {
    let sha256 = "0123456789abcdef".repeat(4);
    Artifact {
        id: sha256[..12].to_owned(),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        bytes: 2345,
        sha256,
    }
}

pub fn finished(status: &str) -> Event {
    Event::SessionFinished {
        status: status.to_owned(),
        exit_code: 0,
        turns: 2,
        usage: Usage { input: 20, output: 10, cached: 4, written: 0 },
        cost: Some(0.25),
        delegated: Some(Usage { input: 5, output: 2, cached: 0, written: 0 }),
        changes: Changes { added: 1, modified: 2, deleted: 3 },
        error: None,
    }
}

/// Every kind of event, with and without optional fields.
#[allow(clippy::too_many_lines)] // a table
pub fn one_of_each() -> Vec<Event> {
    let events = vec![
        started(),
        prompt("a prompt with \"quotes\", a\nnewline, ünïcode and a NUL \0"),
        Event::TurnStarted { turn: 1 },
        Event::TextDelta { text: "a piece".to_owned() },
        Event::ReasoningDelta { text: "hm".to_owned() },
        answer("", vec![call("call_1", "run_commands", "{\"command\": \"true\"}")]),
        Event::AssistantMessage {
            text: "done".to_owned(),
            reasoning: Some("because".to_owned()),
            tool_calls: Vec::new(),
            finish_reason: None,
            usage: None,
            opaque: Opaque {
                model: "m".to_owned(),
                endpoint: "https://api.example.com/v1".into(),
                message: serde_json::Map::new(),
                calls: [(
                    "c1".to_owned(),
                    serde_json::Map::from_iter([("signature".to_owned(), json!("S"))]),
                )]
                .into(),
            },
        },
        Event::Retry { attempt: 1, wait_ms: 500, reason: "429".to_owned() },
        Event::Notice { text: "the image host is used".to_owned() },
        Event::AnswerStopped { text: "Half of".to_owned(), reason: "the user stopped it".to_owned() },
        Event::Note { text: "The user ran `ls`.".to_owned() },
        Event::Plan {
            steps: vec![PlanStep { text: "Read the code".to_owned(), status: StepStatus::InProgress }],
            read_only: true,
        },
        Event::Attached { name: "a.rs, lines 1 to 2".to_owned(), text: "fn main() {}".to_owned() },
        tool_started("call_1", "run_commands", json!({"command": "true"})),
        tool_started("call_2", "run_commands", json!("{not JSON")),
        Event::ToolOutput { id: "call_1".to_owned(), stream: Stream::Stderr, data: "oh".to_owned() },
        tool_finished("call_1", "run_commands", "exit code 0, 0.01 s\n(no output)"),
        Event::Artifact { artifact: artifact("plot.png", "image/png"), tool_call: "call_1".to_owned() },
        Event::SecretsRedacted { id: "call_1".to_owned(), types: [("GitHub token".to_owned(), 1)].into() },
        Event::Denied { what: "curl".to_owned(), rule: "no network".to_owned() },
        Event::Connection {
            host: "example.org".to_owned(),
            port: 443,
            allowed: false,
            sent: 0,
            received: 0,
            duration_ms: 3,
            reason: None,
        },
        Event::CredentialUsed {
            credential: "npm".to_owned(),
            host: "npm.example:443".to_owned(),
            method: "GET".to_owned(),
            path: "/left-pad".to_owned(),
        },
        Event::CredentialRefused {
            credential: "npm".to_owned(),
            host: "npm.example:443".to_owned(),
            method: "PUT".to_owned(),
            path: "/left-pad".to_owned(),
            reason: "it writes".to_owned(),
        },
        Event::NetworkChanged { hosts: vec!["pypi.org".to_owned(), "!evil.test".to_owned()] },
        Event::Checkpoint { id: "c1".to_owned(), files: 3, names: Vec::new(), prompt: Some(1) },
        Event::SandboxReady { backend: "docker".to_owned(), id: "0a1b2c".to_owned() },
        Event::LimitReached { limit: "turns".to_owned() },
        Event::CheckFinished {
            command: "cargo test".to_owned(),
            exit_code: None,
            duration_ms: 1000,
            output: String::new(),
        },
        Event::Rewound { prompt: 2 },
        Event::StartedOver { prompt: 1, attempt: 2 },
        Event::Compacted {
            before: 9000,
            after: 900,
            messages: json!([{"role": "user", "text": "continue"}]),
        },
        Event::DelegateStarted {
            id: "call_9".to_owned(),
            delegate: "20250102-030405-abcdef".to_owned(),
            task: "write the parser".to_owned(),
            paths: vec!["src/parser".to_owned()],
        },
        Event::DelegateFinished {
            id: "call_9".to_owned(),
            delegate: "20250102-030405-abcdef".to_owned(),
            status: "completed".to_owned(),
            turns: 3,
            usage: Usage { input: 30, output: 5, cached: 0, written: 0 },
            cost: Some(0.5),
            duration_ms: 1500,
            changes: Changes { added: 1, modified: 1, deleted: 0 },
            merged: 1,
            conflicts: vec!["src/parser/mod.rs".to_owned()],
            outside: vec!["notes.txt".to_owned()],
            error: None,
        },
        finished("completed"),
        Event::SessionFinished {
            status: "failed".to_owned(),
            exit_code: 3,
            turns: 0,
            usage: Usage::default(),
            cost: None,
            delegated: None,
            changes: Changes::default(),
            error: Some("refused".to_owned()),
        },
    ];
    // Does not compile with a new kind of event, which has to be added above too.
    for event in &events {
        match event {
            Event::SessionStarted { .. }
            | Event::SandboxReady { .. }
            | Event::UserMessage { .. }
            | Event::TurnStarted { .. }
            | Event::TextDelta { .. }
            | Event::ReasoningDelta { .. }
            | Event::AssistantMessage { .. }
            | Event::Retry { .. }
            | Event::Notice { .. }
            | Event::CallForm { .. }
            | Event::Nudge { .. }
            | Event::AnswerStopped { .. }
            | Event::Note { .. }
            | Event::Attached { .. }
            | Event::Plan { .. }
            | Event::ToolStarted { .. }
            | Event::ToolOutput { .. }
            | Event::ToolFinished { .. }
            | Event::Artifact { .. }
            | Event::DelegateStarted { .. }
            | Event::DelegateFinished { .. }
            | Event::SecretsRedacted { .. }
            | Event::Denied { .. }
            | Event::Connection { .. }
            | Event::CredentialUsed { .. }
            | Event::CredentialRefused { .. }
            | Event::NetworkChanged { .. }
            | Event::Checkpoint { .. }
            | Event::LimitReached { .. }
            | Event::CheckFinished { .. }
            | Event::Compacted { .. }
            | Event::Rewound { .. }
            | Event::StartedOver { .. }
            | Event::Cleared {}
            | Event::LinesLost { .. }
            | Event::SessionFinished { .. } => {}
        }
    }
    events
}

/// A closed session with these events in it.
pub fn session_of(store: &Store, events: &[Event]) -> SessionId {
    let (id, mut file) = store.create().unwrap();
    write(&mut file, events);
    id
}

pub fn write(file: &mut SessionFile, events: &[Event]) {
    for event in events {
        file.append(&record(file.next_seq(), event.clone())).unwrap();
    }
}
