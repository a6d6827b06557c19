//! The Agent Client Protocol: editors drive sessions through it. `docs/guides/acp.md` is the manual.
//!
//! One process serves one client and all its sessions, each with a directory of its own. Nothing is asked while a session
//! works: the sandbox is the protection. At the end of a turn `proposal` shows one diff and asks once.

mod commands;
mod editor;
mod facts;
mod in_editor;
mod options;
mod prompt;
mod proposal;
mod session;
mod stored;
mod updates;

pub use session::ApplyMode;

use super::rpc::{self, Client, error_object};
use super::{Opener, StartFrom};
use agent_base::count_text::counted;
use agent_base::lock::Lock;
use agent_base::sanitise::one_line;
use agent_event::Event;
use agent_log::SessionId;
use agent_mcp::jsonrpc::{ErrorObject, INVALID_PARAMS, Id, METHOD_NOT_FOUND, Message};
use agent_session::Frontend;
use editor::Editor;
use facts::ClientFacts;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, join_all};
use serde_json::{Value, json};
use session::OpenSession;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::sync::Semaphore;
use updates::Updates;

/// Sessions of one client that are open at a time.
const MAX_SESSIONS: usize = 64;
/// Requests of a client that are worked on at a time.
const MAX_REQUESTS: usize = 256;
/// The code for more than that.
const TOO_MANY: i64 = -32000;
/// The code of a request that its client has cancelled.
const CANCELLED: i64 = -32800;
/// The time limit for the endpoint to say which models it offers.
const MODELS_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for the end: clients kill an agent that does not end within two seconds.
const END_TIMEOUT: Duration = Duration::from_millis(1800);

/// Serves the client that writes to `from` and reads from `out`, until it is gone or `stop` completes. Then every session
/// ends.
pub async fn serve(
    opener: Arc<dyn Opener>,
    mode: ApplyMode,
    from: impl AsyncRead + Unpin,
    out: impl Write + Send + 'static,
    stop: impl Future<Output = ()>,
) {
    let server = Arc::new(AcpServer {
        client: Client::new(out),
        opener,
        mode,
        facts: Lock::default(),
        sessions: Lock::default(),
        slots: Arc::new(Semaphore::new(MAX_SESSIONS)),
        requests: Lock::default(),
    });
    rpc::serve(&server.client, from, async |message| server.take(message).await, stop).await;
    server.end().await;
}

struct AcpServer {
    client: Arc<Client>,
    opener: Arc<dyn Opener>,
    /// The mode in which the sessions write what they change, unless the client says otherwise.
    mode: ApplyMode,
    facts: Lock<ClientFacts>,
    sessions: Lock<HashMap<String, Arc<OpenSession>>>,
    /// Places for sessions.
    slots: Arc<Semaphore>,
    /// Requests that are worked on.
    requests: Lock<HashMap<Id, Underway>>,
}

/// A request that is worked on.
struct Underway {
    /// The session that it is a prompt of.
    session: Option<Arc<OpenSession>>,
    cancel: AbortHandle,
}

type Outcome = Result<Value, ErrorObject>;

impl AcpServer {
    /// Takes a message. What takes time is done in a task of its own; a cancellation is never behind it.
    async fn take(self: &Arc<Self>, message: Message) {
        match message {
            Message::Response { id, outcome } => self.client.answered(id, outcome),
            Message::Notification { method, params } => self.notified(&method, &params),
            Message::Request { id, method, params } => {
                let (cancel, cancelled) = AbortHandle::new_pair();
                let begun = self.admit(&id, &method, &params, cancel);
                let session = match begun {
                    Ok(session) => session,
                    Err(error) => return self.client.respond(Some(id), Err(error)).await,
                };
                let server = Arc::clone(self);
                tokio::spawn(async move {
                    let outcome = server.outcome(session, &method, &params, cancelled).await;
                    let opened = outcome.as_ref().ok().and_then(|result| opened(&method, &params, result));
                    let answered = || drop(server.requests.lock().remove(&id));
                    server.client.respond_and(Some(id.clone()), outcome, answered).await;
                    if let Some(session) = opened {
                        server.announce(&session).await;
                    }
                });
            }
        }
    }

    /// Works on a request that was admitted, unless its client cancels it.
    async fn outcome(
        self: &Arc<Self>,
        session: Option<Arc<OpenSession>>,
        method: &str,
        params: &Value,
        cancelled: AbortRegistration,
    ) -> Outcome {
        let gone = || Err(ErrorObject::new(CANCELLED, "cancelled by the client"));
        match session {
            Some(session) => {
                // It is stopped by its session, which keeps what it has until then.
                let outcome = session.prompt(params, self.opener.as_ref()).await;
                if cancelled.handle().is_aborted() { gone() } else { outcome }
            }
            // What ends half-way would leave something behind.
            None if matches!(method, "session/close" | "session/delete") => {
                self.request(method, params).await
            }
            None => Abortable::new(self.request(method, params), cancelled).await.unwrap_or_else(|_| gone()),
        }
    }

    /// Notes a request; a prompt begins here, so that a cancellation right behind it finds it.
    fn admit(
        &self,
        id: &Id,
        method: &str,
        params: &Value,
        cancel: AbortHandle,
    ) -> Result<Option<Arc<OpenSession>>, ErrorObject> {
        let mut requests = self.requests.lock();
        if requests.len() >= MAX_REQUESTS || requests.contains_key(id) {
            let message =
                format!("more than {MAX_REQUESTS} requests are being worked on, or two have the same id");
            return Err(ErrorObject::new(TOO_MANY, message));
        }
        let session = match method {
            "session/prompt" => {
                let session = self.session(params)?;
                session.begin()?;
                Some(session)
            }
            _ => None,
        };
        requests.insert(id.clone(), Underway { session: session.clone(), cancel });
        Ok(session)
    }

    fn notified(&self, method: &str, params: &Value) {
        match method {
            "session/cancel" => {
                if let Ok(session) = self.session(params) {
                    session.cancel();
                }
            }
            "$/cancel_request" => {
                let id = params.get("requestId").and_then(|id| serde_json::from_value::<Id>(id.clone()).ok());
                let requests = self.requests.lock();
                if let Some(Underway { session, cancel }) = id.and_then(|id| requests.get(&id)) {
                    cancel.abort();
                    session.iter().for_each(|session| session.cancel());
                }
            }
            _ => {}
        }
    }

    async fn request(self: &Arc<Self>, method: &str, params: &Value) -> Outcome {
        match method {
            "initialize" => {
                *self.facts.lock() = ClientFacts::of(params);
                Ok(facts::initialized())
            }
            "authenticate" => Ok(json!({})),
            "session/new" => self.new_session(params).await,
            "session/load" => self.load(params, true).await,
            "session/resume" => self.load(params, false).await,
            "session/list" => self.list(params).await,
            "session/close" => {
                let session = self.session(params)?;
                self.sessions.lock().remove(text(params, "sessionId").unwrap_or_default());
                session.close().await;
                Ok(json!({}))
            }
            "session/delete" => self.delete(params).await,
            "session/set_mode" => {
                let mode = text(params, "modeId").and_then(ApplyMode::parse);
                self.session(params)?.set_mode(mode.ok_or_else(|| invalid("modeId is ask, auto or never"))?);
                Ok(json!({}))
            }
            "session/set_config_option" => {
                let session = self.session(params)?;
                let id = text(params, "configId").ok_or_else(|| invalid("configId is missing"))?;
                let value = text(params, "value").ok_or_else(|| invalid("value is not a text"))?;
                let set = session.set_option(id, value, self.opener.as_ref()).await;
                set.map_err(|error| error_object(&error))?;
                Ok(json!({ "configOptions": session.options() }))
            }
            other => {
                let message = format!("there is no method {:?}", one_line(other, 100));
                Err(ErrorObject::new(METHOD_NOT_FOUND, message))
            }
        }
    }

    /// The open session that a request names.
    fn session(&self, params: &Value) -> Result<Arc<OpenSession>, ErrorObject> {
        let id = text(params, "sessionId").ok_or_else(|| invalid("sessionId is missing"))?;
        let session = self.sessions.lock().get(id).cloned();
        session.ok_or_else(|| invalid(&format!("the session {:?} is not open", one_line(id, 60))))
    }

    async fn new_session(self: &Arc<Self>, params: &Value) -> Outcome {
        let root = directory(params)?;
        let (id, session) = self.open(&root, StartFrom::New).await?;
        notice_about_servers(params, &session);
        Ok(json!({
            "sessionId": id,
            "modes": options::mode_state(self.mode),
            "configOptions": session.options(),
        }))
    }

    async fn open(
        self: &Arc<Self>,
        root: &Path,
        from: StartFrom,
    ) -> Result<(SessionId, Arc<OpenSession>), ErrorObject> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            let message =
                format!("{MAX_SESSIONS} sessions are open, which is the limit: close one with session/close");
            return Err(ErrorObject::new(TOO_MANY, message));
        };
        let facts = *self.facts.lock();
        let updates = Updates::new(root, self.opener.store().clone(), facts.has_terminals, false);
        let editor = Editor::new(Arc::clone(&self.client), facts, updates);
        let opening = self.opener.open(root, from, Arc::clone(&editor) as Arc<dyn Frontend>);
        let session = opening.await.map_err(|error| error_object(&error))?;
        let id = session.id().clone();
        let open = OpenSession::new(session, editor, root.to_owned(), self.mode, slot);
        self.sessions.lock().insert(id.to_string(), Arc::clone(&open));
        Ok((id, open))
    }

    /// Tells a client about a session once it knows its name.
    async fn announce(&self, id: &str) {
        let session = self.sessions.lock().get(id).cloned();
        if let Some(session) = session {
            session.editor.announce();
            let params = json!({ "sessionId": id, "update": commands::available(&[]) });
            self.client.notify("session/update", params).await;
            // Of an endpoint without such a list, only the configured model is offered.
            if let Ok(Ok(models)) = tokio::time::timeout(MODELS_TIMEOUT, self.opener.models()).await {
                session.offer_models(models);
                let update =
                    json!({ "sessionUpdate": "config_option_update", "configOptions": session.options() });
                self.client.notify("session/update", json!({ "sessionId": id, "update": update })).await;
            }
        }
    }

    /// Ends every session.
    async fn end(&self) {
        self.client.disconnect();
        let sessions: Vec<_> = self.sessions.lock().drain().map(|(_, session)| session).collect();
        sessions.iter().for_each(|session| session.editor.announce());
        let ending = join_all(sessions.iter().map(|session| session.close()));
        // What does not end in time ends with this process: a sandbox without a client removes itself.
        let _ = tokio::time::timeout(END_TIMEOUT, ending).await;
        let _ = tokio::time::timeout(Duration::from_millis(100), self.client.flush()).await;
    }
}

/// A program of the user's machine is not started because an editor names it.
fn notice_about_servers(params: &Value, session: &OpenSession) {
    let servers = params.get("mcpServers").and_then(Value::as_array).map_or(0, Vec::len);
    if servers > 0 {
        let text = format!(
            "the editor names {}, not started here: add what you want with `agent mcp add`, which runs it in the sandbox",
            counted(servers, "MCP server")
        );
        // A session file that cannot be written fails at the first prompt.
        let _ = session.editor.events().emit(Event::Notice { text });
    }
}

/// The session that a request has opened.
fn opened(method: &str, params: &Value, result: &Value) -> Option<String> {
    match method {
        "session/new" => text(result, "sessionId").map(str::to_owned),
        "session/load" | "session/resume" => text(params, "sessionId").map(str::to_owned),
        _ => None,
    }
}

/// The directory that a request names. The protocol asks for an absolute path; some send `.`, which the client that started
/// this process means as seen from there.
fn directory(params: &Value) -> Result<PathBuf, ErrorObject> {
    let path = Path::new(text(params, "cwd").ok_or_else(|| invalid("cwd is missing"))?);
    path.canonicalize().map_err(|error| invalid(&format!("{} cannot be opened: {error}", path.display())))
}

fn text<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    params.get(name).and_then(Value::as_str)
}

fn invalid(message: &str) -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, message)
}
