//! The client against a fake endpoint: what is sent, what comes back, and every fault that can be thought of.

use crate::support::endpoint::{Endpoint, endpoint};
use agent::Error;
use agent::error::Kind;
use agent::event::{ToolCall, Usage};
use agent::model::endpoint::{Retries, Timeouts};
use agent::model::{ChatModel, Message, OpenAi, Progress, Reply, Request, Secret, ToolSpec};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

/// What a person would have seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub text: String,
    pub reasoning: String,
    pub retries: Vec<(u32, Duration, String)>,
    pub notices: Vec<String>,
}

impl Seen {
    pub fn take(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Text(text) => self.text.push_str(text),
            Progress::Reasoning(text) => self.reasoning.push_str(text),
            Progress::Retry { attempt, wait, reason } => {
                self.text.clear();
                self.reasoning.clear();
                self.retries.push((attempt, wait, reason.to_owned()));
            }
            Progress::Notice(text) => self.notices.push(text.to_owned()),
        }
    }
}

pub fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, properties: Value, required: Value| ToolSpec {
        name: name.into(),
        description: format!("The tool {name}."),
        parameters: json!({ "type": "object", "properties": properties, "required": required }),
    };
    let text = json!({ "type": "string" });
    vec![
        tool(
            "run_commands",
            json!({ "command": text, "timeout_s": { "type": "integer" } }),
            json!(["command"]),
        ),
        tool("read_file", json!({ "path": text }), json!(["path"])),
        tool("write_file", json!({ "path": text, "data": text }), json!(["path", "data"])),
    ]
}

pub fn settings(endpoint: &Endpoint) -> agent::model::Endpoint {
    settings_at(&endpoint.url())
}

fn settings_at(url: &str) -> agent::model::Endpoint {
    let mut settings = agent::model::Endpoint::new(url, "fake-model").unwrap();
    settings.retries = Retries {
        first_wait: Duration::from_millis(2),
        longest_wait: Duration::from_millis(20),
        ..Retries::default()
    };
    settings
}

pub fn client(endpoint: &Endpoint) -> OpenAi {
    OpenAi::new(settings(endpoint)).unwrap()
}

pub fn client_without_retries(endpoint: &Endpoint) -> OpenAi {
    let mut settings = settings(endpoint);
    settings.retries.attempts = 0;
    OpenAi::new(settings).unwrap()
}

pub async fn ask(model: &dyn ChatModel) -> (Result<Reply, Error>, Seen) {
    ask_with(model, &[Message::User { text: "What is here?".into() }], &tools()).await
}

async fn ask_with(
    model: &dyn ChatModel,
    messages: &[Message],
    tools: &[ToolSpec],
) -> (Result<Reply, Error>, Seen) {
    let mut seen = Seen::default();
    let mut on_progress = |progress: Progress<'_>| seen.take(progress);
    let request = Request { messages, tools, answer_schema: None };
    let asked = model.ask(request, &mut on_progress);
    let reply =
        tokio::time::timeout(Duration::from_secs(30), asked).await.expect("an answer or a failure, no hang");
    (reply, seen)
}

async fn failure(endpoint: &Endpoint) -> Error {
    let (reply, seen) = ask(&client(endpoint)).await;
    let error = reply.expect_err("a failure");
    assert_eq!(seen.retries, [], "not tried again");
    error
}

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
        Message::Assistant { text: String::new(), reasoning: Some("hm".into()), tool_calls: vec![call] },
        Message::Tool { id: "c1".into(), name: "read_file".into(), text: "content".into() },
    ];
    ask_with(&OpenAi::new(settings).unwrap(), &messages, &tools()[..1]).await.0.unwrap();

    let request = endpoint.last();
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.header("authorization"), Some("Bearer sk-test"));
    assert_eq!(request.header("x-team"), Some("blue"));
    assert!(request.headers.iter().all(|(name, _)| !name.starts_with("openai-")), "{:?}", request.headers);
    let sent = serde_json::to_string_pretty(&request.body).unwrap();
    insta::assert_snapshot!(sent);
}

#[tokio::test]
async fn reasoning_goes_back_only_where_the_provider_wants_it() {
    let messages = [
        Message::User { text: "Hi".into() },
        Message::Assistant { text: "Hello.".into(), reasoning: Some("hm".into()), tool_calls: vec![] },
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
        Message::Assistant { text: "Hello.".into(), reasoning: Some("hm".into()), tool_calls: vec![] },
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
    assert_eq!(reply.usage, Some(Usage { input: 10, output: 5, cached: 0 }));
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

    // Arguments as an object.
    let object = [call(json!(0), json!("a"), json!("read_file"), json!({ "path": "x" }))];
    assert_eq!(calls_of(&object).await, std::slice::from_ref(&a));

    // The old form.
    let old = [delta(json!({ "function_call": { "name": "read_file", "arguments": r#"{"path":"x"}"# } }))];
    assert_eq!(calls_of(&old).await, [asked("call_1", "read_file", r#"{"path":"x"}"#)]);

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

#[tokio::test]
async fn an_id_that_the_conversation_holds_already_is_made_unique() {
    let endpoint = endpoint().events(&[call(json!(0), json!("a"), json!("read_file"), json!("{}"))]).start();
    let messages = [
        Message::User { text: "Hi".into() },
        Message::Assistant {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![asked("a", "read_file", "{}")],
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
    let model = client(&endpoint);
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
        let streams: Vec<_> = endpoint.chats().iter().map(|body| body["stream"].clone()).collect();
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
            ("", &[asked("call_1", "read_file", r#"{"path":"a"}"#)][..])
        );
        assert!(seen.notices[0].contains("described in the prompt"), "{seen:?}");

        messages.push(Message::Assistant { text: reply.text, reasoning: None, tool_calls: reply.tool_calls });
        messages.push(Message::Tool { id: "call_1".into(), name: "read_file".into(), text: "".into() });
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
    assert_eq!(reply.tool_calls, [asked("call_1", "read_file", r#"{"path":"a"}"#)]);
    assert_eq!(seen.text.trim(), "I look.");
    assert_eq!(seen.notices.len(), 1);

    // Without tools nothing is recovered, and nothing is held back for good.
    let (reply, seen) = ask_with(&client(&endpoint), &[Message::User { text: "Hi".into() }], &[]).await;
    assert_eq!((reply.unwrap().text.as_str(), seen.text.as_str()), (text, text));
}

// Retries.

#[tokio::test]
async fn passing_failures_are_tried_again() {
    for status in [408, 409, 425, 429, 500, 502, 503, 529] {
        let endpoint = endpoint().error(status, "later").error(status, "later").text("Fine.").start();
        let (reply, seen) = ask(&client(&endpoint)).await;
        assert_eq!(reply.unwrap().text, "Fine.", "{status}");
        assert_eq!(seen.retries.iter().map(|(attempt, ..)| *attempt).collect::<Vec<_>>(), [1, 2]);
        assert!(seen.retries[0].2.contains(&status.to_string()), "{:?}", seen.retries);
    }
}

#[tokio::test]
async fn retries_end() {
    let endpoint = endpoint().error(500, "still broken").for_ever().start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    let error = reply.unwrap_err();
    assert_eq!(error.kind(), Kind::Endpoint);
    assert!(error.to_string().contains("still broken"), "{error}");
    assert_eq!((seen.retries.len(), endpoint.chats().len()), (5, 6));
}

#[tokio::test]
async fn the_endpoint_says_when_to_come_back() {
    let in_a_second = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
    for (name, value, least, most) in [
        ("retry-after", "1", 1000, 1300),
        ("retry-after", "0.1", 100, 130),
        ("retry-after-ms", "50", 50, 70),
        ("llm_provider-retry-after", "1", 1000, 1300),
        ("x-ratelimit-reset-requests", "120ms", 120, 150),
        ("retry-after", in_a_second.as_str(), 0, 2600),
    ] {
        let endpoint = endpoint().error(429, "slow down").header(name, value).text("Fine.").start();
        let mut settings = settings(&endpoint);
        settings.retries.longest_wait = Duration::from_secs(5);
        let begun = Instant::now();
        let (reply, seen) = ask(&OpenAi::new(settings).unwrap()).await;
        assert_eq!(reply.unwrap().text, "Fine.");
        let wait = seen.retries[0].1;
        let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
        assert!(wait >= least && wait <= most, "{name}: {value} gave {wait:?}");
        assert!(begun.elapsed() >= wait);
    }
}

#[tokio::test]
async fn nothing_of_a_broken_answer_is_kept() {
    let endpoint = endpoint().text("A long answer that breaks.").reset().text("Whole.").start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    assert_eq!(reply.unwrap().text, "Whole.");
    assert_eq!(seen.text, "Whole.");
    assert_eq!(seen.retries.len(), 1);
}

#[tokio::test]
async fn streams_that_break_are_tried_again() {
    let early = r#"data: {"choices":[{"delta":{"content":"half"}}]}"#;
    let error = r#"data: {"error":{"message":"worker died","code":500}}"#;
    for (what, script) in [
        ("reset in the middle of a chunk", endpoint().text("A long answer.").pieces(64).reset().after(300)),
        ("closed in the middle", endpoint().text("A long answer.").close()),
        ("ends early", endpoint().raw(format!("{early}\n\n"))),
        ("stalls", endpoint().text("A long answer.").stall(Duration::from_secs(10))),
        ("an error in the middle", endpoint().raw(format!("{early}\n\n{error}\n\n"))),
        ("an error event", endpoint().raw(format!("{early}\n\nevent: error\ndata: overloaded\n\n"))),
        ("half JSON", endpoint().raw(format!("{}\n\n", &early[..40]))),
        ("half a whole answer", endpoint().raw(r#"{"choices":[{"message":{"content":"#)),
    ] {
        let endpoint = script.text("Fine.").start();
        let mut settings = settings(&endpoint);
        settings.timeouts.idle = Duration::from_millis(200);
        let (reply, seen) = ask(&OpenAi::new(settings).unwrap()).await;
        assert_eq!(reply.expect(what).text, "Fine.", "{what}");
        assert_eq!(seen.retries.len(), 1, "{what}: {seen:?}");
        assert_eq!(seen.text, "Fine.", "{what}");
    }
}

#[tokio::test]
async fn an_endpoint_that_never_answers_is_given_up() {
    let endpoint = endpoint().text("late").delay(Duration::from_secs(20)).for_ever().start();
    let mut settings = settings(&endpoint);
    settings.timeouts = Timeouts { first: Duration::from_millis(100), ..Timeouts::default() };
    settings.retries.attempts = 1;
    let (reply, seen) = ask(&OpenAi::new(settings).unwrap()).await;
    assert!(reply.unwrap_err().to_string().contains("did not answer within 0.1 s"));
    assert_eq!(seen.retries.len(), 1);
}

#[tokio::test]
async fn comments_alone_do_not_keep_a_request_alive() {
    let endpoint = endpoint().endless(": still thinking\n\n").pace(Duration::from_millis(5)).start();
    let mut settings = settings(&endpoint);
    settings.timeouts.first = Duration::from_millis(300);
    settings.retries.attempts = 0;
    let error = ask(&OpenAi::new(settings).unwrap()).await.0.unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
}

// Failures with names.

#[tokio::test]
async fn nobody_listens() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut settings = settings_at(&format!("http://127.0.0.1:{port}"));
    settings.retries.attempts = 2;
    let (reply, seen) = ask(&OpenAi::new(settings).unwrap()).await;
    let error = reply.unwrap_err();
    assert!(error.to_string().contains("cannot be reached: Connection refused"), "{error}");
    assert!(error.hint_text().unwrap().contains("is the endpoint running"));
    assert_eq!(seen.retries.len(), 2);
}

#[tokio::test]
async fn what_trying_again_cannot_help_fails_at_once() {
    let quota = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    for (script, words, hint) in [
        (endpoint().error(401, "Incorrect API key provided"), "Incorrect API key", "check the key"),
        (endpoint().error(403, "forbidden"), "403", "check the key"),
        (endpoint().sample("litellm/badkey"), "No connected db", "check the key"),
        (endpoint().error(404, "The model `gpt-9` does not exist"), "gpt-9", "agent models"),
        (endpoint().sample("litellm/nomodel"), "Invalid model name", "agent models"),
        (endpoint().raw("404 page not found").status(404), "404 page not found", "/v1"),
        (endpoint().raw(quota).status(429), "quota", "credit"),
        (endpoint().error(402, "Insufficient Balance"), "Insufficient Balance", "credit"),
        (endpoint().raw("<!doctype html><title>Welcome</title>"), "web page", "/v1"),
        (endpoint().raw(r#"{"error":"key expired","code":401}"#), "key expired", "check the key"),
        (endpoint().error(400, "messages must alternate"), "messages must alternate", ""),
        (
            endpoint().raw("").status(302).header("location", "https://evil.example/v1"),
            "evil.example",
            "trust",
        ),
    ] {
        let endpoint = script.start();
        let error = failure(&endpoint).await;
        assert_eq!(error.kind(), Kind::Endpoint);
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint_text().unwrap_or_default().contains(hint), "{error}: {:?}", error.hint_text());
        assert_eq!(endpoint.requests().len(), 1);
    }
}

#[tokio::test]
async fn errors_in_every_shape_keep_their_words() {
    for body in [
        r#"{"error":{"message":"it broke","code":400}}"#,
        r#"{"error":"it broke"}"#,
        r#"{"message":"it broke","object":"error"}"#,
        r#"{"detail":"it broke"}"#,
        r#"[{"error":{"message":"it broke"}}]"#,
        r#""it broke""#,
        "it broke",
        "<html><head><title>it broke</title></head></html>",
    ] {
        let error = failure(&endpoint().raw(body).status(400).start()).await;
        assert!(error.to_string().contains("400") && error.to_string().contains("it broke"), "{error}");
    }
    let error = failure(&endpoint().raw("").status(400).start()).await;
    assert!(error.to_string().contains("400 Bad Request without a word"), "{error}");
}

#[tokio::test]
async fn an_overflow_is_known_by_its_words() {
    for (script, window) in [
        (endpoint().sample("llama-cpp-python/ctx-overflow"), Some(8192)),
        (endpoint().sample("llama-server-qwen2.5-coder-1.5b/ctx-overflow"), Some(16384)),
        (endpoint().sample("vllm-qwen2.5-coder-0.5b/ctx-overflow"), Some(8192)),
        (endpoint().sample("litellm/ctx"), None),
        (endpoint().error(400, "prompt is too long: 215000 tokens > 200000 maximum"), Some(200_000)),
        (endpoint().error(413, "Request Entity Too Large"), None),
        (endpoint().raw(r#"data: {"error":{"message":"Context size has been exceeded."}}"#), None),
    ] {
        let error = failure(&script.start()).await;
        assert_eq!(error.kind(), Kind::ContextOverflow, "{error}");
        assert_eq!(error.known_context_window(), window, "{error}");
    }
}

#[tokio::test]
async fn an_empty_answer_is_a_failure() {
    for body in [
        "",
        "data: [DONE]\n\n",
        r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#,
        r#"{}"#,
    ] {
        let endpoint = endpoint().raw(body).for_ever().start();
        let (reply, seen) = ask(&client(&endpoint)).await;
        let error = reply.unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
        assert_eq!(seen.notices.len(), 1, "tried without streaming once");
        assert_eq!(seen.retries.len(), 2);
    }
}

#[tokio::test]
async fn answers_beyond_all_bounds_are_refused() {
    let token = json!({ "choices": [{ "delta": { "content": "and on ".repeat(2000) } }] });
    let comment = format!(": {}\n\n", "nothing ".repeat(8000));
    let many: Vec<Value> = (0..10_000)
        .map(|i| json!({ "id": format!("c{i}"), "function": { "name": "read_file", "arguments": "{}" } }))
        .collect();
    let many = json!({ "choices": [{ "message": { "tool_calls": many }, "finish_reason": "tool_calls" }] });
    let huge = json!({ "command": "x".repeat(10 << 20) });
    for (script, words) in [
        (endpoint().repeated("x", 100 << 20), "larger than"),
        (endpoint().repeated("{\"a\":\"bcdefghijklmnopqrstuvwxyz\"}", 100 << 20), "larger than 8 MiB"),
        (endpoint().repeated(&comment, 100 << 20), "larger than 64 MiB"),
        (endpoint().endless(&format!("data: {token}\n\n")), "longer than 4 MiB"),
        (endpoint().raw(many.to_string()), "more than 128 tools"),
        (endpoint().tool_call("run_commands", huge), "arguments for run_commands are larger than 1 MiB"),
    ] {
        let error = failure(&script.start()).await;
        assert_eq!(error.kind(), Kind::Endpoint);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn invalid_utf8_is_replaced() {
    let body =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\xfeb\"},\"finish_reason\":\"stop\"}]}\n\n";
    let endpoint = endpoint().raw(body).start();
    assert_eq!(ask(&client(&endpoint)).await.0.unwrap().text, "a\u{fffd}\u{fffd}b");
}

// Where requests go.

#[tokio::test]
async fn base_urls_with_and_without_v1() {
    let endpoint = endpoint().text("Fine.").for_ever().start();
    let host = endpoint.root().trim_start_matches("http://").to_owned();
    for url in [
        format!("{}/v1", endpoint.root()),
        format!("{}/v1/", endpoint.root()),
        endpoint.root().to_owned(),
        format!("{}/", endpoint.root()),
        format!("{host}/v1"),
        host.clone(),
    ] {
        ask(&OpenAi::new(settings_at(&url)).unwrap()).await.0.expect(&url);
        assert_eq!(endpoint.last().path, "/v1/chat/completions", "{url}");
    }
}

#[tokio::test]
async fn a_key_is_not_sent_over_a_redirect() {
    let elsewhere = endpoint().text("stolen").start();
    let location = format!("{}/chat/completions", elsewhere.url());
    for status in [301, 302, 307, 308] {
        let endpoint = endpoint().raw("").status(status).header("location", &location).start();
        let mut settings = settings(&endpoint);
        settings.key = Some(Secret::new("sk-test").unwrap());
        let error = ask(&OpenAi::new(settings).unwrap()).await.0.unwrap_err();
        assert!(error.to_string().contains("redirects"), "{error}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused_until_it_is_named() {
    let endpoint = endpoint().tls().text("Fine.").for_ever().start();
    let error = failure(&endpoint).await;
    assert!(error.to_string().contains("certificate is not trusted"), "{error}");
    assert!(error.hint_text().unwrap().contains("AGENT_CA_FILE"));

    let mut settings = settings(&endpoint);
    settings.ca_file = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/certificate.pem").into());
    assert_eq!(ask(&OpenAi::new(settings.clone()).unwrap()).await.0.unwrap().text, "Fine.");

    settings.ca_file = Some("/nowhere/ca.pem".into());
    assert_eq!(OpenAi::new(settings).err().unwrap().kind(), Kind::Config);
}

#[tokio::test]
async fn a_proxy_in_the_environment_is_used() {
    // The environment belongs to the whole process: the client behind the proxy is this test in a process of its own.
    const CHILD: &str = "AGENT_TEST_BEHIND_A_PROXY";
    if std::env::var_os(CHILD).is_some() {
        let reply = ask(&OpenAi::new(settings_at("http://model.invalid/v1")).unwrap()).await.0.unwrap();
        assert_eq!(reply.text, "Through the proxy.");
        return;
    }
    let proxy = endpoint().text("Through the proxy.").start();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "endpoint_client::a_proxy_in_the_environment_is_used"])
        .env(CHILD, "1")
        .env("http_proxy", proxy.root())
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(proxy.last().path, "http://model.invalid/v1/chat/completions");
}

#[tokio::test]
async fn models_are_listed() {
    let lists = [
        (r#"{"data":[{"id":"a"},{"id":"b"}]}"#, vec!["a", "b"]),
        (r#"[{"id":"a"}]"#, vec!["a"]),
        (r#"{"models":[{"name":"a"}]}"#, vec!["a"]),
    ];
    for (body, names) in lists {
        let endpoint = endpoint().models(200, body).start();
        assert_eq!(client(&endpoint).models().await.unwrap(), names);
    }
    let endpoint = endpoint().models(200, "<html></html>").start();
    assert!(client(&endpoint).models().await.unwrap_err().to_string().contains("web page"));
}

#[tokio::test]
async fn giving_up_closes_the_connection() {
    let endpoint = endpoint().endless("data: {\"choices\":[]}\n\n").pace(Duration::from_millis(1)).start();
    let model = client(&endpoint);
    let _ = tokio::time::timeout(Duration::from_millis(200), ask(&model)).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while endpoint.open_connections() > 0 {
        assert!(Instant::now() < deadline, "the connection is still open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
