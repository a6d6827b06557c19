//! Sessions of earlier processes: listed, loaded with all that happened in them, removed.

use super::options;
use super::updates::Updates;
use super::{AcpServer, Outcome, directory, invalid, text};
use crate::StartFrom;
use crate::rpc::error_object;
use agent_base::error::{Error, Kind, Result};
use agent_log::list::Summary;
use agent_log::{SessionId, read_records};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sessions of one page of a list.
const PAGE: usize = 50;

impl AcpServer {
    /// Opens an earlier session; with `replay`, after all that happened in it.
    pub(super) async fn load(self: &Arc<Self>, params: &Value, replay: bool) -> Outcome {
        let root = directory(params)?;
        let name = text(params, "sessionId").ok_or_else(|| invalid("sessionId is missing"))?;
        let id = self.opener.store().find(name).map_err(|error| error_object(&error))?;
        if replay {
            self.replay(&id, &root).await.map_err(|error| error_object(&error))?;
        }
        let open = self.sessions.lock().get(id.as_str()).cloned();
        let session = match open {
            Some(session) => session,
            None => self.open(&root, StartFrom::Session(id)).await?.1,
        };
        Ok(json!({ "modes": options::mode_state(session.mode()), "configOptions": session.options() }))
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

    pub(super) async fn list(&self, params: &Value) -> Outcome {
        let (store, opener) = (self.opener.store().clone(), Arc::clone(&self.opener));
        let cwd = text(params, "cwd").map(PathBuf::from);
        let first: usize = match text(params, "cursor") {
            Some(cursor) => cursor.parse().map_err(|_| invalid("this cursor is not one of ours"))?,
            None => 0,
        };
        let listing = tokio::task::spawn_blocking(move || match cwd {
            Some(cwd) => {
                let lists = opener.own(&cwd).into_iter().map(|workspace| store.list_of(&workspace));
                lists.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat())
            }
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
                    "sessionId": summary.id, "cwd": Path::new(&summary.workspace).join(&summary.directory), "title": summary.preview,
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
    pub(super) async fn delete(&self, params: &Value) -> Outcome {
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
        let removed = || -> Result<Vec<Summary>> {
            let mut removed = vec![store.summary(id.clone())];
            let parts = store.delegates_of(std::slice::from_ref(&id))?;
            removed.extend(parts.into_iter().map(|id| store.summary(id)));
            removed.iter().try_for_each(|summary| store.remove(&summary.id))?;
            Ok(removed)
        };
        for summary in removed().map_err(|error| error_object(&error))? {
            self.opener.end_sandbox(&summary.sandbox, &summary.id).await;
        }
        Ok(json!({}))
    }
}
