//! Uploads of a visitor into the workspace, and the archive that they take away.

use super::Web;
use super::answers::FailedRequest;
use super::archive::{self, ArchiveWriter};
use super::visitors::Mine;
use super::work::blocking;
use agent_base::error::{Error, Result};
use agent_base::visible::visible_name;
use agent_workspace::ChangeSet;
use agent_workspace::host_dir::HostDir;
use agent_workspace::manifest::Node;
use agent_workspace::store::Store;
use agent_workspace::tree_path::TreePath;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one upload.
pub const MAX_UPLOAD: usize = 32 << 20;
/// The time limit for one upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes and files of all uploads of one visitor, unpacked.
const MAX_BYTES: u64 = 256 << 20;
const MAX_FILES: u64 = 10_000;
/// Bytes of an archive that is downloaded, before compression.
const MAX_DOWNLOAD: u64 = 128 << 20;

/// The uploads of a visitor.
#[derive(Debug, Default, Clone, Copy)]
pub struct Uploaded {
    bytes: u64,
    files: u64,
}

impl Uploaded {
    /// Bytes that may still be uploaded.
    fn room(&self) -> u64 {
        MAX_BYTES.saturating_sub(self.bytes)
    }
}

/// The target of an upload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Its path in the workspace.
    path: String,
    /// Set if it is a zip archive whose files are wanted.
    #[serde(default)]
    unpack: bool,
}

/// The whole of an upload.
///
/// # Errors
/// It is too large, or too slow.
pub async fn receive(body: Body) -> std::result::Result<Bytes, FailedRequest> {
    match tokio::time::timeout(UPLOAD_TIMEOUT, to_bytes(body, MAX_UPLOAD)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let why = format!("one upload is at most {} MiB", MAX_UPLOAD >> 20);
            Err(FailedRequest::new(StatusCode::PAYLOAD_TOO_LARGE, &why))
        }
        Err(_) => Err(FailedRequest::new(StatusCode::REQUEST_TIMEOUT, "the upload took too long")),
    }
}

/// `PUT /api/upload`
pub async fn upload(
    State(web): State<Arc<Web>>,
    Mine(scope): Mine,
    Query(target): Query<Target>,
    body: Body,
) -> std::result::Result<Json<Value>, FailedRequest> {
    if scope.facts().can_apply {
        return Err(FailedRequest::new(StatusCode::FORBIDDEN, "this server works on a directory of its own"));
    }
    let _turn = web.large().await?;
    let body = receive(body).await?;
    let files = blocking(move || {
        scope.settle()?;
        let root = HostDir::open(scope.workspace())?;
        let mut uploaded = scope.uploaded.lock();
        let before = uploaded.files;
        match target.unpack {
            true => unpack(&root, &body, &mut uploaded)?,
            false => put(&root, target.path.as_bytes(), &body, false, &mut uploaded)?,
        }
        Ok(uploaded.files - before)
    })
    .await?;
    Ok(Json(json!({"files": files})))
}

/// Writes one file, if it is one that may be in a workspace.
fn put(
    root: &HostDir,
    name: &[u8],
    content: &[u8],
    is_executable: bool,
    uploaded: &mut Uploaded,
) -> Result<()> {
    let refused = |why: &str| Error::usage(format!("{} is not uploaded: {why}", visible_name(name)));
    let path = TreePath::new(name).map_err(&refused)?;
    if path.is_git_internal() || path.names().any(|name| name.eq_ignore_ascii_case(b".git")) {
        return Err(refused("git's own directory is not taken over"));
    }
    if uploaded.files >= MAX_FILES {
        return Err(Error::usage(format!("more than {MAX_FILES} files are not taken")));
    }
    if content.len() as u64 > uploaded.room() {
        return Err(Error::usage(format!("more than {} MiB are not taken", MAX_BYTES >> 20)));
    }
    let mut directories: Vec<TreePath> = path.ancestors().collect();
    directories.sort();
    for directory in &directories {
        let made = root.make_directory(directory);
        made.map_err(|error| refused("its directory cannot be made").caused_by(error))?;
    }
    let written = root.write_passing_file(&path, &mut &*content, is_executable);
    written.map_err(|error| refused("it cannot be written").caused_by(error))?;
    uploaded.files += 1;
    uploaded.bytes += content.len() as u64;
    Ok(())
}

/// Writes the files of a zip archive. Links and everything else that is not a file are refused.
fn unpack(root: &HostDir, archive: &[u8], uploaded: &mut Uploaded) -> Result<()> {
    for entry in archive::entries(archive, MAX_FILES as usize)? {
        if !entry.is_file {
            return Err(Error::usage(format!("{} is not a plain file", visible_name(entry.name))));
        }
        put(root, entry.name, &entry.content(uploaded.room())?, entry.is_executable, uploaded)?;
    }
    Ok(())
}

/// The files of `changes` that are new or different, as a zip archive.
///
/// # Errors
/// They are too large, or a content is missing.
pub fn archive(changes: &ChangeSet, store: &Store) -> Result<Vec<u8>> {
    let (mut archive, mut total) = (ArchiveWriter::default(), 0);
    for (path, change) in &changes.changes {
        let Some(Node::File { hash, size, mode }) = &change.after else { continue };
        total += size;
        if total > MAX_DOWNLOAD {
            return Err(Error::usage(format!("the files take more than {} MiB", MAX_DOWNLOAD >> 20))
                .hint("download the patch"));
        }
        // Those of directories beside the workspace are absolute.
        let name = path.as_bytes();
        archive.add(name.strip_prefix(b"/").unwrap_or(name), *mode, &store.read(*hash)?)?;
    }
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_of_an_archive_stay_in_the_workspace() {
        let root = tempfile::tempdir().expect("a directory");
        let workspace = root.path().join("workspace");
        fs::create_dir(&workspace).expect("a directory");
        let directory = HostDir::open(&workspace).expect("the directory");
        let mut uploaded = Uploaded::default();
        let zipped = |name: &str| {
            let mut archive = ArchiveWriter::default();
            archive.add(name.as_bytes(), 0o755, name.as_bytes()).expect("room");
            archive.finish().expect("an archive")
        };
        unpack(&directory, &zipped("b/c.txt"), &mut uploaded).expect("unpacked");
        assert_eq!(fs::read(workspace.join("b/c.txt")).expect("the file"), b"b/c.txt");
        let mode = fs::metadata(workspace.join("b/c.txt")).expect("the file").permissions().mode();
        assert_eq!(mode & 0o100, 0o100);
        symlink(root.path(), workspace.join("out")).expect("a link");
        for name in ["out/x", "../x", "/etc/x", "a/../../x", ".git/config", "b/.GIT/hooks/x"] {
            unpack(&directory, &zipped(name), &mut uploaded).expect_err(name);
        }
        assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 1);
    }
}
