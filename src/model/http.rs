//! The service beneath async-openai: what that crate loses is kept here.
//!
//! Any answer under a good status, streamed or whole, leaves as one canonical event stream: an event is one
//! `data:` line of valid UTF-8. Everything else becomes a [`Failure`] with its name: the status and words of an
//! error, a web page, a silence, a stream that breaks or never ends.

use crate::error::{Error, Result};
use crate::model::complaint::looks_like_html;
use crate::model::endpoint::{Endpoint, Timeouts};
use crate::model::failure::{Failure, Reason, quote};
use crate::model::sse::{Decoder, Event};
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use reqwest::{Body, Response, StatusCode, redirect};
use serde_json::Value;
use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Bytes of an error's body that are read.
const LONGEST_ERROR: usize = 64 * 1024;
/// How long an error's body may take.
const ERROR_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one event, or of an answer that is not streamed.
const LONGEST_EVENT: usize = 8 << 20;
/// Bytes of a whole stream: 128,000 tokens at 500 bytes an event.
const LONGEST_STREAM: usize = 64 << 20;
/// Redirects on the same host that are followed.
const MOST_REDIRECTS: usize = 3;

/// The HTTP client for one endpoint.
///
/// # Errors
/// `Config` where the file of certificates cannot be used.
pub fn client(endpoint: &Endpoint) -> Result<reqwest::Client> {
    install_tls_provider();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(endpoint.timeouts.connect)
        .redirect(same_origin_redirects());
    let builder = match &endpoint.ca_file {
        Some(file) => {
            let unusable = |error: anyhow::Error| {
                Error::config(format!("the certificates in {} cannot be used", file.display()))
                    .caused_by(error)
                    .hint("AGENT_CA_FILE names a PEM file with one certificate or several")
            };
            let pem = std::fs::read(file).map_err(|error| unusable(error.into()))?;
            let certificates =
                reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.into()))?;
            if certificates.is_empty() {
                return Err(unusable(anyhow::anyhow!("it holds no certificate")));
            }
            builder.tls_certs_merge(certificates)
        }
        // Without TLS the system's certificates need not be loaded (some milliseconds, some megabytes).
        None if endpoint.base_url.starts_with("http://") => builder.tls_certs_only([]),
        None => builder,
    };
    builder.build().map_err(|error| {
        Error::config("the HTTP client cannot be set up")
            .caused_by(error)
            .hint("are the system's CA certificates installed (package ca-certificates)?")
    })
}

fn install_tls_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the embedding program installed one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// A redirect is followed where the method stays and scheme, host and port stay: the key never goes elsewhere.
fn same_origin_redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
        let previous = attempt.previous();
        let same_origin = previous.last().is_some_and(|from| from.origin() == attempt.url().origin());
        if keeps_method && same_origin && previous.len() <= MOST_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// How an answer's body ended: it cannot travel through async-openai with its name, so it travels beside it.
#[derive(Clone, Default)]
pub struct Ending(Arc<Mutex<Option<Result<(), Failure>>>>);

impl Ending {
    /// What is known once the stream has ended: complete, broken, or (`None`) just over.
    pub fn take(&self) -> Option<Result<(), Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, ending: Result<(), Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
    }
}

/// Sends one request and gives its answer as a canonical event stream.
pub async fn events(
    client: reqwest::Client,
    request: HttpRequestFactory,
    timeouts: Timeouts,
    ending: Ending,
) -> Result<Response, OpenAIError> {
    let started = Instant::now();
    let response = send(&client, request, timeouts.first).await?;
    let body = Answer {
        body: response.bytes_stream().boxed(),
        shape: Shape::Unknown(Vec::new()),
        ready: VecDeque::new(),
        received: 0,
        last_event: started,
        any_event: false,
        over: false,
        complete: false,
        timeouts,
    };
    Ok(respond(Body::wrap_stream(body.into_stream(ending))))
}

/// Sends one request and gives its answer as a whole.
pub async fn whole(
    client: reqwest::Client,
    request: HttpRequestFactory,
    timeouts: Timeouts,
) -> Result<Response, OpenAIError> {
    let response = send(&client, request, timeouts.first).await?;
    let too_long = || boxed(too_large(LONGEST_EVENT));
    let body = timeout(timeouts.first, read_bounded(response, LONGEST_EVENT))
        .await
        .map_err(|_| boxed(silence(timeouts.first)))?
        .map_err(|error| boxed(broken_off(&error)))?
        .ok_or_else(too_long)?;
    if looks_like_html(&String::from_utf8_lossy(&body[..body.len().min(200)])) {
        return Err(boxed(web_page()));
    }
    Ok(respond(Body::from(body)))
}

async fn send(
    client: &reqwest::Client,
    request: HttpRequestFactory,
    patience: Duration,
) -> Result<Response, OpenAIError> {
    let request = request.build().await?;
    let response = timeout(patience, client.execute(request))
        .await
        .map_err(|_| boxed(silence(patience)))?
        .map_err(|error| boxed(not_sent(&error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let headers = response.headers().clone();
    if status.is_redirection() {
        let place = headers.get("location").map(|l| quote(&String::from_utf8_lossy(l.as_bytes())));
        let place = place.unwrap_or_else(|| "nowhere".to_owned());
        let message =
            format!("the endpoint redirects ({}) to {place}, which is not followed", status.as_u16());
        return Err(boxed(Failure::new(Reason::Redirected, message)));
    }
    let body = read_up_to(response, LONGEST_ERROR).await;
    Err(boxed(Failure::from_status(status, &headers, &String::from_utf8_lossy(&body))))
}

fn respond(body: Body) -> Response {
    let mut response = ::http::Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.into()
}

async fn read_bounded(response: Response, bound: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut stream = response.bytes_stream();
    let mut body = Vec::new();
    while let Some(piece) = stream.next().await {
        body.extend_from_slice(&piece?);
        if body.len() > bound {
            return Ok(None);
        }
    }
    Ok(Some(body))
}

/// What can be had of an error's body: one that breaks off or takes too long still leaves the status.
async fn read_up_to(response: Response, bound: usize) -> Vec<u8> {
    let deadline = Instant::now() + ERROR_PATIENCE;
    let mut stream = response.bytes_stream();
    let mut body = Vec::new();
    while let Ok(Some(Ok(piece))) = timeout_at(deadline, stream.next()).await {
        body.extend_from_slice(&piece);
        if body.len() >= bound {
            body.truncate(bound);
            break;
        }
    }
    body
}

/// An answer's body on its way to canonical events.
struct Answer {
    body: stream::BoxStream<'static, reqwest::Result<Bytes>>,
    shape: Shape,
    ready: VecDeque<Bytes>,
    received: usize,
    last_event: Instant,
    any_event: bool,
    over: bool,
    /// The endpoint has said so itself.
    complete: bool,
    timeouts: Timeouts,
}

/// What the body turned out to be. The content type is not asked: it is wrong too often.
enum Shape {
    /// Only white space or less came so far.
    Unknown(Vec<u8>),
    /// Server-sent events.
    Events(Decoder),
    /// One JSON document (or a web page), collected to its end.
    Whole(Vec<u8>),
}

impl Answer {
    fn into_stream(self, ending: Ending) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
        stream::unfold((self, ending), |(mut answer, ending)| async move {
            match answer.next().await {
                Ok(Some(bytes)) => return Some((Ok(bytes), (answer, ending))),
                Ok(None) if answer.complete => {
                    ending.set(Ok(()));
                    answer.give_back();
                }
                Ok(None) => {}
                Err(failure) => ending.set(Err(failure)),
            }
            None
        })
    }

    /// Reads what may follow the last event, so that the connection can serve the next request.
    fn give_back(self) {
        tokio::spawn(timeout(Duration::from_secs(2), self.body.take(16).for_each(|_| async {})));
    }

    /// The next canonical event; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            let patience = self.patience();
            match timeout(patience, self.body.next()).await {
                Err(_) => return Err(self.silent()),
                Ok(Some(Ok(piece))) => self.take_in(&piece)?,
                Ok(Some(Err(error))) => return Err(broken_off(&error)),
                Ok(None) => self.end()?,
            }
        }
    }

    /// Comments keep the connection alive, but not for ever: the next event has its own deadline.
    fn patience(&self) -> Duration {
        let until_event = self.timeouts.first.saturating_sub(self.last_event.elapsed());
        if self.received == 0 { until_event } else { until_event.min(self.timeouts.idle) }
    }

    fn silent(&self) -> Failure {
        if self.any_event { stalled(self.timeouts.idle) } else { silence(self.last_event.elapsed()) }
    }

    fn take_in(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.received += piece.len();
        if self.received > LONGEST_STREAM {
            return Err(too_large(LONGEST_STREAM));
        }
        match &mut self.shape {
            Shape::Unknown(start) => {
                start.extend_from_slice(piece);
                let start = std::mem::take(start);
                self.recognise(start)
            }
            Shape::Events(decoder) => {
                let mut events = Vec::new();
                decoder.feed(piece, &mut events).map_err(|_| too_large(LONGEST_EVENT))?;
                self.queue(events);
                Ok(())
            }
            Shape::Whole(body) => {
                body.extend_from_slice(piece);
                if body.len() > LONGEST_EVENT { Err(too_large(LONGEST_EVENT)) } else { Ok(()) }
            }
        }
    }

    fn recognise(&mut self, start: Vec<u8>) -> Result<(), Failure> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&start);
        let first = text.iter().find(|b| !b.is_ascii_whitespace());
        self.shape = match first {
            _ if BYTE_ORDER_MARK.starts_with(&start) => Shape::Unknown(start),
            None => Shape::Unknown(start),
            Some(b'{' | b'[' | b'<') => Shape::Whole(text.to_vec()),
            Some(_) => {
                self.shape = Shape::Events(Decoder::new(LONGEST_EVENT));
                self.received -= start.len();
                return self.take_in(&start);
            }
        };
        // White space for ever is silence too; a megabyte of it is enough.
        match &self.shape {
            Shape::Unknown(start) if start.len() > 1 << 20 => Err(too_large(1 << 20)),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.over = true;
        match std::mem::replace(&mut self.shape, Shape::Unknown(Vec::new())) {
            Shape::Unknown(_) => Err(Failure::new(Reason::Empty, "the endpoint's answer is empty")),
            Shape::Whole(body) => {
                let text = String::from_utf8_lossy(&body);
                if text.starts_with('<') || looks_like_html(&text) {
                    return Err(web_page());
                }
                self.queue(vec![Event { name: String::new(), data: text.trim().to_owned() }]);
                self.complete = true;
                Ok(())
            }
            Shape::Events(mut decoder) => {
                let mut events = Vec::new();
                decoder.finish(&mut events).map_err(|_| too_large(LONGEST_EVENT))?;
                self.queue(events);
                if self.any_event {
                    return Ok(());
                }
                Err(Failure::new(Reason::Empty, "the endpoint's answer is a stream without any event"))
            }
        }
    }

    fn queue(&mut self, events: Vec<Event>) {
        for event in events {
            self.last_event = Instant::now();
            if matches!(event.name.as_str(), "ping" | "keepalive" | "keep-alive") {
                continue;
            }
            self.any_event = true;
            if event.data.trim() == "[DONE]" {
                self.over = true;
                self.complete = true;
                return;
            }
            self.ready.push_back(canonical(event));
        }
    }
}

/// One `data:` line. What is no JSON object, or is called an error, becomes an error object.
fn canonical(event: Event) -> Bytes {
    let is_object = event.data.trim_start().starts_with(['{', '[']);
    let data = if event.name == "error" || !is_object {
        let error = serde_json::from_str(&event.data).unwrap_or(Value::String(event.data));
        serde_json::json!({ "error": error }).to_string()
    } else {
        // Between JSON's tokens a line break is white space; inside a string it is not allowed anyway.
        event.data.replace(['\n', '\r'], " ")
    };
    Bytes::from(format!("data: {data}\n\n"))
}

fn boxed(failure: Failure) -> OpenAIError {
    OpenAIError::Boxed(Box::new(failure))
}

fn silence(waited: Duration) -> Failure {
    Failure::new(Reason::TimedOut, format!("the endpoint did not answer within {} s", seconds(waited)))
}

fn stalled(waited: Duration) -> Failure {
    let message = format!("the answer stalled: nothing came for {} s", seconds(waited));
    Failure::new(Reason::TimedOut, message)
}

fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        format!("{:.1}", duration.as_secs_f64())
    } else {
        duration.as_secs().to_string()
    }
}

fn too_large(bound: usize) -> Failure {
    let message = format!("the endpoint's answer is larger than {} MiB and was refused", bound >> 20);
    Failure::new(Reason::TooLarge, message)
}

fn web_page() -> Failure {
    Failure::new(Reason::NotTheProtocol, "the endpoint answered with a web page instead of JSON")
}

fn broken_off(error: &reqwest::Error) -> Failure {
    Failure::new(
        Reason::Broken,
        format!("the connection broke in the middle of the answer: {}", cause(error)),
    )
}

fn not_sent(error: &reqwest::Error) -> Failure {
    if let Some(why) = certificate_problem(error) {
        return Failure::new(
            Reason::Certificate,
            format!("the endpoint's certificate is not trusted: {why}"),
        );
    }
    if error.is_connect() || error.is_timeout() {
        return Failure::new(
            Reason::Unreachable,
            format!("the endpoint cannot be reached: {}", cause(error)),
        );
    }
    if error.is_builder() {
        return Failure::new(Reason::Config, format!("the request cannot be made: {}", cause(error)));
    }
    Failure::new(Reason::Broken, format!("the connection broke before the answer: {}", cause(error)))
}

fn certificate_problem(error: &reqwest::Error) -> Option<String> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(tls @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return Some(quote(&tls.to_string()));
        }
        // An I/O error's own `source` leaves out the error that it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = wrapped.map(|error| error as _).or_else(|| error.source());
    }
    None
}

/// The innermost cause: the outer ones repeat the address or say nothing.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() && error.is_connect() {
        return "no connection in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    quote(&innermost.to_string())
}
