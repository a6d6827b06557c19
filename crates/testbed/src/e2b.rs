//! `agent serve` within this process, as the E2B or Novita of a backend. Its sandboxes are behind E2B's own rules for what goes out, and
//! before its control plane requests are held against the vendor's description of its API.

use agent_base::Result;
use agent_event::SandboxInfo;
use agent_sandbox::local::Local;
use agent_sandbox::{Backend, Capabilities, Channel, Copied, Listed, OnProgress, Spec};
use agent_server::Listener;
use agent_server::e2b::{E2bSettings, Secret, serve};
use agent_session::SandboxSettings;
use agent_testing::egress::{self, Egress};
use agent_testing::fields::{Field, Kind, check, optional, required};
use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The key that it takes.
pub const KEY: &str = "e2b_a0key0for0tests";
/// Bytes of a request to the control plane.
const LARGEST: usize = 1 << 20;

/// What a creation has. The first version also has `secure`.
const CREATION: &[Field] = &[
    required("templateID", Kind::Text),
    optional("timeout", Kind::Integer),
    optional("autoPause", Kind::Flag),
    optional("autoPauseMemory", Kind::Flag),
    optional("autoResume", Kind::Object(&[required("enabled", Kind::Flag)])),
    optional("allow_internet_access", Kind::Flag),
    optional("network", Kind::Object(NETWORK)),
    optional("metadata", Kind::Texts),
    optional("envVars", Kind::Texts),
    optional("mcp", Kind::Any),
    optional("iam", Kind::Any),
    optional("volumeMounts", Kind::List(&Kind::Any)),
];
const NETWORK: &[Field] = &[
    optional("allowPublicTraffic", Kind::Flag),
    optional("allowOut", Kind::List(&Kind::Text)),
    optional("denyOut", Kind::List(&Kind::Text)),
    optional("dnsServers", Kind::List(&Kind::Text)),
    optional("egressProxy", Kind::Any),
    optional("maskRequestHost", Kind::Text),
    optional("httpsPorts", Kind::List(&Kind::Integer)),
    optional("rules", Kind::Any),
];
const TIME: &[Field] = &[required("timeout", Kind::Integer)];
const CONNECTION: &[Field] = &[required("timeout", Kind::Integer), optional("memory", Kind::Flag)];
const SECOND_CONNECTION: &[Field] = &[optional("timeout", Kind::Integer), optional("memory", Kind::Flag)];
const PAUSE: &[Field] = &[optional("memory", Kind::Flag), optional("requireHealthyGuest", Kind::Flag)];
const SNAPSHOT: &[Field] = &[optional("name", Kind::Text), optional("memory", Kind::Flag)];
const FORK: &[Field] = &[optional("timeout", Kind::Integer), optional("count", Kind::Integer)];
const REFRESH: &[Field] = &[optional("duration", Kind::Integer)];

/// The provider.
pub struct E2b {
    pub url: String,
}

impl E2b {
    /// Returns what it says of its sandboxes.
    pub async fn sandboxes(&self) -> Vec<Value> {
        self.list("/v2/sandboxes").await
    }

    /// The snapshots that it holds.
    pub async fn snapshots(&self) -> Vec<Value> {
        self.list("/snapshots").await
    }

    /// Lets it make a snapshot of a sandbox.
    pub async fn snapshot(&self, sandbox: &str, name: &str) -> u16 {
        self.post(&format!("/sandboxes/{sandbox}/snapshots"), &json!({ "name": name })).await
    }

    /// How it answers a request with the key.
    pub async fn post(&self, path: &str, body: &Value) -> u16 {
        let body = body.to_string();
        let length = body.len();
        let headers =
            format!("X-API-Key: {KEY}\r\nContent-Type: application/json\r\nContent-Length: {length}");
        self.send(&format!("POST {path}"), &headers, &body).await.0
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let (status, body) = self.send(&format!("GET {path}"), &format!("X-API-Key: {KEY}"), "").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("a list")
    }

    /// How a port of a sandbox answers who has no token.
    pub async fn status_of_port(&self, id: &str, port: u16) -> u16 {
        self.send("GET /", &format!("E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: {port}"), "").await.0
    }

    async fn send(&self, line: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
    }
}

/// The one of this process, in threads of its own: sandboxes outlive a test's runtime.
pub fn shared() -> &'static E2b {
    static SHARED: OnceLock<E2b> = OnceLock::new();
    SHARED.get_or_init(start)
}

/// A provider without sandboxes.
pub fn start() -> E2b {
    start_for(100)
}

/// The same for an account of at most so many sandboxes at a time.
pub fn start_for(max_sandboxes: usize) -> E2b {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).await.expect("a port");
            let server = listener.address().to_string();
            let front = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender
                .send(format!("http://{}", front.local_addr().expect("an address")))
                .expect("somebody waits");
            let router = Router::new().fallback(move |request: Request| forward(server.clone(), request));
            tokio::spawn(async move { axum::serve(front, router).await.expect("it serves") });
            let settings = E2bSettings {
                domain: None,
                sandbox: SandboxSettings::new(Arc::new(BehindRules::default())),
                machine: agent_testing::machine(),
                key: Secret::new(KEY),
                max_sandboxes,
                max_time: Duration::from_secs(24 * 3600),
                snapshots: snapshots(),
            };
            serve(settings, listener, pending()).await;
        });
    });
    E2b { url: receiver.recv().expect("it starts") }
}

/// The directory of snapshots: of each user another one, because nobody else may write to it.
fn snapshots() -> PathBuf {
    // SAFETY: only reads the process's credentials.
    let user = unsafe { libc::geteuid() };
    std::env::temp_dir().join(format!("agent-tests-snapshots-{user}"))
}

/// Carries a request to the server, unless E2B would refuse it.
async fn forward(server: String, mut request: Request) -> Response {
    // Requests to sandboxes have none.
    if request.headers().contains_key("x-api-key") {
        request = match checked(request).await {
            Ok(request) => request,
            Err(why) => return answer(400, &why),
        };
    }
    let client = hyper::upgrade::on(&mut request);
    let exchange = async {
        let stream = TcpStream::connect(server).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.ok()
    };
    let Some(mut response) = exchange.await else { return answer(502, "the server does not answer") };
    if response.status() == 101 {
        let upgraded = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let (Ok(client), Ok(server)) = tokio::join!(client, upgraded) else { return };
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
        });
    }
    response.map(Body::new)
}

fn answer(code: u16, message: &str) -> Response {
    let body = json!({ "code": code, "message": message }).to_string();
    Response::builder().status(code).body(Body::from(body)).expect("a response")
}

/// A request to the control plane, as it came, or why it is refused.
async fn checked(request: Request) -> Result<Request, String> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    check_query(&segments, parts.uri.query().unwrap_or_default())?;
    let bytes = to_bytes(body, LARGEST).await.map_err(|_| "the body is too long".to_owned())?;
    let fields: Option<&[Field]> = match *segments {
        ["sandboxes"] | ["v2", "sandboxes"] => Some(CREATION),
        ["v2", "sandboxes", _, "connect"] => Some(SECOND_CONNECTION),
        ["sandboxes", _, "connect"] => Some(CONNECTION),
        ["sandboxes", _, "timeout"] => Some(TIME),
        ["sandboxes", _, "refreshes"] => Some(REFRESH),
        ["sandboxes", _, "pause"] => Some(PAUSE),
        ["sandboxes", _, "snapshots"] => Some(SNAPSHOT),
        ["sandboxes", _, "fork"] => Some(FORK),
        _ => None,
    };
    if let Some(fields) = fields.filter(|_| parts.method == "POST") {
        let kind = parts.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !bytes.is_empty() && !kind.starts_with("application/json") {
            return Err(format!("content type {kind:?}"));
        }
        let mut asked = match bytes.is_empty() {
            true => json!({}),
            false => serde_json::from_slice(&bytes).map_err(|error| error.to_string())?,
        };
        if let (["sandboxes"], Some(asked)) = (&*segments, asked.as_object_mut()) {
            asked.remove("secure");
        }
        check(&asked, fields)?;
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

fn check_query(segments: &[&str], query: &str) -> Result<(), String> {
    let known: &[&str] = match segments {
        ["v2", "sandboxes"] => {
            &["metadata", "state", "order", "startedAfter", "template", "nextToken", "limit"]
        }
        ["sandboxes"] => &["metadata"],
        ["sandboxes", _, "metrics"] => &["start", "end"],
        ["snapshots"] => &["sandboxID", "name", "limit", "nextToken"],
        ["sandboxes", ..] | ["templates", _] => &[],
        _ => return Ok(()),
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let is_right = known.contains(&&*name)
            && match &*name {
                "limit" => value.parse::<u32>().is_ok_and(|limit| (1..=100).contains(&limit)),
                "state" => value.split(',').all(|state| ["running", "paused"].contains(&state)),
                "order" => ["asc", "desc"].contains(&&*value),
                _ => true,
            };
        if !is_right {
            return Err(format!("{name}: {value:?} is not a valid value"));
        }
    }
    Ok(())
}

/// Local sandboxes, each with [`egress::of_e2b`] in its network.
struct BehindRules {
    local: Local,
    of_sessions: Mutex<HashMap<String, Egress>>,
}

impl Default for BehindRules {
    fn default() -> Self {
        Self { local: Local::new(agent_testing::machine()), of_sessions: Mutex::default() }
    }
}

#[async_trait]
impl Backend for BehindRules {
    fn name(&self) -> &'static str {
        self.local.name()
    }

    fn location(&self) -> String {
        self.local.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.local.capabilities()
    }

    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        let started = self.local.start(spec, on_progress).await?;
        let directory = agent_testing::machine().data_dir()?.join("sandboxes").join(&spec.session);
        let processes = std::fs::read_to_string(directory.join("processes")).expect("it runs");
        // The launcher and the sandbox's first process, a line each.
        let first = processes.lines().nth(1).and_then(|line| line.split(' ').next()?.parse().ok());
        let egress = Egress::of_process(first.expect("a process"), egress::of_e2b);
        self.of_sessions.lock().expect("a lock").extend(egress.map(|egress| (spec.session.clone(), egress)));
        Ok(started)
    }

    async fn attach(&self, session: &str) -> Result<Channel> {
        self.local.attach(session).await
    }

    async fn destroy(&self, session: &str) -> Result<()> {
        self.of_sessions.lock().expect("a lock").remove(session);
        self.local.destroy(session).await
    }

    async fn fork(&self, session: &str, into: &Path) -> Result<Copied> {
        self.local.fork(session, into).await
    }

    async fn pause(&self, session: &str) -> Result<()> {
        self.local.pause(session).await
    }

    async fn resume(&self, session: &str) -> Result<()> {
        self.local.resume(session).await
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        self.local.list().await
    }

    async fn sweep(&self) -> Result<()> {
        self.local.sweep().await
    }
}
