//! Sends requests. Whatever is not an answer under a good status becomes a [`Failure`] with its name: the status and words
//! of an error, a web page, a silence, an untrusted certificate.

use crate::client::error_body::looks_like_html;
use crate::client::failure::{Failure, Reason, quote};
use crate::endpoint::Endpoint;
use agent_base::error::{Error, Result};
use agent_base::plain_file::{self, Links};
use agent_base::tls;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use reqwest::{Request, Response, redirect};
use serde_json::Value;
use std::error::Error as _;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Bytes of an error's body that are read.
const LONGEST_ERROR: usize = 64 * 1024;
/// The time limit for an error's body.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of one event, or of an answer that is not streamed.
pub const LONGEST_EVENT: usize = 8 << 20;
/// Bytes of a file of certificates: all that systems trust together are a quarter of a mebibyte.
const MAX_CERTIFICATES: u64 = 4 << 20;
/// Redirects on the same host that are followed.
const MOST_REDIRECTS: usize = 3;

/// The HTTP client for one endpoint.
///
/// # Errors
/// `Config` where the file of certificates cannot be used.
pub fn client(endpoint: &Endpoint) -> Result<reqwest::Client> {
    tls::install_provider();
    let builder = reqwest::Client::builder()
        .http1_only()
        .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
        .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
        .connect_timeout(endpoint.timeouts.connect)
        .redirect(same_origin_redirects());
    let builder = match &endpoint.ca_file {
        Some(file) => {
            let unusable = |error: anyhow::Error| {
                Error::config(format!("the certificates in {} cannot be used", file.display()))
                    .caused_by(error)
                    .hint("AGENT_CA_FILE names a PEM file with one certificate or several")
            };
            let pem = plain_file::read(file, MAX_CERTIFICATES + 1, Links::Follow)
                .map_err(|error| unusable(error.into()))?;
            if pem.len() as u64 > MAX_CERTIFICATES {
                return Err(unusable(anyhow::anyhow!("it is larger than {MAX_CERTIFICATES} bytes")));
            }
            let certificates =
                reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.into()))?;
            if certificates.is_empty() {
                return Err(unusable(anyhow::anyhow!("it holds no certificate")));
            }
            builder.tls_certs_merge(certificates)
        }
        // Without TLS the system's certificates need not be loaded (some milliseconds, some megabytes).
        None if endpoint.base_url.starts_with("http://") => builder.tls_certs_only([]),
        None => builder,
    };
    let builder = match &endpoint.proxy {
        Some(address) => builder.proxy(proxy(address)?),
        None => builder,
    };
    builder.build().map_err(|error| {
        Error::config("the HTTP client cannot be set up")
            .caused_by(error)
            .hint("are the system's CA certificates installed (package ca-certificates)?")
    })
}

/// The proxy at `address`, but for the hosts of `NO_PROXY`.
fn proxy(address: &str) -> Result<reqwest::Proxy> {
    let proxy = reqwest::Proxy::all(address).map_err(|error| {
        Error::config("the proxy of ALL_PROXY is not an address")
            .caused_by(error)
            .hint("it looks like socks5h://127.0.0.1:1080")
    })?;
    Ok(proxy.no_proxy(reqwest::NoProxy::from_env()))
}

/// A redirect is followed where the method stays and scheme, host and port stay: the key never goes elsewhere.
fn same_origin_redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
        let previous = attempt.previous();
        let same_origin = previous.last().is_some_and(|from| from.origin() == attempt.url().origin());
        if keeps_method && same_origin && previous.len() <= MOST_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// Sends one request. An answer under another status than a good one is a failure.
pub async fn send(
    client: &reqwest::Client,
    request: Request,
    first_byte: Duration,
) -> Result<Response, Failure> {
    let response = timeout(first_byte, client.execute(request))
        .await
        .map_err(|_| silence(first_byte))?
        .map_err(|error| not_sent(&error))?;
    let status = response.status();
    let headers = response.headers().clone();
    let compression = compression(&headers);
    if status.is_success() {
        return match compression {
            Some(name) => Err(compressed(name)),
            None => Ok(response),
        };
    }
    if status.is_redirection() {
        let place = headers.get("location").map(|l| quote(&String::from_utf8_lossy(l.as_bytes())));
        let place = place.unwrap_or_else(|| "nowhere".to_owned());
        let message =
            format!("the endpoint redirects ({}) to {place}, which is not followed", status.as_u16());
        return Err(Failure::new(Reason::Redirected, message));
    }
    let body = match compression {
        Some(_) => Vec::new(),
        None => read_up_to(response, LONGEST_ERROR).await,
    };
    Err(Failure::from_status(status, &headers, &String::from_utf8_lossy(&body)))
}

/// The JSON document that a good answer is.
pub async fn document(response: Response, time: Duration) -> Result<Value, Failure> {
    let body = timeout(time, read_bounded(response, LONGEST_EVENT))
        .await
        .map_err(|_| silence(time))?
        .map_err(|error| broken_off(&error))?
        .ok_or_else(|| too_large(LONGEST_EVENT))?;
    if looks_like_html(&String::from_utf8_lossy(&body[..body.len().min(200)])) {
        return Err(web_page());
    }
    serde_json::from_slice(&body).map_err(|error| not_json(&error, &String::from_utf8_lossy(&body)))
}

/// The compression that a body came in, though none was asked for. Other words in that header are mistakes.
fn compression(headers: &HeaderMap) -> Option<&'static str> {
    const KNOWN: [&str; 6] = ["gzip", "x-gzip", "deflate", "br", "zstd", "compress"];
    let names = headers.get(CONTENT_ENCODING)?.to_str().ok()?.to_ascii_lowercase();
    names.split(',').find_map(|name| KNOWN.into_iter().find(|known| *known == name.trim()))
}

fn compressed(name: &str) -> Failure {
    let message = format!(
        "the endpoint's answer is compressed ({name}), which was not asked for; a proxy on the way may do that"
    );
    Failure::new(Reason::NotTheProtocol, message)
}

/// A body of at most `bound` bytes; `None` if it is longer.
pub async fn read_bounded(response: Response, bound: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut stream = response.bytes_stream();
    let mut body = Vec::new();
    while let Some(piece) = stream.next().await {
        body.extend_from_slice(&piece?);
        if body.len() > bound {
            return Ok(None);
        }
    }
    Ok(Some(body))
}

/// Returns what can be had of an error's body: one that breaks off or takes too long still leaves the status.
async fn read_up_to(response: Response, bound: usize) -> Vec<u8> {
    let deadline = Instant::now() + ERROR_TIMEOUT;
    let mut stream = response.bytes_stream();
    let mut body = Vec::new();
    while let Ok(Some(Ok(piece))) = timeout_at(deadline, stream.next()).await {
        body.extend_from_slice(&piece);
        if body.len() >= bound {
            body.truncate(bound);
            break;
        }
    }
    body
}

pub fn silence(waited: Duration) -> Failure {
    Failure::new(Reason::TimedOut, format!("the endpoint did not answer within {} s", seconds(waited)))
}

pub fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        format!("{:.1}", duration.as_secs_f64())
    } else {
        duration.as_secs().to_string()
    }
}

pub fn too_large(bound: usize) -> Failure {
    let message = format!("the endpoint's answer is larger than {} MiB and was refused", bound >> 20);
    Failure::new(Reason::TooLarge, message)
}

pub fn web_page() -> Failure {
    Failure::new(Reason::NotTheProtocol, "the endpoint answered with a web page instead of JSON")
}

pub fn not_json(error: &serde_json::Error, text: &str) -> Failure {
    let message = format!("the endpoint's answer is not the JSON it should be ({error}): {}", quote(text));
    Failure::new(Reason::Broken, message)
}

pub fn broken_off(error: &reqwest::Error) -> Failure {
    Failure::new(
        Reason::Broken,
        format!("the connection broke in the middle of the answer: {}", cause(error)),
    )
}

fn not_sent(error: &reqwest::Error) -> Failure {
    if let Some(why) = certificate_problem(error) {
        return Failure::new(
            Reason::Certificate,
            format!("the endpoint's certificate is not trusted: {why}"),
        );
    }
    // Status 407 to CONNECT; the error has no type that could be asked.
    if error.is_connect() && cause(error).contains("proxy authorization required") {
        return Failure::new(
            Reason::ProxyRefused,
            "the proxy refuses the request: it wants credentials (407)",
        );
    }
    if error.is_connect() || error.is_timeout() {
        return Failure::new(
            if is_refused_here(error) { Reason::NotRunning } else { Reason::Unreachable },
            format!("the endpoint cannot be reached: {}", cause(error)),
        );
    }
    if error.is_builder() {
        return Failure::new(Reason::Config, format!("the request cannot be made: {}", cause(error)));
    }
    Failure::new(Reason::Broken, format!("the connection broke before the answer: {}", cause(error)))
}

/// Returns whether this machine itself refused the connection.
fn is_refused_here(error: &reqwest::Error) -> bool {
    let is_here = error.url().and_then(|url| url.host_str()).is_some_and(|host| {
        let address: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        host == "localhost" || address.is_some_and(|address| address.is_loopback())
    });
    let mut next = error.source();
    while let Some(source) = next {
        let io: Option<&std::io::Error> = source.downcast_ref();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return is_here;
        }
        next = source.source();
    }
    false
}

fn certificate_problem(error: &reqwest::Error) -> Option<String> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(tls @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return Some(quote(&tls.to_string()));
        }
        // An I/O error's own `source` leaves out the error that it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = wrapped.map(|error| error as _).or_else(|| error.source());
    }
    None
}

/// The innermost cause: the outer ones repeat the address or say nothing.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() && error.is_connect() {
        return "no connection in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    quote(&innermost.to_string())
}
