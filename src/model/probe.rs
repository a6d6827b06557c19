//! Tries what an endpoint can do, for `agent doctor --endpoint`: a handful of small requests.

use crate::error::Result;
use crate::event::ToolCall;
use crate::model::client::stream::WRITTEN_AS_TEXT;
use crate::model::{ChatModel, Endpoint, Message, OpenAi, Progress, Reply, Request, ToolSpec};
use serde::Serialize;
use serde_json::json;

/// Tokens that one answer of the probe may have: enough for a model that reasons before it answers.
const MOST_TOKENS: u32 = 2048;

/// What was tried, in order. It ends at the first request that got no answer at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// One entry a trial.
    pub findings: Vec<Finding>,
}

impl Probe {
    /// Whether the main job can be done: the model answers, and calls tools in one way or another.
    pub fn is_usable(&self) -> bool {
        let works = |what| self.findings.iter().any(|f| f.what == what && f.outcome != Outcome::Fails);
        works("answer") && works("tools")
    }
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `models`, `answer`, `streaming`, `usage`, `tools`, `parallel calls` or `tool result`.
    pub what: &'static str,
    /// How it went.
    pub outcome: Outcome,
    /// One sentence about it: what was seen, or which fallback will be used.
    pub detail: String,
}

/// How a trial went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should.
    Works,
    /// Not, but it is got round.
    Fallback,
    /// Not.
    Fails,
}

/// Tries the endpoint. Failures are findings, not errors.
///
/// # Errors
/// `Config` where the client cannot even be set up.
pub async fn probe(mut endpoint: Endpoint) -> Result<Probe> {
    endpoint.max_tokens.get_or_insert(MOST_TOKENS);
    endpoint.retries.attempts = endpoint.retries.attempts.min(1);
    let mut trial = Trial { model: OpenAi::new(endpoint)?, findings: Vec::new(), notices: Vec::new() };
    trial.models().await;
    if trial.answer().await
        && let Some((question, calls)) = trial.tools().await
    {
        trial.tool_result(question, calls).await;
        trial.parallel_calls().await;
    }
    Ok(Probe { findings: trial.findings })
}

struct Trial {
    model: OpenAi,
    findings: Vec<Finding>,
    /// What the client had to say during the last request.
    notices: Vec<String>,
}

impl Trial {
    async fn models(&mut self) {
        match self.model.models().await {
            Ok(names) if names.iter().any(|name| name == self.model.name()) => {
                self.works("models", format!("{} listed, {} among them", names.len(), self.model.name()));
            }
            Ok(names) => {
                let missing = format!("{} listed, {} not among them", names.len(), self.model.name());
                self.found("models", Outcome::Fallback, missing);
            }
            Err(error) => self.found("models", Outcome::Fallback, format!("not listed: {error}")),
        }
    }

    async fn answer(&mut self) -> bool {
        let reply = match self.ask(&[user("Answer with the single word: ready")], &[]).await {
            Ok(reply) => reply,
            Err(error) => {
                self.found("answer", Outcome::Fails, error.to_string());
                return false;
            }
        };
        let reasons = if reply.reasoning.is_some() { ", after reasoning" } else { "" };
        self.works("answer", format!("the model answers{reasons}"));
        if self.model.streams() {
            self.works("streaming", "answers come as they are written");
        } else {
            self.found("streaming", Outcome::Fallback, "answers will come in one piece".into());
        }
        match reply.usage {
            Some(usage) => self.works("usage", format!("{} tokens in, {} out", usage.input, usage.output)),
            None => {
                self.found("usage", Outcome::Fallback, "not reported: token counts will be estimated".into())
            }
        }
        true
    }

    async fn tools(&mut self) -> Option<(Message, Vec<ToolCall>)> {
        let question = user("Use the tool to look up the temperature in Paris.");
        let reply = match self.ask(std::slice::from_ref(&question), &[thermometer()]).await {
            Ok(reply) => reply,
            Err(error) => {
                self.found("tools", Outcome::Fails, error.to_string());
                return None;
            }
        };
        let written = self.notices.iter().any(|notice| notice.contains(WRITTEN_AS_TEXT));
        match (reply.tool_calls.is_empty(), self.model.takes_tools(), written) {
            (true, ..) => {
                self.found("tools", Outcome::Fails, "the model was asked to call a tool and did not".into());
                return None;
            }
            (_, false, _) => {
                self.found(
                    "tools",
                    Outcome::Fallback,
                    "refused: they will be described in the prompt".into(),
                );
            }
            (_, _, true) => {
                self.found("tools", Outcome::Fallback, "calls come as text and will be recovered".into());
            }
            _ => self.works("tools", "called as they should be"),
        }
        Some((question, reply.tool_calls))
    }

    async fn tool_result(&mut self, question: Message, tool_calls: Vec<ToolCall>) {
        let results = tool_calls.iter().map(|call| Message::Tool {
            id: call.id.clone(),
            name: call.name.clone(),
            text: "17 degrees Celsius".into(),
        });
        let results: Vec<Message> = results.collect();
        let called = Message::Assistant { text: String::new(), reasoning: None, tool_calls };
        let conversation: Vec<Message> = [question, called].into_iter().chain(results).collect();
        match self.ask(&conversation, &[thermometer()]).await {
            Ok(reply) if reply.text.contains("17") => {
                self.works("tool result", "the model reads what a tool gives back")
            }
            Ok(_) => self.found(
                "tool result",
                Outcome::Fallback,
                "taken, but the answer does not mention it".into(),
            ),
            Err(error) => self.found("tool result", Outcome::Fails, error.to_string()),
        }
    }

    async fn parallel_calls(&mut self) {
        let question = user("Use the tool twice, in one message: for Paris and for Rome.");
        match self.ask(&[question], &[thermometer()]).await {
            Ok(reply) if reply.tool_calls.len() > 1 => {
                self.works("parallel calls", format!("{} calls in one message", reply.tool_calls.len()));
            }
            Ok(_) => self.found("parallel calls", Outcome::Fallback, "one call a message".into()),
            Err(error) => self.found("parallel calls", Outcome::Fails, error.to_string()),
        }
    }

    async fn ask(&mut self, messages: &[Message], tools: &[ToolSpec]) -> Result<Reply> {
        let notices = &mut self.notices;
        notices.clear();
        let mut on_progress = |progress: Progress<'_>| {
            if let Progress::Notice(text) = progress {
                notices.push(text.to_owned());
            }
        };
        self.model.ask(Request { messages, tools, answer_schema: None }, &mut on_progress).await
    }

    fn works(&mut self, what: &'static str, detail: impl Into<String>) {
        self.found(what, Outcome::Works, detail.into());
    }

    fn found(&mut self, what: &'static str, outcome: Outcome, detail: String) {
        self.findings.push(Finding { what, outcome, detail });
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn thermometer() -> ToolSpec {
    ToolSpec {
        name: "get_temperature".into(),
        description: "Looks up the temperature in a city.".into(),
        parameters: json!({
            "type": "object",
            "properties": { "city": { "type": "string", "description": "The city's name." } },
            "required": ["city"],
        }),
    }
}
