//! Which requests are answered at all: the host they name, the page they come from, the token they carry.
//!
//! Any web page that the user has open can send requests to a loopback port, a name of an attacker's can resolve to it, and
//! a page of the sandbox can be served by `agent forward` on the same address with another port. So there is no cookie
//! (they ignore ports), and nothing but the page's own origin is let in.

use super::assets;
use super::token::{Lockout, Token};
use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode, Uri};
use std::net::IpAddr;

/// The conditions that every request has to meet.
pub struct Guard {
    /// The values of `Host` that are this server's, in lower case.
    pub hosts: Hosts,
    /// Set if a proxy ends TLS in front of this server.
    pub is_behind_proxy: bool,
    /// The page that may frame this one, beside none.
    pub framed_by: Option<String>,
    /// The token that a request has to carry; `None` with `--public`.
    pub token: Option<Token>,
    /// The clients that sent wrong tokens.
    pub lockout: Lockout,
}

/// The names that the server has.
pub enum Hosts {
    /// Exactly these.
    Named(Vec<String>),
    /// Those of loopback with any port: a Unix socket, which somebody forwards to a port.
    Loopback,
}

/// The reason why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// One sentence.
    pub why: &'static str,
}

/// The kind of thing that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The files of the page, which hold nothing secret.
    Static,
    /// A document of the sandbox, behind a name that cannot be guessed.
    Document,
    /// A socket, behind such a name, which is good once.
    Socket,
    /// Everything else.
    Api,
}

const fn refuse<T>(status: StatusCode, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, why })
}

impl Guard {
    /// Lets `request` of `peer` pass, or says why not.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, request: &Request<Body>, peer: Option<IpAddr>) -> Result<(), Refusal> {
        let is_probe = request.uri().path() == "/healthz" && request.method() == Method::GET;
        if is_probe {
            // A probe knows no name.
            return Ok(());
        }
        let headers = request.headers();
        let host = self.host(headers, request.uri())?;
        let kind = kind(request.uri().path());
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match (kind, request.method()) {
            (_, &Method::GET | &Method::HEAD) | (Kind::Api, &Method::POST | &Method::PUT) => {}
            _ => return refuse(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here"),
        }
        if kind == Kind::Static {
            return Ok(());
        }
        self.same_origin(headers, &host)?;
        if matches!(kind, Kind::Document | Kind::Socket) {
            return Ok(());
        }
        self.authorised(headers, peer)?;
        if !is_read {
            let expected: &[u8] = match *request.method() {
                Method::PUT => b"application/octet-stream",
                _ => b"application/json",
            };
            content_type(headers, expected)?;
        }
        Ok(())
    }

    /// The host that the request names, if it is this server.
    fn host(&self, headers: &HeaderMap, uri: &Uri) -> Result<String, Refusal> {
        let mut values = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (values.next(), values.next()) else {
            return refuse(StatusCode::BAD_REQUEST, "the request has no Host header, or several");
        };
        let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
        let names_another = uri.authority().is_some_and(|named| !named.as_str().eq_ignore_ascii_case(&host));
        if names_another || !self.hosts.has(&host) {
            return refuse(StatusCode::MISDIRECTED_REQUEST, "this server does not have that name");
        }
        Ok(host)
    }

    fn same_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let origin = origin.to_str().unwrap_or_default();
            let (scheme, named) = origin.split_once("://").unwrap_or_default();
            let is_own_scheme = scheme == "http" || (scheme == "https" && self.is_behind_proxy);
            if !is_own_scheme || !named.eq_ignore_ascii_case(host) || origins.next().is_some() {
                return refuse(StatusCode::FORBIDDEN, "the request comes from another page");
            }
        }
        let mut sites = headers.get_all("sec-fetch-site").iter();
        if !sites.all(|site| site == "same-origin") {
            return refuse(StatusCode::FORBIDDEN, "the request comes from another page");
        }
        Ok(())
    }

    fn authorised(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let peer = self.client(headers, peer);
        if self.lockout.is_locked(peer) {
            return refuse(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens: try again in a minute");
        }
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let given = match (values.next(), values.next()) {
            (Some(value), None) => value.as_bytes().strip_prefix(b"Bearer "),
            (Some(_), Some(_)) => Some(&b""[..]),
            (None, _) => None,
        };
        match given {
            Some(given) if token.is(given) => Ok(()),
            Some(_) => {
                self.lockout.count(peer);
                refuse(StatusCode::UNAUTHORIZED, "the token is wrong")
            }
            None => refuse(StatusCode::UNAUTHORIZED, "the request carries no token"),
        }
    }

    /// Returns the address of the sender of a request: behind a proxy, the one that the proxy names last.
    pub fn client(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<IpAddr> {
        if !self.is_behind_proxy {
            return peer;
        }
        let named = headers.get_all("x-forwarded-for").iter().next_back();
        let last = named.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
        last.or(peer)
    }

    /// The headers that every answer carries.
    pub fn add_headers(&self, path: &str, headers: &mut HeaderMap) {
        let runs_scripts =
            headers.get(header::CONTENT_SECURITY_POLICY).is_some_and(|it| it == SCRIPTS_POLICY);
        let mut set = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        let is_framed = self.framed_by.is_some();
        match kind(path) {
            Kind::Document => {
                let policy = if runs_scripts { SCRIPTS_POLICY } else { DOCUMENT_POLICY };
                let policy = match &self.framed_by {
                    Some(framed_by) => policy
                        .replace("frame-ancestors 'self'", &format!("frame-ancestors 'self' {framed_by}")),
                    None => policy.to_owned(),
                };
                set(header::CONTENT_SECURITY_POLICY, &policy);
            }
            _ => {
                let framed_by = self.framed_by.as_deref().unwrap_or("'none'");
                set(header::CONTENT_SECURITY_POLICY, &format!("{PAGE_POLICY}; frame-ancestors {framed_by}"));
            }
        }
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        // Some browsers look up the names in links before anybody follows them.
        set(HeaderName::from_static("x-dns-prefetch-control"), "off");
        set(header::REFERRER_POLICY, "no-referrer");
        set(header::CACHE_CONTROL, "no-store");
        set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        if !is_framed {
            set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        }
    }
}

/// Nothing is loaded from elsewhere, no script is inline, and HTML is set through one named policy.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
     frame-src 'self'; form-action 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types md";

/// A document of the sandbox has an origin of its own, loads nothing and runs no script.
const DOCUMENT_POLICY: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'self'";
/// One whose scripts the user lets run. A policy stops what they load, but not all that they can send: WebRTC reaches any
/// address in browsers that do not know the last directive.
pub const SCRIPTS_POLICY: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'self'; webrtc 'block'";

fn kind(path: &str) -> Kind {
    match path {
        "/healthz" => Kind::Static,
        _ if assets::is_at(path) => Kind::Static,
        _ if path.starts_with("/x/") => Kind::Document,
        _ if path.starts_with("/socket/") => Kind::Socket,
        _ => Kind::Api,
    }
}

fn content_type(headers: &HeaderMap, expected: &[u8]) -> Result<(), Refusal> {
    let given = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let given = given.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match given.eq_ignore_ascii_case(expected) {
        true => Ok(()),
        false => refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body has another type than this needs"),
    }
}

impl Hosts {
    fn has(&self, host: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|name| name == host),
            Self::Loopback => {
                let name = match host.strip_prefix("[::1]") {
                    Some(rest) => return is_port(rest),
                    None => host.split(':').next().unwrap_or_default(),
                };
                matches!(name, "localhost" | "127.0.0.1") && is_port(&host[name.len()..])
            }
        }
    }
}

/// Nothing, or a colon and a port.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_reach_a_unix_socket() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]", "[::1]:8080"] {
            assert!(Hosts::Loopback.has(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.", "127.0.0.1.evil.example", "localhost:x", "[::1]x", "[::2]"]
        {
            assert!(!Hosts::Loopback.has(host), "{host}");
        }
    }
}
