//! Recorded answers of real servers (`tests/samples/`), replayed to the client: each gives the right message or a
//! clear error.

use crate::support::client::{Seen, ask, client, client_without_retries};
use agent::model::{ChatModel, Reply};
use agent_testing::endpoint::endpoint;
use std::path::Path;

async fn reply(name: &str) -> (Reply, Seen) {
    let endpoint = endpoint().sample(name).start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    (reply.unwrap_or_else(|error| panic!("{name}: {error}")), seen)
}

#[tokio::test]
async fn every_sample_gives_a_message_or_a_clear_error() {
    let mut names: Vec<String> = samples().collect();
    names.retain(|name| !name.ends_with("/models"));
    names.sort();
    let mut summary = String::new();
    for name in names {
        let endpoint = endpoint().sample(&name).text("(asked again)").start();
        let (reply, seen) = ask(&client_without_retries(&endpoint)).await;
        summary.push_str(&format!("{name}\n"));
        for notice in &seen.notices {
            summary.push_str(&format!("  notice: {notice}\n"));
        }
        match reply {
            Ok(reply) => summary.push_str(&described(&reply)),
            Err(error) => summary.push_str(&format!("  {:?}: {error}\n", error.kind())),
        }
    }
    insta::assert_snapshot!(summary);
}

fn samples() -> impl Iterator<Item = String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let servers =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    servers.flat_map(|server| {
        let files = std::fs::read_dir(&server).unwrap().map(|entry| entry.unwrap().path());
        let server = server.file_name().unwrap().to_str().unwrap().to_owned();
        files
            .filter(|file| file.extension().is_some_and(|e| e == "resp"))
            .map(move |file| format!("{server}/{}", file.file_stem().unwrap().to_str().unwrap()))
    })
}

fn described(reply: &Reply) -> String {
    let mut lines = format!("  {}: {:?}\n", reply.finish_reason.as_deref().unwrap_or("-"), reply.text);
    for call in &reply.tool_calls {
        lines.push_str(&format!("  {} {}\n", call.name, call.arguments));
    }
    if let Some(usage) = reply.usage {
        lines.push_str(&format!("  {} in, {} out, {} cached\n", usage.input, usage.output, usage.cached));
    }
    lines
}

#[tokio::test]
async fn a_small_coder_model_lists_the_files() {
    for name in [
        "llama-server-qwen2.5-coder-1.5b/tools-auto",
        "llama-server-qwen2.5-coder-1.5b/tools-auto-stream",
        "llama-server-qwen2.5-coder-1.5b/tools-required",
        "vllm-qwen2.5-coder-0.5b/tools-auto",
        "vllm-qwen2.5-coder-0.5b/tools-auto-stream",
        "vllm-qwen2.5-coder-0.5b/tools-forced",
        "vllm-qwen2.5-coder-0.5b/tools-forced-stream",
    ] {
        let (reply, seen) = reply(name).await;
        assert_eq!(reply.text, "", "{name}");
        let [call] = reply.tool_calls.as_slice() else { panic!("{name}: {reply:?}") };
        assert_eq!(
            (call.name.as_str(), call.arguments.as_str()),
            ("run_commands", r#"{"command":"ls"}"#),
            "{name}"
        );
        assert!(!call.id.is_empty());
        assert_eq!(seen.text, "", "{name}: the call flashed by");
        assert!(seen.notices.iter().any(|notice| notice.contains("\"commands\"")), "{name}: {seen:?}");
    }
}

#[tokio::test]
async fn the_models_of_a_proxy_are_listed() {
    let (body, _) = agent_testing::endpoint::sample("litellm/models");
    let endpoint = endpoint().models(200, body).start();
    let models = client(&endpoint).models().await.unwrap();
    assert_eq!((models.len(), models[0].as_str()), (10, "mock-text"));
}

/// Answers of the model in evaluation runs, each with the tool that it names: a call runs, an answer does not.
#[test]
fn recorded_answers_in_the_compact_form_are_read() {
    let answers = include_str!("../samples/llama-server-qwen2.5-coder-1.5b/compact.jsonl");
    let registry = agent::tools::Registry::builtin();
    for line in answers.lines() {
        let recorded: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = recorded["text"].as_str().expect("a text").to_owned();
        // With a word around it, as models without constrained output write it.
        for text in [text.clone(), format!("```json\n{text}\n```"), format!("Next step:\n{text}")] {
            let mut reply = Reply { text, ..Reply::default() };
            agent::model::compact::read(&mut reply, registry.specs());
            let names: Vec<&str> = reply.tool_calls.iter().map(|call| call.name.as_str()).collect();
            match recorded["tool"].as_str() {
                Some("answer") => assert!(names.is_empty() && !reply.text.starts_with('{'), "{line}"),
                tool => assert_eq!(names, [tool.expect("a tool")], "{line}"),
            }
            let read = |call: &agent::event::ToolCall| call.arguments.object().is_some();
            assert!(reply.tool_calls.iter().all(read), "{line}");
        }
    }
    // Half of it is not run as if it were whole.
    for line in answers.lines() {
        let recorded: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = recorded["text"].as_str().expect("a text");
        let cut: String = text.chars().take(text.chars().count() * 2 / 3).collect();
        let mut reply = Reply { text: cut, finish_reason: Some("length".into()), ..Reply::default() };
        agent::model::compact::read(&mut reply, registry.specs());
        // What had to be repaired is refused after a message that was cut off.
        let is_whole = |call: &agent::event::ToolCall| matches!(call.arguments.parse(), Ok((_, false)));
        assert!(!reply.tool_calls.iter().any(is_whole), "{line}");
    }
}
