//! Judging a request: who may use what in it, and the request as it is sent to the host.

use super::bindings::Attempt;
use super::head::{Framing, Head};
use super::host_side::HostSide;
use super::{Bound, rule};
use crate::host::Host;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Uri};
use std::sync::Arc;

/// A request that may be passed on.
pub(super) struct Judged {
    /// As it is sent to the host.
    pub head: Parts,
    /// The credentials that are in it.
    used: Vec<Arc<Bound>>,
}

impl Judged {
    /// A request that these credentials are in. What is compressed, or comes in parts, cannot be searched: the host is asked for neither.
    fn with(head: Parts, used: Vec<Arc<Bound>>) -> Self {
        let mut judged = Self { head, used };
        judged.head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if judged.has_value() {
            judged.head.headers.remove(header::RANGE);
            judged.head.headers.remove(header::IF_RANGE);
        }
        judged
    }

    /// Returns whether a value is in it that the host could repeat. A key that it is signed with is not sent.
    pub fn has_value(&self) -> bool {
        self.used.iter().any(|bound| bound.key.is_none())
    }

    /// The credential that the answer gives a token for.
    pub fn exchanged(&self) -> Option<Arc<Bound>> {
        self.first(|bound| bound.rule.exchanges.iter().any(|path| path == self.head.uri.path()))
    }

    /// The credential that it pushes with.
    pub fn pushing(&self) -> Option<Arc<Bound>> {
        self.first(|bound| bound.rule.is_push(&self.head.method, self.head.uri.path()))
    }

    /// The key that it is signed with.
    pub fn signing(&self) -> Option<Arc<Bound>> {
        self.first(|bound| bound.key.is_some())
    }

    fn first(&self, is_it: impl Fn(&Bound) -> bool) -> Option<Arc<Bound>> {
        self.used.iter().find(|bound| is_it(bound)).cloned()
    }

    /// Reports that the credentials are used.
    pub fn report(&self, HostSide { gateway, host, port, .. }: &HostSide) {
        let (method, path) = (self.head.method.as_str(), self.head.uri.path());
        for bound in &self.used {
            gateway.credential_used(&bound.rule.name, Attempt { host, port: *port, method, path });
        }
    }

    /// The same request with a credential that the user allows once the host has refused it, if the rule covers it.
    pub fn with_offered(bound: &Arc<Bound>, mut head: Parts) -> Option<Self> {
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default());
        bound.rule.judge(head.method.as_str(), &path, query).ok()?;
        // About a push there is another question.
        if bound.rule.is_push(&head.method, &path)
            || (head.headers.contains_key(header::UPGRADE) && !bound.rule.websockets)
        {
            return None;
        }
        let is_added = bound.inject(&mut head.headers, &path);
        is_added.then(|| Self::with(head, vec![Arc::clone(bound)]))
    }
}

/// Judges a request; `once`: what the user allows for its connection.
///
/// # Errors
/// It is refused: the reason.
pub(super) fn judged(host_side: &HostSide, once: &[Arc<Bound>], head: Head) -> Result<Judged, String> {
    let HostSide { credentials, host, port, .. } = host_side;
    let at_host = [&credentials.at(host, *port)[..], once].concat();
    check_host(&head.fields, host, *port)?;
    let Head { method, path, query, mut fields, framing, is_websocket, .. } = head;
    let mut query = query.unwrap_or_default();
    let mut permitted = permitted(&at_host, &method, &path, &query)?;
    if is_websocket {
        if !at_host.is_empty() && !permitted.iter().any(|bound| bound.rule.websockets) {
            return Err("it asks for a WebSocket, and the credential's websockets is not set".to_owned());
        }
        permitted.retain(|bound| bound.rule.websockets);
        // What is compressed cannot be searched.
        fields.remove(header::SEC_WEBSOCKET_EXTENSIONS);
        fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    let mut used = Vec::new();
    for bound in permitted {
        if bound.apply(&mut fields, &mut query)? || bound.inject(&mut fields, &path) {
            used.push(Arc::clone(bound));
        }
    }
    frame(&mut fields, framing, &method);
    let target = if query.is_empty() { path } else { format!("{path}?{query}") };
    let target = Uri::try_from(target).map_err(|_| "the target is not valid".to_owned())?;
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri, head.headers) = (method, target, fields);
    Ok(Judged::with(head, used))
}

/// Says how long the body is.
fn frame(fields: &mut HeaderMap, framing: Framing, method: &Method) {
    match framing {
        Framing::None if *method == Method::POST || *method == Method::PUT => {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Framing::None => {}
        Framing::Length(length) => drop(fields.insert(header::CONTENT_LENGTH, length.into())),
        Framing::Chunked => {
            fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
}

/// Refuses a request whose `Host` is not the host of the connection.
fn check_host(fields: &HeaderMap, host: &Host, port: u16) -> Result<(), String> {
    let mut hosts = fields.get_all(header::HOST).iter();
    let named = hosts.next().and_then(|value| value.to_str().ok()).and_then(Host::with_port);
    let is_it = named.is_some_and(|(named, on)| named == *host && on.unwrap_or(rule::PORT) == port);
    match is_it && hosts.next().is_none() {
        true => Ok(()),
        false => Err("the field Host names another host than the connection".to_owned()),
    }
}

/// The credentials whose rules allow a request.
fn permitted<'b>(
    bound: &'b [Arc<Bound>],
    method: &Method,
    path: &str,
    query: &str,
) -> Result<Vec<&'b Arc<Bound>>, String> {
    let mut permitted = Vec::new();
    let mut objection = None;
    for bound in bound {
        match bound.rule.judge(method.as_str(), path, query) {
            Ok(()) => permitted.push(bound),
            Err(reason) => objection = Some(reason),
        }
    }
    match objection {
        Some(reason) if permitted.is_empty() => Err(reason),
        _ => Ok(permitted),
    }
}
