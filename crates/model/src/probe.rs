//! Tries what an endpoint can do, for `agent doctor --endpoint`: a handful of small requests.

mod protocols;

pub use protocols::{SpokenProtocol, spoken_protocols};

use crate::client::stream::WRITTEN_AS_TEXT;
use crate::{ChatModel, Endpoint, Message, OpenAi, Progress, Reply, Request, ToolSpec, compact};
use agent_base::error::{Error, Result};
use agent_event::CallForm;
use agent_picture::Pixels;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Tokens that one answer of the probe may have.
const MAX_TOKENS: u32 = 256;
/// The time limit for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The attempts, in order. They end at the first request that got no answer at all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// One entry a trial.
    pub findings: Vec<Finding>,
    /// The recommendation for using the model, if it can be used.
    pub recommendation: Option<Recommendation>,
    /// Set if reasoning came with a tool call that has to go back as it is.
    pub carries_reasoning: bool,
}

impl Probe {
    /// Returns whether the main job can be done: the model answers, and calls tools in one way or another.
    pub fn is_usable(&self) -> bool {
        self.recommendation.is_some()
    }
}

/// The recommendation for using a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Recommendation {
    /// The form in which tools are offered.
    pub form: CallForm,
    /// Set if that form is taken without a setting.
    pub is_automatic: bool,
    /// The temperature; the endpoint's own where absent.
    pub temperature: Option<f64>,
    /// The context window in tokens, where it is known.
    pub context_window: Option<u64>,
    /// Set if the model sees images.
    pub images: bool,
}

/// A step of the trial of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step<'a> {
    /// This is tried next.
    Trying(&'static str),
    /// This was found.
    Found(&'a Finding),
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `models`, `answer`, `streaming`, `usage`, `tools`, `tool result`, `parallel calls`, `images` or `compact form`.
    pub what: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// One sentence about it: what was seen, or which fallback will be used.
    pub detail: String,
}

/// The outcome of a trial.
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

/// Tries the endpoint, with the tools of a session for the compact form. Failures are findings, not errors.
///
/// # Errors
/// `Config` where the client cannot even be set up.
pub async fn probe(
    mut endpoint: Endpoint,
    tools: &[ToolSpec],
    on_step: &mut (dyn FnMut(Step<'_>) + Send),
) -> Result<Probe> {
    let temperature = endpoint.temperature;
    endpoint.max_tokens = Some(endpoint.max_tokens.map_or(MAX_TOKENS, |tokens| tokens.min(MAX_TOKENS)));
    endpoint.retries.attempts = endpoint.retries.attempts.min(1);
    let mut trial = Trial {
        model: OpenAi::new(endpoint)?,
        findings: Vec::new(),
        on_step,
        notices: Vec::new(),
        was_cut_off: false,
        sees_images: false,
        carries_reasoning: false,
    };
    trial.models().await;
    // A server that does not answer is tried all the same.
    let _ = tokio::time::timeout(TIMEOUT, trial.model.facts()).await;
    let mut form = None;
    if trial.answer().await {
        form = trial.form(tools).await;
    }
    let recommendation = form.map(|form| Recommendation {
        form,
        is_automatic: trial.model.usual_form() == form,
        temperature: temperature.or((form == CallForm::Compact).then_some(compact::TEMPERATURE)),
        context_window: trial.model.context_window(),
        images: trial.sees_images,
    });
    Ok(Probe { findings: trial.findings, recommendation, carries_reasoning: trial.carries_reasoning })
}

struct Trial<'a> {
    model: OpenAi,
    findings: Vec<Finding>,
    on_step: &'a mut (dyn FnMut(Step<'_>) + Send),
    /// Notices of the client during the last request.
    notices: Vec<String>,
    /// Set if the last answer reached the limit on its tokens.
    was_cut_off: bool,
    sees_images: bool,
    carries_reasoning: bool,
}

impl Trial<'_> {
    async fn models(&mut self) {
        (self.on_step)(Step::Trying("models"));
        let names =
            tokio::time::timeout(TIMEOUT, self.model.models()).await.unwrap_or_else(|_| Err(too_slow("")));
        match names {
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
        let reply = match self.ask("answer", &[user("Answer with the single word: ready")], &[]).await {
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

    /// The best form in which the model calls tools, if there is one.
    async fn form(&mut self, tools: &[ToolSpec]) -> Option<CallForm> {
        if self.model.usual_form() == CallForm::Compact && self.compact_form(tools).await {
            return Some(CallForm::Compact);
        }
        match self.tools().await {
            Tools::Called { exchange, form } => {
                let (question, reply) = *exchange;
                self.tool_result(question, reply).await;
                self.parallel_calls().await;
                // Only in the native form images are sent.
                if form == CallForm::Native {
                    self.images().await;
                }
                Some(form)
            }
            // A model that reasons for long may call them well.
            Tools::NotSeen => Some(CallForm::Native),
            Tools::NotCalled => self.compact_form(tools).await.then_some(CallForm::Compact),
        }
    }

    async fn tools(&mut self) -> Tools {
        let question = user("Use the tool to look up the temperature in Paris.");
        let reply = match self.ask("tools", std::slice::from_ref(&question), &[thermometer()]).await {
            Ok(reply) => reply,
            Err(error) => {
                self.found("tools", Outcome::Fails, error.to_string());
                return Tools::NotCalled;
            }
        };
        self.carries_reasoning = !reply.opaque.is_empty();
        let written = self.notices.iter().any(|notice| notice.contains(WRITTEN_AS_TEXT));
        if reply.tool_calls.is_empty() && self.was_cut_off {
            let unknown = format!("not known: the answer was cut off after {MAX_TOKENS} tokens");
            self.found("tools", Outcome::Fallback, unknown);
            return Tools::NotSeen;
        }
        let mut form = CallForm::Native;
        match (reply.tool_calls.is_empty(), self.model.takes_tools(), written) {
            (true, ..) => {
                self.found("tools", Outcome::Fails, "the model was asked to call a tool and did not".into());
                return Tools::NotCalled;
            }
            (_, false, _) => {
                form = CallForm::Text;
                let refused = "refused: they will be described in the prompt".to_owned();
                self.found("tools", Outcome::Fallback, refused);
            }
            (_, _, true) => {
                self.found("tools", Outcome::Fallback, "calls come as text and will be recovered".into());
            }
            _ => self.works("tools", "called as they should be"),
        }
        Tools::Called { exchange: Box::new((question, reply)), form }
    }

    async fn tool_result(&mut self, question: Message, reply: Reply) {
        let Reply { tool_calls, opaque, .. } = reply;
        let results = tool_calls.iter().map(|call| Message::Tool {
            id: call.id.clone(),
            name: call.name.clone(),
            text: "17 degrees Celsius".into(),
        });
        let results: Vec<Message> = results.collect();
        let called = Message::Assistant { text: String::new(), reasoning: None, tool_calls, opaque };
        let conversation: Vec<Message> = [question, called].into_iter().chain(results).collect();
        match self.ask("tool result", &conversation, &[thermometer()]).await {
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
        match self.ask("parallel calls", &[question], &[thermometer()]).await {
            Ok(reply) if reply.tool_calls.len() > 1 => {
                self.works("parallel calls", format!("{} calls in one message", reply.tool_calls.len()));
            }
            Ok(_) => self.found("parallel calls", Outcome::Fallback, "one call a message".into()),
            Err(error) => self.found("parallel calls", Outcome::Fails, error.to_string()),
        }
    }

    /// Tries whether the model sees what is on an image: one colour, which the question does not name.
    async fn images(&mut self) {
        const QUESTION: &str = "Which colour has this image? Answer with the colour's name alone.";
        let Some(image) = red_image() else { return };
        self.model.add_images(QUESTION, vec![image]);
        match self.ask("images", &[user(QUESTION)], &[]).await {
            Ok(reply) if reply.text.to_lowercase().contains("red") => {
                self.sees_images = true;
                self.works("images", "the model sees them");
            }
            Ok(_) => {
                let unseen =
                    "taken, but the model does not see what is on them: it will read a line for each";
                self.found("images", Outcome::Fallback, unseen.into());
            }
            Err(error) => {
                let refused = format!("refused: the model will read a line for each ({error})");
                self.found("images", Outcome::Fallback, refused);
            }
        }
    }

    /// Returns whether the model answers with an object of the compact form.
    async fn compact_form(&mut self, tools: &[ToolSpec]) -> bool {
        let before = self.model.form();
        self.model.resume_form(CallForm::Compact);
        let reply = self.ask("compact form", &[user("List the files.")], tools).await;
        self.model.resume_form(before);
        match reply {
            Ok(reply) if reply.tool_calls.first().is_some_and(|call| call.name == "run_commands") => {
                self.works("compact form", "the model answers with one object a turn");
                true
            }
            Ok(_) => {
                self.found(
                    "compact form",
                    Outcome::Fails,
                    "the model was asked for a command and gave none".into(),
                );
                false
            }
            Err(error) => {
                self.found("compact form", Outcome::Fails, error.to_string());
                false
            }
        }
    }

    async fn ask(&mut self, what: &'static str, messages: &[Message], tools: &[ToolSpec]) -> Result<Reply> {
        (self.on_step)(Step::Trying(what));
        let notices = &mut self.notices;
        notices.clear();
        let mut begun = "";
        let mut on_progress = |progress: Progress<'_>| match progress {
            Progress::Notice(text) => notices.push(text.to_owned()),
            Progress::Text(_) | Progress::Reasoning(_) => begun = "; the answer had begun",
            _ => {}
        };
        let messages = messages.to_vec().into();
        let request = Request { tools, ..Request::plain(&messages) };
        let asked = tokio::time::timeout(TIMEOUT, self.model.ask(request, &mut on_progress)).await;
        let reply = asked.unwrap_or_else(|_| Err(too_slow(begun)));
        self.was_cut_off = reply.as_ref().is_ok_and(Reply::is_cut_off);
        reply
    }

    fn works(&mut self, what: &'static str, detail: impl Into<String>) {
        self.found(what, Outcome::Works, detail.into());
    }

    fn found(&mut self, what: &'static str, outcome: Outcome, detail: String) {
        let finding = Finding { what, outcome, detail };
        (self.on_step)(Step::Found(&finding));
        self.findings.push(finding);
    }
}

/// The outcome of offering a tool.
enum Tools {
    Called {
        /// The question, and the reply that calls the tool.
        exchange: Box<(Message, Reply)>,
        form: CallForm,
    },
    NotCalled,
    /// The answer ended too soon.
    NotSeen,
}

fn too_slow(begun: &str) -> Error {
    Error::endpoint(format!("not complete within {} s{begun}", TIMEOUT.as_secs()))
}

/// A red square, large enough for every model, as a `data:` URL.
fn red_image() -> Option<String> {
    const SIDE: u32 = 64;
    let rgb = [220, 20, 20].repeat((SIDE * SIDE) as usize);
    let png = Pixels { width: SIDE, height: SIDE, rgb }.to_png().ok()?;
    Some(format!("data:image/png;base64,{}", STANDARD.encode(png)))
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
        })
        .into(),
    }
}
