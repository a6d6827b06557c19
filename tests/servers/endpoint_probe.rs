//! The findings of `agent doctor --endpoint`, and the recorded model.

use crate::support::client::{Seen, client, settings};
use agent::error::Kind;
use agent::event::CallForm;
use agent::model::probe::{self, Outcome, Probe, Recommendation, Step};
use agent::model::{ChatModel, Message, Protocol, Replayed, Reply, Request, Secret};
use agent::tools::Registry;
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::{Value, json};

/// The result; each finding was reported, after what it is about.
async fn probe(endpoint: &Endpoint) -> Probe {
    let (mut tried, mut reported) = (Vec::new(), Vec::new());
    let mut on_step = |step: Step<'_>| match step {
        Step::Trying(what) => tried.push(what),
        Step::Found(finding) => reported.push((finding.what, finding.outcome)),
    };
    let registry = Registry::builtin();
    let probe = probe::probe(settings(endpoint), registry.specs(), &mut on_step).await.unwrap();
    assert_eq!(reported, outcomes(&probe));
    assert!(tried.len() > 1 && reported.iter().any(|(what, _)| tried.contains(what)), "{tried:?}");
    probe
}

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
        .text("Red.")
        .start();
    let probe = probe(&endpoint).await;
    assert!(probe.findings.iter().all(|finding| finding.outcome == Outcome::Works), "{probe:?}");
    let recommended = Recommendation {
        form: CallForm::Native,
        is_automatic: true,
        temperature: None,
        context_window: None,
        images: true,
    };
    assert_eq!(probe.recommendation, Some(recommended));
    assert_eq!(endpoint.chat_requests().len(), 5);
    let image = &endpoint.chat_requests()[4]["messages"][0]["content"][1]["image_url"]["url"];
    assert!(image.as_str().is_some_and(|url| url.starts_with("data:image/png;base64,")), "{image}");
    assert!(endpoint.chat_requests().iter().all(|request| request["max_tokens"] == 256));
}

#[tokio::test]
async fn other_protocols_are_found_by_a_call_in_them() {
    let endpoint = endpoint().tool_call("get_temperature", paris()).text("It is warm.").start();
    let others = [Protocol::Responses, Protocol::Messages].map(|protocol| {
        let key = Some(Secret::new("k").unwrap());
        agent::model::Endpoint { protocol, key, ..settings(&endpoint) }
    });
    let spoken = probe::spoken_protocols(others, &mut |_| {}).await;
    let protocols: Vec<Protocol> = spoken.iter().map(|spoken| spoken.protocol).collect();
    assert_eq!(protocols, [Protocol::Responses]);
}

#[tokio::test]
async fn a_small_model_is_tried_in_the_compact_form() {
    let list =
        json!({ "data": [{ "id": "fake-model", "meta": { "n_params": 1_500_000_000u64, "n_ctx": 8192 } }] });
    let call = json!({ "tool": "run_commands", "command": "ls" }).to_string();
    let endpoint = endpoint().models(200, list.to_string()).text("ready").text(&call).start();
    let probe = probe(&endpoint).await;
    let names: Vec<&str> = outcomes(&probe).into_iter().map(|(what, _)| what).collect();
    assert_eq!(names, ["models", "answer", "streaming", "usage", "compact form"]);
    let recommended = Recommendation {
        form: CallForm::Compact,
        is_automatic: true,
        temperature: Some(0.2),
        context_window: Some(8192),
        images: false,
    };
    assert_eq!(probe.recommendation, Some(recommended));
}

#[tokio::test]
async fn a_model_that_calls_no_tool_may_still_take_the_compact_form() {
    let call = json!({ "tool": "run_commands", "command": "ls" }).to_string();
    let endpoint = endpoint().text("ready").text("It is warm in Paris.").text(&call).start();
    let recommended = probe(&endpoint).await.recommendation.unwrap();
    assert_eq!((recommended.form, recommended.is_automatic), (CallForm::Compact, false));
}

#[tokio::test]
async fn a_model_that_reasons_beyond_the_limit_is_not_refused() {
    let reasoning = json!({ "role": "assistant", "content": "", "reasoning_content": "Paris, …" });
    let endpoint = endpoint().text("ready").message(reasoning, "length").start();
    let probe = probe(&endpoint).await;
    assert_eq!(outcomes(&probe).last(), Some(&("tools", Outcome::Fallback)));
    assert_eq!(probe.recommendation.map(|recommended| recommended.form), Some(CallForm::Native));
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
    let probe = probe(&endpoint).await;
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

/// A server that takes images is not yet a model that sees them.
#[tokio::test]
async fn a_model_that_does_not_see_images_is_sent_none() {
    let called = || endpoint().text("ready").tool_call("get_temperature", paris()).text("17").text("No.");
    for endpoint in
        [called().text("I cannot see an image.").start(), called().error(400, "no image support").start()]
    {
        let probe = probe(&endpoint).await;
        assert_eq!(outcomes(&probe).last(), Some(&("images", Outcome::Fallback)), "{probe:?}");
        assert!(probe.recommendation.is_some_and(|recommended| !recommended.images));
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_the_key() {
    let endpoint = endpoint().error(401, "wrong key").start();
    let probe = probe(&endpoint).await;
    assert!(!probe.is_usable());
    assert_eq!(outcomes(&probe).last(), Some(&("answer", Outcome::Fails)));
}

#[tokio::test]
async fn the_list_of_models_may_know_the_context_window() {
    let list = json!({ "data": [{ "id": "other", "max_model_len": 1 }, { "id": "fake-model", "max_model_len": 8192 }] });
    let endpoint = endpoint().models(200, list.to_string()).start();
    let client = client(&endpoint);
    assert_eq!(client.context_window(), None);
    let names: Vec<_> = client.models_with_facts().await.unwrap();
    assert_eq!(names[1].1.context_window, Some(8192));
}

#[tokio::test]
async fn a_recording_gives_its_answers_and_says_when_it_has_run_out() {
    let model = Replayed::new("recorded", vec![Reply { text: "One.".into(), ..Reply::default() }]);
    let mut seen = Seen::default();
    let mut on_progress = |progress: agent::model::Progress<'_>| seen.take(progress);
    let messages = vec![Message::User { text: "Hi".into() }].into();
    let request = Request::plain(&messages);
    assert_eq!(model.ask(request, &mut on_progress).await.unwrap().text, "One.");
    let error = model.ask(request, &mut on_progress).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Endpoint);
    assert!(error.to_string().contains("the recording has run out"), "{error}");
    assert_eq!(seen.text, "One.");
}
