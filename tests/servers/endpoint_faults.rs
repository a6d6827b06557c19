//! Every fault that an endpoint can have: tried again where that helps, named where it does not, bounded always.

use crate::support::client::{ask, client, client_with_facts, failure, settings, settings_at};
use agent::error::Kind;
use agent::model::endpoint::Timeouts;
use agent::model::{ChatModel, OpenAi, Secret};
use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

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
    let endpoint = endpoint().error(500, "still broken").repeat_last().start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    let error = reply.unwrap_err();
    assert_eq!(error.kind(), Kind::Endpoint);
    assert!(error.to_string().contains("still broken"), "{error}");
    assert_eq!((seen.retries.len(), endpoint.chat_requests().len()), (5, 6));
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
    let endpoint = endpoint().text("late").delay(Duration::from_secs(20)).repeat_last().start();
    let mut settings = settings(&endpoint);
    settings.timeouts = Timeouts { first: Duration::from_millis(100), ..Timeouts::default() };
    settings.retries.attempts = 1;
    let (reply, seen) = ask(&OpenAi::new(settings).unwrap()).await;
    assert!(reply.unwrap_err().to_string().contains("did not answer within 0.1 s"));
    assert_eq!(seen.retries.len(), 1);
}

#[tokio::test]
async fn comments_alone_do_not_keep_a_request_alive() {
    for (keep_alive, words) in [
        (": still thinking\n\n", "did not answer"),
        ("event: ping\ndata: {}\n\n", "did not answer"),
        ("data: ping\n\n", "did not answer"),
        ("data: {}\n\n", "was kept alive"),
        ("data: {\"choices\":[]}\n\n", "was kept alive, but nothing came"),
        ("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n", "was kept alive"),
    ] {
        let endpoint = endpoint().endless(keep_alive).pace(Duration::from_millis(5)).start();
        let mut settings = settings(&endpoint);
        settings.timeouts.first = Duration::from_millis(300);
        settings.retries.attempts = 0;
        let client = OpenAi::new(settings).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(20), ask(&client)).await;
        let error = answer.unwrap_or_else(|_| panic!("{keep_alive} keeps it alive")).0.unwrap_err();
        assert!(error.to_string().contains(words), "{keep_alive}: {error}");
    }
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
    assert_eq!(seen.retries.len(), 1, "once more, in case that it is just starting again");
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
        (
            endpoint().raw(b"\x1f\x8b\x08\0garbage").header("content-encoding", "gzip"),
            "compressed (gzip)",
            "/v1",
        ),
        (
            endpoint().raw(b"\x1f\x8b\x08\0garbage").header("content-encoding", "gzip").status(404),
            "404 Not Found without a word",
            "/v1",
        ),
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
    // Some servers report errors as good answers.
    for body in [
        r#"{"base_resp":{"status_code":1008,"status_msg":"it broke: insufficient balance"},"choices":null}"#,
        r#"{"code":400,"msg":"it broke","success":false}"#,
    ] {
        let error = failure(&endpoint().raw(body).start()).await;
        assert!(error.to_string().contains("it broke"), "{error}");
    }
    let beside = r#"{"base_resp":{"status_code":0,"status_msg":"success"},"choices":[{"message":{"content":"Fine."}}]}"#;
    let (reply, _) = ask(&client(&endpoint().raw(beside).start())).await;
    assert_eq!(reply.unwrap().text, "Fine.");
    let error = failure(&endpoint().raw("").status(400).start()).await;
    assert!(error.to_string().contains("400 Bad Request without a word"), "{error}");
}

/// A bug: what an endpoint says of a key was shown and kept word for word.
#[test]
fn a_key_that_an_endpoint_quotes_is_neither_shown_nor_kept() {
    let key = "sk-proj-abcdefghijklmnop";
    let long = format!("{} {key}", "x".repeat(480));
    let location = format!("https://elsewhere.example/?key={key}");
    for (script, words) in [
        (
            endpoint().error(500, &format!("cannot look up {key}")).error(401, &format!("{key}: unknown")),
            "[key]: unknown",
        ),
        (endpoint().error(400, &format!("stream is not supported for {key}")).error(401, &long), "[key]…"),
        (endpoint().raw(json!({ "error": { "message": { "key": key } } }).to_string()).status(403), "[key]"),
        (endpoint().raw(format!("data: {{\"error\":\"bad key {key}\",\"code\":401}}\n\n")), "bad key [key]"),
        (endpoint().raw(format!("Denied: Bearer {key}")).status(403), "Bearer [key]"),
        (endpoint().raw("").status(302).header("location", &location), "?key=[key]"),
    ] {
        let model = script.start();
        let call = agent().endpoint(&model).env("AGENT_API_KEY", key).args(["run", "--json", "hi"]);
        let sessions = call.home("data").join("sessions");
        let finished = call.run().expect_code(3);
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
        let session = std::fs::read_dir(sessions).unwrap().next().expect("a session").unwrap().path();
        let kept = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
        for text in [&finished.stdout, &finished.stderr, &kept] {
            assert!(!text.contains("abcdefgh"), "{text}");
        }
    }
    let model = endpoint().models(401, format!("{key} is unknown")).start();
    let finished = agent().endpoint(&model).env("AGENT_API_KEY", key).args(["models"]).run().expect_code(3);
    assert!(finished.stderr.contains("[key] is unknown"), "{}", finished.stderr);
}

/// A call with a key that a command prints: another one each time.
fn with_command(model: &Endpoint, command: &str) -> Agent {
    let text = format!("base_url = {:?}\nmodel = \"test-model\"\napi_key_command = {command}\n", model.url());
    agent().config(&text)
}

#[test]
fn a_key_that_a_command_prints_is_asked_for_once_and_again_where_it_is_refused() {
    let count = "\"echo x >>count; wc -l <count | sed 's/^ */key-number-/'\"";
    let model = endpoint().error(401, "key-number-1 has expired").text("Hello.").text("Again.").start();
    let call = with_command(&model, count).args(["run", "hi"]);
    let kept = call.home("data").join("sessions");
    let finished = call.run().expect_code(0);
    assert_eq!(finished.stdout, "Hello.\n");
    let keys: Vec<_> =
        model.requests().iter().map(|request| request.header("authorization").map(str::to_owned)).collect();
    let bearer = |number: u32| Some(format!("Bearer key-number-{number}"));
    assert_eq!(keys, [bearer(1), bearer(2)]);
    let session = std::fs::read_dir(kept).unwrap().next().expect("a session").unwrap().path();
    let events = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
    assert!(!events.contains("key-number") && !finished.stderr.contains("key-number"), "{}", finished.stderr);
    // A list of words is a program with its arguments; with an endpoint of the environment its key comes first.
    let listed = endpoint().text("Hello.").start();
    with_command(&listed, "[\"printf\", \"%s\", \"listed-key\"]").args(["run", "hi"]).run().expect_code(0);
    assert_eq!(listed.last().header("authorization"), Some("Bearer listed-key"));
    let named = endpoint().text("Hello.").start();
    let unused = "api_key_command = \"echo no >&2; exit 3\"\n";
    agent()
        .endpoint(&named)
        .env("AGENT_API_KEY", "named")
        .config(unused)
        .args(["run", "hi"])
        .run()
        .expect_code(0);
    assert_eq!(named.last().header("authorization"), Some("Bearer named"));
}

#[test]
fn a_command_that_prints_no_key_is_an_error_of_the_configuration() {
    let model = endpoint().text("Hello.").start();
    for (command, words) in [
        ("\"echo locked >&2; exit 3\"", "api_key_command: it failed (exit status: 3): locked"),
        ("\"true\"", "api_key_command: the API key is empty"),
        ("[\"no-such-program\"]", "api_key_command: there is no program no-such-program"),
        ("\"echo two words\"", "api_key_command: the API key holds white space"),
    ] {
        let finished = with_command(&model, command).args(["run", "hi"]).run().expect_code(2);
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
    assert!(model.requests().is_empty());
    // An endpoint that a `.env` chose does not get it.
    let text = "model = \"m\"\napi_key_command = \"echo secret-key\"\n";
    let dot_env = format!("AGENT_BASE_URL={}\n", model.url());
    agent().config(text).file(".env", dot_env).args(["run", "hi"]).run().expect_code(2);
    assert!(model.requests().is_empty());
}

#[test]
fn while_a_model_is_overloaded_the_next_one_of_the_same_endpoint_answers() {
    let model = endpoint()
        .by_rule(|body| match body["model"].as_str() {
            Some("test-model") => endpoint().error(529, "overloaded"),
            Some("second") => endpoint().error(503, "overloaded"),
            _ if body["messages"].to_string().contains("tool_call_id") => endpoint().text("Done."),
            _ => endpoint().tool_call("run_commands", json!({ "command": "true" })),
        })
        .start();
    let text = "[models.\"test-model\"]\nfallback = [\"second\", \"third\"]\n";
    let finished = agent().endpoint(&model).config(text).args(["run", "hi"]).run().expect_code(0);
    assert_eq!(finished.stdout, "Done.\n");
    assert!(
        finished.stderr.contains("test-model is overloaded: third is asked instead"),
        "{}",
        finished.stderr
    );
    let asked: Vec<String> = model
        .chat_requests()
        .iter()
        .map(|body| body["model"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        asked.iter().filter(|name| *name == "test-model").count(),
        2,
        "it is left alone for a while: {asked:?}"
    );
    assert_eq!(asked.iter().filter(|name| *name == "third").count(), 2, "{asked:?}");
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
        (endpoint().error(400, "Total tokens of image and text exceed max message tokens"), None),
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
        let endpoint = endpoint().raw(body).repeat_last().start();
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
    let endpoint = endpoint().text("Fine.").repeat_last().start();
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
    let endpoint = endpoint().tls().text("Fine.").repeat_last().start();
    let error = failure(&endpoint).await;
    assert!(error.to_string().contains("certificate is not trusted"), "{error}");
    assert!(error.hint_text().unwrap().contains("AGENT_CA_FILE"));

    let mut settings = settings(&endpoint);
    settings.ca_file =
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/testing/src/tls/certificate.pem").into());
    assert_eq!(ask(&OpenAi::new(settings.clone()).unwrap()).await.0.unwrap().text, "Fine.");

    for unusable in ["/nowhere/ca.pem", "/dev/zero"] {
        settings.ca_file = Some(unusable.into());
        assert_eq!(OpenAi::new(settings.clone()).err().unwrap().kind(), Kind::Config);
    }
}

/// It was asked again and again.
#[tokio::test]
async fn a_proxy_that_wants_credentials_is_not_asked_again() {
    const CHILD: &str = "AGENT_TEST_BEHIND_A_CLOSED_PROXY";
    if std::env::var_os(CHILD).is_some() {
        let (reply, seen) = ask(&OpenAi::new(settings_at("https://model.invalid/v1")).unwrap()).await;
        let error = reply.unwrap_err();
        assert!(seen.retries.is_empty(), "{:?}", seen.retries);
        assert_eq!((error.kind(), error.to_string().contains("407")), (Kind::Endpoint, true), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("HTTPS_PROXY")), "{error:?}");
        return;
    }
    let proxy = endpoint().start();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "endpoint_faults::a_proxy_that_wants_credentials_is_not_asked_again"])
        .env(CHILD, "1")
        .env("https_proxy", proxy.root())
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // One for the answer, and one that asks what is known about the model.
    assert!((1..=2).contains(&proxy.all_requests().len()), "{:?}", proxy.all_requests());
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
        .args(["--exact", "endpoint_faults::a_proxy_in_the_environment_is_used"])
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
    let model = client_with_facts(&endpoint);
    let _ = tokio::time::timeout(Duration::from_millis(200), ask(&model)).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while endpoint.open_connections() > 0 {
        assert!(Instant::now() < deadline, "the connection is still open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
