//! The client pointed at a fake endpoint, with short waits, and what the user would have seen.

use agent::Error;
use agent::event::CallForm;
use agent::model::endpoint::Retries;
use agent::model::{ChatModel, Message, OpenAi, Progress, Reply, Request, ToolSpec};
use agent_testing::endpoint::Endpoint;
use serde_json::{Value, json};
use std::time::Duration;

/// What the user would have seen.
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
            Progress::Form { form, reason } => self.notices.push(format!("{form}: {reason}")),
        }
    }
}

pub fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, properties: Value, required: Value| ToolSpec {
        name: name.into(),
        description: format!("The tool {name}."),
        parameters: json!({ "type": "object", "properties": properties, "required": required }).into(),
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

pub fn settings_at(url: &str) -> agent::model::Endpoint {
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

/// A client with nothing to ask the server about its model.
pub fn client_with_facts(endpoint: &Endpoint) -> OpenAi {
    let mut settings = settings(endpoint);
    settings.form = Some(CallForm::Native);
    settings.context_window = Some(100_000);
    settings.assist = Some(false);
    OpenAi::new(settings).expect("a client")
}

pub fn client_without_retries(endpoint: &Endpoint) -> OpenAi {
    let mut settings = settings(endpoint);
    settings.retries.attempts = 0;
    OpenAi::new(settings).unwrap()
}

pub async fn ask(model: &dyn ChatModel) -> (Result<Reply, Error>, Seen) {
    ask_with(model, &[Message::User { text: "What is here?".into() }], &tools()).await
}

pub async fn ask_with(
    model: &dyn ChatModel,
    messages: &[Message],
    tools: &[ToolSpec],
) -> (Result<Reply, Error>, Seen) {
    let mut seen = Seen::default();
    let mut on_progress = |progress: Progress<'_>| seen.take(progress);
    let messages = messages.to_vec().into();
    let request = Request { tools, ..Request::plain(&messages) };
    let asked = model.ask(request, &mut on_progress);
    let reply =
        tokio::time::timeout(Duration::from_secs(30), asked).await.expect("an answer or a failure in time");
    (reply, seen)
}

/// The error of an endpoint whose failure is not retried.
pub async fn failure(endpoint: &Endpoint) -> Error {
    let (reply, seen) = ask(&client(endpoint)).await;
    let error = reply.expect_err("a failure");
    assert_eq!(seen.retries, [], "not retried");
    error
}
