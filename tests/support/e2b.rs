//! `agent serve` within this process, as the E2B or Novita of a backend. Its sandboxes are behind E2B's own rules for what goes out.

use super::egress::{self, Egress};
use agent::Result;
use agent::event::SandboxInfo;
use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Capabilities, Channel, Copied, Listed, OnProgress, Spec};
use agent::server::Listener;
use agent::server::e2b::{Secret, Settings, serve};
use agent::session::SandboxSettings;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::HashMap;
use std::future::pending;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The key that it takes.
pub const KEY: &str = "e2b_a0key0for0tests";

/// The provider.
pub struct E2b {
    pub url: String,
}

impl E2b {
    /// What it says of its sandboxes.
    pub async fn sandboxes(&self) -> Vec<Value> {
        self.list("/v2/sandboxes").await
    }

    /// The snapshots that it holds.
    pub async fn snapshots(&self) -> Vec<Value> {
        self.list("/snapshots").await
    }

    /// Lets it make a snapshot of a sandbox.
    pub async fn snapshot(&self, sandbox: &str, name: &str) -> u16 {
        let body = format!("{{\"name\":\"{name}\"}}");
        let headers = format!("X-API-Key: {KEY}\r\nContent-Length: {}", body.len());
        self.send(&format!("POST /sandboxes/{sandbox}/snapshots"), &headers, &body).await.0
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
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).await.expect("a port");
            sender.send(format!("http://{}", listener.address())).expect("somebody waits");
            let settings = Settings {
                sandbox: SandboxSettings::new(Arc::new(BehindRules::default())),
                machine: super::machine(),
                key: Secret::new(KEY),
                max_sandboxes: 100,
                max_time: Duration::from_secs(24 * 3600),
                snapshots: std::env::temp_dir().join("agent-tests-snapshots"),
            };
            serve(settings, listener, pending()).await;
        });
    });
    E2b { url: receiver.recv().expect("it starts") }
}

/// Local sandboxes, each with [`egress::of_e2b`] in its network.
struct BehindRules {
    local: Local,
    of_sessions: Mutex<HashMap<String, Egress>>,
}

impl Default for BehindRules {
    fn default() -> Self {
        Self { local: Local::new(super::machine()), of_sessions: Mutex::default() }
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
        let directory = super::machine().data_dir()?.join("sandboxes").join(&spec.session);
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
