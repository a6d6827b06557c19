//! The Model Context Protocol's server: the sandbox for agents of others. `docs/guides/mcp-server.md` is the manual.
//!
//! [`Service`] answers requests, whatever they came through: standard input and output (`stdio`) or HTTP (`http`). The
//! tools are those of the model (`calls`), what the user does in the REPL (`workspace`), and a few for programs
//! (`programs`).

mod calls;
mod client_sandbox;
mod client_sandboxes;
mod http;
mod programs;
mod question;
mod request;
mod stdio;
mod workspace;

pub use http::{BearerToken, serve as serve_http};
pub use stdio::serve as serve_stdio;

use super::Opener;
use super::rpc::Client;
use agent_base::sanitise::one_line;
use agent_mcp::jsonrpc::{ErrorObject, INVALID_PARAMS, METHOD_NOT_FOUND};
use agent_mcp::protocol::{Era, WITH_INITIALIZE, implementation};
use client_sandboxes::ClientSandboxes;
use request::Request;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The time for which clients may keep the list of tools, in milliseconds: it does not change.
const LIST_TTL_MS: u64 = 3_600_000;

/// Calls at a time that move the bytes of files: each has up to 43 MB of them in memory.
const MAX_TRANSFERS: usize = 4;

/// The services that the server offers its clients.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory that its sandboxes have a copy of.
    pub workspace: PathBuf,
    /// The key of the sandbox of clients that name none; `None`: each has its own.
    pub key: Option<String>,
    /// Set if changes are written without asking a user.
    pub allow_apply: bool,
    /// Set if programs have their tools too: raw output, bytes of files, sandboxes by name.
    pub for_programs: bool,
}

/// Answers the requests of all clients.
pub struct Service {
    settings: Settings,
    places: ClientSandboxes,
    transfers: Arc<Semaphore>,
}

/// The sender of a request.
#[derive(Clone)]
pub struct Caller {
    /// Names the caller's own sandbox.
    place: String,
    /// The client that questions of ours go to, where the transport has a way back.
    client: Option<Arc<Client>>,
    /// Set if the client said in `initialize` that it can ask its user by a form.
    shows_forms: bool,
}

impl Service {
    /// For sandboxes that `opener` opens.
    pub fn new(opener: Arc<dyn Opener>, settings: Settings) -> Arc<Self> {
        let places = ClientSandboxes::new(opener, settings.workspace.clone());
        Arc::new(Self { settings, places, transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)) })
    }

    /// Waits until a call that moves the bytes of files may begin; any other begins at once. Held until it is answered.
    async fn turn_to_transfer(&self, method: &str, params: &Value) -> Option<OwnedSemaphorePermit> {
        let tool = params.get("name").and_then(Value::as_str).filter(|_| method == "tools/call");
        match tool.is_some_and(programs::is_transfer) {
            true => Arc::clone(&self.transfers).acquire_owned().await.ok(),
            false => None,
        }
    }

    /// Answers one request. Dropping the future cancels it.
    async fn answer(&self, caller: &Caller, method: &str, params: &Value) -> Result<Value, ErrorObject> {
        let request = Request::of(method, params)?;
        let result = match (method, request.era) {
            ("initialize", Era::Initialize) => initialized(params, self.settings.for_programs),
            ("ping", Era::Initialize) => json!({}),
            ("server/discover", Era::Modern) => discovered(self.settings.for_programs),
            ("tools/list", _) => json!({ "tools": calls::list(self.settings.for_programs) }),
            ("tools/call", _) => self.call(caller, &request).await?,
            _ => return Err(unknown_method(method)),
        };
        Ok(request.wrapped(method, result))
    }

    /// Returns whether there is a sandbox of this name.
    fn has_sandbox(&self, place: &str) -> bool {
        self.places.has(place)
    }

    /// Ends a client's own sandbox.
    async fn forget(&self, place: &str) {
        self.places.end(place).await;
    }

    /// Ends sandboxes that nobody uses any more, as long as it is awaited.
    async fn end_idle(&self) {
        match self.places.end_idle().await {}
    }

    /// Ends every sandbox.
    async fn end(&self) {
        self.places.end_all().await;
    }
}

fn unknown_method(method: &str) -> ErrorObject {
    ErrorObject::new(METHOD_NOT_FOUND, format!("there is no method {:?}", one_line(method, 100)))
}

fn invalid(message: impl Into<String>) -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, message)
}

fn initialized(params: &Value, for_programs: bool) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = WITH_INITIALIZE.into_iter().find(|known| Some(*known) == asked);
    json!({
        "protocolVersion": version.unwrap_or(WITH_INITIALIZE[0]),
        "capabilities": { "tools": {} },
        "serverInfo": implementation(),
        "instructions": instructions(for_programs),
    })
}

fn discovered(for_programs: bool) -> Value {
    json!({
        "supportedVersions": [agent_mcp::protocol::MODERN],
        "capabilities": { "tools": {} },
        "instructions": instructions(for_programs),
    })
}

fn instructions(for_programs: bool) -> String {
    let names = match for_programs {
        true => " Each tool takes the name of a sandbox; without one it is the client's own.",
        false => "",
    };
    format!(
        "These tools run in a sandbox that has a copy of the user's project in /workspace: commands, code and files there \
         cannot touch the user's machine. Nothing reaches the user's own files until `apply`, which the user decides about; \
         `diff` shows what has changed, `checkpoint` and `undo` go back. There is no network but what `network` lists.{names}"
    )
}
