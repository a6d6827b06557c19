//! Files of the sandbox in the page: pictures and downloads with the token, documents in a frame without an origin, and without
//! scripts unless the user lets them run.

use super::Web;
use super::answers::FailedRequest;
use super::frame::visible;
use super::guard::SCRIPTS_POLICY;
use super::scope::Scope;
use super::token::random;
use super::visitors::Mine;
use super::work::blocking;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_event::{Artifact, Event};
use agent_log::report::Report;
use agent_log::{ArtifactLimits, Artifacts, Lines, SessionId, read_records};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Documents that can be fetched, and their bytes; the oldest make room.
const MAX_DOCUMENTS: usize = 32;
const MAX_TOTAL: usize = 32 << 20;
/// Bytes of one.
const MAX_DOCUMENT: usize = 16 << 20;

/// Documents behind names that nobody can guess.
#[derive(Default)]
pub struct Documents(Lock<VecDeque<Document>>);

struct Document {
    name: String,
    bytes: Bytes,
    /// Set if the user lets its scripts run.
    runs_scripts: bool,
    /// The owner: it goes with them.
    owner: Weak<Scope>,
}

impl Documents {
    fn add(&self, document: Document) {
        let mut documents = self.0.lock();
        documents.retain(|document| document.owner.strong_count() > 0);
        documents.push_back(document);
        while documents.len() > MAX_DOCUMENTS
            || documents.iter().map(|document| document.bytes.len()).sum::<usize>() > MAX_TOTAL
        {
            documents.pop_front();
        }
    }

    fn find(&self, name: &str) -> Option<(Bytes, bool)> {
        let documents = self.0.lock();
        let found = documents.iter().find(|document| document.name == name)?;
        (found.owner.strong_count() > 0).then(|| (found.bytes.clone(), found.runs_scripts))
    }
}

/// The kind of document that `POST …/document` publishes.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// An artifact, by its SHA-256.
    Artifact(String),
    /// The same, with its scripts: the user was asked.
    Scripts(String),
    /// The session's report.
    Report,
}

/// `POST …/document`: an artifact or the report, at an address of its own.
pub async fn publish(
    State(web): State<Arc<Web>>,
    Mine(scope): Mine,
    Path(id): Path<String>,
    Json(what): Json<What>,
) -> Result<Json<Value>, FailedRequest> {
    let id = known(&scope, &id).await?;
    let runs_scripts = matches!(what, What::Scripts(_));
    let (_turn, owner) = (web.large().await?, Arc::downgrade(&scope));
    let (file, bytes) = blocking(move || match what {
        What::Artifact(hash) => {
            let (_, bytes) = read(&scope, &id, &hash)?;
            Ok(("chart.html", without_connections(&bytes).into_bytes()))
        }
        What::Scripts(hash) => Ok(("chart.html", read(&scope, &id, &hash)?.1)),
        What::Report => Ok(("report.html", report(&scope, &id)?.into_bytes())),
    })
    .await?;
    if bytes.len() > MAX_DOCUMENT {
        return Err(FailedRequest::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the document is too large to show: download it",
        ));
    }
    let name = random()?;
    web.documents.add(Document { name: name.clone(), bytes: bytes.into(), runs_scripts, owner });
    Ok(Json(json!({"url": format!("/x/{name}/{file}")})))
}

/// `GET /x/{name}/{file}`
pub async fn document(State(web): State<Arc<Web>>, Path((name, _)): Path<(String, String)>) -> Response {
    match web.documents.find(&name) {
        Some((bytes, runs_scripts)) => {
            let mut answer = ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], bytes).into_response();
            if runs_scripts {
                let policy = HeaderValue::from_static(SCRIPTS_POLICY);
                answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
            }
            answer
        }
        None => {
            FailedRequest::new(StatusCode::NOT_FOUND, "this document is not kept any more").into_response()
        }
    }
}

/// HTML in which nothing has a browser connect before anything is loaded, which no policy stops: `preconnect` and `dns-prefetch` are
/// links. An element's name is not written in any other way, and a document in an attribute is left out.
fn without_connections(html: &[u8]) -> String {
    // Decoded here, so that the browser reads no other encoding.
    let html = String::from_utf8_lossy(html);
    let lower = html.to_ascii_lowercase();
    let (mut safe, mut copied) = (String::with_capacity(html.len()), 0);
    for (at, _) in lower.match_indices(['<', 's']) {
        let Some(name) = CONNECTING.iter().find(|name| lower[at..].starts_with(**name)) else { continue };
        safe.push_str(&html[copied..at]);
        safe.push_str(if name.starts_with('<') { "<x-" } else { "x-" });
        copied = at + usize::from(name.starts_with('<'));
    }
    safe + &html[copied..]
}

/// Markup that has a browser connect, and an attribute with a document that may hold it. For a frame a browser connects before it asks
/// the policy, and for a link when the mouse is pressed on it.
const CONNECTING: [&str; 18] = [
    "<link",
    "<meta",
    "<base",
    "<iframe",
    "<frame",
    "<fencedframe",
    "<portal",
    "srcdoc",
    "<area",
    "<a ",
    "<a/",
    "<a\t",
    "<a\n",
    "<a\r",
    "<a\x0c",
    // In SVG these give a link its address later.
    "<a>",
    "<set",
    "<animate",
];

/// `GET …/artifact/{hash}`: a picture, or a download.
pub async fn artifact(
    Mine(scope): Mine,
    Path((id, hash)): Path<(String, String)>,
) -> Result<Response, FailedRequest> {
    let id = known(&scope, &id).await?;
    let (artifact, bytes) = blocking(move || read(&scope, &id, &hash)).await?;
    // The type is the sandbox's word; only what a browser shows as a picture is given it.
    let media_type = match artifact.media_type.as_str() {
        picture @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/svg+xml") => picture,
        _ => "application/octet-stream",
    };
    let name: String = artifact
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(100)
        .collect();
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, bytes).into_response())
}

/// The session of this name, if it is one of the user's. It need not be open.
async fn known(scope: &Scope, id: &str) -> Result<SessionId, FailedRequest> {
    let id = SessionId::parse(id)?;
    scope.check(&id).await?;
    Ok(id)
}

/// The artifact of session `id` with this hash.
fn read(scope: &Scope, id: &SessionId, hash: &str) -> Result<(Artifact, Vec<u8>)> {
    let store = scope.store();
    let mut lines = Lines::open(&store.events(id))?;
    while let Some(record) = lines.next_record()? {
        match record.event {
            Event::Artifact { artifact, .. } if artifact.sha256 == hash => {
                let bytes =
                    Artifacts::of_session(&store.dir(id), ArtifactLimits::default()).read(&artifact)?;
                return Ok((artifact, bytes));
            }
            _ => {}
        }
    }
    Err(Error::usage(format!("the session has not produced {}", visible(hash))))
}

fn report(scope: &Scope, id: &SessionId) -> Result<String> {
    let store = scope.store();
    let report = Report::on(&read_records(&store.events(id))?);
    let artifacts = Artifacts::of_session(&store.dir(id), ArtifactLimits::default());
    Ok(report.to_html(|artifact| artifacts.read(artifact).ok()))
}

#[cfg(test)]
mod tests {
    use super::without_connections;

    /// `preconnect` sent what a document held to a name server and a server, before any policy.
    #[test]
    fn nothing_in_a_document_has_the_browser_connect() {
        let html = "<p>é</p><LINK rel=preconnect href=//a.example><meta http-equiv=x><iframe SrcDoc='&lt;link>'></iframe><FRAME src=//a.example><A\nhref=//a.example>a</a>";
        let safe = without_connections(html.as_bytes());
        assert_eq!(
            safe,
            "<p>é</p><x-LINK rel=preconnect href=//a.example><x-meta http-equiv=x><x-iframe x-SrcDoc='&lt;link>'></iframe><x-FRAME src=//a.example><x-A\nhref=//a.example>a</a>"
        );
        let utf16: Vec<u8> = "\u{feff}<link>".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(!without_connections(&utf16).as_bytes().starts_with(b"\xfe\xff"));
    }
}
