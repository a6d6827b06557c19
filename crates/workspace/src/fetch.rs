//! Copies files from the sandbox into the store: small ones together, others in chunks.

use crate::store::{BlobWriter, Store};
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use agent_sandbox::{FileBytes, Sandbox};
use std::path::Path;

/// Largest file that is copied, in bytes.
pub const MAX_FILE: u64 = 256 << 20;
/// Bytes that are asked for at once.
const PIECE: u64 = 4 << 20;

/// The result of copying the content of a file.
pub enum Fetched {
    /// It is in the store: hash and bytes.
    Content(Hash, u64),
    /// It is not there any more.
    Gone,
    /// It cannot be copied, for this reason.
    Rejected(String),
}

/// Reads files that are small together, as they were listed, in one request. One that cannot be read this way, or has
/// grown, is read by itself.
pub async fn fetch_group(sandbox: &Sandbox, store: &Store, paths: &[&Path]) -> Result<Vec<Fetched>> {
    let contents = match paths {
        [_] => Vec::new(),
        _ => match sandbox.read_files(paths.iter().map(|path| path.to_path_buf()).collect(), PIECE).await {
            Err(error) if error.kind() != Kind::InSandbox => return Err(error),
            contents => contents.unwrap_or_default(),
        },
    };
    let to_store = store.clone();
    let keep_all = move || contents.into_iter().map(|content| keep_whole(&to_store, content.ok())).collect();
    let kept: Vec<Result<Option<Fetched>>> =
        tokio::task::spawn_blocking(keep_all).await.map_err(broken_off)?;
    let mut kept = kept.into_iter();
    let mut fetched = Vec::with_capacity(paths.len());
    for path in paths {
        fetched.push(match kept.next().transpose()?.flatten() {
            Some(whole) => whole,
            None => fetch(sandbox, store, path).await?,
        });
    }
    Ok(fetched)
}

fn keep_whole(store: &Store, content: Option<FileBytes>) -> Result<Option<Fetched>> {
    let Some(FileBytes { bytes, .. }) = content else { return Ok(None) };
    Ok(Some(Fetched::Content(store.put(&bytes)?, bytes.len() as u64)))
}

fn broken_off(error: tokio::task::JoinError) -> Error {
    Error::unexpected("a write to the store failed").caused_by(error)
}

/// Reads `path`. Its hash is made here, from the bytes that came.
async fn fetch(sandbox: &Sandbox, store: &Store, path: &Path) -> Result<Fetched> {
    let mut writer = None;
    let mut offset = 0;
    loop {
        let piece = match sandbox.read_file(path, offset, PIECE).await {
            Ok(piece) => piece,
            Err(error) if error.kind() != Kind::InSandbox => return Err(error),
            Err(error) => {
                let gone = sandbox.stat(path).await.is_err();
                return Ok(if gone { Fetched::Gone } else { Fetched::Rejected(error.to_string()) });
            }
        };
        let length = piece.bytes.len() as u64;
        offset += length;
        if offset > MAX_FILE || piece.size > MAX_FILE {
            return Ok(Fetched::Rejected(format!("it is larger than {} MB", MAX_FILE >> 20)));
        }
        let (store, taken) = (store.clone(), writer.take());
        let keep = move || keep(&store, taken, &piece.bytes, length < PIECE);
        let kept = tokio::task::spawn_blocking(keep).await;
        match kept.map_err(broken_off)?? {
            Kept::All(hash, size) => return Ok(Fetched::Content(hash, size)),
            Kept::Part(part) => writer = Some(part),
        }
    }
}

enum Kept {
    Part(BlobWriter),
    All(Hash, u64),
}

fn keep(store: &Store, writer: Option<BlobWriter>, bytes: &[u8], is_last: bool) -> Result<Kept> {
    if is_last && writer.is_none() {
        return Ok(Kept::All(store.put(bytes)?, bytes.len() as u64));
    }
    let mut writer = writer.map_or_else(|| store.writer(), Ok)?;
    writer.write(bytes)?;
    if !is_last {
        return Ok(Kept::Part(writer));
    }
    let (hash, size) = writer.finish()?;
    Ok(Kept::All(hash, size))
}
