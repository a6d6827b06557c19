//! The client against a fake endpoint: what is sent, what comes back, what an endpoint may not understand.

use crate::support::client::{ask, ask_with, client, client_with_facts, settings, tools};
use agent::event::{ToolCall, Usage};
use agent::model::{ChatModel, Message, OpenAi, Secret};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

// What is sent.

#[tokio::test]
async fn a_request_carries_the_conversation_and_the_tools() {
    let endpoint = endpoint().text("Fine.").start();
    let mut settings = settings(&endpoint);
    settings.key = Some(Secret::new("sk-test").unwrap());
    settings.headers = vec![("x-team".into(), "blue".into())];
    settings.max_tokens = Some(1000);
    let call = ToolCall { id: "c1".into(), name: "read_file".into(), arguments: r#"{"path":"a"}"#.into() };
    let messages = [
        Message::System { text: "Be short.".into() },
        Message::User { text: "Hi".into() },
        Message::Assistant {
            text: String::new(),
            reasoning: Some("hm".into()),
            tool_calls: vec![call],
            opaque: Default::default(),
        },
        Message::Tool { id: "c1".into(), name: "read_file".into(), text: "content".into() },
    ];
    ask_with(&OpenAi::new(settings).unwrap(), &messages, &tools()[..1]).await.0.unwrap();

    let request = endpoint.last();
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.header("authorization"), Some("Bearer sk-test"));
    assert_eq!(request.header("x-team"), Some("blue"));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert!(request.headers.iter().all(|(name, _)| !name.starts_with("openai-")), "{:?}", request.headers);
    let sent = serde_json::to_string_pretty(&request.body).unwrap();
    insta::assert_snapshot!(sent);
}

/// Other models read the line about it in the result.
#[tokio::test]
async fn images_are_sent_to_models_that_take_them() {
    let endpoint = endpoint().text("A line.").start();
    let mut settings = settings(&endpoint);
    settings.images = true;
    let call = ToolCall { id: "c1".into(), name: "run_code".into(), arguments: "{}".into() };
    let messages = [
        Message::User { text: "Draw.".into() },
        Message::Assistant {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![call],
            opaque: Default::default(),
        },
        Message::Tool { id: "c1".into(), name: "run_code".into(), text: "[image figure-1.png: …]".into() },
    ];
    let model = OpenAi::new(settings).unwrap();
    assert!(model.takes_images() && !client(&endpoint).takes_images());
    model.add_images("c1", vec!["data:image/png;base64,iVBORw==".to_owned()]);
    ask_with(&model, &messages, &tools()[..1]).await.0.unwrap();
    let sent = endpoint.last().messages().to_vec();
    assert_eq!(sent[2]["content"], "[image figure-1.png: …]");
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } });
    assert_eq!((&sent[3]["role"], &sent[3]["content"][1]), (&json!("user"), &image));
}

#[tokio::test]
async fn reasoning_goes_back_only_where_the_provider_wants_it() {
    let messages = [
        Message::User { text: "Hi".into() },
        Message::Assistant {
            text: "Hello.".into(),
            reasoning: Some("hm".into()),
            tool_calls: vec![],
            opaque: Default::default(),
        },
        Message::User { text: "And now?".into() },
    ];
    let endpoint = endpoint().text("Fine.").text("Fine.").start();
    ask_with(&client(&endpoint), &messages, &[]).await.0.unwrap();
    assert_eq!(endpoint.last().messages()[1], json!({ "role": "assistant", "content": "Hello." }));

    let mut settings = settings(&endpoint);
    settings.provider = agent::model::providers::find("deepseek").unwrap();
    ask_with(&OpenAi::new(settings).unwrap(), &messages, &[]).await.0.unwrap();
    assert_eq!(endpoint.last().messages()[1]["reasoning_content"], "hm");
}

#[tokio::test]
async fn missed_reasoning_is_sent_from_then_on() {
    let missing = "Missing `reasoning_content` field in the assistant message at message index 1.";
    let endpoint = endpoint().error(400, missing).text("Fine.").start();
    let messages = [
        Message::User { text: "Hi".into() },
        Message::Assistant {
            text: "Hello.".into(),
            reasoning: Some("hm".into()),
            tool_calls: vec![],
            opaque: Default::default(),
        },
    ];
    let (reply, seen) = ask_with(&client(&endpoint), &messages, &[]).await;
    assert_eq!(reply.unwrap().text, "Fine.");
    assert_eq!(seen.notices.len(), 1);
    assert_eq!(endpoint.last().messages()[1]["reasoning_content"], "hm");
}

// What comes back.

#[tokio::test]
async fn text_is_shown_as_it_comes() {
    let endpoint = endpoint().reasoning("Let me see.", "One file, then another.").start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.text, "One file, then another.");
    assert_eq!(reply.reasoning.as_deref(), Some("Let me see."));
    assert_eq!(reply.finish_reason.as_deref(), Some("stop"));
    assert_eq!(reply.usage, Some(Usage { input: 10, output: 5, cached: 0, written: 0 }));
    assert_eq!((seen.text.as_str(), seen.reasoning.as_str()), ("One file, then another.", "Let me see."));
}

#[tokio::test]
async fn several_tools_in_one_message() {
    let calls = [("read_file", json!({ "path": "ä.txt" })), ("run_commands", json!({ "command": "ls" }))];
    for pieces in [1, 3, 7, 4096] {
        let endpoint = endpoint().tool_calls(&calls).pieces(pieces).start();
        let reply = ask(&client(&endpoint)).await.0.unwrap();
        let asked: Vec<_> =
            reply.tool_calls.iter().map(|c| (c.name.as_str(), c.arguments.as_str())).collect();
        assert_eq!(asked, [("read_file", r#"{"path":"ä.txt"}"#), ("run_commands", r#"{"command":"ls"}"#)]);
    }
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn call(index: Value, id: Value, name: Value, arguments: Value) -> Value {
    delta(
        json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] }),
    )
}

async fn calls_of(events: &[Value]) -> Vec<ToolCall> {
    let endpoint = endpoint().events(events).start();
    ask(&client(&endpoint)).await.0.unwrap().tool_calls
}

fn asked(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

#[tokio::test]
async fn calls_in_odd_pieces() {
    let null = Value::Null;
    let a = asked("a", "read_file", r#"{"path":"x"}"#);
    let b = asked("b", "run_commands", r#"{"command":"ls"}"#);
    let first = r#"{"path":"#;
    let second = r#""x"}"#;

    // Name and id in every piece.
    let repeated = [first, second].map(|piece| call(json!(0), json!("a"), json!("read_file"), json!(piece)));
    assert_eq!(calls_of(&repeated).await, std::slice::from_ref(&a));

    // Neither index nor id after the first piece, nor a second call's index.
    let bare = [
        call(null.clone(), json!("a"), json!("read_file"), json!(first)),
        call(null.clone(), null.clone(), null.clone(), json!(second)),
        call(null.clone(), json!("b"), json!("run_commands"), json!(r#"{"command":"ls"}"#)),
    ];
    assert_eq!(calls_of(&bare).await, [a.clone(), b.clone()]);

    // Every call has index 0.
    let zero = [
        call(json!(0), json!("a"), json!("read_file"), json!(r#"{"path":"x"}"#)),
        call(json!(0), json!("b"), json!("run_commands"), json!(r#"{"command":"ls"}"#)),
    ];
    assert_eq!(calls_of(&zero).await, [a.clone(), b.clone()]);

    // The second call begins with the first one's index, and continues with its own.
    let miscounted = [
        call(json!(0), json!("a"), json!("read_file"), json!(r#"{"path":"x"}"#)),
        call(json!(0), json!("b"), json!("run_commands"), json!(r#"{"comm"#)),
        call(json!(1), null.clone(), null.clone(), json!(r#"and":"#)),
        call(json!(1), null.clone(), null.clone(), json!(r#""ls"}"#)),
    ];
    assert_eq!(calls_of(&miscounted).await, [a.clone(), b.clone()]);

    // Arguments as an object.
    let object = [call(json!(0), json!("a"), json!("read_file"), json!({ "path": "x" }))];
    assert_eq!(calls_of(&object).await, std::slice::from_ref(&a));

    // The old form.
    let old = [delta(json!({ "function_call": { "name": "read_file", "arguments": r#"{"path":"x"}"# } }))];
    assert_eq!(calls_of(&old).await, [asked("call00001", "read_file", r#"{"path":"x"}"#)]);

    // The same id twice, an id missing.
    let doubled = [
        call(json!(0), json!("a"), json!("read_file"), json!(r#"{"path":"x"}"#)),
        call(json!(1), json!("a"), json!("run_commands"), json!(r#"{"command":"ls"}"#)),
        call(json!(2), null.clone(), json!("run_commands"), json!(r#"{"command":"ls"}"#)),
    ];
    let calls = calls_of(&doubled).await;
    assert_eq!(calls.len(), 3);
    let ids: std::collections::HashSet<_> = calls.iter().map(|call| call.id.as_str()).collect();
    assert!(ids.len() == 3 && !ids.contains(""), "{ids:?}");
}

/// A bug: calls with one id and no index, or with one index and id, were glued together.
#[tokio::test]
async fn calls_that_nothing_but_their_words_tell_apart() {
    let null = Value::Null;
    let read = |index: &Value, id: &str, path: &str| {
        call(index.clone(), json!(id), json!("read_file"), json!({ "path": path }).to_string().into())
    };
    let list = |index: &Value, id: &str| {
        call(index.clone(), json!(id), json!("run_commands"), json!(r#"{"command":"ls"}"#))
    };
    for index in [null.clone(), json!(0)] {
        for id in ["", "a"] {
            let calls = calls_of(&[read(&index, id, "x"), read(&index, id, "y"), list(&index, id)]).await;
            let said: Vec<_> =
                calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
            let expected = [
                ("read_file", r#"{"path":"x"}"#),
                ("read_file", r#"{"path":"y"}"#),
                ("run_commands", r#"{"command":"ls"}"#),
            ];
            assert_eq!(said, expected, "index {index}, id {id:?}");
            let ids: std::collections::HashSet<_> = calls.iter().map(|call| call.id.as_str()).collect();
            assert!(ids.len() == 3 && !ids.contains(""), "{ids:?}");
        }
    }
    // The whole call once more, as a summary at the end.
    let twice = [read(&null, "a", "x"), read(&null, "a", "x")];
    assert_eq!(calls_of(&twice).await, [asked("a", "read_file", r#"{"path":"x"}"#)]);
    // Empty arguments before the real ones.
    let empty = call(null.clone(), json!("a"), json!("read_file"), json!("{}"));
    let calls = calls_of(&[empty, read(&null, "a", "x")]).await;
    assert_eq!(calls.iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(), [r#"{"path":"x"}"#]);
    // Without an id nothing says that it is the same.
    assert_eq!(calls_of(&[read(&null, "", "x"), read(&null, "", "x")]).await.len(), 2);
}

#[tokio::test]
async fn an_id_that_the_conversation_holds_already_is_made_unique() {
    let endpoint = endpoint().events(&[call(json!(0), json!("a"), json!("read_file"), json!("{}"))]).start();
    let messages = [
        Message::User { text: "Hi".into() },
        Message::Assistant {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![asked("a", "read_file", "{}")],
            opaque: Default::default(),
        },
        Message::Tool { id: "a".into(), name: "read_file".into(), text: "content".into() },
    ];
    let reply = ask_with(&client(&endpoint), &messages, &tools()).await.0.unwrap();
    assert_ne!(reply.tool_calls[0].id, "a");
}

#[tokio::test]
async fn thinking_inside_the_content_is_told_apart() {
    for pieces in [1, 5, 4096] {
        let endpoint =
            endpoint().text("<think>\nHm, let me see.</think>\n\nIt is <b>7</b>.").pieces(pieces).start();
        let (reply, seen) = ask(&client(&endpoint)).await;
        let reply = reply.unwrap();
        assert_eq!(reply.text, "It is <b>7</b>.");
        assert_eq!(reply.reasoning.as_deref(), Some("\nHm, let me see."));
        assert_eq!(seen.text, "It is <b>7</b>.");
    }
}

#[tokio::test]
async fn streams_in_every_dialect_are_understood() {
    let said = r#"{"choices":[{"delta":{"content":"grüß dich"},"finish_reason":"stop"}]}"#;
    for body in [
        format!("data: {said}\n\ndata: [DONE]\n\n"),
        format!("data: {said}\r\n\r\ndata: [DONE]\r\n\r\n"),
        format!("\u{feff}data: {said}\n\ndata: [DONE]\n\n"),
        format!(": keep-alive\n\n: keep-alive\n\ndata:{said}\n\n"),
        format!("event: message\nid: 1\ndata: {said}\n\n"),
        format!("data: {said}"),
        format!("event: ping\ndata: {{}}\n\ndata: {said}\n\n"),
        format!("\n\n{}", said.replace("delta", "message")),
        format!(
            "\u{feff}{}",
            serde_json::to_string_pretty(&serde_json::from_str::<Value>(said).unwrap()).unwrap()
        ),
    ] {
        for pieces in [1, 4096] {
            let endpoint = endpoint().raw(&body).pieces(pieces).start();
            let (reply, seen) = ask(&client(&endpoint)).await;
            assert_eq!(reply.unwrap().text, "grüß dich", "{body}");
            assert_eq!(seen.text, "grüß dich");
            assert_eq!(seen.notices, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn content_as_a_list_of_parts() {
    let parts =
        json!([{ "type": "text", "text": "a" }, { "type": "image" }, { "type": "text", "text": "b" }]);
    let endpoint = endpoint().events(&[delta(json!({ "content": parts }))]).start();
    assert_eq!(ask(&client(&endpoint)).await.0.unwrap().text, "ab");
}

#[tokio::test]
async fn a_stream_that_stays_open_after_the_last_word_is_complete() {
    let said = r#"data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let endpoint = endpoint()
        .raw(format!("{said}\n\n: more\n\n"))
        .stall(Duration::from_secs(20))
        .after(said.len() + 2)
        .start();
    let begun = Instant::now();
    assert_eq!(ask(&client(&endpoint)).await.0.unwrap().text, "hi");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn connections_are_used_again() {
    let endpoint = endpoint().text("one").text("two").start();
    let model = client_with_facts(&endpoint);
    ask(&model).await.0.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    ask(&model).await.0.unwrap();
    assert_eq!(endpoint.connections(), 1);
}

// What an endpoint may not understand.

#[tokio::test]
async fn an_endpoint_that_does_not_stream_is_asked_without() {
    for first in ["", "\n\n", ": comment\n\n", "data: [DONE]\n\n"] {
        let endpoint = endpoint().raw(first).text("whole").text("again").start();
        let model = client(&endpoint);
        let (reply, seen) = ask(&model).await;
        assert_eq!(reply.unwrap().text, "whole");
        assert_eq!(seen.notices.len(), 1, "{seen:?}");
        assert_eq!(ask(&model).await.0.unwrap().text, "again");
        let streams: Vec<_> = endpoint.chat_requests().iter().map(|body| body["stream"].clone()).collect();
        assert_eq!(streams, [true, false, false], "remembered for the session");
    }
    let endpoint = endpoint().error(400, "stream is not supported for this model").text("whole").start();
    assert_eq!(ask(&client(&endpoint)).await.0.unwrap().text, "whole");
}

#[tokio::test]
async fn parameters_that_are_refused_are_left_out() {
    let unknown = r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#;
    let tokens = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let temperature = "Unsupported value: 'temperature' does not support 0.2 with this model.";
    let endpoint =
        endpoint().raw(unknown).status(422).error(400, tokens).error(400, temperature).text("Fine.").start();
    let mut settings = settings(&endpoint);
    settings.max_tokens = Some(100);
    settings.temperature = Some(0.2);
    let (reply, seen) = ask(&OpenAi::new(settings).unwrap()).await;
    assert_eq!(reply.unwrap().text, "Fine.");
    assert_eq!(seen.notices.len(), 3, "{:?}", seen.notices);
    let body = endpoint.last().body;
    assert_eq!(body["max_completion_tokens"], 100);
    for gone in ["max_tokens", "temperature", "stream_options"] {
        assert_eq!(body[gone], Value::Null, "{gone}");
    }
}

/// The templates of some models have no role for the system.
#[tokio::test]
async fn an_endpoint_without_a_system_role_has_it_in_the_first_prompt() {
    for refusal in [
        "System role not supported",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "System message must be at the beginning.",
    ] {
        let endpoint = endpoint().error(400, refusal).text("Four.").start();
        let messages =
            [Message::System { text: "Be short.".into() }, Message::User { text: "What is 2 + 2?".into() }];
        let (reply, seen) = ask_with(&client(&endpoint), &messages, &tools()).await;
        assert_eq!(reply.expect(refusal).text, "Four.");
        let expected = json!([{ "role": "user", "content": "Be short.\n\nWhat is 2 + 2?" }]);
        assert_eq!(endpoint.last().body["messages"], expected);
        assert!(seen.notices[0].contains("does not take a system message"), "{:?}", seen.notices);
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_take_tools_has_them_described() {
    let call = r#"{"name": "read_file", "arguments": {"path": "a"}}"#;
    for refusal in [
        "registry.ollama.ai/library/gemma2:2b does not support tools",
        "No endpoints found that support tool use. Try disabling \"run_commands\".",
        r#""auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"#,
        "tools param requires --jinja flag",
        "Function calling is not enabled for this model",
        "`tools` is not supported by this model",
    ] {
        let endpoint = endpoint()
            .error(400, refusal)
            .text(&format!("<tool_call>{call}</tool_call>"))
            .text("It is empty.")
            .start();
        let model = client(&endpoint);
        let mut messages = vec![
            Message::System { text: "Be short.".into() },
            Message::User { text: "What is in a?".into() },
        ];
        let (reply, seen) = ask_with(&model, &messages, &tools()).await;
        let reply = reply.expect(refusal);
        assert_eq!(
            (reply.text.as_str(), reply.tool_calls.as_slice()),
            ("", &[asked("call00001", "read_file", r#"{"path":"a"}"#)][..])
        );
        assert!(seen.notices[0].contains("described in the prompt"), "{seen:?}");

        messages.push(Message::Assistant {
            text: reply.text,
            reasoning: None,
            tool_calls: reply.tool_calls,
            opaque: Default::default(),
        });
        messages.push(Message::Tool { id: "call00001".into(), name: "read_file".into(), text: "".into() });
        assert_eq!(ask_with(&model, &messages, &tools()).await.0.unwrap().text, "It is empty.");
        let request = endpoint.last();
        assert_eq!(request.body["tools"], Value::Null);
        let sent = request.messages();
        assert_eq!(
            sent.iter().map(|m| m["role"].as_str().unwrap()).collect::<Vec<_>>(),
            ["system", "user", "assistant", "user"]
        );
        assert!(sent[0]["content"].as_str().unwrap().starts_with("Be short.\n\n# Tools"), "{}", sent[0]);
        assert!(sent[2]["content"].as_str().unwrap().contains(r#""name":"read_file""#));
        assert!(sent[3]["content"].as_str().unwrap().starts_with("<tool_response"));
    }
}

#[tokio::test]
async fn calls_written_as_text_are_recovered_where_there_is_no_native_one() {
    let text = "I look.\n```json\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n```";
    let endpoint = endpoint().text(text).text(text).start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.text, "I look.");
    assert_eq!(reply.tool_calls, [asked("call00001", "read_file", r#"{"path":"a"}"#)]);
    assert_eq!(seen.text.trim(), "I look.");
    assert_eq!(seen.notices.len(), 1);

    // Without tools nothing is recovered, and nothing is held back for good.
    let (reply, seen) = ask_with(&client(&endpoint), &[Message::User { text: "Hi".into() }], &[]).await;
    assert_eq!((reply.unwrap().text.as_str(), seen.text.as_str()), (text, text));
}
