//! The page's own files, which are packed once: the first page is a third of its size then. Nothing secret is in them.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::OnceLock;

/// A file of the page.
pub struct Asset {
    text: &'static str,
    media_type: &'static str,
    packed: OnceLock<Option<Bytes>>,
}

/// The page, which is at the address of each session too.
pub static HTML: Asset = Asset::new(include_str!("page/index.html"), "text/html; charset=utf-8");
static JS: Asset = Asset::new(include_str!("page/app.js"), "text/javascript; charset=utf-8");
static REVIEW: Asset = Asset::new(include_str!("page/review.js"), "text/javascript; charset=utf-8");
static TERMINAL: Asset = Asset::new(include_str!("page/terminal.js"), "text/javascript; charset=utf-8");
static TERMINAL_CSS: Asset = Asset::new(include_str!("page/terminal.css"), "text/css; charset=utf-8");
static NOTEBOOK: Asset = Asset::new(include_str!("page/notebook.js"), "text/javascript; charset=utf-8");
static COMPOSE: Asset = Asset::new(include_str!("page/compose.js"), "text/javascript; charset=utf-8");
static FILES: Asset = Asset::new(include_str!("page/files.js"), "text/javascript; charset=utf-8");
static SESSIONS: Asset = Asset::new(include_str!("page/sessions.js"), "text/javascript; charset=utf-8");
static XTERM: Asset = Asset::new(include_str!("page/vendor/xterm.mjs"), "text/javascript; charset=utf-8");
static XTERM_CSS: Asset = Asset::new(include_str!("page/vendor/xterm.css"), "text/css; charset=utf-8");
static FIT: Asset = Asset::new(include_str!("page/vendor/addon-fit.mjs"), "text/javascript; charset=utf-8");
static CSS: Asset = Asset::new(include_str!("page/app.css"), "text/css; charset=utf-8");
static ICON: Asset = Asset::new(include_str!("page/icon.svg"), "image/svg+xml");

/// The page's files by their addresses.
pub static ALL: [(&str, &Asset); 14] = [
    ("/", &HTML),
    ("/app.js", &JS),
    ("/review.js", &REVIEW),
    ("/terminal.js", &TERMINAL),
    ("/compose.js", &COMPOSE),
    ("/files.js", &FILES),
    ("/notebook.js", &NOTEBOOK),
    ("/sessions.js", &SESSIONS),
    ("/app.css", &CSS),
    ("/terminal.css", &TERMINAL_CSS),
    ("/icon.svg", &ICON),
    ("/vendor/xterm.mjs", &XTERM),
    ("/vendor/xterm.css", &XTERM_CSS),
    ("/vendor/addon-fit.mjs", &FIT),
];

/// Returns whether one of them is at `path`.
pub fn is_at(path: &str) -> bool {
    path.starts_with("/s/") || ALL.iter().any(|(address, _)| *address == path)
}

impl Asset {
    const fn new(text: &'static str, media_type: &'static str) -> Self {
        Self { text, media_type, packed: OnceLock::new() }
    }

    /// The answer to a request with these headers.
    pub fn answer(&'static self, asked: &HeaderMap) -> Response {
        let packed =
            if accepts_gzip(asked) { self.packed.get_or_init(|| gzip(self.text)).clone() } else { None };
        let mut answer = match packed {
            Some(bytes) => ([(header::CONTENT_ENCODING, "gzip")], bytes).into_response(),
            None => self.text.into_response(),
        };
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::VARY, HeaderValue::from_name(header::ACCEPT_ENCODING));
        answer
    }
}

fn gzip(text: &str) -> Option<Bytes> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(text.as_bytes()).ok()?;
    packer.finish().ok().map(Bytes::from)
}

/// Returns whether it is named without a weight of zero.
fn accepts_gzip(asked: &HeaderMap) -> bool {
    let accepted = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
    })
}
