//! The server as a child of its client: one message a line on standard input and output.

use super::request::shows_forms;
use super::{Caller, Service};
use crate::rpc::{self, Client};
use agent_base::lock::Lock;
use agent_mcp::jsonrpc::{ErrorObject, INVALID_REQUEST, Id, Message};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::task::AbortHandle;

/// Requests that are worked on at a time.
const MAX_REQUESTS: usize = 64;
/// The code for more than that.
const TOO_MANY: i64 = -32000;
/// The time limit for writing answers that are made, at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Serves the client that writes to `from` and reads from `out`, until it is gone or `stop` completes.
pub async fn serve(
    service: Arc<Service>,
    from: impl AsyncRead + Unpin,
    out: impl Write + Send + 'static,
    stop: impl Future<Output = ()>,
) {
    let connection = Arc::new(StdioConnection {
        service,
        client: Client::new(out),
        shows_forms: AtomicBool::new(false),
        running: Lock::default(),
    });
    rpc::serve(&connection.client, from, async |message| connection.take(message).await, stop).await;
    connection.client.disconnect();
    connection.running.lock().drain().for_each(|(_, task)| task.abort());
    connection.service.end().await;
    // A client that does not read any more gets nothing.
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, connection.client.flush()).await;
}

struct StdioConnection {
    service: Arc<Service>,
    client: Arc<Client>,
    shows_forms: AtomicBool,
    running: Lock<HashMap<Id, AbortHandle>>,
}

impl StdioConnection {
    async fn take(self: &Arc<Self>, message: Message) {
        match message {
            Message::Response { id, outcome } => self.client.answered(id, outcome),
            Message::Notification { method, params } => {
                if method == "notifications/cancelled" {
                    let id =
                        params.get("requestId").and_then(|id| serde_json::from_value::<Id>(id.clone()).ok());
                    let task = id.and_then(|id| self.running.lock().remove(&id));
                    // Nobody wants an answer any more.
                    if let Some(task) = task {
                        task.abort();
                    }
                }
            }
            Message::Request { id, method, params } => {
                if method == "initialize" {
                    let shows_forms = params.get("capabilities").is_some_and(shows_forms);
                    self.shows_forms.store(shows_forms, Ordering::Relaxed);
                }
                if let Err(error) = self.start(id.clone(), method, params) {
                    self.client.respond(Some(id), Err(error)).await;
                }
            }
        }
    }

    /// Works on a request in a task of its own.
    fn start(self: &Arc<Self>, id: Id, method: String, params: Value) -> Result<(), ErrorObject> {
        let mut running = self.running.lock();
        if running.contains_key(&id) {
            return Err(ErrorObject::new(INVALID_REQUEST, "a request with this id is being worked on"));
        }
        if running.len() >= MAX_REQUESTS {
            let message = format!("{MAX_REQUESTS} requests are being worked on, which is the limit");
            return Err(ErrorObject::new(TOO_MANY, message));
        }
        let (connection, name) = (Arc::clone(self), id.clone());
        let caller = Caller {
            place: "client".to_owned(),
            client: Some(Arc::clone(&self.client)),
            shows_forms: self.shows_forms.load(Ordering::Relaxed),
        };
        let task = tokio::spawn(async move {
            let _turn = connection.service.turn_to_transfer(&method, &params).await;
            let outcome = connection.service.answer(&caller, &method, &params).await;
            // The lock is held until the task is listed: it cannot remove itself before.
            let answered = || drop(connection.running.lock().remove(&name));
            connection.client.respond_and(Some(name.clone()), outcome, answered).await;
        });
        running.insert(id, task.abort_handle());
        Ok(())
    }
}
