//! Snapshots: what a sandbox holds, kept on this machine, from which others are created. Processes are not in them.

use super::E2bServer;
use super::control::{failure, parse, sandbox, time};
use super::hosted::{Hosted, Wanted};
use super::reply::{RefusedCall, empty, json_response};
use super::secret::random_text;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::paths::make_dir;
use agent_sandbox::ownership::ProcessId;
use agent_sandbox::{HOME, Sandbox, WORKSPACE};
use agent_workspace::saved_tree;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Mutex;
use url::form_urlencoded;

/// Snapshots that are kept at a time.
const MAX_SNAPSHOTS: usize = 20;
/// Sandboxes that one call forks, as in E2B's own service, and how long they live where the call does not say.
const MAX_FORKS: usize = 20;
const FORK_TIMEOUT: u64 = 15;
/// The time limit for copying, each way.
const COPYING: Duration = Duration::from_secs(300);
/// Snapshots on a page, at most and where the client does not say.
const PAGE: usize = 100;
/// The longest name.
const MAX_NAME: usize = 128;
/// The prefix of the ids. The vendor's SDKs add a tag, and a namespace to names.
const PREFIX: &str = "snap";
const TAG: &str = ":default";
const NAMESPACE: &str = "agent/";
/// The trees that are copied, and the names of the directories that they are kept in. More cannot be written to inside, but for files that end
/// with a sandbox.
const TREES: [(&str, &str); 3] = [("workspace", WORKSPACE), ("home", HOME), ("tmp", "/tmp")];

/// The files that a sandbox held.
pub struct HostedSnapshot {
    id: String,
    name: Option<String>,
    /// The sandbox's id.
    source: String,
    directory: TempDir,
}

impl HostedSnapshot {
    /// Copies what `sandbox` holds. Files are read one after the other: what changes meanwhile may be there as it was or is.
    pub async fn save(&self, sandbox: &Sandbox) -> Result<()> {
        let save = async {
            for (name, root) in TREES {
                saved_tree::save(sandbox, Path::new(root), &self.directory.path().join(name)).await?;
            }
            Ok(())
        };
        tokio::time::timeout(COPYING, save).await.unwrap_or_else(|_| Err(late()))
    }

    /// Fills a new sandbox.
    pub async fn restore(&self, sandbox: &Sandbox) -> Result<()> {
        let restore = async {
            for (name, root) in TREES {
                saved_tree::restore(sandbox, Path::new(root), &self.directory.path().join(name)).await?;
            }
            Ok(())
        };
        tokio::time::timeout(COPYING, restore).await.unwrap_or_else(|_| Err(late()))
    }

    /// As the SDKs read it.
    fn document(&self) -> Value {
        let name = self.name.as_ref().map(|name| format!("{NAMESPACE}{name}"));
        let id = format!("{}{TAG}", name.as_deref().unwrap_or(&self.id));
        json!({ "snapshotID": id, "names": name.into_iter().collect::<Vec<_>>() })
    }

    /// Returns whether `text` is its id or its name, with or without tag and namespace.
    fn is_called(&self, text: &str) -> bool {
        let text = text.strip_suffix(TAG).unwrap_or(text);
        text == self.id || self.name.as_deref() == Some(text.strip_prefix(NAMESPACE).unwrap_or(text))
    }
}

fn late() -> Error {
    Error::sandbox(format!("the sandbox could not be copied within {} s", COPYING.as_secs()))
        .hint("remove files that are not needed")
}

/// All snapshots of the server, the oldest first.
pub struct Snapshots {
    directory: PathBuf,
    kept: Lock<Vec<Arc<HostedSnapshot>>>,
    /// One is made at a time, so that there are never more than may be kept.
    making: Mutex<()>,
}

impl Snapshots {
    /// Keeps them in a directory below `base`, where those of servers that were killed are removed.
    pub fn below(base: PathBuf) -> Self {
        let own = ProcessId::this().map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let directory = base.join(own);
        std::thread::spawn(move || {
            for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
                let owner = entry.file_name().to_str().and_then(|name| name.parse::<ProcessId>().ok());
                if owner.is_some_and(|owner| !owner.is_alive()) {
                    // What cannot be removed is tried by the next server.
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
        });
        Self { directory, kept: Lock::default(), making: Mutex::default() }
    }

    /// Removes all of them.
    pub async fn end(&self) {
        let all = std::mem::take(&mut *self.kept.lock());
        discard(all).await;
        let directory = self.directory.clone();
        // What is left is removed by the next server.
        let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(directory)).await;
    }

    /// Copies a sandbox. The copy is kept as long as somebody holds it.
    async fn copy(&self, hosted: &Hosted, name: Option<String>) -> Result<HostedSnapshot> {
        make_dir(&self.directory)?;
        let directory = tempfile::tempdir_in(&self.directory)?;
        let id = format!("{PREFIX}{}", random_text::<16>()?);
        let snapshot = HostedSnapshot { id, name, source: hosted.id.clone(), directory };
        hosted.copy_into(&snapshot).await?;
        Ok(snapshot)
    }

    /// The snapshot that `template` names; `None` where it names none.
    pub fn of_template(&self, template: &str) -> Result<Option<Arc<HostedSnapshot>>, RefusedCall> {
        let found = self.kept.lock().iter().find(|snapshot| snapshot.is_called(template)).cloned();
        let is_id = template.starts_with(NAMESPACE)
            || template
                .strip_prefix(PREFIX)
                .is_some_and(|rest| rest.strip_suffix(TAG).unwrap_or(rest).len() == 16);
        match found {
            None if is_id => Err(RefusedCall::finally(
                StatusCode::NOT_FOUND,
                format!("template {template:?} was not found"),
            )),
            found => Ok(found),
        }
    }

    /// Returns whether there is one of this name or id.
    pub fn has(&self, template: &str) -> bool {
        self.kept.lock().iter().any(|snapshot| snapshot.is_called(template))
    }

    /// `GET /snapshots`
    pub fn list(&self, query: &str) -> Result<Response, RefusedCall> {
        let (mut source, mut name, mut after, mut limit) = (None, None, None, PAGE);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "sandboxID" => source = Some(value.into_owned()),
                "name" => name = Some(value.into_owned()),
                "nextToken" => after = Some(value.into_owned()).filter(|token| !token.is_empty()),
                "limit" => {
                    let valid = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                    limit = valid
                        .ok_or_else(|| RefusedCall::bad_request(format!("limit is from 1 to {PAGE}")))?;
                }
                _ => {}
            }
        }
        let mut found = self.kept.lock().clone();
        if let Some(after) = after {
            let place = found.iter().position(|snapshot| snapshot.id == after);
            found.drain(..place.map_or(found.len(), |place| place + 1));
        }
        found.retain(|snapshot| {
            source.as_ref().is_none_or(|source| *source == snapshot.source)
                && name.as_ref().is_none_or(|name| snapshot.is_called(name))
        });
        let next = (found.len() > limit).then(|| found[limit - 1].id.clone());
        let page: Vec<Value> = found.iter().take(limit).map(|snapshot| snapshot.document()).collect();
        let mut response = json_response(StatusCode::OK, &page);
        if let Some(token) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
            response.headers_mut().insert("x-next-token", token);
        }
        Ok(response)
    }

    /// `DELETE /templates/{id}`
    pub async fn remove(&self, id: &str) -> Result<Response, RefusedCall> {
        let id = percent_decode_str(id).decode_utf8_lossy();
        let removed: Vec<_> = self.kept.lock().extract_if(.., |snapshot| snapshot.is_called(&id)).collect();
        match removed.is_empty() {
            true => {
                Err(RefusedCall::finally(StatusCode::NOT_FOUND, format!("template {id:?} was not found")))
            }
            false => {
                discard(removed).await;
                Ok(empty(StatusCode::NO_CONTENT))
            }
        }
    }
}

/// Removes the files of snapshots that nobody holds any more.
async fn discard(snapshots: Vec<Arc<HostedSnapshot>>) {
    let _ = tokio::task::spawn_blocking(move || drop(snapshots)).await;
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SnapshotWanted {
    name: Option<String>,
}

/// `POST /sandboxes/{id}/snapshots`
pub async fn create(server: &E2bServer, hosted: &Hosted, body: &Bytes) -> Result<Response, RefusedCall> {
    let asked: SnapshotWanted = parse(body)?;
    let name = asked.name.filter(|name| !name.is_empty()).map(|name| plain_name(&name)).transpose()?;
    check_running(hosted)?;
    let _making = server.snapshots.making.lock().await;
    let is_replaced = |snapshot: &Arc<HostedSnapshot>| snapshot.name.is_some() && snapshot.name == name;
    if server.snapshots.kept.lock().iter().filter(|snapshot| !is_replaced(snapshot)).count() >= MAX_SNAPSHOTS
    {
        let message = format!(
            "there are {MAX_SNAPSHOTS} snapshots, which is the most that agent serve keeps: delete one"
        );
        return Err(RefusedCall::finally(StatusCode::TOO_MANY_REQUESTS, message));
    }
    let copied = server.snapshots.copy(hosted, name.clone()).await.map_err(|failed| failure(&failed))?;
    let snapshot = Arc::new(copied);
    let replaced = {
        let mut kept = server.snapshots.kept.lock();
        let replaced = kept.extract_if(.., |snapshot| is_replaced(snapshot)).collect();
        kept.push(Arc::clone(&snapshot));
        replaced
    };
    discard(replaced).await;
    Ok(json_response(StatusCode::CREATED, &snapshot.document()))
}

/// A name without namespace and tag.
fn plain_name(name: &str) -> Result<String, RefusedCall> {
    let plain = name.strip_suffix(TAG).unwrap_or(name);
    let plain = plain.strip_prefix(NAMESPACE).unwrap_or(plain);
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    match (1..=MAX_NAME).contains(&plain.len()) && plain.bytes().all(fits) {
        true => Ok(plain.to_owned()),
        false => Err(RefusedCall::bad_request(format!(
            "{name:?} is not a valid name of a snapshot: use small letters, digits, - and _"
        ))),
    }
}

fn check_running(hosted: &Hosted) -> Result<(), RefusedCall> {
    match hosted.life().is_paused {
        true => Err(RefusedCall::finally(StatusCode::CONFLICT, "the sandbox is paused: resume it first")),
        false => Ok(()),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ForkWanted {
    timeout: Option<u64>,
    count: Option<usize>,
}

/// `POST /sandboxes/{id}/fork`
pub async fn fork(server: &E2bServer, hosted: &Hosted, body: &Bytes) -> Result<Response, RefusedCall> {
    let asked: ForkWanted = parse(body)?;
    let count = asked.count.unwrap_or(1);
    if !(1..=MAX_FORKS).contains(&count) {
        return Err(RefusedCall::bad_request(format!("count is from 1 to {MAX_FORKS}")));
    }
    let timeout = time(server, asked.timeout.unwrap_or(FORK_TIMEOUT))?;
    check_running(hosted)?;
    let copied = {
        let _making = server.snapshots.making.lock().await;
        server.snapshots.copy(hosted, None).await.map_err(|failed| failure(&failed))?
    };
    let (copied, wanted) = (Arc::new(copied), Wanted { timeout, ..hosted.wanted.clone() });
    let forks = (0..count).map(|_| server.fleet.create(wanted.clone(), Some(Arc::clone(&copied))));
    let made = join_all(forks).await.into_iter().map(|made| match made {
        Ok(made) => json!({ "sandbox": sandbox(&made) }),
        Err(failed) => json!({ "error": failure(&failed).document() }),
    });
    let made: Vec<Value> = made.collect();
    discard(vec![copied]).await;
    Ok(json_response(StatusCode::CREATED, &made))
}
