//! `/files`: up- and downloads, with the token or with a signed address.

use super::connect::{Code, Failure};
use super::filesystem::{failure, write_one};
use super::hosted::Hosted;
use super::metadata::{self, Metadata};
use super::reply::{error, json_response};
use super::secret::Secret;
use super::upload_budget::{self, Held};
use agent_base::error::{Error, Kind};
use agent_base::lock::Lock;
use agent_sandbox::{FileWrite, Node};
use axum::body::{Body, BodyDataStream};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::StreamExt;
use futures_util::stream::{poll_fn, unfold};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of one file that is uploaded: it is held in memory until it is complete.
const MAX_UPLOAD: usize = 512 << 20;
/// Files of one upload.
const MAX_FILES: usize = 1000;
/// The most bytes that may follow a form.
const MAX_REST: usize = 64 << 10;
/// The most bytes that are read of an upload that is refused.
const MAX_DRAINED: usize = MAX_UPLOAD;
/// The bytes of a file that are read at a time.
const CHUNK: u64 = 1 << 20;
/// An upload that is silent for this long is given up.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The query of an address.
#[derive(Debug, Default, Deserialize)]
pub struct Query {
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub username: String,
    pub signature: Option<String>,
    pub signature_expiration: Option<i64>,
}

impl Query {
    /// Returns whether its signature is one of `token` for this operation, and has not expired.
    pub fn is_signed_by(&self, token: &Secret, operation: &str) -> bool {
        let Some(signature) = &self.signature else { return false };
        if self.has_expired() {
            return false;
        }
        let token = token.reveal();
        let mut text = format!("{}:{operation}:{}:{token}", self.path, self.username);
        if let Some(at) = self.signature_expiration {
            text.push_str(&format!(":{at}"));
        }
        let expected = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        Secret::new(expected).matches(signature)
    }
}

impl Query {
    /// Returns whether the time of its signature is over.
    fn has_expired(&self) -> bool {
        self.signature_expiration.is_some_and(|at| at < jiff::Timestamp::now().as_second())
    }

    /// The answer to an address that nobody has signed so.
    pub fn refusal(&self) -> Response {
        let message = match self.signature.is_some() && self.has_expired() {
            true => "signature is already expired",
            false => "the access token or signature is missing or wrong",
        };
        error(StatusCode::UNAUTHORIZED, message)
    }
}

/// The operation that a signature has to be for.
pub fn operation(method: &http::Method) -> &'static str {
    if method == http::Method::GET { "read" } else { "write" }
}

/// `GET /files`
pub async fn download(hosted: &Arc<Hosted>, query: &Query, headers: &HeaderMap) -> Response {
    let path = hosted.paths.resolve(&query.path);
    let range = headers.get(header::RANGE).and_then(|range| parse_range(range.to_str().ok()?));
    let offset = range.map_or(0, |range| range.0);
    let wanted = range.and_then(|(first, last)| Some(last?.checked_sub(first)? + 1));
    let first = match hosted.sandbox.read_file(&path, offset, CHUNK.min(wanted.unwrap_or(CHUNK))).await {
        Ok(first) => first,
        Err(failed) => return refusal(&failed),
    };
    let size = first.size;
    if range.is_some() && offset >= size {
        let mut response =
            error(StatusCode::RANGE_NOT_SATISFIABLE, "the range is behind the end of the file");
        insert(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
        return response;
    }
    let length = first.bytes.len() as u64;
    let is_whole = length < CHUNK || wanted == Some(length);
    let body = match is_whole {
        true => Body::from(first.bytes),
        false => Body::from_stream(rest(Arc::clone(hosted), path.clone(), first.bytes, offset, wanted)),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
    insert(headers, header::CONTENT_DISPOSITION, &format!("inline; filename=\"{name}\""));
    if range.is_some() {
        let last = wanted.map_or(size, |wanted| size.min(offset + wanted)).max(1) - 1;
        insert(headers, header::CONTENT_RANGE, &format!("bytes {offset}-{last}/{size}"));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

fn insert(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}

/// One range: its first byte, and its last if it has one.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let last = match last {
        "" => None,
        last => Some(last.parse().ok()?),
    };
    let first = first.parse().ok()?;
    last.is_none_or(|last| last >= first).then_some((first, last))
}

/// The file from `offset` on, whose first piece was read already.
fn rest(
    hosted: Arc<Hosted>,
    path: std::path::PathBuf,
    first: Vec<u8>,
    offset: u64,
    wanted: Option<u64>,
) -> impl futures_util::Stream<Item = Result<Bytes, Error>> {
    let end = wanted.map_or(u64::MAX, |wanted| offset.saturating_add(wanted));
    unfold((Some(first), offset), move |(first, position)| {
        let (hosted, path) = (Arc::clone(&hosted), path.clone());
        async move {
            let limit = CHUNK.min(end.saturating_sub(position));
            let piece = match first {
                Some(piece) => Ok(piece),
                None if limit == 0 => return None,
                None => hosted.sandbox.read_file(&path, position, limit).await.map(|read| read.bytes),
            };
            match piece {
                Ok(piece) if piece.is_empty() => None,
                Ok(piece) => {
                    let next = position + piece.len() as u64;
                    Some((Ok(piece.into()), (None, next)))
                }
                // The connection breaks, so that the client does not take a part for the whole.
                Err(error) => Some((Err(error), (None, u64::MAX))),
            }
        }
    })
}

/// `POST /files`
pub async fn upload(hosted: &Arc<Hosted>, query: &Query, headers: &HeaderMap, body: Body) -> Response {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let stream = Arc::new(Lock::new(body.into_data_stream()));
    let upload = async {
        let metadata = metadata::wanted(headers)?;
        match multer::parse_boundary(content_type) {
            Ok(boundary) => upload_parts(hosted, query, &metadata, &stream, boundary).await,
            Err(_) if query.path.is_empty() => Err(Failure::new(Code::InvalidArgument, "there is no path")),
            Err(_) => {
                let mut held = upload_budget::enter();
                let content = collect(headers, &stream, &mut held).await?;
                write(hosted, &query.path, content, &metadata).await.map(|file| vec![file])
            }
        }
    };
    match upload.await {
        Ok(files) => json_response(StatusCode::OK, &Value::Array(files)),
        Err(failure) => {
            // Many clients send all of it before they read why it is refused.
            drain(&stream, MAX_DRAINED).await;
            let status = match failure.code {
                Code::InvalidArgument | Code::PermissionDenied | Code::FailedPrecondition => {
                    StatusCode::BAD_REQUEST
                }
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
                Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
                Code::Unavailable => StatusCode::BAD_GATEWAY,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            error(status, &failure.message)
        }
    }
}

/// The stream of an upload.
type Source = Arc<Lock<BodyDataStream>>;

async fn next(source: &Source) -> Option<Result<Bytes, axum::Error>> {
    poll_fn(|context| source.lock().poll_next_unpin(context)).next().await
}

/// Reads what is left, to `most` bytes; `false` where there is more.
async fn drain(source: &Source, most: usize) -> bool {
    let mut left = most;
    while let Ok(Some(Ok(piece))) = tokio::time::timeout(UPLOAD_TIMEOUT, next(source)).await {
        let Some(rest) = left.checked_sub(piece.len()) else { return false };
        left = rest;
    }
    true
}

async fn write(hosted: &Hosted, path: &str, content: Vec<u8>, metadata: &Metadata) -> Result<Value, Failure> {
    let inside = hosted.paths.resolve(path);
    let shown = hosted.paths.shown(&inside);
    let node = Node::Regular(content);
    let file = FileWrite { path: inside.clone(), node, mode: None, mtime_ns: None, follow: true };
    write_one(hosted, file).await?;
    metadata::set(hosted, &inside, metadata).await?;
    let name = shown.file_name().unwrap_or_default().to_string_lossy();
    let mut written = json!({ "path": shown.to_string_lossy(), "name": name, "type": "file" });
    if !metadata.is_empty() {
        written["metadata"] = json!(metadata);
    }
    Ok(written)
}

/// A body that is the file, compressed or not.
async fn collect(headers: &HeaderMap, source: &Source, held: &mut Held<'_>) -> Result<Vec<u8>, Failure> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    match encoding {
        None | Some(b"identity") => {
            let mut content = Vec::new();
            while let Some(piece) = piece(source).await? {
                within(content.len() + piece.len())?;
                held.grow(piece.len())?;
                content.extend_from_slice(&piece);
            }
            Ok(content)
        }
        Some(b"gzip") => {
            let damaged = |_| Failure::new(Code::InvalidArgument, "the compressed file is damaged");
            let mut decoder = GzDecoder::new(Bounded { content: Vec::new(), held });
            while let Some(piece) = piece(source).await? {
                decoder.write_all(&piece).map_err(damaged)?;
            }
            decoder.finish().map(|bounded| bounded.content).map_err(damaged)
        }
        Some(_) => Err(Failure::new(Code::InvalidArgument, "the content encoding is not gzip")),
    }
}

/// Decompressed bytes, within bounds.
struct Bounded<'a, 'b> {
    content: Vec<u8>,
    held: &'a mut Held<'b>,
}

impl Write for Bounded<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.content.len() + bytes.len() > MAX_UPLOAD || self.held.grow(bytes.len()).is_err() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn within(bytes: usize) -> Result<(), Failure> {
    if bytes <= MAX_UPLOAD {
        return Ok(());
    }
    Err(Failure::new(Code::ResourceExhausted, format!("the file is larger than {} MiB", MAX_UPLOAD >> 20)))
}

async fn piece(source: &Source) -> Result<Option<Bytes>, Failure> {
    match tokio::time::timeout(UPLOAD_TIMEOUT, next(source)).await {
        Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
        Ok(None) => Ok(None),
        Ok(Some(Err(_))) => Err(Failure::new(Code::InvalidArgument, "the upload broke off")),
        Err(_) => Err(Failure::new(Code::DeadlineExceeded, "the upload did not arrive in time")),
    }
}

/// A form with parts named `file`: each goes to the path in the address, or to its own file name.
async fn upload_parts(
    hosted: &Hosted,
    query: &Query,
    metadata: &Metadata,
    stream: &Source,
    boundary: String,
) -> Result<Vec<Value>, Failure> {
    let malformed =
        |_: multer::Error| Failure::new(Code::InvalidArgument, "the form is malformed or broke off");
    let late = |_| Failure::new(Code::DeadlineExceeded, "the upload did not arrive in time");
    let source = Arc::clone(stream);
    let mut form =
        multer::Multipart::new(poll_fn(move |context| source.lock().poll_next_unpin(context)), boundary);
    let (mut files, mut held) = (Vec::new(), upload_budget::enter());
    while let Some(mut part) =
        tokio::time::timeout(UPLOAD_TIMEOUT, form.next_field()).await.map_err(late)?.map_err(malformed)?
    {
        if part.name() != Some("file") {
            continue;
        }
        let path = match query.path.as_str() {
            "" => part.file_name().unwrap_or_default().to_owned(),
            path => path.to_owned(),
        };
        if path.is_empty() || files.len() == MAX_FILES {
            return Err(Failure::new(
                Code::InvalidArgument,
                "a part of the form has no path, or is one too many",
            ));
        }
        let mut content = Vec::new();
        while let Some(piece) =
            tokio::time::timeout(UPLOAD_TIMEOUT, part.chunk()).await.map_err(late)?.map_err(malformed)?
        {
            within(content.len() + piece.len())?;
            held.grow(piece.len())?;
            content.extend_from_slice(&piece);
        }
        files.push(write(hosted, &path, content, metadata).await?);
        held.clear();
    }
    // What follows the form is read as well, without which the connection could not be used again.
    match drain(stream, MAX_REST).await {
        true => Ok(files),
        false => Err(Failure::new(Code::InvalidArgument, "the form is followed by something else")),
    }
}

/// A file that cannot be read.
fn refusal(failed: &Error) -> Response {
    let status = match (failed.kind(), failed.known_errno()) {
        (Kind::Sandbox, _) => StatusCode::BAD_GATEWAY,
        (_, Some(libc::ENOENT)) => StatusCode::NOT_FOUND,
        (_, Some(libc::ENOSPC | libc::EDQUOT)) => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::BAD_REQUEST,
    };
    error(status, &failure(failed).message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_for_one_path_operation_and_time() {
        let token = Secret::new("secret");
        let digest = |text: &str| Some(format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text))));
        let query = |path: &str, signature, signature_expiration| Query {
            path: path.into(),
            username: String::new(),
            signature,
            signature_expiration,
        };
        let signature = digest("a.txt:read::secret");
        assert!(query("a.txt", signature.clone(), None).is_signed_by(&token, "read"));
        assert!(!query("a.txt", signature.clone(), None).is_signed_by(&token, "write"));
        assert!(!query("b.txt", signature.clone(), None).is_signed_by(&token, "read"));
        assert!(!query("a.txt", signature, Some(i64::MAX)).is_signed_by(&token, "read"));
        assert!(!query("a.txt", None, None).is_signed_by(&token, "read"));
        let until = |at: i64| query("a.txt", digest(&format!("a.txt:read::secret:{at}")), Some(at));
        assert!(until(i64::MAX).is_signed_by(&token, "read"));
        assert!(!until(1).is_signed_by(&token, "read"));
    }

    #[test]
    fn a_range_has_a_first_byte() {
        assert_eq!(parse_range("bytes=3-9"), Some((3, Some(9))));
        assert_eq!(parse_range("bytes=3-"), Some((3, None)));
        for text in ["bytes=-5", "bytes=9-3", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", ""] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }
}
