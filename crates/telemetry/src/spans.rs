//! From the events of a session to spans: a prompt, the turns, calls and checks in it.

use crate::exporter::Amount;
use crate::metrics::Of;
use crate::otlp::{Attribute, Span, SpanKind, number, text, texts};
use agent_base::shorten::head_and_tail;
use agent_event::{Event, Record, Usage};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use url::Url;

/// Calls of one message whose end is waited for.
const MAX_CALLS: usize = 256;
/// Characters of a name, an identifier or a word that the model or its endpoint made up.
const MAX_NAME: usize = 200;
/// Characters of a content.
const MAX_CONTENT: usize = 8 << 10;

/// The names of the conventions for hosts that are well known, with at most one `*`; others are named by their host.
const PROVIDERS: [(&str, &str); 14] = [
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("*aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("*.openai.azure.com", "azure.ai.openai"),
    ("*.services.ai.azure.com", "azure.ai.inference"),
    ("bedrock-runtime.*.amazonaws.com", "aws.bedrock"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.x.ai", "x_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.cohere.ai", "cohere"),
];

/// A span among those of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: u128,
    pub span: u64,
}

/// A number, and what it is about.
#[derive(Debug)]
pub struct Measure {
    pub of: Of,
    pub what: Amount,
}

/// The spans and measures of what an event ended.
#[derive(Debug, Default)]
pub struct Made {
    pub spans: Vec<Span>,
    pub measures: Vec<Measure>,
}

/// The spans of one session that have begun.
pub struct SessionSpans {
    content: bool,
    session: String,
    model: String,
    provider: String,
    server: Vec<Attribute>,
    prompt: Option<Span>,
    turn: Option<Span>,
    calls: BTreeMap<String, Span>,
    /// The time when the last thing happened: a prompt ends with it.
    last: Timestamp,
    /// The reason why the prompt was not worked on to its end.
    error: Option<String>,
}

impl SessionSpans {
    pub fn new(content: bool) -> Self {
        Self {
            content,
            session: String::new(),
            model: String::new(),
            provider: String::new(),
            server: Vec::new(),
            prompt: None,
            turn: None,
            calls: BTreeMap::new(),
            last: Timestamp::now(),
            error: None,
        }
    }

    /// The prompt that is being worked on.
    pub fn place(&self) -> Option<SpanContext> {
        self.prompt.as_ref().map(|prompt| prompt.place)
    }

    /// Takes an event in, and returns the spans and measures of what ends with it.
    pub fn take(&mut self, record: &Record) -> Made {
        let now = record.time.parse().unwrap_or_else(|_| Timestamp::now());
        let mut made = Made::default();
        match &record.event {
            Event::SessionStarted { model, base_url, .. } => self.begin(&record.session, model, base_url),
            Event::UserMessage { text } => {
                self.end_prompt(&mut made);
                self.begin_prompt(text, now);
            }
            Event::TurnStarted { turn } => {
                self.end_turn(now, &[], Some("incomplete"), &mut made);
                let mut span =
                    Span::new(&format!("chat {}", self.model), SpanKind::Client, self.place(), now);
                span.attributes = self.of_model("chat");
                span.attributes.push(number("agent.turn", i128::from(*turn)));
                self.turn = Some(span);
            }
            Event::AssistantMessage { text, usage, finish_reason, .. } => {
                let mut attributes = usage.map_or_else(Vec::new, |usage| usage_of(&usage));
                let why = finish_reason.as_deref().map(|why| head_and_tail(why, MAX_NAME));
                attributes.extend(why.map(|why| texts("gen_ai.response.finish_reasons", &[&*why])));
                attributes.extend(self.message("gen_ai.output.messages", "assistant", text));
                self.end_turn(now, &attributes, None, &mut made);
                usage.iter().for_each(|usage| self.measure_tokens(usage, &mut made));
            }
            Event::AnswerStopped { .. } => self.end_turn(now, &[], Some("stopped"), &mut made),
            Event::ToolStarted { id, name, arguments } => self.begin_call(id, name, arguments, now),
            Event::ToolFinished { id, name, ok, exit_code, result, .. } => {
                let mut attributes: Vec<Attribute> =
                    exit_code.iter().map(|code| number("process.exit.code", i128::from(*code))).collect();
                attributes.extend(self.content("gen_ai.tool.call.result", result));
                let begun = self.calls.remove(id).unwrap_or_else(|| self.call(id, name, now));
                made.spans.push(begun.ended(now, attributes, (!ok).then_some("tool_error")));
            }
            Event::CheckFinished { command, exit_code, duration_ms, .. } => {
                let started = now - std::time::Duration::from_millis(*duration_ms);
                let mut attributes = vec![text("gen_ai.conversation.id", &self.session)];
                attributes.extend(exit_code.map(|code| number("process.exit.code", i128::from(code))));
                attributes.extend(self.content("process.command_line", command));
                let span = Span::new("check", SpanKind::Internal, self.place(), started);
                made.spans.push(span.ended(
                    now,
                    attributes,
                    (*exit_code != Some(0)).then_some("check_failed"),
                ));
            }
            Event::LimitReached { limit } => self.error = Some(format!("limit_{limit}")),
            Event::SessionFinished { status, cost, .. } => {
                if status != "completed" {
                    self.error.get_or_insert_with(|| status.clone());
                }
                self.end_turn(now, &[], Some("incomplete"), &mut made);
                self.end_prompt(&mut made);
                let of = self.of(None, None);
                made.measures.extend(cost.map(|cost| Measure { of, what: Amount::Cost(cost) }));
            }
            _ => return made,
        }
        self.last = now;
        made
    }

    fn begin(&mut self, session: &str, model: &str, base_url: &str) {
        (self.session, self.model) = (session.to_owned(), model.to_owned());
        let url = Url::parse(base_url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or("recorded");
        self.provider = provider(host).to_owned();
        self.server = vec![text("server.address", host)];
        let port = url.as_ref().and_then(Url::port_or_known_default);
        self.server.extend(port.map(|port| number("server.port", i128::from(port))));
    }

    fn begin_prompt(&mut self, prompt: &str, now: Timestamp) {
        let mut span = Span::new("invoke_agent agent", SpanKind::Internal, None, now);
        span.attributes = self.of_model("invoke_agent");
        span.attributes.push(text("gen_ai.agent.name", "agent"));
        span.attributes.extend(self.message("gen_ai.input.messages", "user", prompt));
        (self.prompt, self.error) = (Some(span), None);
    }

    fn end_prompt(&mut self, made: &mut Made) {
        // A call that was interrupted has no end of its own.
        for call in std::mem::take(&mut self.calls).into_values() {
            made.spans.push(call.ended(self.last, Vec::new(), Some("incomplete")));
        }
        let error = self.error.take();
        if let Some(prompt) = self.prompt.take() {
            made.spans.push(prompt.ended(self.last, Vec::new(), error.as_deref()));
        }
    }

    fn end_turn(
        &mut self,
        now: Timestamp,
        attributes: &[Attribute],
        error: Option<&'static str>,
        made: &mut Made,
    ) {
        let Some(turn) = self.turn.take() else { return };
        let seconds = now.duration_since(turn.started).as_secs_f64().max(0.0);
        made.measures.push(Measure { of: self.of(None, error), what: Amount::Seconds(seconds) });
        made.spans.push(turn.ended(now, attributes.to_vec(), error));
    }

    fn begin_call(&mut self, id: &str, name: &str, arguments: &Value, now: Timestamp) {
        if self.calls.len() >= MAX_CALLS {
            return;
        }
        let mut span = self.call(id, name, now);
        span.attributes.extend(self.content("gen_ai.tool.call.arguments", &arguments.to_string()));
        self.calls.insert(id.to_owned(), span);
    }

    fn call(&self, id: &str, name: &str, now: Timestamp) -> Span {
        let (id, name) = (head_and_tail(id, MAX_NAME), head_and_tail(name, MAX_NAME));
        let mut span = Span::new(&format!("execute_tool {name}"), SpanKind::Internal, self.place(), now);
        span.attributes = vec![
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.conversation.id", &self.session),
            text("gen_ai.tool.name", &*name),
            text("gen_ai.tool.type", "function"),
            text("gen_ai.tool.call.id", &*id),
        ];
        span
    }

    fn of_model(&self, operation: &str) -> Vec<Attribute> {
        let mut attributes = vec![
            text("gen_ai.operation.name", operation),
            text("gen_ai.provider.name", &self.provider),
            text("gen_ai.request.model", &self.model),
            text("gen_ai.conversation.id", &self.session),
        ];
        attributes.extend(self.server.iter().cloned());
        attributes
    }

    fn of(&self, tokens: Option<&'static str>, error: Option<&'static str>) -> Of {
        Of { model: self.model.clone(), provider: self.provider.clone(), tokens, error }
    }

    fn measure_tokens(&self, usage: &Usage, made: &mut Made) {
        for (kind, tokens) in [("input", usage.input), ("output", usage.output)] {
            made.measures.push(Measure { of: self.of(Some(kind), None), what: Amount::Tokens(tokens) });
        }
    }

    /// A content, where those are asked for.
    fn content(&self, name: &str, content: &str) -> Option<Attribute> {
        self.content.then(|| text(name, &*head_and_tail(content, MAX_CONTENT)))
    }

    fn message(&self, name: &str, role: &str, content: &str) -> Option<Attribute> {
        let parts = || json!([{ "role": role, "parts": [{ "type": "text", "content": head_and_tail(content, MAX_CONTENT) }] }]);
        self.content.then(|| text(name, parts().to_string()))
    }
}

fn provider(host: &str) -> &str {
    let is_it = |(pattern, _): &&(&str, &str)| match pattern.split_once('*') {
        Some((start, end)) => host.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => *pattern == host,
    };
    PROVIDERS.iter().find(is_it).map_or(host, |(_, name)| name)
}

fn usage_of(usage: &Usage) -> Vec<Attribute> {
    let Usage { input, output, cached, written } = *usage;
    let counts = [
        ("gen_ai.usage.input_tokens", input),
        ("gen_ai.usage.output_tokens", output),
        ("gen_ai.usage.cache_read.input_tokens", cached),
        ("gen_ai.usage.cache_creation.input_tokens", written),
    ];
    counts.map(|(name, count)| number(name, i128::from(count))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_providers_have_the_names_of_the_conventions() {
        for (host, name) in [
            ("api.openai.com", "openai"),
            ("me.openai.azure.com", "azure.ai.openai"),
            ("europe-west4-aiplatform.googleapis.com", "gcp.vertex_ai"),
            ("aiplatform.googleapis.com", "gcp.vertex_ai"),
            ("bedrock-runtime.eu-west-1.amazonaws.com", "aws.bedrock"),
            ("s3.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(provider(host), name, "{host}");
        }
    }

    /// A tool is named as the model calls it, and a call by what the endpoint numbers it with.
    #[test]
    fn names_that_others_make_up_are_bounded() {
        let (id, name) = ("i".repeat(100_000), "n".repeat(100_000));
        let events = [
            Event::UserMessage { text: "go".to_owned() },
            Event::ToolStarted { id, name, arguments: Value::Null },
            Event::UserMessage { text: "again".to_owned() },
        ];
        let mut spans = SessionSpans::new(false);
        let ended: Vec<Span> = events
            .into_iter()
            .flat_map(|event| {
                let record = Record { seq: 1, time: agent_event::now(), session: String::new(), event };
                spans.take(&record).spans
            })
            .collect();
        let sent = crate::otlp::traces(&[], &ended).to_string();
        assert!(sent.contains("execute_tool nnn") && sent.len() < 4_000, "{} bytes", sent.len());
    }
}
