//! The client for any OpenAI-compatible endpoint: retries what may pass, does without what is not understood.

use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::model::client::answer::Ending;
use crate::model::client::encoded::Encoded;
use crate::model::client::failure::{Failure, Feature, Reason, quote};
use crate::model::client::http;
use crate::model::client::retry::Backoff;
use crate::model::client::stream::{Assembly, call_ids};
use crate::model::client::wire::{self, Chunk, Form};
use crate::model::described::described;
use crate::model::endpoint::{Endpoint, Timeouts};
use crate::model::{ChatModel, Message, OnProgress, Progress, Reply, Request};
use async_openai::Client;
use async_openai::config::Config;
use async_openai::error::OpenAIError;
use async_openai::types::stream::StreamResponse;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;
use tower::service_fn;

/// How long the usage and the end of a stream may lag behind its last word.
const GRACE_AFTER_FINISH: Duration = Duration::from_secs(5);
/// How long a list of models may take.
const LISTING_PATIENCE: Duration = Duration::from_secs(30);

/// A model behind an OpenAI-compatible endpoint.
pub struct OpenAi {
    endpoint: Endpoint,
    http: reqwest::Client,
    address: Address,
    /// What the endpoint turned out not to understand, for the rest of the session.
    refused: Lock<HashSet<Feature>>,
    /// The conversation as it was last sent.
    encoded: Lock<Encoded>,
}

impl OpenAi {
    /// # Errors
    /// `Config` where the key, a header or the file of certificates cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Self> {
        Ok(Self {
            http: http::client(&endpoint)?,
            address: Address::new(&endpoint)?,
            refused: Lock::new(HashSet::new()),
            encoded: Lock::default(),
            endpoint,
        })
    }

    /// The endpoint that it asks.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether answers come as they are written, as far as is known yet.
    pub fn streams(&self) -> bool {
        !self.refused.lock().contains(&Feature::Streaming)
    }

    /// Whether the endpoint takes tools, as far as is known yet.
    pub fn takes_tools(&self) -> bool {
        !self.refused.lock().contains(&Feature::Tools)
    }

    /// The model's context window in tokens: the provider's documented one, else what the list of models says.
    pub async fn context_window(&self) -> Option<u64> {
        let known = self.endpoint.provider.context_window(&self.endpoint.model);
        if known.is_some() {
            return known;
        }
        let list = self.list().await.ok()?;
        wire::context_window(&list, &self.endpoint.model)
    }

    async fn ask_until_answered(&self, request: Request<'_>, on_progress: OnProgress<'_>) -> Result<Reply> {
        let mut backoff = Backoff::new(self.endpoint.retries);
        let streamed = self.streams();
        loop {
            let failure = match self.ask_once(&request, on_progress).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure.without_key(&self.endpoint),
            };
            if self.do_without(&failure, &request, on_progress) {
                continue;
            }
            let Some((attempt, wait)) = backoff.next(failure.retry_after, failure.most_retries()) else {
                if streamed && failure.reason == Reason::Empty {
                    // It was not the streaming.
                    self.refused.lock().remove(&Feature::Streaming);
                }
                return Err(failure.into_error(&self.endpoint));
            };
            on_progress(Progress::Retry { attempt, wait, reason: &failure.message });
            tokio::time::sleep(wait).await;
        }
    }

    async fn ask_once(&self, request: &Request<'_>, on_progress: OnProgress<'_>) -> Result<Reply, Failure> {
        let body = self.body(request).map_err(|error| {
            Failure::new(Reason::Config, format!("the request cannot be written as JSON: {error}"))
        })?;
        let ending = Ending::default();
        // The body goes to the service directly, so that the conversation is not encoded again for each request.
        // Whole answers come through the same door: the service makes a stream of one event of them.
        let stream = self.client(body, ending.clone()).chat().create_stream_byot::<_, Chunk>(()).await;
        let assembly = Assembly::new(request.tools);
        let assembly = receive(assembly, stream.map_err(failure_of)?, &ending, on_progress).await?;
        let reply = assembly.finish(call_ids(request.messages), on_progress);
        match shortcoming(&reply) {
            Some(failure) => Err(failure),
            None => Ok(reply),
        }
    }

    fn body(&self, request: &Request<'_>) -> serde_json::Result<Bytes> {
        let refused = self.refused.lock().clone();
        let form = self.form(&refused);
        let answer_schema = request.answer_schema.filter(|_| !refused.contains(&Feature::AnswerSchema));
        if request.tools.is_empty() || !refused.contains(&Feature::Tools) {
            return wire::body(&form, &Request { answer_schema, ..*request }, &mut self.encoded.lock());
        }
        let messages = described(request.messages, request.tools);
        wire::body(
            &form,
            &Request { messages: &messages, tools: &[], answer_schema },
            &mut self.encoded.lock(),
        )
    }

    fn client(&self, body: Bytes, ending: Ending) -> Client<Address> {
        let (http, timeouts) = (self.http.clone(), self.endpoint.timeouts);
        let service = service_fn(move |request| {
            http::events(http.clone(), request, body.clone(), timeouts, ending.clone())
        });
        Client::build(self.http.clone(), self.address.clone()).with_http_service(service)
    }

    fn form(&self, refused: &HashSet<Feature>) -> Form<'_> {
        let (endpoint, provider) = (&self.endpoint, self.endpoint.provider);
        let field =
            if refused.contains(&Feature::MaxTokens) { "max_completion_tokens" } else { "max_tokens" };
        Form {
            model: &endpoint.model,
            stream: !refused.contains(&Feature::Streaming),
            stream_options: provider.stream_options && !refused.contains(&Feature::StreamOptions),
            max_tokens: endpoint.max_tokens.map(|tokens| (field, tokens)),
            temperature: endpoint.temperature.filter(|_| !refused.contains(&Feature::Temperature)),
            reasoning_echo: match (provider.reasoning_echo, refused.contains(&Feature::Reasoning)) {
                (echo, false) => echo,
                // It was refused where it was sent, or missed where it was not.
                (Some(_), true) => None,
                (None, true) => Some("reasoning_content"),
            },
        }
    }

    /// Gives up what the endpoint did not understand, for the session. `false` where there is nothing to give up.
    fn do_without(&self, failure: &Failure, request: &Request<'_>, on_progress: OnProgress<'_>) -> bool {
        let feature = match failure.reason {
            Reason::Unsupported(feature) => feature,
            // An endpoint whose model has answered before does stream; then the model said nothing.
            Reason::Empty if !has_answer(request.messages) => Feature::Streaming,
            _ => return false,
        };
        let was_used = match feature {
            Feature::Tools => !request.tools.is_empty(),
            Feature::AnswerSchema => request.answer_schema.is_some(),
            Feature::Temperature => self.endpoint.temperature.is_some(),
            Feature::MaxTokens => self.endpoint.max_tokens.is_some(),
            Feature::Streaming | Feature::StreamOptions | Feature::Reasoning => true,
        };
        if !was_used || !self.refused.lock().insert(feature) {
            return false;
        }
        let instead = match feature {
            Feature::Streaming => "the endpoint does not stream: answers come in one piece from now on",
            Feature::StreamOptions => {
                "the endpoint does not take stream_options: token counts may be missing"
            }
            Feature::Tools => {
                "the endpoint does not take tools: they are described in the prompt from now on"
            }
            Feature::AnswerSchema => {
                "the endpoint does not take an answer schema: the answer is only checked here"
            }
            Feature::Temperature => "the endpoint does not take a temperature: it is left out from now on",
            Feature::MaxTokens => "the endpoint takes max_completion_tokens in place of max_tokens",
            Feature::Reasoning => "the endpoint wants reasoning handled differently in the conversation",
        };
        on_progress(Progress::Notice(&format!("{instead} ({})", failure.message)));
        true
    }

    async fn list(&self) -> Result<Value, Failure> {
        let (http, timeouts) = (self.http.clone(), self.endpoint.timeouts);
        let timeouts = Timeouts { first: timeouts.first.min(LISTING_PATIENCE), ..timeouts };
        let service = service_fn(move |request| http::whole(http.clone(), request, timeouts));
        let client = Client::build(self.http.clone(), self.address.clone()).with_http_service(service);
        let listed = client.models().list_byot().await;
        listed.map_err(|error| failure_of(error).without_key(&self.endpoint))
    }

    async fn list_models(&self) -> Result<Vec<String>> {
        let no_list = || Failure::new(Reason::NotTheProtocol, "the endpoint's list of models is not one");
        let names = self.list().await.and_then(|list| wire::model_names(&list).ok_or_else(no_list));
        names.map_err(|failure| failure.into_error(&self.endpoint))
    }
}

impl ChatModel for OpenAi {
    fn ask<'a>(&'a self, request: Request<'a>, on_progress: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(self.ask_until_answered(request, on_progress))
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(self.list_models())
    }

    fn name(&self) -> &str {
        &self.endpoint.model
    }
}

/// Reads a stream to its end.
async fn receive<'a>(
    mut assembly: Assembly<'a>,
    mut stream: StreamResponse<Chunk>,
    ending: &Ending,
    on_progress: OnProgress<'_>,
) -> Result<Assembly<'a>, Failure> {
    loop {
        let next = stream.next();
        let next = match assembly.is_finished() {
            // Some servers leave the connection open after the last word.
            true => tokio::time::timeout(GRACE_AFTER_FINISH, next).await.unwrap_or(None),
            false => next.await,
        };
        match next {
            Some(Ok(chunk)) => assembly.add(chunk, on_progress)?,
            Some(Err(error)) => return Err(failure_of(error)),
            None => break,
        }
    }
    if assembly.is_finished() {
        return Ok(assembly);
    }
    match ending.take() {
        Some(Ok(())) => Ok(assembly),
        Some(Err(failure)) => Err(failure),
        None => Err(Failure::new(Reason::Broken, "the answer stopped before it was complete")),
    }
}

/// Whether the model has answered in this conversation.
fn has_answer(messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message, Message::Assistant { .. }))
}

/// An answer that was given up is a failure, and so is one that says nothing, unless it was cut off before it could.
fn shortcoming(reply: &Reply) -> Option<Failure> {
    match reply.finish_reason.as_deref() {
        Some("content_filter") => {
            return Some(Failure::new(Reason::Filtered, "the provider's content filter stopped the answer"));
        }
        // Of gateways that have begun to answer (OpenRouter), and of DeepSeek.
        Some(reason @ ("error" | "insufficient_system_resource")) => {
            let message = format!("the endpoint gave up in the middle of its answer: {reason}");
            return Some(Failure::new(Reason::Broken, message));
        }
        _ => {}
    }
    if !reply.tool_calls.is_empty() || !reply.text.trim().is_empty() || reply.is_cut_off() {
        return None;
    }
    let message = match reply.reasoning {
        Some(_) => "the model reasoned but gave no answer",
        None => "the model's answer is empty",
    };
    Some(Failure::new(Reason::Empty, message))
}

fn failure_of(error: OpenAIError) -> Failure {
    match error {
        OpenAIError::Boxed(error) => match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => Failure::new(Reason::Broken, format!("the request failed: {error}")),
        },
        OpenAIError::JSONDeserialize(error, content) => {
            let message =
                format!("the endpoint's answer is not the JSON it should be ({error}): {}", quote(&content));
            Failure::new(Reason::Broken, message)
        }
        other => Failure::new(Reason::Broken, format!("the request failed: {other}")),
    }
}

/// Where requests go and what they carry: the key and the configured headers, and nothing from the environment.
#[derive(Clone)]
struct Address {
    base_url: String,
    headers: HeaderMap,
    /// async-openai wants to be able to ask for it; it is in the headers already.
    no_key: SecretString,
}

impl Address {
    fn new(endpoint: &Endpoint) -> Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in &endpoint.headers {
            let (Ok(header), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
                return Err(Error::config(format!("the header {name:?} cannot be sent as it is configured")));
            };
            headers.insert(header, value);
        }
        if let Some(key) = &endpoint.key {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .map_err(|_| Error::config("the API key holds a character that cannot be sent"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(Self { base_url: endpoint.base_url.clone(), headers, no_key: SecretString::default() })
    }
}

impl Config for Address {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &SecretString {
        &self.no_key
    }
}
