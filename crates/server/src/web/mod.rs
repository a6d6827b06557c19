//! `agent web`: chat, trace, commands and review in a browser.
//!
//! One page of a few static files; events go down as server-sent events over `fetch`, everything else up as POST. What may
//! talk to it at all is in `guard.rs`.

mod answers;
mod api;
mod archive;
mod assets;
mod chips;
mod conflict;
mod decisions;
mod documents;
mod feed;
mod files;
mod frame;
mod frontend;
mod guard;
mod lines;
mod live;
mod markdown;
mod questions;
mod review;
mod scope;
mod stream;
mod terminal;
mod token;
mod turns;
mod upload;
mod visitors;
mod work;

pub use frontend::PageFrontend;
pub use guard::{Guard, Hosts};
pub use live::Live;
pub use scope::{Allowance, Facts, PageOpener, Scope};
pub use token::{Lockout, Token, random};
pub use visitors::{Audience, VisitorLimits, Visitors};

use crate::Peer;
use agent_base::error::{Error, Result};
use answers::FailedRequest;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use documents::Documents;
use std::sync::Arc;
use terminal::{MAX_SOCKETS, Tickets};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Uploads, archives, patches and reports at the same time: each takes memory.
const MAX_LARGE: usize = 2;
/// Bytes of a request's body.
const MAX_BODY: usize = 1 << 20;

/// The server's state.
pub struct Web {
    guard: Guard,
    documents: Documents,
    audience: Audience,
    large: Semaphore,
    /// Sockets that can be open.
    sockets: Arc<Semaphore>,
    tickets: Tickets,
    stop: Notify,
}

impl Web {
    /// A server for `audience`.
    pub fn new(guard: Guard, audience: Audience) -> Arc<Self> {
        let (large, stop) = (Semaphore::new(MAX_LARGE), Notify::new());
        let (sockets, tickets) = (Arc::new(Semaphore::new(MAX_SOCKETS)), Tickets::default());
        Arc::new(Self { guard, documents: Documents::default(), audience, large, sockets, tickets, stop })
    }

    /// Waits for the turn of something that takes memory.
    async fn large(&self) -> Result<SemaphorePermit<'_>> {
        self.large.acquire().await.map_err(|_| Error::unexpected("the server stops"))
    }

    /// Waits until the page asks for the end of the server; meanwhile visitors that have left are removed.
    pub async fn stopped(&self) {
        let sweeping = async {
            match &self.audience {
                Audience::One(_) => std::future::pending().await,
                Audience::Visitors(visitors) => visitors.keep_sweeping().await,
            }
        };
        tokio::select! {
            () = self.stop.notified() => {}
            () = sweeping => {}
        }
    }

    /// Ends the stream of every tab, so that the server need not wait for them.
    pub fn end_streams(&self) {
        match &self.audience {
            Audience::One(scope) => scope.end_streams(),
            Audience::Visitors(visitors) => visitors.end_streams(),
        }
    }

    /// Closes every session; `result` says why.
    pub async fn close(&self, result: Result<()>) {
        match &self.audience {
            Audience::One(scope) => scope.close(result).await,
            Audience::Visitors(visitors) => visitors.close().await,
        }
    }
}

/// The routes, behind the guard.
pub fn router(web: Arc<Web>) -> Router {
    let session = Router::new()
        .route("/events", get(stream::events))
        .route("/prompt", post(api::prompt))
        .route("/stop", post(api::stop))
        .route("/command", post(api::command))
        .route("/answer", post(api::answer))
        .route("/model", post(api::set_model))
        .route("/diff", get(api::diff))
        .route("/diff/part", get(api::part))
        .route("/diff/picture", get(api::picture))
        .route("/diff/conflict", get(conflict::both))
        .route("/decisions", post(api::decide))
        .route("/patch", get(api::patch))
        .route("/zip", get(api::zip))
        .route("/apply", post(api::apply))
        .route("/unapply", post(api::unapply))
        .route("/undo", post(api::undo))
        .route("/redo", post(api::redo))
        .route("/fork", post(api::fork))
        .route("/title", post(api::set_title))
        .route("/remove", post(api::remove))
        .route("/rewind", post(turns::rewind))
        .route("/plan", post(turns::plan))
        .route("/compact", post(turns::compact))
        .route("/clear", post(turns::clear))
        .route("/files", get(files::list))
        .route("/file", get(files::read).put(files::write))
        .route("/files.zip", get(files::archive))
        .route("/terminal", post(terminal::open))
        .route("/terminal/close", post(terminal::close))
        .route("/artifact/{hash}", get(documents::artifact))
        .route("/document", post(documents::publish));
    let files = assets::ALL.iter().fold(Router::new(), |router, (path, asset)| {
        router.route(path, get(async |asked: HeaderMap| asset.answer(&asked)))
    });
    let router = files
        .route("/s/{id}", get(async |asked: HeaderMap| assets::HTML.answer(&asked)))
        .route("/healthz", get(|| async { "ok" }))
        .route("/socket/{name}", get(terminal::connect))
        .route("/x/{name}/{file}", get(documents::document))
        .route("/api/sessions", get(api::sessions).post(api::open))
        .route("/api/models", get(api::models))
        .route("/api/visitor", post(visitors::begin))
        .route("/api/upload", put(upload::upload))
        .route("/api/shutdown", post(api::shutdown))
        .nest("/api/session/{id}", session)
        .fallback(|| async { FailedRequest::new(StatusCode::NOT_FOUND, "there is nothing at this address") })
        .method_not_allowed_fallback(|| async {
            FailedRequest::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here")
        });
    router
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&web), guarded))
        .with_state(web)
}

/// Lets a request through the guard, and gives every answer its headers.
async fn guarded(State(web): State<Arc<Web>>, request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let peer = request.extensions().get::<Peer>().and_then(|peer| peer.0).map(|address| address.ip());
    let is_options = request.method() == Method::OPTIONS;
    let mut answer = match web.guard.check(&request, peer) {
        Ok(()) => next.run(request).await,
        Err(refusal) => FailedRequest::new(refusal.status, refusal.why).into_response(),
    };
    // What a part of the framework refused has no sentence of ours.
    let is_text = |value: &HeaderValue| value.as_bytes().starts_with(b"text/plain");
    if answer.status().is_client_error() && answer.headers().get(header::CONTENT_TYPE).is_some_and(is_text) {
        let why = match answer.status() {
            StatusCode::PAYLOAD_TOO_LARGE => "the request is too large",
            _ => "the request cannot be read",
        };
        answer = FailedRequest::new(answer.status(), why).into_response();
    }
    // No preflight of another page is ever answered.
    if is_options {
        answer.headers_mut().remove(header::ALLOW);
    }
    web.guard.add_headers(&path, answer.headers_mut());
    answer
}
