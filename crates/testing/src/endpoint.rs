//! A fake model endpoint: a small HTTP server on 127.0.0.1 with the answers that a test scripts.
//!
//! ```ignore
//! let endpoint = endpoint()
//!     .tool_call("run_commands", json!({ "command": "ls" }))
//!     .text("There is one file.")
//!     .start();
//! // … point the client or the binary at endpoint.url() …
//! assert_eq!(endpoint.requests()[1].messages().last().unwrap()["role"], "tool");
//! ```
//!
//! Every request to `/chat/completions`, `/messages` or `/responses` takes the next answer of the script, in that protocol; those of
//! the latter two that the vendor's API refuses are refused. A scripted message is written as a stream or as a whole, as the
//! request asks. What follows `.text`, `.raw` and the like (`.status`, `.header`,
//! `.pieces`, `.stall`, `.reset`, …) changes the answer before it.

use super::prefix_cache::{Count, PrefixCache};
use super::{anthropic, openai_responses};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub fn endpoint() -> Script {
    Script::default()
}

/// The answers that the endpoint will give, in order.
#[derive(Default)]
pub struct Script {
    answers: VecDeque<EndpointAnswer>,
    repeats_last: bool,
    window: Option<u64>,
    models: Option<EndpointAnswer>,
    tls: bool,
    strict: bool,
    rule: Option<Rule>,
    port: u16,
}

/// Makes the answer to a chat request of its body.
type Rule = Arc<dyn Fn(&Value) -> Script + Send + Sync>;

#[derive(Clone)]
struct EndpointAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    content: Content,
    end: End,
    /// Bytes of one piece; everything in one if absent.
    pieces: Option<usize>,
    /// A pause before every piece.
    pace: Duration,
    /// Bytes after which `end` happens; half of the body if absent.
    cut_at: Option<usize>,
    /// The time before the status line.
    delay: Duration,
}

#[derive(Clone)]
enum Content {
    /// An assistant message, written as the request asks for it.
    Message { message: Value, finish: String, usage: Value },
    /// Exactly these bytes.
    Raw(Vec<u8>),
    /// These bytes, again and again.
    Endless(Vec<u8>),
    /// These bytes, repeated up to a length.
    Repeated(Vec<u8>, usize),
}

#[derive(Clone, PartialEq)]
enum End {
    /// A complete body.
    Complete,
    /// Silence for this long, then the rest.
    Stall(Duration),
    /// The connection is reset.
    Reset,
    /// The connection is closed in the middle of the body.
    Close,
}

impl Script {
    /// The model answers with a text.
    pub fn text(self, text: &str) -> Self {
        self.message(json!({ "role": "assistant", "content": text }), "stop")
    }

    /// The model calls one tool.
    pub fn tool_call(self, name: &str, arguments: Value) -> Self {
        self.tool_calls(&[(name, arguments)])
    }

    /// The model calls several tools in one message.
    pub fn tool_calls(self, calls: &[(&str, Value)]) -> Self {
        let number = self.answers.len();
        let calls: Vec<Value> = calls
            .iter()
            .enumerate()
            .map(|(i, (name, arguments))| {
                let function = json!({ "name": name, "arguments": arguments.to_string() });
                json!({ "id": format!("call_{number}_{i}"), "type": "function", "function": function })
            })
            .collect();
        self.message(json!({ "role": "assistant", "content": "", "tool_calls": calls }), "tool_calls")
    }

    /// The model reasons, then answers with a text.
    pub fn reasoning(self, reasoning: &str, text: &str) -> Self {
        let message = json!({ "role": "assistant", "reasoning_content": reasoning, "content": text });
        self.message(message, "stop")
    }

    /// A message in the wire format, with its finish reason.
    pub fn message(self, message: Value, finish: &str) -> Self {
        let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
        self.answer(Content::Message { message, finish: finish.to_owned(), usage })
    }

    /// Exactly this body. The content type follows from its first byte.
    pub fn raw(self, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let kind = match body.first() {
            Some(b'd' | b':') => "text/event-stream",
            Some(b'<') => "text/html",
            _ => "application/json",
        };
        self.answer(Content::Raw(body)).header("content-type", kind)
    }

    /// The recorded answer of a real server, `tests/samples/NAME.resp`, with its status.
    pub fn sample(self, name: &str) -> Self {
        let (body, status) = sample(name);
        self.raw(body).status(status)
    }

    /// An event stream of these `data:` lines, ended by `[DONE]`.
    pub fn events(self, events: &[Value]) -> Self {
        let mut body = String::new();
        for event in events {
            body.push_str(&format!("data: {event}\n\n"));
        }
        body.push_str("data: [DONE]\n\n");
        self.raw(body)
    }

    /// An OpenAI-shaped error.
    pub fn error(self, status: u16, message: &str) -> Self {
        self.raw(json!({ "error": { "message": message, "type": "error", "code": null } }).to_string())
            .status(status)
    }

    /// A body of these bytes again and again, until the client closes the connection.
    pub fn endless(self, bytes: &str) -> Self {
        self.answer(Content::Endless(bytes.into())).header("content-type", "text/event-stream")
    }

    /// A body of these bytes repeated up to `length`.
    pub fn repeated(self, bytes: &str, length: usize) -> Self {
        let block = bytes.repeat((64 * 1024 / bytes.len()).max(1));
        self.answer(Content::Repeated(block.into(), length))
    }

    /// Returns what `GET /models` answers; a list of one model if absent.
    pub fn models(mut self, status: u16, body: impl AsRef<[u8]>) -> Self {
        let mut answer = EndpointAnswer::new(Content::Raw(body.as_ref().to_vec()));
        answer.status = status;
        self.models = Some(answer);
        self
    }

    /// The time before `GET /models` is answered.
    pub fn models_after(mut self, delay: Duration) -> Self {
        if let Some(models) = &mut self.models {
            models.delay = delay;
        }
        self
    }

    /// Refuses requests of more tokens, and counts those of the others. A token is three bytes of the request.
    pub fn window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Repeats the last answer for all further requests.
    pub fn repeat_last(mut self) -> Self {
        self.repeats_last = true;
        self
    }

    /// Listens on this port in place of a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Every chat request gets the first answer of what `rule` makes of its body: for many conversations at once.
    pub fn by_rule(mut self, rule: impl Fn(&Value) -> Script + Send + Sync + 'static) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// The endpoint speaks TLS, with the self-signed certificate `src/tls/certificate.pem`.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Requests that a strict chat template refuses are refused: see [`template_error`].
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// The status of the answer before.
    pub fn status(self, status: u16) -> Self {
        self.change(|answer| answer.status = status)
    }

    /// A header of the answer before; it replaces one of that name.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.change(|answer| {
            answer.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
            answer.headers.push((name.to_owned(), value.to_owned()));
        })
    }

    /// The answer before comes in pieces of so many bytes, cut anywhere.
    pub fn pieces(self, bytes: usize) -> Self {
        self.change(|answer| answer.pieces = Some(bytes))
    }

    /// A pause before every piece of the answer before.
    pub fn pace(self, pause: Duration) -> Self {
        self.change(|answer| answer.pace = pause)
    }

    /// A pause before the status line of the answer before.
    pub fn delay(self, delay: Duration) -> Self {
        self.change(|answer| answer.delay = delay)
    }

    /// A pause in the middle of the answer before.
    pub fn stall(self, silence: Duration) -> Self {
        self.change(|answer| answer.end = End::Stall(silence))
    }

    /// The connection is reset in the middle of the answer before.
    pub fn reset(self) -> Self {
        self.change(|answer| answer.end = End::Reset)
    }

    /// The connection is closed in the middle of the answer before.
    pub fn close(self) -> Self {
        self.change(|answer| answer.end = End::Close)
    }

    /// Sets where the middle is, in bytes of the body.
    pub fn after(self, bytes: usize) -> Self {
        self.change(|answer| answer.cut_at = Some(bytes))
    }

    pub fn start(self) -> Endpoint {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        let scheme = if self.tls { "https" } else { "http" };
        let tls = self
            .tls
            .then(|| tls_config(include_bytes!("tls/certificate.pem"), include_bytes!("tls/key.pem")));
        let shared = Arc::new(EndpointShared {
            script: Mutex::new(self),
            requests: Mutex::default(),
            cache: Mutex::default(),
            connections: 0.into(),
            open: 0.into(),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, tls) = (serving.clone(), tls.clone());
                // A client that closes its connection ends the thread with an error.
                std::thread::spawn(move || {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    shared.open.fetch_add(1, Ordering::SeqCst);
                    let _ = serve(stream, tls, &shared);
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Endpoint { url: format!("{scheme}://127.0.0.1:{port}"), shared }
    }

    fn answer(mut self, content: Content) -> Self {
        self.answers.push_back(EndpointAnswer::new(content));
        self
    }

    fn change(mut self, edit: impl FnOnce(&mut EndpointAnswer)) -> Self {
        edit(self.answers.back_mut().expect("an answer comes first"));
        self
    }

    /// The answer to a request with this body.
    fn answer_to(&mut self, body: &Value) -> EndpointAnswer {
        let Some(window) = self.window else { return self.next() };
        let tokens = (body["messages"].to_string().len() + body["tools"].to_string().len()) as u64 / 3;
        if tokens > window {
            let message = format!(
                "request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
            );
            let error = json!({
                "code": 400, "message": message, "type": "exceed_context_size_error",
                "n_prompt_tokens": tokens, "n_ctx": window,
            });
            let mut answer = EndpointAnswer::new(Content::Raw(json!({ "error": error }).to_string().into()));
            answer.status = 400;
            return answer;
        }
        let mut answer = self.next();
        if let Content::Message { usage, .. } = &mut answer.content {
            usage["prompt_tokens"] = tokens.into();
        }
        answer
    }

    fn next(&mut self) -> EndpointAnswer {
        if self.repeats_last && self.answers.len() == 1 {
            return self.answers[0].clone();
        }
        self.answers.pop_front().unwrap_or_else(|| {
            let mut answer = EndpointAnswer::new(Content::Raw(
                br#"{"error":{"message":"the script has run out"}}"#.into(),
            ));
            answer.status = 418;
            answer
        })
    }
}

impl EndpointAnswer {
    fn new(content: Content) -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            content,
            end: End::Complete,
            pieces: None,
            pace: Duration::ZERO,
            cut_at: None,
            delay: Duration::ZERO,
        }
    }
}

/// A running endpoint. It serves until the test process ends.
pub struct Endpoint {
    url: String,
    shared: Arc<EndpointShared>,
}

impl Endpoint {
    /// The base URL, `/v1` included.
    pub fn url(&self) -> String {
        format!("{}/v1", self.url)
    }

    /// Scheme, host and port.
    pub fn root(&self) -> &str {
        &self.url
    }

    /// The requests so far, without those for the list of models.
    pub fn requests(&self) -> Vec<Request> {
        let path = |request: &Request| request.path.split('?').next().unwrap_or_default().to_owned();
        let is_list = |request: &Request| request.method == "GET" && path(request).ends_with("/models");
        self.all_requests().into_iter().filter(|request| !is_list(request)).collect()
    }

    /// All requests so far, `/models` included.
    pub fn all_requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().iter().map(|request| Request::clone(request)).collect()
    }

    /// The bodies of the chat requests so far.
    pub fn chat_requests(&self) -> Vec<Value> {
        self.requests()
            .into_iter()
            .filter(|r| {
                let path = r.path.split('?').next().unwrap_or_default();
                path.ends_with("/chat/completions") || Vendor::of(path).is_some()
            })
            .map(|r| r.body)
            .collect()
    }

    /// Returns what each request that was answered in Messages or Responses cost of the prompt.
    pub fn counts(&self) -> Vec<Count> {
        self.shared.cache.lock().unwrap().1.clone()
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The last request.
    pub fn last(&self) -> Request {
        self.requests().pop().expect("a request")
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// `POST` or `GET`.
    pub method: String,
    /// The path (behind a proxy: the whole URL).
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null if there is none.
    pub body: Value,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The conversation that was sent.
    pub fn messages(&self) -> Vec<Value> {
        self.body["messages"].as_array().cloned().unwrap_or_default()
    }
}

/// Why a server whose chat template is as strict as those of Mistral's models refuses these messages: after the system
/// prompt, user and assistant alternate, and every tool call is followed by its one answer.
pub fn template_error(messages: &[Value]) -> Option<String> {
    let mut before = "assistant";
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "system" if at == 0 => continue,
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let Some(call) = open.iter().position(|open| *open == id) else {
                    return Some(format!("the tool result {id:?} has no call"));
                };
                open.remove(call);
            }
            "user" if before == "assistant" && open.is_empty() => {}
            "assistant" if before != "assistant" && open.is_empty() => {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                open.extend(calls.filter_map(|call| call["id"].as_str()));
            }
            _ if !open.is_empty() => return Some("a tool call has no answer".to_owned()),
            _ => {
                return Some(
                    "After the optional system message, conversation roles must alternate \
                     user/assistant/user/assistant/..."
                        .to_owned(),
                );
            }
        }
        before = role;
    }
    None
}

fn refusal(reason: &Option<String>) -> EndpointAnswer {
    let message = reason.clone().unwrap_or_default();
    let body = json!({ "error": { "message": message, "type": "error", "code": null } }).to_string();
    let mut answer = EndpointAnswer::new(Content::Raw(body.into_bytes()));
    answer.status = 400;
    answer
}

/// The body and status of a recorded answer.
pub fn sample(name: &str) -> (Vec<u8>, u16) {
    let path = std::path::Path::new(crate::ROOT).join(format!("tests/samples/{name}.resp"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // The recorder's own last line: "#http=200 t=0.03".
    let (body, note) = text.rsplit_once("\n#http=").unwrap_or((text.as_str(), "200"));
    let status = note[..3].parse().expect("a status");
    (body.as_bytes().to_vec(), status)
}

struct EndpointShared {
    script: Mutex<Script>,
    /// The parts that were sent before, and what each request of Messages or Responses cost.
    cache: Mutex<(PrefixCache, Vec<Count>)>,
    requests: Mutex<Vec<Arc<Request>>>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

/// The stream that a server reads from and writes to.
pub trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    shared: &EndpointShared,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = stream.try_clone()?;
    let mut reader = BufReader::new(duplex(stream, tls)?);
    while let Some(request) = read_request(&mut reader)?.map(Arc::new) {
        let streamed = request.body["stream"] == true;
        let path = request.path.split('?').next().unwrap_or_default();
        let vendor = Vendor::of(path);
        let is_chat = path.ends_with("/chat/completions") || vendor.is_some();
        let is_connect = request.method == "CONNECT";
        let is_models = request.method == "GET" && path.ends_with("/models");
        let rule = shared.script.lock().unwrap().rule.clone().filter(|_| is_chat);
        let ruled = rule.map(|rule| rule(&request.body).next());
        let is_strict = shared.script.lock().unwrap().strict;
        let refused = if is_strict { template_error(&request.messages()) } else { None };
        shared.requests.lock().unwrap().push(Arc::clone(&request));
        let refusal_of_vendor = vendor.and_then(|vendor| vendor.refusal(&request));
        let answer = match (is_chat, is_models) {
            _ if refusal_of_vendor.is_some() => refusal_of_vendor.unwrap(),
            (true, _) if refused.is_some() => refusal(&refused),
            (true, _) if ruled.is_some() => ruled.unwrap(),
            (true, _) => shared.script.lock().unwrap().answer_to(&request.body),
            (_, true) => shared.script.lock().unwrap().models.clone().unwrap_or_else(|| {
                EndpointAnswer::new(Content::Raw(
                    br#"{"object":"list","data":[{"id":"fake-model"}]}"#.to_vec(),
                ))
            }),
            _ if is_connect => {
                // A proxy that wants credentials.
                let mut answer = EndpointAnswer::new(Content::Raw(Vec::new()));
                answer.status = 407;
                answer
            }
            _ => {
                let mut answer = EndpointAnswer::new(Content::Raw(b"404 page not found\n".to_vec()));
                answer.status = 404;
                answer
            }
        };
        let answer = match vendor {
            Some(vendor) => vendor.translated(answer, &request.body, shared),
            None => answer,
        };
        // What needs no pause between is one write: in a bench, this process takes little of the machine.
        let mut to = BufWriter::new(reader.get_mut());
        if !write_answer(&mut to, &socket, &answer, streamed)? {
            return Ok(());
        }
    }
    Ok(())
}

/// A protocol other than the usual one.
#[derive(Clone, Copy)]
enum Vendor {
    Anthropic,
    OpenAi,
}

impl Vendor {
    fn of(path: &str) -> Option<Self> {
        match path.rsplit('/').next() {
            Some("messages") => Some(Self::Anthropic),
            Some("responses") => Some(Self::OpenAi),
            _ => None,
        }
    }

    fn refusal(self, request: &Request) -> Option<EndpointAnswer> {
        let (status, body) = match self {
            Self::Anthropic => anthropic::refusal(request)?,
            Self::OpenAi => openai_responses::refusal(request)?,
        };
        let mut answer = EndpointAnswer::new(Content::Raw(body.to_string().into_bytes()));
        answer.status = status;
        Some(answer)
    }

    /// A scripted message or error as this protocol writes it.
    fn translated(self, answer: EndpointAnswer, body: &Value, shared: &EndpointShared) -> EndpointAnswer {
        let content = match &answer.content {
            Content::Message { message, finish, .. } => {
                let (cache, counts) = &mut *shared.cache.lock().unwrap();
                let is_streamed = body["stream"] == true;
                let whole = |value: Value| value.to_string().into_bytes();
                let (count, bytes) = match self {
                    Self::Anthropic => {
                        let count = anthropic::count(body, cache);
                        let events = || anthropic::events(message, finish, count);
                        let bytes = if is_streamed {
                            events()
                        } else {
                            whole(anthropic::whole(message, finish, count))
                        };
                        (count, bytes)
                    }
                    Self::OpenAi => {
                        let count = openai_responses::count(body, cache);
                        let events = || openai_responses::events(message, finish, count);
                        let bytes = if is_streamed {
                            events()
                        } else {
                            whole(openai_responses::whole(message, finish, count))
                        };
                        (count, bytes)
                    }
                };
                counts.push(count);
                bytes
            }
            Content::Raw(bytes) if answer.status >= 400 => {
                let error: Value = serde_json::from_slice(bytes).unwrap_or_default();
                match (self, error["error"]["message"].as_str()) {
                    (Self::Anthropic, Some(message)) if error["type"] != "error" => {
                        anthropic::error(anthropic::kind(answer.status), message).to_string().into_bytes()
                    }
                    _ => bytes.clone(),
                }
            }
            _ => return answer,
        };
        let kind = if content.starts_with(b"event:") { "text/event-stream" } else { "application/json" };
        let mut answer = EndpointAnswer { content: Content::Raw(content), ..answer };
        if !answer.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            answer.headers.push(("content-type".to_owned(), kind.to_owned()));
        }
        answer
    }
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, path) =
        (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length =
        headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(Request { method, path, headers, body }))
}

/// Writes an answer; `false` if the connection is closed.
fn write_answer(
    to: &mut dyn Write,
    socket: &TcpStream,
    answer: &EndpointAnswer,
    streamed: bool,
) -> std::io::Result<bool> {
    std::thread::sleep(answer.delay);
    let (body, kind) = match &answer.content {
        Content::Message { message, finish, usage } if streamed => {
            (message_as_events(message, finish, usage), "text/event-stream")
        }
        Content::Message { message, finish, usage } => {
            let choice = json!({ "index": 0, "message": message, "finish_reason": finish });
            let whole = json!({ "id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage });
            (whole.to_string().into_bytes(), "application/json")
        }
        Content::Raw(bytes) | Content::Endless(bytes) | Content::Repeated(bytes, _) => {
            (bytes.clone(), "application/json")
        }
    };
    let mut head = format!("HTTP/1.1 {} Scripted\r\ntransfer-encoding: chunked\r\n", answer.status);
    if !answer.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head.push_str(&format!("content-type: {kind}\r\n"));
    }
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    to.write_all(head.as_bytes())?;
    let repeat = match answer.content {
        Content::Endless(_) => usize::MAX,
        Content::Repeated(_, length) => length / body.len().max(1),
        _ => 1,
    };
    for _ in 0..repeat {
        if !write_body(to, socket, answer, &body)? {
            return Ok(false);
        }
    }
    to.write_all(b"0\r\n\r\n")?;
    to.flush()?;
    Ok(true)
}

fn write_body(
    to: &mut dyn Write,
    socket: &TcpStream,
    answer: &EndpointAnswer,
    body: &[u8],
) -> std::io::Result<bool> {
    let middle = answer.cut_at.unwrap_or(body.len() / 2).min(body.len());
    let mut written = 0;
    let mut ended = answer.end == End::Complete;
    while written < body.len() || !ended {
        if !ended && written >= middle {
            ended = true;
            to.flush()?;
            match answer.end {
                End::Stall(silence) => std::thread::sleep(silence),
                End::Reset => return reset(socket).map(|()| false),
                _ => return socket.shutdown(Shutdown::Both).map(|()| false),
            }
            continue;
        }
        let bound = if ended { body.len() } else { middle };
        let next = answer.pieces.map_or(bound, |size| bound.min(written + size));
        if !answer.pace.is_zero() {
            to.flush()?;
            std::thread::sleep(answer.pace);
        }
        write!(to, "{:x}\r\n", next - written)?;
        to.write_all(&body[written..next])?;
        to.write_all(b"\r\n")?;
        if answer.pieces.is_some() {
            to.flush()?;
        }
        written = next;
    }
    Ok(true)
}

/// Closes the connection with a reset.
fn reset(socket: &TcpStream) -> std::io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = std::mem::size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the pointer and the size are those of `linger`, which outlives the call.
    unsafe {
        let linger = (&raw const linger).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, linger, size);
        // There are two handles of the socket; AF_UNSPEC disconnects both at once.
        let unspecified =
            libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        libc::connect(
            socket.as_raw_fd(),
            &unspecified,
            std::mem::size_of::<libc::sockaddr>() as libc::socklen_t,
        );
    }
    Ok(())
}

/// A message as a good server streams it: role, reasoning, words, calls in pieces, finish reason, usage.
fn message_as_events(message: &Value, finish: &str, usage: &Value) -> Vec<u8> {
    let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
    for field in ["reasoning_content", "reasoning", "content"] {
        let text = message[field].as_str().unwrap_or_default();
        deltas.extend(text.split_inclusive(' ').map(|word| json!({ field: word })));
    }
    for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let middle = (0..=arguments.len() / 2).rev().find(|i| arguments.is_char_boundary(*i)).unwrap_or(0);
        let function = json!({ "name": call["function"]["name"], "arguments": &arguments[..middle] });
        let mut first = call.clone();
        (first["index"], first["type"], first["function"]) = (json!(index), json!("function"), function);
        let second = json!({ "index": index, "function": { "arguments": &arguments[middle..] } });
        deltas.push(json!({ "tool_calls": [first] }));
        deltas.push(json!({ "tool_calls": [second] }));
    }
    let chunk = |delta: &Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let chunk = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let mut body: String = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
    body.push_str(&chunk(&json!({}), finish.into()));
    body.push_str(&format!("data: {}\n\n", json!({ "choices": [], "usage": usage })));
    body.push_str("data: [DONE]\n\n");
    body.into_bytes()
}

/// A connection, with TLS if there is a configuration for it.
pub fn duplex(stream: TcpStream, tls: Option<Arc<rustls::ServerConfig>>) -> std::io::Result<Box<dyn Duplex>> {
    Ok(match tls {
        Some(config) => {
            let connection = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
            Box::new(rustls::StreamOwned::new(connection, stream))
        }
        None => Box::new(stream),
    })
}

/// The configuration of a server with this certificate and key, both PEM.
pub fn tls_config(certificate: &[u8], key: &[u8]) -> Arc<rustls::ServerConfig> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("the key belongs to the certificate");
    Arc::new(config)
}
