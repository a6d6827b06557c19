//! The client for any endpoint: retries what may pass, does without what is not understood.

mod features;
mod form;
mod instead;

use crate::ChatModel;
use crate::Ending;
use crate::Message;
use crate::OnProgress;
use crate::Progress;
use crate::Reply;
use crate::Request;
use crate::ToolSpec;
use crate::client::address::Address;
use crate::client::answer::Answer;
use crate::client::dialect;
use crate::client::encoded::Encoded;
use crate::client::facts::Facts;
use crate::client::failure::Failure;
use crate::client::failure::Feature;
use crate::client::failure::Reason;
use crate::client::failure::quote;
use crate::client::http;
use crate::client::ids::unique;
use crate::client::images;
use crate::client::retry::Backoff;
use crate::client::stream::Assembly;
use crate::client::wire;
use crate::compact;
use crate::described::{calls_as_text, described};
use crate::endpoint::Endpoint;
use crate::limiter::Limiter;
use crate::protocol::Protocol;
use crate::size::is_small;
use crate::tool_calls::repair::repair;
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_event::CallForm;
use async_openai::Client;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use bytes::Bytes;
use features::without_system_role;
use form::OfferedForm;
use futures_util::future::{BoxFuture, Either, select};
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tower::service_fn;

/// The time by which the usage and the end of a stream may lag behind its last word.
const GRACE_AFTER_FINISH: Duration = Duration::from_secs(5);
/// The time limit for a list of models.
const LISTING_TIMEOUT: Duration = Duration::from_secs(30);

/// A model behind an endpoint, in any of the protocols.
pub struct OpenAi {
    endpoint: Endpoint,
    http: reqwest::Client,
    /// With the key that is sent now.
    address: Lock<Address>,
    /// Features that the endpoint turned out not to understand, for the rest of the session.
    refused: Lock<HashSet<Feature>>,
    /// The conversation as it was last sent.
    encoded: Lock<Encoded>,
    /// The same for all clients of one model.
    facts: Arc<OnceCell<Facts>>,
    facts_requests: AtomicU32,
    form: Lock<OfferedForm>,
    /// The ids of calls that are sent as text: the endpoint misses their signatures.
    as_text: Lock<HashSet<String>>,
    /// The settings that are not sent, with the reason, until the user learns of them.
    unsent: Lock<Vec<String>>,
    /// Shared with other clients of this endpoint.
    limiter: Option<Arc<Limiter>>,
    /// The models that answer in its place while it is overloaded.
    fallbacks: Vec<OpenAi>,
    /// It is not asked before, because it was overloaded.
    paused_until: Lock<Option<Instant>>,
}

/// The settings of a model that its protocol has no name for.
fn unsent_settings(endpoint: &Endpoint) -> Vec<String> {
    let has_budget = endpoint.reasoning_budget.is_some() && endpoint.protocol != Protocol::Messages;
    let why = format!(
        "reasoning_budget has no name in the protocol {} (reasoning_effort has)",
        endpoint.protocol.name()
    );
    has_budget.then_some(why).into_iter().collect()
}

/// The features that an endpoint turned out not to take, as they are kept with a session.
#[derive(Serialize, Deserialize)]
struct Learned {
    model: String,
    base_url: String,
    refused: BTreeSet<Feature>,
    /// The ids of calls that are sent as text.
    as_text: BTreeSet<String>,
}

impl OpenAi {
    /// # Errors
    /// `Config` where the key, a header or the file of certificates cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Self> {
        Ok(Self {
            http: http::client(&endpoint)?,
            address: Lock::new(Address::new(&endpoint)?),
            refused: Lock::new(HashSet::new()),
            encoded: Lock::default(),
            facts: Arc::default(),
            facts_requests: AtomicU32::new(0),
            form: Lock::new(OfferedForm { chosen: endpoint.form, announced: false }),
            as_text: Lock::default(),
            unsent: Lock::new(unsent_settings(&endpoint)),
            limiter: None,
            fallbacks: Vec::new(),
            paused_until: Lock::default(),
            endpoint,
        })
    }

    /// A client for another conversation, with `endpoint`, which differs from its own in the model and what is configured for
    /// that alone, over the same connections.
    ///
    /// # Errors
    /// `Config` where the key or a header cannot be used.
    pub fn sibling(&self, endpoint: Endpoint) -> Result<Self> {
        let is_same = endpoint.model == self.endpoint.model;
        Ok(Self {
            http: self.http.clone(),
            address: Lock::new(Address::new(&endpoint)?),
            refused: Lock::new(if is_same { self.refused.lock().clone() } else { HashSet::new() }),
            encoded: Lock::default(),
            facts: if is_same { Arc::clone(&self.facts) } else { Arc::default() },
            facts_requests: AtomicU32::new(0),
            form: Lock::new(OfferedForm { chosen: endpoint.form, announced: false }),
            as_text: Lock::default(),
            unsent: Lock::default(),
            limiter: self.limiter.clone(),
            fallbacks: Vec::new(),
            paused_until: Lock::default(),
            endpoint,
        })
    }

    /// Its requests, and those of its siblings, wait for a slot of `limiter`.
    pub fn limited_by(self, limiter: Arc<Limiter>) -> Self {
        Self { limiter: Some(limiter), ..self }
    }

    /// The endpoint that it asks.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns whether answers come as they are written, as far as is known yet.
    pub fn streams(&self) -> bool {
        !self.refused.lock().contains(&Feature::Streaming)
    }

    /// Returns whether the endpoint takes tools, as far as is known yet.
    pub fn takes_tools(&self) -> bool {
        !self.refused.lock().contains(&Feature::Tools)
    }

    /// The failure without the keys that the endpoint may have quoted.
    fn without_keys(&self, failure: Failure) -> Failure {
        failure.without_key(self.endpoint.key.as_ref()).without_key(self.address.lock().key())
    }

    fn temperature(&self) -> Option<f64> {
        let default = (self.form() == CallForm::Compact).then_some(compact::TEMPERATURE);
        self.endpoint.temperature.or(default)
    }

    fn max_tokens(&self) -> Option<u32> {
        let default = (self.form() == CallForm::Compact).then_some(compact::MAX_ANSWER_TOKENS);
        self.endpoint.max_tokens.or(default)
    }

    /// Asks, and beside that asks the server about the model where it has not said yet.
    async fn ask_and_learn(&self, request: Request<'_>, on_progress: OnProgress<'_>) -> Result<Reply> {
        self.choose_form(request.tools, on_progress).await;
        let asking = pin!(self.ask_until_answered(request, on_progress));
        if !self.asks_for_facts() {
            return asking.await;
        }
        match select(asking, pin!(self.learn_facts())).await {
            Either::Left((reply, _)) => reply,
            Either::Right(((), asking)) => asking.await,
        }
    }

    async fn ask_until_answered(&self, request: Request<'_>, on_progress: OnProgress<'_>) -> Result<Reply> {
        for why in std::mem::take(&mut *self.unsent.lock()) {
            on_progress(Progress::Notice(&format!("{why}: it is not sent to the model")));
        }
        let mut backoff = Backoff::new(self.endpoint.retries);
        let streamed = self.streams();
        let limiter = self.limiter.as_deref();
        let (mut is_renewed, mut refusals) = (false, 0);
        if self.is_paused()
            && let Some(reply) = self.ask_another(&request, on_progress).await
        {
            return Ok(reply);
        }
        loop {
            let slot = match limiter {
                Some(limiter) => Some(limiter.slot().await),
                None => None,
            };
            let failure = match self.ask_once(&request, on_progress).await {
                Ok(reply) => {
                    limiter.inspect(|limiter| limiter.answered());
                    return Ok(reply);
                }
                Err(failure) => self.without_keys(failure),
            };
            drop(slot);
            if self.do_without(&failure, &request, on_progress) {
                continue;
            }
            if !is_renewed && self.renew_key(&failure, on_progress).await {
                is_renewed = true;
                continue;
            }
            refusals += u32::from(failure.reason == Reason::Busy);
            if refusals >= instead::MAX_REFUSALS
                && let Some(reply) = self.ask_another(&request, on_progress).await
            {
                return Ok(reply);
            }
            let Some((attempt, wait)) = backoff.next(failure.retry_after, failure.most_retries()) else {
                if streamed && failure.reason == Reason::Empty {
                    // It was not the streaming.
                    self.refused.lock().remove(&Feature::Streaming);
                }
                return Err(failure.into_error(&self.endpoint));
            };
            limiter.inspect(|limiter| limiter.refused(wait));
            on_progress(Progress::Retry { attempt, wait, reason: &failure.message });
            tokio::time::sleep(wait).await;
        }
    }

    /// One request.
    async fn ask_once(&self, request: &Request<'_>, on_progress: OnProgress<'_>) -> Result<Reply, Failure> {
        let body = self.body(request).map_err(|error| {
            Failure::new(Reason::Config, format!("the request cannot be written as JSON: {error}"))
        })?;
        let answer = self.answer(body).await?;
        let earlier = request.messages;
        if !self.is_compact(request) {
            let assembly = receive(Assembly::new(request.tools), answer, on_progress).await?;
            let mut reply = complete(assembly.finish(earlier, on_progress), request.messages)?;
            reply.opaque.model.clone_from(&self.endpoint.model);
            reply.opaque.endpoint.clone_from(&self.endpoint.base_url);
            return Ok(reply);
        }
        // The text is an object; what is shown of it is known at its end.
        let mut without_text = |progress: Progress<'_>| {
            if !matches!(progress, Progress::Text(_)) {
                on_progress(progress);
            }
        };
        let assembly =
            receive(Assembly::new(&[]).stopping_at_repetition(), answer, &mut without_text).await?;
        let mut reply = complete(assembly.finish(earlier, &mut without_text), request.messages)?;
        compact::read(&mut reply, request.tools);
        let is_cut_off = reply.is_cut_off();
        for call in &mut reply.tool_calls {
            if call.id.is_empty() {
                call.id = unique(String::new(), earlier, &[]);
            }
            if let Some(note) = repair(call, request.tools, is_cut_off) {
                on_progress(Progress::Notice(&note));
            }
        }
        if reply.tool_calls.is_empty() && !reply.text.is_empty() {
            on_progress(Progress::Text(&reply.text));
        }
        Ok(reply)
    }

    /// Returns whether this request is sent in the compact form. Those without tools (a summary) are plain text.
    fn is_compact(&self, request: &Request<'_>) -> bool {
        self.form() == CallForm::Compact && compact::fits(request.tools)
    }

    fn body(&self, request: &Request<'_>) -> serde_json::Result<Bytes> {
        let refused = self.refused.lock().clone();
        let mut form = self.wire_form(&refused);
        if self.is_compact(request) && self.endpoint.temperature.is_none() {
            form.temperature = form.temperature.map(|_| compact::temperature(request));
        }
        let answer_schema = request.answer_schema.filter(|_| !refused.contains(&Feature::AnswerSchema));
        if self.is_compact(request) {
            let (messages, schema) = (compact::messages(request).into(), compact::schema(request));
            let answer_schema = Some(&schema).filter(|_| !refused.contains(&Feature::AnswerSchema));
            let request = Request { answer_schema, ..Request::plain(&messages) };
            return self.encoded_body(&form, &request, &refused);
        }
        let are_described = refused.contains(&Feature::Tools) || self.form() == CallForm::Text;
        if request.tools.is_empty() || !are_described {
            let unsigned = self.as_text.lock();
            if !unsigned.is_empty() {
                let messages = calls_as_text(request.messages, &unsigned).into();
                let request = Request { messages: &messages, answer_schema, ..*request };
                return self.encoded_body(&form, &request, &refused);
            }
            return self.encoded_body(&form, &Request { answer_schema, ..*request }, &refused);
        }
        let messages = described(request.messages, request.tools).into();
        let request = Request { answer_schema, ..Request::plain(&messages) };
        self.encoded_body(&form, &request, &refused)
    }

    fn encoded_body(
        &self,
        form: &wire::Form<'_>,
        request: &Request<'_>,
        refused: &HashSet<Feature>,
    ) -> serde_json::Result<Bytes> {
        if !refused.contains(&Feature::SystemRole) {
            return dialect::body(form, request, &mut self.encoded.lock());
        }
        let messages = without_system_role(request.messages).into();
        dialect::body(form, &Request { messages: &messages, ..*request }, &mut self.encoded.lock())
    }

    /// Sends the conversation. It is encoded already, so async-openai makes a request without a body, and one for the protocols that
    /// it does not have is made here.
    async fn answer(&self, body: Bytes) -> Result<Answer, Failure> {
        let started = Instant::now();
        let mut request = match self.endpoint.protocol {
            Protocol::Chat => {
                let made = MadeRequest::default();
                let result = self.client(&made).chat().create_byot::<_, Value>(()).await;
                made.take(result)?
            }
            _ => {
                let address = self.address.lock().clone();
                let post = self.http.post(address.of_questions()).headers(address.headers);
                post.header(CONTENT_TYPE, "application/json").build().map_err(|error| {
                    Failure::new(Reason::Config, format!("the request cannot be made: {error}"))
                })?
            }
        };
        *request.body_mut() = Some(body.into());
        let response = http::send(&self.http, request, self.endpoint.timeouts.first).await?;
        let reader = dialect::AnswerReader::new(self.endpoint.protocol);
        Ok(Answer::new(response, started, self.endpoint.timeouts, reader))
    }

    fn client(&self, made: &MadeRequest) -> Client<Address> {
        let made = made.clone();
        let service = service_fn(move |request| made.clone().keep(request));
        Client::build(self.http.clone(), self.address.lock().clone()).with_http_service(service)
    }

    async fn list(&self) -> Result<Value, Failure> {
        let listed = async {
            let made = MadeRequest::default();
            let result = self.client(&made).models().list_byot::<Value>().await;
            let time = self.endpoint.timeouts.first.min(LISTING_TIMEOUT);
            http::document(http::send(&self.http, made.take(result)?, time).await?, time).await
        };
        listed.await.map_err(|failure: Failure| self.without_keys(failure))
    }

    async fn list_models(&self) -> Result<Vec<String>> {
        let names = self.list().await.and_then(|list| wire::model_names(&list).ok_or_else(no_list));
        names.map_err(|failure| failure.into_error(&self.endpoint))
    }
}

impl ChatModel for OpenAi {
    fn ask<'a>(&'a self, request: Request<'a>, on_progress: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(self.ask_and_learn(request, on_progress))
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(self.list_models())
    }

    fn name(&self) -> &str {
        &self.endpoint.model
    }

    fn context_window(&self) -> Option<u64> {
        self.known().context_window
    }

    fn decide_form<'a>(&'a self, tools: &'a [ToolSpec], on_progress: OnProgress<'a>) -> BoxFuture<'a, ()> {
        Box::pin(self.learn_model(tools, on_progress))
    }

    fn form(&self) -> CallForm {
        self.form.lock().chosen.unwrap_or_default()
    }

    fn is_assisted(&self) -> bool {
        self.endpoint.assist.unwrap_or_else(|| self.known().parameters.is_some_and(is_small))
    }

    fn resume_form(&self, form: CallForm) {
        if self.endpoint.form.is_none_or(|configured| configured == form) {
            *self.form.lock() = OfferedForm { chosen: Some(form), announced: true };
        }
    }

    fn learned(&self) -> Option<Value> {
        let learned = Learned {
            model: self.endpoint.model.clone(),
            base_url: self.endpoint.base_url.clone(),
            refused: self.refused.lock().iter().copied().collect(),
            as_text: self.as_text.lock().iter().cloned().collect(),
        };
        let is_nothing = learned.refused.is_empty() && learned.as_text.is_empty();
        serde_json::to_value(learned).ok().filter(|_| !is_nothing)
    }

    fn resume_learned(&self, learned: &Value) {
        let Ok(learned) = serde_json::from_value::<Learned>(learned.clone()) else { return };
        if learned.model == self.endpoint.model && learned.base_url == self.endpoint.base_url {
            self.refused.lock().extend(learned.refused);
            self.as_text.lock().extend(learned.as_text);
        }
    }

    fn for_another_conversation(&self) -> Option<Arc<dyn ChatModel>> {
        let sibling = self.sibling(self.endpoint.clone()).ok()?;
        *sibling.form.lock() = *self.form.lock();
        Some(Arc::new(sibling))
    }

    fn takes_images(&self) -> bool {
        self.endpoint.images
            && self.form() == CallForm::Native
            && !self.refused.lock().contains(&Feature::Images)
    }

    fn add_images(&self, to: &str, images: Vec<String>) {
        let (fitted, refused): (Vec<_>, Vec<_>) =
            images.into_iter().map(images::fitted).partition(Result::is_ok);
        self.unsent.lock().extend(refused.into_iter().filter_map(Result::err));
        let fitted: Vec<String> = fitted.into_iter().flatten().collect();
        if !fitted.is_empty() {
            self.encoded.lock().add_images(to, fitted);
        }
    }
}

/// Reads an answer to its end.
async fn receive<'a>(
    mut assembly: Assembly<'a>,
    mut answer: Answer,
    on_progress: OnProgress<'_>,
) -> Result<Assembly<'a>, Failure> {
    loop {
        let next = match assembly.is_finished() {
            // Some servers leave the connection open after the last word.
            true => timeout(GRACE_AFTER_FINISH, answer.next()).await.unwrap_or(Ok(None)),
            false => answer.next().await,
        };
        match next {
            Ok(Some(chunk)) => {
                assembly.add(chunk, on_progress)?;
                if assembly.is_stopped() {
                    // The connection is closed, so that the server stops too.
                    return Ok(assembly);
                }
            }
            Ok(None) => break,
            // What follows the last word may be missing.
            Err(_) if assembly.is_finished() => break,
            Err(failure) => return Err(failure),
        }
    }
    match answer.is_complete() {
        true => answer.give_back(),
        false if assembly.is_finished() => {}
        false => return Err(Failure::new(Reason::Broken, "the answer stopped before it was complete")),
    }
    Ok(assembly)
}

fn no_list() -> Failure {
    Failure::new(Reason::NotTheProtocol, "the endpoint's list of models is not one")
}

/// Returns whether the model has answered in this conversation.
fn has_answer(messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message, Message::Assistant { .. }))
}

/// The reply, unless it was given up. One that says nothing is a failure where the model has not answered before: then it
/// may be the endpoint that does not stream.
fn complete(reply: Reply, messages: &[Message]) -> Result<Reply, Failure> {
    let word = quote(reply.finish_reason.as_deref().unwrap_or_default());
    match reply.ending() {
        Ending::Filtered => {
            let message = match word.as_str() {
                "content_filter" => "the provider's content filter stopped the answer".to_owned(),
                word => format!("the provider's content filter stopped the answer: {word}"),
            };
            return Err(Failure::new(Reason::Filtered, message));
        }
        Ending::Failed => {
            let message = format!("the endpoint gave up in the middle of its answer: {word}");
            return Err(Failure::new(Reason::Broken, message));
        }
        Ending::WindowFull => {
            let message = format!("the context window was full in the middle of the answer: {word}");
            return Err(Failure::new(Reason::ContextOverflow { window: None, prompt: None }, message));
        }
        Ending::Finished | Ending::CutOff | Ending::Unknown => {}
    }
    let is_empty = reply.tool_calls.is_empty() && reply.text.trim().is_empty() && !reply.is_cut_off();
    if !is_empty || has_answer(messages) {
        return Ok(reply);
    }
    let message = match reply.reasoning {
        Some(_) => "the model reasoned but gave no answer",
        None => "the model's answer is empty",
    };
    Err(Failure::new(Reason::Empty, message))
}

/// A request as async-openai makes it. This client sends it and reads the answer: that crate keeps neither the status and
/// the headers of an error nor the name of an event, and reads answers as OpenAI's own servers write them.
#[derive(Clone, Default)]
struct MadeRequest(Arc<Lock<Option<reqwest::Request>>>);

impl MadeRequest {
    async fn keep(self, request: HttpRequestFactory) -> Result<reqwest::Response, OpenAIError> {
        *self.0.lock() = Some(request.build().await?);
        Ok(::http::Response::new("null").into())
    }

    fn take<T>(&self, result: Result<T, OpenAIError>) -> Result<reqwest::Request, Failure> {
        self.0.lock().take().ok_or_else(|| {
            let why = result.err().map(|error| error.to_string()).unwrap_or_default();
            Failure::new(Reason::Config, format!("the request cannot be made: {why}"))
        })
    }
}
