//! The conversation that goes out is well-formed for the strictest chat template, whatever was interrupted or failed: user
//! and assistant alternate, and each tool call has exactly one answer.

use agent::agent::{
    Conversation, Earlier, Environment, Interrupt, Moment, RunLimits, SandboxFacts, Setup, Spent,
};
use agent::agent::{Stop, Window};
use agent::approval::Approve;
use agent::approval::policy::{Gate, Rules};
use agent::error::{Error, Result};
use agent::event::{Event, Events, Record, ToolCall};
use agent::log::{ArtifactLimits, Artifacts, History};
use agent::model::{ChatModel, Message, OnProgress, Progress, Reply, Request};
use agent::sandbox::Sandbox;
use agent::tools::{Bounds, Context, Reach, Registry, Tool, ToolResult};
use agent_testbed::agent::agent;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use agent_testing::guest::Guest;
use agent_testing::session_samples::record;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An act of the user or the machine on a session.
#[derive(Debug, Clone)]
enum Act {
    Prompt(Vec<Move>),
    Note,
    Clear,
    Compact(Move),
    /// The process ends; a kill loses the last events.
    Resume {
        lost: usize,
    },
}

/// A move of the model when it is asked.
#[derive(Debug, Clone)]
enum Move {
    Answer,
    Empty,
    CutOff,
    Call(Vec<&'static str>),
    /// The connection breaks in the middle of the answer.
    Fail,
    /// Ctrl-C in the middle of the answer.
    Interrupted,
}

/// Why `messages` would be refused.
fn fault(messages: &[Message]) -> Option<String> {
    let mut before = "system";
    let mut open: VecDeque<String> = VecDeque::new();
    for (at, message) in messages.iter().enumerate() {
        let role = match message {
            Message::System { .. } => "system",
            Message::User { .. } => "user",
            Message::Assistant { .. } => "assistant",
            Message::Tool { .. } => "tool",
        };
        let fits = match (at, role) {
            (0, role) => role == "system",
            (_, "tool") => !open.is_empty(),
            (_, "assistant") => open.is_empty() && matches!(before, "user" | "tool"),
            (_, "user") => open.is_empty() && matches!(before, "system" | "assistant"),
            _ => false,
        };
        if !fits {
            return Some(format!("{role} follows {before}, {} calls are open: {messages:#?}", open.len()));
        }
        match message {
            Message::Tool { id, .. } if open.pop_front().as_ref() != Some(id) => {
                return Some(format!("{id} is not the next call"));
            }
            Message::Assistant { tool_calls, .. } => {
                open.extend(tool_calls.iter().map(|call| call.id.clone()));
            }
            _ => {}
        }
        before = role;
    }
    (!matches!(before, "user" | "tool") || !open.is_empty())
        .then(|| format!("the last message is of {before}"))
}

/// The state that the model, the tool and the test share.
#[derive(Default)]
struct Shared {
    moves: VecDeque<Move>,
    interrupt: Option<Interrupt>,
    faults: Vec<String>,
    calls: usize,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Shared>>);

impl Scripted {
    fn interrupt(&self) {
        let interrupt = self.0.lock().unwrap().interrupt.clone();
        interrupt.expect("a session").trigger(Stop::Interrupted);
    }

    fn next(&self, messages: &[Message]) -> Move {
        let mut shared = self.0.lock().unwrap();
        shared.faults.extend(fault(messages));
        shared.moves.pop_front().unwrap_or(Move::Answer)
    }

    fn call(&self, what: &'static str) -> ToolCall {
        let mut shared = self.0.lock().unwrap();
        shared.calls += 1;
        let arguments = json!({ "what": what }).to_string();
        let name = if what == "unknown" { "no_such_tool" } else { "act" };
        ToolCall { id: format!("c{}", shared.calls), name: name.into(), arguments: arguments.into() }
    }
}

impl ChatModel for Scripted {
    fn ask<'a>(&'a self, request: Request<'a>, on_progress: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async move {
            let next = self.next(request.messages);
            let text = |text: &str| Reply { text: text.to_owned(), ..Reply::default() };
            match next {
                Move::Answer => Ok(text("An answer.")),
                Move::Empty => Ok(text("")),
                Move::CutOff => Ok(Reply { finish_reason: Some("length".into()), ..text("Half an ans") }),
                Move::Call(whats) => {
                    let tool_calls = whats.into_iter().map(|what| self.call(what)).collect();
                    Ok(Reply { tool_calls, ..text("") })
                }
                Move::Fail => {
                    on_progress(Progress::Text("Half an ans"));
                    Err(Error::endpoint("the connection was closed"))
                }
                Move::Interrupted => {
                    on_progress(Progress::Text("Half an ans"));
                    self.interrupt();
                    std::future::pending().await
                }
            }
        })
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn name(&self) -> &str {
        "scripted"
    }
}

impl Tool for Scripted {
    fn name(&self) -> &str {
        "act"
    }

    fn description(&self) -> &str {
        "Acts."
    }

    fn run<'a>(&'a self, _: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move {
            match arguments["what"].as_str() {
                Some("fail") => Ok(ToolResult::failure("error: no".to_owned())),
                Some("lose the sandbox") => Err(Error::sandbox("the sandbox is gone")),
                Some("interrupt") => {
                    self.interrupt();
                    std::future::pending().await
                }
                _ => Ok(ToolResult::success("done".to_owned())),
            }
        })
    }
}

struct Place(Sandbox);

impl Reach for Place {
    fn reach<'a>(&'a self, hosts: &'a [&'a str], purpose: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        ().reach(hosts, purpose)
    }
}

impl Environment for Place {
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn explain(&self, _: &str) -> Option<String> {
        None
    }

    fn about_files(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    fn checkpoint(&self, _: u64, _: Moment) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn restore(&self, _: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(true) })
    }
}

/// A session whose events are kept in memory.
struct Session {
    conversation: Conversation,
    scripted: Scripted,
    records: Arc<Mutex<Vec<Record>>>,
    sandbox: Sandbox,
}

impl Session {
    fn start(sandbox: &Sandbox, scripted: Scripted, records: Vec<Record>) -> Self {
        let events = Arc::new(Events::new(1));
        let History { messages, notes, prompts, prompted, .. } = History::of(&records);
        let records = Arc::new(Mutex::new(records));
        let log = Arc::clone(&records);
        let keep = move |record: &Record, _: &[u8]| {
            if !record.event.is_live_only() {
                log.lock().unwrap().push(record.clone());
            }
            Ok(())
        };
        events.begin("s", 1, Box::new(keep));
        let mut tools = Registry::empty();
        tools.add(Arc::new(scripted.clone())).unwrap();
        let setup = Setup {
            model: Arc::new(scripted.clone()),
            events,
            environment: Arc::new(Place(sandbox.clone())),
            assist: Arc::new(()),
            tools,
            artifacts: Artifacts::of_session(Path::new("/nonexistent"), ArtifactLimits::default()),
            bounds: Bounds::default(),
            limits: RunLimits { turns: 8, ..RunLimits::default() },
            gate: Arc::new(Gate::new(Rules::default(), Approve::Never, None).unwrap()),
            shared: agent::agent::Shared::default(),
            price: None,
            window: Window::new(None, true),
            answer_schema: None,
        };
        let mut conversation = Conversation::new(setup, &SandboxFacts::default(), Path::new("/nonexistent"));
        conversation.resume(Earlier {
            messages,
            artifacts: Vec::new(),
            notes,
            prompts,
            prompted,
            spent: Spent::default(),
        });
        scripted.0.lock().unwrap().interrupt = Some(conversation.interrupt());
        Self { conversation, scripted, records, sandbox: sandbox.clone() }
    }

    async fn perform(self, act: Act) -> Self {
        let Self { mut conversation, scripted, records, sandbox } = self;
        conversation.interrupt().reset();
        match act {
            Act::Prompt(moves) => {
                scripted.0.lock().unwrap().moves = moves.into();
                let _ = conversation.turn("go").await;
            }
            Act::Note => conversation.note("The user undid the changes of the last prompt.").unwrap(),
            Act::Clear => conversation.clear().unwrap(),
            Act::Compact(next) => {
                scripted.0.lock().unwrap().moves = [next].into();
                let _ = conversation.compact().await;
            }
            Act::Resume { lost } => {
                let mut kept = records.lock().unwrap().clone();
                kept.truncate(kept.len().saturating_sub(lost));
                return Self::start(&sandbox, scripted, kept);
            }
        }
        Self { conversation, scripted, records, sandbox }
    }
}

fn moves() -> impl Strategy<Value = Move> {
    let call = prop::sample::select(vec!["work", "work", "fail", "unknown", "lose the sandbox", "interrupt"]);
    prop_oneof![
        2 => Just(Move::Answer),
        1 => Just(Move::Empty),
        1 => Just(Move::CutOff),
        4 => prop::collection::vec(call, 1..4).prop_map(Move::Call),
        1 => Just(Move::Fail),
        1 => Just(Move::Interrupted),
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => prop::collection::vec(moves(), 0..6).prop_map(Act::Prompt),
        1 => Just(Act::Note),
        1 => Just(Act::Clear),
        1 => moves().prop_map(Act::Compact),
        2 => (0_usize..5).prop_map(|lost| Act::Resume { lost }),
    ]
}

#[test]
fn every_request_alternates_whatever_happened_before() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let guest = runtime.block_on(Guest::start());
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let result = runner.run(&prop::collection::vec(acts(), 1..12), |acts| {
        let scripted = Scripted::default();
        runtime.block_on(async {
            let mut session = Session::start(&guest.sandbox, scripted.clone(), Vec::new());
            for act in acts.into_iter().chain([Act::Prompt(Vec::new())]) {
                session = session.perform(act).await;
            }
        });
        let faults = std::mem::take(&mut scripted.0.lock().unwrap().faults);
        prop_assert!(faults.is_empty(), "{}", faults[0]);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// Servers with the template of Devstral and others refused every request after an interrupted answer.
#[test]
fn a_strict_server_takes_the_prompt_after_an_interrupted_answer() {
    let model = endpoint()
        .strict()
        .text("A first paragraph.\n\nA second one that is never going to be written to its very end.")
        .after(1300)
        .stall(Duration::from_secs(1000))
        .text("Later.")
        .start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("talk");
    terminal.wait_for("│ A second one");
    terminal.ctrl_c();
    terminal.wait_for("stopped; the session continues");
    terminal.wait_for_prompt();
    terminal.type_line("continue");
    terminal.wait_for("Later.");
    let kept = model.last().messages()[2].clone();
    let text = kept["content"].as_str().expect("text");
    assert!(kept["role"] == "assistant" && text.starts_with("A first paragraph.\n\nA second one"), "{text}");
    assert!(text.ends_with("[the user stopped this answer here]"), "{text}");
}

#[test]
fn a_strict_server_takes_the_prompt_after_a_failed_one_and_after_a_limit() {
    let model = endpoint()
        .strict()
        .error(400, "this model does not like it")
        .tool_call("run_commands", json!({ "command": "true" }))
        .text("Fine.")
        .start();
    let run = |call: agent_testbed::agent::Agent, arguments: &[&str], code: i32| {
        let call = call.endpoint(&model).args(["run", "--json", "--session-key", "k"]).args(arguments);
        call.run().expect_code(code)
    };
    let first = run(agent(), &["one"], 3);
    assert_eq!(first.events_of("answer_stopped").len(), 1);
    run(first.again(), &["--max-turns", "1", "two"], 5);
    run(first.again(), &["three"], 0);
    let messages = model.last().messages();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]);
    assert!(messages[2]["content"].to_string().contains("does not like it"), "{messages:?}");
}

#[test]
fn the_strict_server_refuses_what_a_strict_template_refuses() {
    use agent_testing::endpoint::template_error;
    let user = json!({ "role": "user", "content": "a" });
    let call = json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c1" }] });
    let result = json!({ "role": "tool", "tool_call_id": "c1", "content": "b" });
    assert_eq!(template_error(&[user.clone(), call.clone(), result.clone()]), None);
    for refused in [
        vec![user.clone(), user.clone()],
        vec![user.clone(), call.clone(), user.clone()],
        vec![user.clone(), result.clone()],
        vec![user.clone(), call.clone(), result.clone(), result.clone()],
        vec![user, call, result, json!({ "role": "user", "content": "next" })],
    ] {
        assert!(template_error(&refused).is_some(), "{refused:?}");
    }
}

#[test]
fn a_killed_session_is_resumed_in_order() {
    let records: Vec<Record> = (1..)
        .zip([
            Event::UserMessage { text: "one".into() },
            Event::Note { text: "The user ran `ls`.".into() },
            Event::UserMessage { text: "two".into() },
        ])
        .map(|(seq, event)| record(seq, event))
        .collect();
    let messages = History::of(&records).messages;
    let texts: Vec<&str> = messages
        .iter()
        .map(|message| match message {
            Message::User { text } | Message::Assistant { text, .. } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    let missing = "[the session ended before this was answered]";
    assert_eq!(texts, ["one", missing, "[Since the last prompt:\n- The user ran `ls`.\n]\n\ntwo", missing]);
}
