//! The files of a session's sandbox in the page: listed, read, taken away as one archive, and added to.

use super::Web;
use super::answers::FailedRequest;
use super::api::{JsonAnswer, find};
use super::archive::ArchiveWriter;
use super::frame::visible;
use super::upload::receive;
use super::visitors::Mine;
use super::work::{blocking, to_end};
use agent_base::error::{Error, Result};
use agent_sandbox::wire::{EntryKind, FileWrite, Node};
use agent_sandbox::{Sandbox, WalkOptions};
use agent_workspace::tree_path::TreePath;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Entries of a directory that are listed, and that it may have.
const MAX_LISTED: usize = 1_000;
const MAX_ENTRIES: u64 = 20_000;
/// Bytes of a file that is read.
const MAX_FILE: u64 = 64 << 20;
/// Files and bytes of the archive of all, before compression.
const MAX_FILES: u64 = 20_000;
const MAX_ARCHIVE: u64 = 128 << 20;
/// Files that are read at once for it.
const AT_ONCE: usize = 64;

/// A path in the workspace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedPath {
    /// Relative; a directory's may be empty or end in a slash.
    path: String,
}

/// The path of a file in the workspace. Nothing else of the sandbox is shown.
fn below(path: &str) -> Result<PathBuf> {
    let refused = |why| Error::usage(format!("{} cannot be shown: {why}", visible(path)));
    Ok(TreePath::new(path.as_bytes()).map_err(refused)?.as_path().to_owned())
}

/// `GET …/files`: the entries of a directory, directories first.
pub async fn list(mine: Mine, id: Path<String>, Query(named): Query<NamedPath>) -> JsonAnswer {
    let live = find(mine, id).await?;
    let sandbox = live.sandbox().await?;
    let path = named.path.trim_end_matches('/');
    let root = match path {
        "" => sandbox.workspace().to_owned(),
        path => sandbox.workspace().join(below(path)?),
    };
    let mut entries = sandbox.list_dir(&root, 1, MAX_ENTRIES).await?;
    entries.retain(|entry| entry.path.to_str().is_some());
    entries.sort_by(|a, b| {
        let is_file = |kind: &EntryKind| *kind != EntryKind::Directory;
        is_file(&a.kind).cmp(&is_file(&b.kind)).then_with(|| a.path.cmp(&b.path))
    });
    let more = entries.len().saturating_sub(MAX_LISTED);
    entries.truncate(MAX_LISTED);
    let entry = |entry: &agent_sandbox::wire::Entry| {
        let name = entry.path.to_string_lossy();
        json!({"name": name, "shown": visible(&name), "kind": kind(&entry.kind), "size": entry.size})
    };
    Ok(Json(json!({"entries": entries.iter().map(entry).collect::<Vec<Value>>(), "more": more})))
}

fn kind(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink(_) => "link",
        EntryKind::Other => "special",
    }
}

/// `GET …/file`: the bytes of a file.
pub async fn read(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
    Query(named): Query<NamedPath>,
) -> Result<Response, FailedRequest> {
    let _turn = web.large().await?;
    let live = find(mine, id).await?;
    let sandbox = live.sandbox().await?;
    let file = sandbox.read_file(&sandbox.workspace().join(below(&named.path)?), 0, MAX_FILE + 1).await?;
    if file.bytes.len() as u64 > MAX_FILE {
        return Err(Error::usage(format!("the file has more than {} MiB", MAX_FILE >> 20))
            .hint("copy it in a terminal")
            .into());
    }
    let extension = named.path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let media_type = match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    };
    Ok(attachment(media_type, "file", file.bytes))
}

fn attachment(media_type: &'static str, name: &str, bytes: Vec<u8>) -> Response {
    let mut answer = bytes.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    answer
}

/// `GET …/files.zip`: all files of the workspace but git's own.
pub async fn archive(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
) -> Result<Response, FailedRequest> {
    let _turn = web.large().await?;
    let live = find(mine, id).await?;
    let sandbox = live.sandbox().await?;
    let bytes = pack(&sandbox).await?;
    Ok(attachment("application/octet-stream", &format!("{}-files.zip", live.id), bytes))
}

async fn pack(sandbox: &Sandbox) -> Result<Vec<u8>> {
    let root = sandbox.workspace().to_owned();
    let options = WalkOptions { hash: false, exclude: vec![PathBuf::from(".git")], max_entries: MAX_FILES };
    let mut files = sandbox.walk(&root, options).await?;
    files.retain(|entry| entry.kind == EntryKind::File);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let too_large = || {
        Error::usage(format!("the files take more than {} MiB", MAX_ARCHIVE >> 20))
            .hint("download them one by one, or pack what you need in a terminal")
    };
    if files.iter().map(|entry| entry.size).sum::<u64>() > MAX_ARCHIVE {
        return Err(too_large());
    }
    let (mut archive, mut room) = (ArchiveWriter::default(), MAX_ARCHIVE);
    for some in files.chunks(AT_ONCE) {
        let paths = some.iter().map(|entry| root.join(&entry.path)).collect();
        let read = sandbox.read_files(paths, room + 1).await?;
        for (entry, file) in some.iter().zip(read) {
            // One that was removed meanwhile is not in the archive.
            let Ok(file) = file else { continue };
            // They may have grown since they were listed.
            room = room.checked_sub(file.bytes.len() as u64).ok_or_else(too_large)?;
            archive.add(entry.path.as_os_str().as_encoded_bytes(), file.mode, &file.bytes)?;
        }
    }
    blocking(move || archive.finish()).await
}

/// `PUT …/file`: a file of the user's, which the sandbox then has.
pub async fn write(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
    Query(named): Query<NamedPath>,
    body: Body,
) -> JsonAnswer {
    let _turn = web.large().await?;
    let path = below(&named.path)?;
    let is_git = |name: &std::ffi::OsStr| name.eq_ignore_ascii_case(".git");
    if path.iter().any(is_git) {
        return Err(Error::usage("git's own directory is not taken over").into());
    }
    let content = receive(body).await?;
    to_end(async move {
        let live = find(mine, id).await?;
        let sandbox = live.sandbox().await?;
        let node = Node::Regular(content.to_vec());
        let path = sandbox.workspace().join(&path);
        let write = FileWrite { path, node, mode: None, mtime_ns: None, follow: false };
        let written = sandbox.write_files(vec![write]).await?.pop();
        written.unwrap_or_else(|| Err(Error::unexpected("the file was not written")))?;
        if let Ok(mut session) = live.idle().await {
            session.conversation.note(&format!("The user put this file into the sandbox: {}", named.path))?;
            live.changed(&session).await;
        }
        Ok(Json(json!({"files": 1})))
    })
    .await
}
