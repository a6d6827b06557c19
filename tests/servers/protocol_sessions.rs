//! Whole sessions in each protocol, against endpoints that refuse what the vendors' refuse: nothing that a session does may leave a conversation
//! behind that is refused later.

use crate::acp::driven;
use crate::web::serve;
use agent_testbed::agent::{Agent, Finished, agent};
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};

const PROTOCOLS: [&str; 3] = ["chat", "responses", "messages"];

fn at(call: Agent, model: &Endpoint, protocol: &str) -> Agent {
    call.endpoint(model).env("AGENT_PROTOCOL", protocol)
}

/// A call with reasoning that has to go back.
fn call(script: Script, number: usize, command: &str) -> Script {
    let function = json!({ "name": "run_commands", "arguments": json!({ "command": command }).to_string() });
    let call = json!({ "id": format!("call_{number}"), "type": "function", "function": function });
    let thinking = format!("Step {number}.");
    let message =
        json!({ "role": "assistant", "reasoning_content": thinking, "content": "", "tool_calls": [call] });
    script.message(message, "tool_calls")
}

fn calls(script: Script, numbers: std::ops::Range<usize>) -> Script {
    numbers
        .fold(script, |script, number| call(script, number, &format!("echo {number}; echo {number} >> log")))
}

fn session_of(finished: &Finished) -> String {
    finished.events()[0]["session"].as_str().expect("an id").to_owned()
}

/// Thirty turns with an overloaded endpoint, an answer that breaks off, a command that fails, an interrupt, a resume and a fork.
#[test]
fn a_long_session_with_failures_an_interrupt_and_a_fork_is_accepted_in_each_protocol() {
    for protocol in PROTOCOLS {
        let script = calls(endpoint(), 0..4).error(529, "Overloaded");
        let script = calls(script, 4..7).text("This breaks off in the").close();
        let script = call(script, 7, "false").text("Part one.");
        let script = call(script, 8, "echo begun; sleep 1000");
        let script = calls(script, 9..17).text("Part two.");
        let script = calls(script, 17..21).text("In the fork.");
        let model = calls(script, 21..26).text("Part three.").start();

        let first = at(agent(), &model, protocol).args(["run", "--json", "part one"]).run().expect_code(0);
        let session = session_of(&first);
        let go_on = |session: &str, prompt: &str| {
            at(first.again(), &model, protocol).args(["run", "--json", "--session", session, prompt])
        };
        let running = go_on(&session, "wait").start();
        running.wait_for_event("sleep 1000");
        running.signal(libc::SIGINT);
        running.wait().expect_code(130);
        go_on(&session, "part two").run().expect_code(0);
        let forked = first.again().args(["fork", &session, "--json"]).run().expect_code(0);
        let forked: Value = serde_json::from_str(&forked.stdout).expect("a fork");
        go_on(forked["session"].as_str().expect("an id"), "differently").run().expect_code(0);
        let last = go_on(&session, "part three").run().expect_code(0);

        let answers = last.events_of("assistant_message");
        assert_eq!(answers.last().expect("an answer")["text"], "Part three.", "{protocol}");
        assert_eq!(model.requests().len(), 32, "{protocol}: each was answered once, and none refused");
        let sent = model.last().body.to_string();
        assert!(sent.contains("Part two.") && !sent.contains("In the fork."), "{protocol}: {sent}");
    }
}

/// The results that a conversation has, in any protocol.
fn results(body: &Value) -> usize {
    let text = body.to_string();
    let marks = ["\"role\":\"tool\"", "\"type\":\"function_call_output\"", "\"type\":\"tool_result\""];
    marks.iter().map(|mark| text.matches(mark).count()).sum()
}

#[test]
fn parts_that_are_delegated_and_attempts_that_race_are_accepted_in_each_protocol() {
    for protocol in PROTOCOLS {
        let write = |text: &str| json!({ "command": format!("echo {text} >> {text}.txt") });
        let rule = move |body: &Value| {
            let is_part = body.to_string().contains("handed you this part");
            let may_delegate = body["tools"].to_string().contains("\"delegate\"");
            match (results(body), is_part, may_delegate) {
                (0, false, true) => endpoint().tool_calls(&[
                    ("delegate", json!({ "task": "alpha" })),
                    ("delegate", json!({ "task": "beta" })),
                ]),
                (0, true, _) if body.to_string().contains("alpha") => {
                    endpoint().tool_call("run_commands", write("alpha"))
                }
                (0, ..) => endpoint().tool_call("run_commands", write("beta")),
                _ => endpoint().reasoning("It is there.", "Done."),
            }
        };
        let model = endpoint().by_rule(rule).start();
        let delegated = at(agent(), &model, protocol).args(["run", "--delegate", "--apply", "go"]).run();
        let delegated = delegated.expect_code(0);
        assert_eq!(delegated.host_file("beta.txt").as_deref(), Some("beta\n"), "{protocol}");
        // Two of its own, and two of each part.
        assert_eq!(model.requests().len(), 6, "{protocol}: {}", delegated.stderr);

        let raced =
            at(agent(), &model, protocol).args(["race", "-n", "2", "go", "--check", "grep beta beta.txt"]);
        raced.run().expect_code(0);
    }
}

#[test]
fn the_page_and_an_editor_are_answered_in_each_protocol() {
    for protocol in PROTOCOLS {
        let write = || json!({ "path": "new.txt", "data": "hello\n" });
        let model = endpoint().tool_call("write_file", write()).text("Done.").text("And again.").start();
        let server = serve(at(agent(), &model, protocol));
        let session = server.open();
        let mut tab = server.tab(&session, 0);
        for (prompt, answer) in [("write it", "Done."), ("and now?", "And again.")] {
            server.post(&format!("/api/session/{session}/prompt"), &json!({ "text": prompt }), 202);
            tab.until(|name, data| name == "assistant_message" && data["text"] == answer);
            assert_eq!(tab.until_idle()["error"], Value::Null, "{protocol}");
        }
        let model = endpoint().tool_call("write_file", write()).text("Done.").start();
        driven("apply", &model, agent().env("AGENT_PROTOCOL", protocol));
    }
}
