//! What `agent doctor --endpoint` finds out, and the recorded model.

use crate::support::client::{Seen, client, settings};
use crate::support::endpoint::endpoint;
use agent::error::Kind;
use agent::model::probe::{Outcome, Probe, probe};
use agent::model::{ChatModel, Message, Replayed, Reply, Request};
use serde_json::{Value, json};

fn outcomes(probe: &Probe) -> Vec<(&str, Outcome)> {
    probe.findings.iter().map(|finding| (finding.what, finding.outcome)).collect()
}

fn paris() -> Value {
    json!({ "city": "Paris" })
}

#[tokio::test]
async fn an_endpoint_that_can_do_everything() {
    let endpoint = endpoint()
        .text("ready")
        .tool_call("get_temperature", paris())
        .text("It is 17 degrees.")
        .tool_calls(&[("get_temperature", paris()), ("get_temperature", json!({ "city": "Rome" }))])
        .start();
    let probe = probe(settings(&endpoint)).await.unwrap();
    assert!(probe.findings.iter().all(|finding| finding.outcome == Outcome::Works), "{probe:?}");
    assert!(probe.is_usable());
    assert_eq!(endpoint.chat_requests().len(), 4);
}

#[tokio::test]
async fn an_endpoint_that_needs_every_fallback() {
    let endpoint = endpoint()
        .models(404, "not here")
        .raw("")
        .text("ready")
        .error(400, "this model does not support tools")
        .text("<tool_call>{\"name\": \"get_temperature\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>")
        .text("Mild.")
        .text("I cannot do two.")
        .start();
    let probe = probe(settings(&endpoint)).await.unwrap();
    assert!(probe.is_usable());
    use Outcome::*;
    assert_eq!(
        outcomes(&probe),
        [
            ("models", Fallback),
            ("answer", Works),
            ("streaming", Fallback),
            ("usage", Works),
            ("tools", Fallback),
            ("tool result", Fallback),
            ("parallel calls", Fallback),
        ]
    );
}

#[tokio::test]
async fn an_endpoint_that_refuses_the_key() {
    let endpoint = endpoint().error(401, "wrong key").start();
    let probe = probe(settings(&endpoint)).await.unwrap();
    assert!(!probe.is_usable());
    assert_eq!(outcomes(&probe).last(), Some(&("answer", Outcome::Fails)));
}

#[tokio::test]
async fn the_list_of_models_may_know_the_context_window() {
    let list = json!({ "data": [{ "id": "other", "max_model_len": 1 }, { "id": "fake-model", "max_model_len": 8192 }] });
    let endpoint = endpoint().models(200, list.to_string()).start();
    assert_eq!(client(&endpoint).context_window().await, Some(8192));
}

#[tokio::test]
async fn a_recording_gives_its_answers_and_says_when_it_has_run_out() {
    let model = Replayed::new("recorded", vec![Reply { text: "One.".into(), ..Reply::default() }]);
    let mut seen = Seen::default();
    let mut on_progress = |progress: agent::model::Progress<'_>| seen.take(progress);
    let messages = [Message::User { text: "Hi".into() }];
    let request = Request { messages: &messages, tools: &[], answer_schema: None };
    assert_eq!(model.ask(request, &mut on_progress).await.unwrap().text, "One.");
    let error = model.ask(request, &mut on_progress).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Endpoint);
    assert!(error.to_string().contains("the recording has run out"), "{error}");
    assert_eq!(seen.text, "One.");
}
