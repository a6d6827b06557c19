//! The three protocols: the same session over each, against endpoints that refuse what the vendors' refuse and count their caches.

use crate::support::client::{self, ask_with, tools};
use agent::model::{ChatModel, Message, OpenAi, Protocol, Reply, Secret};
use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::serve::sdk;
use agent_testing::counterpart;
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use agent_testing::prefix_cache::{Count, seal};
use serde_json::{Value, json};

const PROTOCOLS: [&str; 3] = ["chat", "responses", "messages"];
/// Those that have a state of their own to return.
const NEW: [Protocol; 2] = [Protocol::Responses, Protocol::Messages];

fn at(model: &Endpoint, protocol: &str) -> Agent {
    agent().endpoint(model).env("AGENT_PROTOCOL", protocol)
}

fn again(finished: &Finished, model: &Endpoint, protocol: &str) -> Agent {
    finished.again().endpoint(model).env("AGENT_PROTOCOL", protocol)
}

fn settings(model: &Endpoint, protocol: Protocol) -> agent::model::Endpoint {
    let mut endpoint = client::settings(model);
    (endpoint.protocol, endpoint.key) = (protocol, Some(Secret::new("test-key").unwrap()));
    endpoint
}

fn client(model: &Endpoint, protocol: Protocol) -> OpenAi {
    let endpoint = settings(model, protocol);
    OpenAi::new(endpoint).unwrap()
}

fn thinking_call(thinking: &str, command: &str) -> Value {
    let function = json!({ "name": "run_commands", "arguments": json!({ "command": command }).to_string() });
    let call = json!({ "id": format!("call_{command}").replace(' ', "_"), "type": "function", "function": function });
    json!({ "role": "assistant", "reasoning_content": thinking, "content": "", "tool_calls": [call] })
}

/// Two steps with thinking, an answer; then a resume with another step.
fn thinking() -> Script {
    endpoint()
        .message(thinking_call("First I look.", "echo one"), "tool_calls")
        .message(thinking_call("Then I look again.", "echo two"), "tool_calls")
        .reasoning("Done now.", "Both were there.")
        .message(thinking_call("Once more.", "echo three"), "tool_calls")
        .text("All three.")
        .text("And that was all.")
}

#[test]
fn a_session_is_the_same_in_every_protocol_and_its_reasoning_goes_back_after_a_resume() {
    let mut seen = Vec::new();
    for protocol in PROTOCOLS {
        let model = thinking().start();
        let first = at(&model, protocol)
            .args(["run", "--json", "--session-key", "s", "look twice"])
            .run()
            .expect_code(0);
        let second =
            again(&first, &model, protocol).args(["run", "--json", "--session-key", "s", "once more"]).run();
        let second = second.expect_code(0);
        let kinds = |finished: &Finished| -> Vec<Value> {
            let told = finished.events().into_iter().filter(|event| {
                ["tool_call_started", "assistant_message", "session_finished"]
                    .iter()
                    .any(|kind| event["type"] == *kind)
            });
            told.map(|mut event| {
                json!([event["type"].take(), event["text"].take(), event["reasoning"].take()])
            })
            .collect()
        };
        seen.push((kinds(&first), kinds(&second)));
        let last = model.last().body.to_string();
        for text in ["First I look.", "Then I look again.", "Done now.", "Once more."] {
            assert_eq!(last.contains(&seal(text)), protocol != "chat", "{protocol}: {text} in {last}");
        }
        assert!(
            protocol != "responses" || model.requests().iter().all(|request| request.body["store"] == false)
        );
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn reasoning_goes_to_the_model_that_made_it_and_to_no_other() {
    for protocol in ["responses", "messages"] {
        let model = thinking().start();
        let first =
            at(&model, protocol).args(["run", "-q", "--session-key", "s", "look twice"]).run().expect_code(0);
        let other = endpoint().text("Fine.").start();
        let elsewhere =
            again(&first, &other, protocol).args(["run", "-q", "--session-key", "s", "and?"]).run();
        elsewhere.expect_code(0);
        let seals = ["First I look.", "Then I look again.", "Done now."].map(seal);
        let has_seal =
            |model: &Endpoint| seals.iter().any(|seal| model.last().body.to_string().contains(seal));
        assert!(!has_seal(&other), "another endpoint");
        let renamed = again(&first, &model, protocol)
            .args(["run", "-q", "--session-key", "s", "-m", "another", "and?"])
            .run();
        renamed.expect_code(0);
        assert!(!has_seal(&model), "another model");
        let chat = again(&first, &model, "chat")
            .args(["run", "-q", "--session-key", "s", "and?"])
            .run()
            .expect_code(0);
        assert!(!has_seal(&model), "another protocol: {}", chat.stderr);
    }
}

/// The bar: from the third turn on, at least 95 of 100 tokens of the prompts come from the cache, over 40 turns, a resume included.
#[test]
fn a_long_session_is_read_from_the_cache_also_after_a_resume() {
    for protocol in ["responses", "messages"] {
        let mut script = endpoint();
        for turn in 0..40 {
            script = match turn {
                19 | 39 => script.text("Half done."),
                _ => script
                    .tool_call("run_commands", json!({ "command": format!("seq {turn} {}", turn + 60) })),
            };
        }
        let model = script.start();
        let first = at(&model, protocol)
            .args(["run", "-q", "--session-key", "s", "count a lot"])
            .run()
            .expect_code(0);
        again(&first, &model, protocol)
            .args(["run", "-q", "--session-key", "s", "go on"])
            .run()
            .expect_code(0);
        assert_eq!(model.counts().len(), 40);
        is_read_from_the_cache(protocol, &model);
    }
}

/// At least 95 of 100 tokens, from the third request on.
fn is_read_from_the_cache(protocol: &str, model: &Endpoint) {
    let counts = model.counts();
    let of = |part: fn(&Count) -> u64| counts[2..].iter().map(part).sum::<u64>();
    let (read, total) = (of(|count| count.read), of(Count::total));
    let share = read as f64 * 100.0 / total as f64;
    println!("{protocol}: {read} of {total} tokens read from the cache, {share:.1} %");
    assert!(read * 100 >= total * 95, "{protocol}: {read} of {total}: {counts:?}");
}

/// What was sent once is read from the cache, but for the request after a compaction, which has another beginning.
#[test]
fn a_compaction_costs_one_request_its_cache() {
    for protocol in ["responses", "messages"] {
        // What is asked for the summary has no tools.
        let script = move |body: &Value| match body["tools"].as_array().is_none_or(Vec::is_empty) {
            true => endpoint().text("It counted."),
            false => {
                let calls = body.to_string().matches("seq 1 ").count();
                let message = thinking_call(&format!("Step {calls}."), &format!("seq 1 {}", 800 + calls));
                endpoint().message(message, "tool_calls")
            }
        };
        let model = endpoint().by_rule(script).start();
        let finished = at(&model, protocol)
            .config("max_turns = 40\n[context]\ntest-model = 40000\n")
            .args(["run", "--json", "count a lot"])
            .run();
        let compactions = finished.events_of("compacted").len();
        assert!((1..=2).contains(&compactions), "{protocol}: {}", finished.stderr);
        let counts = model.counts();
        assert!(counts.len() >= 40, "{protocol}: {}", finished.stderr);
        // Entries of a cache grow in steps.
        let is_miss = |pair: &&[Count]| pair[0].total() > pair[1].read + 300;
        let misses = counts[1..].windows(2).filter(is_miss).count();
        // The summary is asked for with a prompt of its own, and the prompt after that is another one.
        assert!(misses <= 2 * compactions, "{protocol}: {misses} after {compactions}: {counts:?}");
    }
}

/// Gemini refuses a call of the current turn without the signature that it came with.
#[test]
fn signatures_of_calls_go_back_after_a_compaction() {
    let mut script = endpoint().window(40_000);
    for number in 0..30 {
        let mut message = thinking_call("", &format!("seq 1 {}", 1_500 + number));
        message["tool_calls"][0]["extra_content"] =
            json!({ "google": { "thought_signature": format!("sig-{number}=") } });
        script = script.message(message, "tool_calls");
    }
    // Some of these answer what is asked for a summary.
    let model = script.text("Counted.").repeat_last().start();
    let finished = at(&model, "chat")
        .config("[context]\ntest-model = 40000\n")
        .args(["run", "--json", "count a lot"])
        .run()
        .expect_code(0);
    assert!(!finished.events_of("compacted").is_empty());
    let sent = model.last().messages();
    let calls: Vec<&Value> =
        sent.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten()).collect();
    assert!(calls.len() >= 5, "{sent:?}");
    for call in calls {
        let command: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        let number: usize = command["command"].as_str().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        let signature = &call["extra_content"]["google"]["thought_signature"];
        assert_eq!(*signature, format!("sig-{}=", number - 1_500));
    }
}

#[test]
fn marks_for_the_cache_are_at_tools_system_prompt_and_the_last_two_turns() {
    let model = thinking().start();
    at(&model, "messages").args(["run", "-q", "--session-key", "s", "look twice"]).run().expect_code(0);
    let third = &model.requests()[2].body;
    let has_mark = |block: &Value| block["cache_control"]["type"] == "ephemeral";
    assert!(has_mark(third["tools"].as_array().unwrap().last().unwrap()) && has_mark(&third["system"][0]));
    let marked: Vec<bool> = third["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_array().unwrap().iter().any(has_mark))
        .collect();
    assert_eq!(marked, [false, false, true, false, true]);
}

async fn asked(model: &OpenAi) -> (Result<Reply, agent::error::Error>, Vec<String>) {
    let (reply, seen) = ask_with(model, &[Message::User { text: "Hi".into() }], &tools()[..1]).await;
    (reply, seen.notices)
}

#[tokio::test]
async fn what_goes_wrong_has_the_same_name_in_every_protocol() {
    for protocol in NEW {
        for (status, message, words, hint) in [
            (401, "invalid x-api-key", "invalid x-api-key", "check the key"),
            (400, "Your credit balance is too low to access the API.", "credit balance", "add credit"),
            (400, "prompt is too long: 215000 tokens > 200000 maximum", "prompt is too long", "shorter"),
        ] {
            let model = endpoint().error(status, message).start();
            let (reply, _) = asked(&client(&model, protocol)).await;
            let error = reply.expect_err(message);
            assert!(error.to_string().contains(words), "{error}");
            assert!(
                error.hint_text().unwrap_or_default().contains(hint),
                "{protocol:?}: {:?}",
                error.hint_text()
            );
        }
        let busy = endpoint().error(529, "Overloaded").text("Back.").start();
        assert_eq!(asked(&client(&busy, protocol)).await.0.unwrap().text, "Back.");
        let cut = endpoint().text("A long answer that breaks off").close().text("Whole.").start();
        assert_eq!(asked(&client(&cut, protocol)).await.0.unwrap().text, "Whole.");
        let filtered =
            endpoint().message(json!({ "role": "assistant", "content": "No" }), "content_filter").start();
        let error = asked(&client(&filtered, protocol)).await.0.unwrap_err();
        assert!(error.to_string().contains("filter"), "{error}");
    }
}

/// An error in the middle of a stream, in both shapes that OpenAI sends and in Anthropic's.
#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_one() {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    for (protocol, data) in [
        (
            Protocol::Messages,
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }),
        ),
        (
            Protocol::Responses,
            json!({ "type": "error", "error": { "code": "server_is_overloaded", "message": "Overloaded" } }),
        ),
        (
            Protocol::Responses,
            json!({ "type": "error", "code": "server_is_overloaded", "message": "Overloaded", "param": null }),
        ),
        (
            Protocol::Responses,
            json!({ "type": "response.failed", "response": { "status": "failed", "error": { "code": "server_error", "message": "Overloaded" } } }),
        ),
    ] {
        let model = endpoint()
            .raw(event(data.clone()))
            .header("content-type", "text/event-stream")
            .text("Back.")
            .start();
        let (reply, seen) =
            ask_with(&client(&model, protocol), &[Message::User { text: "Hi".into() }], &[]).await;
        assert_eq!(reply.unwrap().text, "Back.");
        assert!(seen.retries.iter().any(|why| why.2.contains("Overloaded")), "{data}: {:?}", seen.retries);
    }
}

#[tokio::test]
async fn a_parameter_that_is_refused_is_left_out_once_with_a_notice() {
    for (protocol, message, field) in [
        (Protocol::Messages, "`temperature` is deprecated for this model.", "temperature"),
        (
            Protocol::Responses,
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "temperature",
        ),
        (Protocol::Responses, "Encrypted content is not supported with this model.", "include"),
        (Protocol::Responses, "Unknown parameter: 'prompt_cache_key'.", "prompt_cache_key"),
        (Protocol::Messages, "system.0.cache_control: Extra inputs are not permitted", "system"),
    ] {
        let model = endpoint().error(400, message).text("Fine.").repeat_last().start();
        let mut endpoint = settings(&model, protocol);
        endpoint.temperature = Some(0.3);
        let client = OpenAi::new(endpoint).unwrap();
        let (reply, notices) = asked(&client).await;
        assert_eq!(reply.unwrap().text, "Fine.", "{message}");
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!(asked(&client).await.1, Vec::<String>::new());
        let bodies: Vec<Value> = model.requests().into_iter().map(|request| request.body).collect();
        assert_eq!(bodies.len(), 3);
        let has = |body: &Value| match field {
            "system" => body.to_string().contains("cache_control"),
            field => body.get(field).is_some(),
        };
        assert!(has(&bodies[0]) && !has(&bodies[1]) && !has(&bodies[2]), "{field}");
    }
}

#[tokio::test]
async fn how_much_the_model_thinks_has_its_name_in_each_protocol() {
    let sent = async |protocol: Protocol, effort: Option<&str>, budget: Option<u32>, script: Script| {
        let model = script.start();
        let mut endpoint = settings(&model, protocol);
        (endpoint.reasoning_effort, endpoint.reasoning_budget) = (effort.map(str::to_owned), budget);
        asked(&OpenAi::new(endpoint).unwrap()).await.0.unwrap();
        model.last().body
    };
    let fine = || endpoint().text("Fine.");
    assert_eq!(sent(Protocol::Chat, Some("low"), None, fine()).await["reasoning_effort"], "low");
    let responses = sent(Protocol::Responses, Some("low"), None, fine()).await;
    assert_eq!(responses["reasoning"], json!({ "effort": "low", "summary": "auto" }));
    let messages = sent(Protocol::Messages, Some("low"), None, fine()).await;
    assert_eq!(
        (&messages["thinking"]["type"], &messages["output_config"]["effort"]),
        (&json!("adaptive"), &json!("low"))
    );
    let older = endpoint().error(400, "adaptive thinking is not supported on this model").text("Fine.");
    let messages = sent(Protocol::Messages, Some("low"), None, older).await;
    assert_eq!(messages["thinking"], json!({ "type": "enabled", "budget_tokens": 6_400 }));
    let budget = sent(Protocol::Messages, None, Some(2_000), fine()).await;
    assert_eq!(budget["thinking"], json!({ "type": "enabled", "budget_tokens": 2_000 }));
    for protocol in [Protocol::Chat, Protocol::Responses] {
        let model = fine().repeat_last().start();
        let mut endpoint = settings(&model, protocol);
        endpoint.reasoning_budget = Some(2_000);
        let client = OpenAi::new(endpoint).unwrap();
        let notices = asked(&client).await.1;
        assert!(notices.len() == 1 && notices[0].contains("reasoning_budget"), "{notices:?}");
        assert_eq!(asked(&client).await.1, Vec::<String>::new());
        assert!(!model.last().body.to_string().contains("2000"));
    }
    let none = sent(Protocol::Messages, Some("none"), None, fine()).await;
    assert_eq!(none["thinking"], json!({ "type": "disabled" }));
}

#[tokio::test]
async fn images_and_schemas_of_answers_are_written_as_each_protocol_has_them() {
    let url = "data:image/png;base64,iVBORw0KGgo=";
    for protocol in NEW {
        let model = endpoint().text("{\"n\":1}").repeat_last().start();
        let mut endpoint = settings(&model, protocol);
        endpoint.images = true;
        let client = OpenAi::new(endpoint).unwrap();
        assert!(client.takes_images());
        client.add_images("look", vec![url.to_owned()]);
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 0 } }, "required": ["n"] });
        let messages = vec![Message::User { text: "look".into() }].into();
        let request =
            agent::model::Request { answer_schema: Some(&schema), ..agent::model::Request::plain(&messages) };
        assert_eq!(client.ask(request, &mut |_| {}).await.unwrap().text, "{\"n\":1}");
        let body = model.last().body;
        let text = body.to_string();
        assert!(text.contains("iVBORw0KGgo=") && text.contains("json_schema"), "{text}");
    }
}

/// Each vendor's name, and the path of the address that its clients are given.
const VENDORS: [(&str, &str); 2] = [("openai", "/v1"), ("anthropic", "")];

fn for_vendors_clients() -> Endpoint {
    endpoint()
        .message(thinking_call("I look first.", "echo hi"), "tool_calls")
        .reasoning("That was it.", "There it is.")
        .text("In one piece.")
        .error(429, "Too many requests")
        .error(400, "No.")
        .start()
}

#[test]
fn the_vendors_own_clients_for_node_take_the_endpoint_for_their_own() {
    let Some(sdk) = sdk("npm-vendors") else { return };
    for (protocol, path) in VENDORS {
        let model = for_vendors_clients();
        let address = ("ENDPOINT".to_owned(), format!("{}{path}", model.root()));
        sdk.run_with(&format!("vendor_clients.mjs {protocol}"), [address]);
    }
}

/// The endpoint is what OpenAI's own client takes it for: streams, tools, whole answers, errors by their classes. Anthropic's current
/// client names another version of the protocol than the one that is spoken here.
#[test]
fn the_vendors_own_clients_take_the_endpoint_for_their_own() {
    let Some(python) = counterpart::python("vendors") else { return };
    for (protocol, path) in VENDORS {
        let model = for_vendors_clients();
        let output = std::process::Command::new(&python)
            .arg(counterpart::script("vendor_clients.py"))
            .args([protocol, &format!("{}{path}", model.root())])
            .output()
            .unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stdout.trim() == "ok", "{protocol}: {stdout}{stderr}");
    }
}
