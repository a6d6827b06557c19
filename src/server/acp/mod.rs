//! The Agent Client Protocol: editors drive sessions through it. `docs/acp.md` is the manual.
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
mod updates;

pub use session::ApplyMode;

use super::rpc::{self, Client, error_object};
use super::{Opener, StartFrom};
use crate::error::{Error, Kind, Result};
use crate::lock::Lock;
use crate::log::{SessionId, read_records};
use crate::mcp::jsonrpc::{ErrorObject, INVALID_PARAMS, Id, METHOD_NOT_FOUND, Message};
use crate::sanitise::one_line;
use crate::session::Frontend;
use editor::Editor;
use facts::Facts;
use futures_util::future::join_all;
use serde_json::{Value, json};
use session::OpenSession;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;
use updates::Updates;

/// Sessions of one client that are open at a time.
const MAX_SESSIONS: usize = 64;
/// Requests of a client that are worked on at a time.
const MAX_REQUESTS: usize = 256;
/// The code for more than that.
const TOO_MANY: i64 = -32000;
/// How long the end may take: clients kill an agent that does not end within two seconds.
const END_TIMEOUT: Duration = Duration::from_millis(1800);
/// Sessions of one page of a list.
const PAGE: usize = 50;

/// Serves the client that writes to `from` and reads from `out`, until it is gone or `stop` completes. Then every session
/// ends.
pub async fn serve(
    opener: Arc<dyn Opener>,
    mode: ApplyMode,
    from: impl AsyncRead + Unpin,
    out: impl Write + Send + 'static,
    stop: impl Future<Output = ()>,
) {
    let server = Arc::new(Server {
        client: Client::new(out),
        opener,
        mode,
        facts: Lock::default(),
        sessions: Lock::default(),
        requests: Lock::default(),
    });
    rpc::serve(&server.client, from, async |message| server.take(message).await, stop).await;
    server.end().await;
}

struct Server {
    client: Arc<Client>,
    opener: Arc<dyn Opener>,
    /// When the sessions write what they change, unless the client says otherwise.
    mode: ApplyMode,
    facts: Lock<Facts>,
    sessions: Lock<HashMap<String, Arc<OpenSession>>>,
    /// Requests that are worked on, and the sessions that they are prompts of.
    requests: Lock<HashMap<Id, Option<Arc<OpenSession>>>>,
}

type Outcome = Result<Value, ErrorObject>;

impl Server {
    /// Takes a message. What takes time is done in a task of its own; a cancellation is never behind it.
    async fn take(self: &Arc<Self>, message: Message) {
        match message {
            Message::Response { id, outcome } => self.client.answered(id, outcome),
            Message::Notification { method, params } => self.notified(&method, &params),
            Message::Request { id, method, params } => {
                let begun = self.admit(&id, &method, &params);
                let session = match begun {
                    Ok(session) => session,
                    Err(error) => return self.client.respond(Some(id), Err(error)).await,
                };
                let server = Arc::clone(self);
                tokio::spawn(async move {
                    let outcome = match session {
                        Some(session) => session.prompt(&params, server.opener.as_ref()).await,
                        None => server.request(&method, &params).await,
                    };
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

    /// Notes a request; a prompt begins here, so that a cancellation right behind it finds it.
    fn admit(&self, id: &Id, method: &str, params: &Value) -> Result<Option<Arc<OpenSession>>, ErrorObject> {
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
        requests.insert(id.clone(), session.clone());
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
                let session = id.and_then(|id| self.requests.lock().get(&id).cloned().flatten());
                if let Some(session) = session {
                    session.cancel();
                }
            }
            _ => {}
        }
    }

    async fn request(self: &Arc<Self>, method: &str, params: &Value) -> Outcome {
        match method {
            "initialize" => {
                *self.facts.lock() = Facts::of(params);
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
                if text(params, "configId") != Some(options::APPLY) {
                    return Err(invalid("there is no such option; the only one is apply"));
                }
                let mode = text(params, "value").and_then(ApplyMode::parse);
                let mode = mode.ok_or_else(|| invalid("value is ask, auto or never"))?;
                self.session(params)?.set_mode(mode);
                Ok(json!({ "configOptions": options::list(mode) }))
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
        let id = self.open(&root, StartFrom::New).await?;
        self.notice_about_servers(params, &id).await;
        Ok(json!({
            "sessionId": id,
            "modes": options::modes(self.mode),
            "configOptions": options::list(self.mode),
        }))
    }

    async fn open(self: &Arc<Self>, root: &Path, from: StartFrom) -> Result<SessionId, ErrorObject> {
        if self.sessions.lock().len() >= MAX_SESSIONS {
            let message =
                format!("{MAX_SESSIONS} sessions are open, which is the limit: close one with session/close");
            return Err(ErrorObject::new(TOO_MANY, message));
        }
        let facts = *self.facts.lock();
        let updates = Updates::new(root, self.opener.store().clone(), facts.has_terminals, false);
        let editor = Editor::new(Arc::clone(&self.client), facts, updates);
        let opening = self.opener.open(root, from, Arc::clone(&editor) as Arc<dyn Frontend>);
        let session = opening.await.map_err(|error| error_object(&error))?;
        let id = session.id().clone();
        let open = OpenSession::new(session, editor, root.to_owned(), self.mode);
        self.sessions.lock().insert(id.to_string(), open);
        Ok(id)
    }

    /// What a client learns of a session once it knows its name.
    async fn announce(&self, id: &str) {
        let session = self.sessions.lock().get(id).cloned();
        if let Some(session) = session {
            session.editor.announce();
            let params = json!({ "sessionId": id, "update": commands::available() });
            self.client.notify("session/update", params).await;
        }
    }

    /// A program of the user's machine is not started because an editor names it.
    async fn notice_about_servers(&self, params: &Value, id: &SessionId) {
        let servers = params.get("mcpServers").and_then(Value::as_array).map_or(0, Vec::len);
        let session = self.sessions.lock().get(id.as_str()).cloned();
        if let Some(session) = session.filter(|_| servers > 0) {
            let text = format!(
                "{servers} MCP server(s) of the editor are not started: add those that you want with `agent mcp add`, \
                 which runs them in the sandbox"
            );
            // A session file that cannot be written fails at the first prompt.
            let _ = session.editor.events().emit(crate::event::Event::Notice { text });
        }
    }

    /// Opens an earlier session; with `replay`, after all that happened in it.
    async fn load(self: &Arc<Self>, params: &Value, replay: bool) -> Outcome {
        let root = directory(params)?;
        let name = text(params, "sessionId").ok_or_else(|| invalid("sessionId is missing"))?;
        let id = self.opener.store().find(name).map_err(|error| error_object(&error))?;
        if replay {
            self.replay(&id, &root).await.map_err(|error| error_object(&error))?;
        }
        let open = self.sessions.lock().get(id.as_str()).cloned();
        let mode = match open {
            Some(session) => session.mode(),
            None => {
                self.open(&root, StartFrom::Session(id)).await?;
                self.mode
            }
        };
        Ok(json!({ "modes": options::modes(mode), "configOptions": options::list(mode) }))
    }

    /// Sends what happened in a session, as its client would have seen it.
    async fn replay(&self, id: &SessionId, root: &Path) -> Result<()> {
        let store = self.opener.store();
        let has_terminals = self.facts.lock().has_terminals;
        let mut updates = Updates::new(root, store.clone(), has_terminals, true);
        for record in read_records(&store.events(id))? {
            for update in updates.of(id.as_str(), &record.event) {
                self.client.notify("session/update", json!({ "sessionId": id, "update": update })).await;
            }
        }
        Ok(())
    }

    async fn list(&self, params: &Value) -> Outcome {
        let store = self.opener.store().clone();
        let cwd = text(params, "cwd").map(PathBuf::from);
        let first: usize = match text(params, "cursor") {
            Some(cursor) => cursor.parse().map_err(|_| invalid("this cursor is not one of ours"))?,
            None => 0,
        };
        let listing = tokio::task::spawn_blocking(move || match cwd {
            Some(cwd) => store.list_of(&cwd.canonicalize().unwrap_or(cwd)),
            None => store.list(),
        });
        let listed = listing.await.map_err(|_| Error::new(Kind::Unexpected, "the list could not be made"));
        let listed = listed.and_then(|listed| listed).map_err(|error| error_object(&error))?;
        let mut own = listed.into_iter().filter(|summary| summary.parent.is_none() && summary.turns > 0);
        let page: Vec<Value> = own
            .by_ref()
            .skip(first)
            .take(PAGE)
            .map(|summary| {
                json!({
                    "sessionId": summary.id, "cwd": summary.workspace, "title": summary.preview,
                    "updatedAt": summary.updated,
                })
            })
            .collect();
        let mut answer = json!({ "sessions": page });
        if own.next().is_some() {
            answer["nextCursor"] = (first + PAGE).to_string().into();
        }
        Ok(answer)
    }

    /// Removes a session for good.
    async fn delete(&self, params: &Value) -> Outcome {
        let name = text(params, "sessionId").ok_or_else(|| invalid("sessionId is missing"))?;
        let id = SessionId::parse(name).map_err(|error| error_object(&error))?;
        let open = self.sessions.lock().remove(id.as_str());
        if let Some(session) = open {
            session.close().await;
            // The file is in use as long as the session is.
            drop(session);
        }
        let store = self.opener.store();
        if store.is_running(&id) {
            return Err(invalid("the session is running in another process"));
        }
        store.remove(&id).map_err(|error| error_object(&error))?;
        Ok(json!({}))
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

/// The session that a request has opened.
fn opened(method: &str, params: &Value, result: &Value) -> Option<String> {
    match method {
        "session/new" => text(result, "sessionId").map(str::to_owned),
        "session/load" | "session/resume" => text(params, "sessionId").map(str::to_owned),
        _ => None,
    }
}

/// The directory that a request names. What this process's own directory is does not matter.
fn directory(params: &Value) -> Result<PathBuf, ErrorObject> {
    let path = Path::new(text(params, "cwd").ok_or_else(|| invalid("cwd is missing"))?);
    if !path.is_absolute() {
        return Err(invalid("cwd is not an absolute path"));
    }
    path.canonicalize().map_err(|error| invalid(&format!("{} cannot be opened: {error}", path.display())))
}

fn text<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    params.get(name).and_then(Value::as_str)
}

fn invalid(message: &str) -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, message)
}
