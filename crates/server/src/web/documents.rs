//! Files of the sandbox in the page: pictures and downloads with the token, documents in a frame without an origin.

use super::Web;
use super::answers::Failure;
use super::frame::visible;
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
use axum::http::{StatusCode, header};
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
    /// Whose it is: it goes with them.
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

    fn find(&self, name: &str) -> Option<Bytes> {
        let documents = self.0.lock();
        let found = documents.iter().find(|document| document.name == name)?;
        (found.owner.strong_count() > 0).then(|| found.bytes.clone())
    }
}

/// What `POST …/document` publishes.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// An artifact, by its SHA-256.
    Artifact(String),
    /// The session's report.
    Report,
}

/// `POST …/document`: an artifact or the report, at an address of its own.
pub async fn publish(
    State(web): State<Arc<Web>>,
    Mine(scope): Mine,
    Path(id): Path<String>,
    Json(what): Json<What>,
) -> Result<Json<Value>, Failure> {
    let id = known(&scope, &id).await?;
    let (_turn, owner) = (web.large().await?, Arc::downgrade(&scope));
    let (file, bytes) = blocking(move || match what {
        What::Artifact(hash) => {
            let (_, bytes) = read(&scope, &id, &hash)?;
            Ok(("chart.html", bytes))
        }
        What::Report => Ok(("report.html", report(&scope, &id)?.into_bytes())),
    })
    .await?;
    if bytes.len() > MAX_DOCUMENT {
        return Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the document is too large to show: download it",
        ));
    }
    let name = random()?;
    web.documents.add(Document { name: name.clone(), bytes: bytes.into(), owner });
    Ok(Json(json!({"url": format!("/x/{name}/{file}")})))
}

/// `GET /x/{name}/{file}`
pub async fn document(State(web): State<Arc<Web>>, Path((name, _)): Path<(String, String)>) -> Response {
    match web.documents.find(&name) {
        Some(bytes) => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], bytes).into_response(),
        None => Failure::new(StatusCode::NOT_FOUND, "this document is not kept any more").into_response(),
    }
}

/// `GET …/artifact/{hash}`: a picture, or a download.
pub async fn artifact(
    Mine(scope): Mine,
    Path((id, hash)): Path<(String, String)>,
) -> Result<Response, Failure> {
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
async fn known(scope: &Scope, id: &str) -> Result<SessionId, Failure> {
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
