//! The command against endpoints that speak the protocol in their own way, or take less of it than others.

use crate::support::client::{ask_with, client};
use agent::model::{Message, ToolSpec};
use agent_picture::Pixels;
use agent_testbed::agent::{Agent, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::{Script, endpoint};
use agent_testing::socks;
use serde_json::{Value, json};

/// A stream with one choice of these deltas.
fn deltas(deltas: &[Value], finish: &str) -> Script {
    let choice =
        |delta: &Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let mut events: Vec<Value> = deltas.iter().map(choice).collect();
    events.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }] }));
    endpoint().events(&events)
}

fn call(id: &str, command: &str) -> Value {
    let arguments = json!({ "command": command }).to_string();
    json!({ "index": 0, "id": id, "type": "function", "function": { "name": "run_commands", "arguments": arguments } })
}

/// The calls that a request has.
fn calls(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().into_iter().flatten();
    messages.filter_map(|message| message["tool_calls"].as_array()).flatten().cloned().collect()
}

fn has_results(body: &Value) -> bool {
    body["messages"].as_array().into_iter().flatten().any(|message| message["role"] == "tool")
}

/// The second request of each turn was refused: the signature of the call did not come back.
#[test]
fn signatures_and_reasoning_go_back_with_their_calls_also_in_a_resumed_session() {
    let signature = json!({ "google": { "thought_signature": "SIG" } });
    let expected = signature.clone();
    let model = endpoint()
        .by_rule(move |body| {
            let is_signed = |call: &Value| call["extra_content"] == expected;
            let details = json!([{ "type": "reasoning.text", "text": "Hm." }]);
            if calls(body).is_empty() {
                let mut call = call("g1", "echo one");
                call["extra_content"] = expected.clone();
                let details =
                    |text: &str| json!({ "reasoning_details": [{ "type": "reasoning.text", "text": text }] });
                return deltas(&[details("H"), details("m."), json!({ "tool_calls": [call] })], "stop");
            }
            let messages = body["messages"].as_array().unwrap();
            let reasoned = messages.iter().any(|message| message["reasoning_details"] == details);
            match calls(body).iter().all(is_signed) && reasoned {
                true => endpoint().text("Done."),
                false => endpoint()
                    .error(400, "Function call is missing a thought_signature in functionCall parts."),
            }
        })
        .start();
    let first =
        agent().endpoint(&model).args(["run", "--json", "--session-key", "k", "go"]).run().expect_code(0);
    assert_eq!(first.events_of("assistant_message")[0]["opaque"]["calls"]["g1"]["extra_content"], signature);
    first.again().endpoint(&model).args(["run", "--session-key", "k", "more"]).run().expect_code(0);
    assert_eq!(model.chat_requests().len(), 3, "nothing was refused");
}

/// It ended the run.
#[test]
fn calls_whose_signature_is_lost_are_sent_as_text() {
    let model = endpoint()
        .by_rule(|body| match (calls(body).is_empty(), body["messages"].to_string().contains("zxq17\\n")) {
            (false, _) => {
                endpoint().error(400, "Function call is missing a thought_signature in functionCall parts.")
            }
            (true, true) => endpoint().text("Done."),
            (true, false) => endpoint().tool_call("run_commands", json!({ "command": "echo zxq17" })),
        })
        .start();
    let finished = agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    assert!(finished.stderr.contains("sent as text"), "{}", finished.stderr);
    let sent = model.last().body["messages"].to_string();
    assert!(sent.contains("<tool_call>") && sent.contains("<tool_response"), "{sent}");
}

/// Only the first choice was read.
#[test]
fn a_call_in_a_choice_of_its_own_runs() {
    let arguments = json!({ "command": "touch second" }).to_string();
    let call = json!({ "id": "c", "function": { "name": "run_commands", "arguments": arguments } });
    let answer = json!({ "choices": [
        { "message": { "content": "I'm on it." }, "finish_reason": "tool_calls" },
        { "message": { "tool_calls": [call] }, "finish_reason": "tool_calls" },
    ] });
    let model = endpoint().raw(answer.to_string()).text("Done.").start();
    let finished = agent().endpoint(&model).args(["run", "--apply", "go"]).run().expect_code(0);
    assert_eq!(finished.host_file("second").as_deref(), Some(""));
}

/// Such a stream failed, and was asked for six times.
#[test]
fn an_emoji_in_two_halves_and_events_that_are_no_json_do_not_break_an_answer() {
    let piece =
        |content: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n");
    let body = [
        "data: ping\n\n: comment\n\ndata: {}\n\n",
        &piece("party \\ud83c"),
        "data: still here\n\n",
        &piece("\\udf89 done"),
        "data: {\"choices\":[{\"delta\":null,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    ];
    let model = endpoint().raw(body.concat()).start();
    let finished = agent().endpoint(&model).args(["run", "-q", "go"]).run().expect_code(0);
    assert_eq!(finished.stdout.trim(), "party 🎉 done");
    assert_eq!(model.chat_requests().len(), 1);
}

/// They were success.
#[test]
fn an_answer_that_ends_for_an_unknown_reason_is_shown_and_is_not_success() {
    for reason in ["pause_turn", "OTHER"] {
        let model = deltas(&[json!({ "content": "Half of it" })], reason).start();
        let finished = agent().endpoint(&model).args(["run", "--json", "go"]).run().expect_code(3);
        assert_eq!(finished.events_of("assistant_message")[0]["text"], "Half of it");
        let error = finished.events_of("session_finished")[0]["error"].to_string();
        assert!(error.contains("not known") && error.contains(reason), "{error}");
    }
    let failed = deltas(&[json!({ "content": "Half of it" })], "network_error").text("Whole.").start();
    let finished = agent().endpoint(&failed).args(["run", "-q", "go"]).run().expect_code(0);
    assert!(finished.stdout.contains("Whole."), "{}", finished.stdout);
}

/// A call that a gateway lost was half of a job, and success.
#[test]
fn an_answer_that_announces_a_call_and_has_none_is_asked_about_once() {
    let announced = || deltas(&[json!({ "content": "I will look." })], "tool_calls");
    let model = announced().text("Done.").start();
    let finished = agent().endpoint(&model).args(["run", "-q", "go"]).run().expect_code(0);
    assert_eq!(finished.stdout, "Done.\n");
    let asked = model.requests()[1].messages();
    assert!(asked.last().unwrap()["content"].as_str().unwrap().contains("contained none"), "{asked:?}");
    // Some servers end every answer with that reason: of them this is asked once in a session.
    let model = announced().repeat_last().start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    for (prompt, requests) in [("go", 2), ("again", 3)] {
        terminal.type_line(prompt);
        terminal.wait_until("the answer", |_| model.requests().len() == requests);
        terminal.wait_for_prompt();
    }
    assert_eq!(model.requests().len(), 3);
}

/// Each of these words ended the run.
#[test]
fn an_overflow_in_any_words_is_compacted_and_the_work_continues() {
    for (status, words) in [
        (400, "Range of input length should be [1, 129024]"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 32769. Given: 33000"),
    ] {
        let model = endpoint()
            .tool_call("run_commands", json!({ "command": "seq 1 2000" }))
            .tool_call("run_commands", json!({ "command": "seq 2000 4000" }))
            .error(status, words)
            .text("The summary.")
            .text("Done.")
            .text("Done.")
            .start();
        let finished = agent().endpoint(&model).args(["run", "--json", "go"]).run().expect_code(0);
        assert_eq!(finished.events_of("compacted").len(), 1, "{words}");
    }
}

/// A session that was continued with a model of Mistral's could not be.
#[test]
fn ids_that_a_server_refuses_are_rewritten_for_the_session() {
    let model = endpoint()
        .by_rule(|body| {
            let is_strict = |id: &str| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
            let ids: Vec<String> =
                calls(body).iter().map(|call| call["id"].as_str().unwrap_or_default().to_owned()).collect();
            match ids.first() {
                None => deltas(&[json!({ "tool_calls": [call("call_abc_123", "echo one")] })], "tool_calls"),
                Some(id) if !is_strict(id) => endpoint().error(
                    400,
                    &format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."),
                ),
                Some(id) => {
                    let messages = body["messages"].as_array().unwrap();
                    assert!(messages.iter().any(|message| message["tool_call_id"] == id.as_str()), "{body}");
                    endpoint().text("Done.")
                }
            }
        })
        .start();
    let run =
        |agent: Agent| agent.endpoint(&model).args(["run", "--session-key", "k", "go"]).run().expect_code(0);
    let finished = run(agent());
    assert!(finished.stderr.contains("ids of the calls"), "{}", finished.stderr);
    assert_eq!(model.chat_requests().len(), 3);
    // Nor is it learned again in a later process.
    let again = run(finished.again());
    assert!(!again.stderr.contains("ids of the calls"), "{}", again.stderr);
    assert_eq!(model.chat_requests().len(), 4);
}

fn png(width: u32, height: u32) -> Vec<u8> {
    Pixels { width, height, rgb: vec![7; (width * height * 3) as usize] }.to_png().unwrap()
}

/// Every later request failed too.
#[test]
fn an_image_that_an_endpoint_refuses_is_taken_out_of_the_conversation() {
    let model = endpoint()
        .by_rule(|body| match (body.to_string().contains("image_url"), has_results(body)) {
            (true, _) => endpoint().error(400, "Could not process image"),
            (false, true) => endpoint().text("Done."),
            (false, false) => endpoint().tool_call("read_file", json!({ "path": "s.png" })),
        })
        .start();
    let first = agent()
        .endpoint(&model)
        .config("[models.test-model]\nimages = true\n")
        .file("s.png", png(20, 20))
        .args(["run", "--session-key", "k", "go"])
        .run()
        .expect_code(0);
    assert!(first.stderr.contains("images are left out"), "{}", first.stderr);
    let again = first.again().endpoint(&model).args(["run", "--session-key", "k", "forget the picture"]);
    again.run().expect_code(0);
}

/// It was refused by the endpoint: "image dimensions exceed max allowed size".
#[test]
fn a_large_image_is_scaled_down_before_it_is_sent() {
    let model = endpoint().text("Grey.").start();
    agent()
        .endpoint(&model)
        .config("[models.test-model]\nimages = true\n")
        .file("s.png", png(8_100, 300))
        .args(["run", "what is on @s.png?"])
        .run()
        .expect_code(0);
    let content = model.last().messages().last().unwrap()["content"].clone();
    let url = content[1]["image_url"]["url"].as_str().unwrap();
    let bytes = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        url.strip_prefix("data:image/png;base64,").unwrap(),
    );
    let header = agent_picture::Header::of(&bytes.unwrap()).unwrap();
    assert_eq!((header.width, header.height), (8_000, 296));
}

/// One tool of an MCP server ended every conversation with such an endpoint.
#[tokio::test]
async fn a_schema_that_an_endpoint_refuses_is_simplified_from_then_on() {
    let refusal = "Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters'";
    let endpoint = endpoint().error(400, refusal).text("Fine.").text("Fine.").start();
    let schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
        "limit": { "type": ["integer", "null"] },
    } });
    let tool = ToolSpec {
        name: "search".into(),
        description: "Searches.".into(),
        parameters: schema.clone().into(),
    };
    let (model, messages) = (client(&endpoint), [Message::User { text: "Hi".into() }]);
    for _ in 0..2 {
        ask_with(&model, &messages, std::slice::from_ref(&tool)).await.0.unwrap();
    }
    let sent: Vec<Value> = endpoint
        .chat_requests()
        .iter()
        .map(|body| body["tools"][0]["function"]["parameters"].clone())
        .collect();
    let plain =
        json!({ "type": "object", "properties": { "limit": { "type": "integer", "nullable": true } } });
    assert_eq!(sent, [schema, plain.clone(), plain]);
}

/// It was refused by name.
#[test]
fn a_base_url_with_a_query_is_one_of_azures_deployments() {
    let model = endpoint().models(404, "{}").text("Done.").start();
    let url = format!("{}/openai/deployments/g?api-version=2024-06-01", model.root());
    agent().endpoint(&model).args(["run", "--base-url", &url, "go"]).run().expect_code(0);
    assert_eq!(model.last().path, "/openai/deployments/g/chat/completions?api-version=2024-06-01");
}

/// "unsupported scheme socks5h"; `socks://` was ignored.
#[test]
fn a_socks_proxy_is_used_and_resolves_the_name() {
    ["socks5h", "socks", "socks4a"].iter().for_each(|scheme| reaches_through(scheme, "model.invalid"));
}

/// Versions without names get an address, which is looked up here.
#[test]
fn a_socks_proxy_that_takes_addresses_alone_is_used() {
    ["socks5", "socks4"].iter().for_each(|scheme| reaches_through(scheme, "192.0.2.7"));
}

/// An endpoint at `host` answers through a proxy, which is asked for this host.
fn reaches_through(scheme: &str, host: &str) {
    let model = endpoint().text("Through the proxy.").repeat_last().start();
    let to = model.root().trim_start_matches("http://").parse().expect("an address");
    let (address, asked) = socks::start(to, None);
    let finished = agent()
        .endpoint(&model)
        .env("ALL_PROXY", format!("{scheme}://{address}"))
        .env("NO_PROXY", "")
        .args(["run", "-q", "--base-url", &format!("http://{host}/v1"), "go"])
        .run()
        .expect_code(0);
    assert_eq!(finished.stdout.trim(), "Through the proxy.", "{scheme}");
    assert_eq!(asked.recv().unwrap(), host);
}

#[test]
fn a_socks_proxy_gets_the_name_and_password_of_its_address() {
    let model = endpoint().text("Through the proxy.").repeat_last().start();
    let to = model.root().trim_start_matches("http://").parse().expect("an address");
    let (address, asked) = socks::start(to, Some(("us@er", "p:w")));
    let call = |user: &str| {
        let call = agent().endpoint(&model).env("NO_PROXY", "");
        let call = call.env("ALL_PROXY", format!("socks5h://{user}@{address}"));
        call.args(["run", "-q", "--base-url", "http://model.invalid/v1", "go"]).run()
    };
    call("us%40er:p%3Aw").expect_code(0);
    assert_eq!(asked.recv().unwrap(), "model.invalid");
    let refused = call("us%40er:wrong").expect_code(3);
    assert!(!refused.stderr.contains("wrong"), "{}", refused.stderr);
}
