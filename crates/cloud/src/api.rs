//! Requests to a provider: the key goes to the provider's own hosts alone, everything that comes back is bounded, and an
//! error's body becomes a sentence.

use agent_base::error::{Error, Result, Scope};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_base::sanitise::one_line;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 8 << 20;
/// The time limit for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for most requests.
pub const SHORT: Duration = Duration::from_secs(30);
/// The time limit for requests that wait for a machine or carry a file.
pub const LONG: Duration = Duration::from_secs(180);
/// Attempts of a request that may be repeated.
const ATTEMPTS: u32 = 4;
/// The longest wait that a provider may ask for and gets.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Characters of a provider's words that are shown.
const LONGEST_QUOTE: usize = 300;

/// Facts about a provider that are known beforehand.
pub struct ProviderProfile {
    /// The backend's name.
    pub name: &'static str,
    /// The address, unless the variable below says otherwise.
    pub default_url: &'static str,
    pub url_variable: &'static str,
    pub key_variable: &'static str,
    pub key_header: KeyHeader,
    /// The page on which a user gets a key and sees what runs.
    pub console: &'static str,
}

/// The header that shows the key.
#[derive(Clone, Copy)]
pub enum KeyHeader {
    /// `Authorization: Bearer KEY`
    Bearer,
    /// `X-API-Key: KEY`
    ApiKey,
}

/// The API of a provider, with the user's key.
pub struct Api {
    place: &'static ProviderProfile,
    http: reqwest::Client,
    base: Url,
    key: SecretString,
    /// The header that shows it.
    authorization: HeaderMap,
}

/// The rule for sending a request again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Again where no answer or a passing failure came: it does the same twice as once.
    Idempotent,
    /// Only if it cannot have been acted upon: the provider was not reached, or refused it for its rate.
    Never,
}

/// A request that failed.
#[derive(Debug)]
pub struct Failure {
    /// The status, where there was an answer.
    pub status: Option<u16>,
    pub error: Error,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// An attempt that failed, and whether the next may succeed.
struct Attempt {
    failure: Box<Failure>,
    /// It cannot have been acted upon.
    was_not_taken: bool,
    is_passing: bool,
    wait: Option<Duration>,
}

impl Api {
    /// The API as the environment of this machine describes it.
    ///
    /// # Errors
    /// `Config`: there is no key, or the address would send it in clear text to another machine.
    pub fn connect(place: &'static ProviderProfile, machine: &Machine) -> Result<Self> {
        let text = machine.text(place.url_variable).filter(|text| !text.trim().is_empty());
        let base = server_address(place.url_variable, text.as_deref().unwrap_or(place.default_url))?;
        let is_here = is_loopback(&base);
        Self::at(place, machine, base, is_here)
    }

    /// The API at an address that was checked. With `is_here`, nothing but this machine is connected to.
    ///
    /// # Errors
    /// `Config`: there is no key.
    pub fn at(place: &'static ProviderProfile, machine: &Machine, base: Url, is_here: bool) -> Result<Self> {
        let key = machine.credential(place.key_variable).ok_or_else(|| {
            Error::config(format!(
                "the {} sandbox needs a key: {} is not set",
                place.name, place.key_variable
            ))
            .hint(format!(
                "make one at {} and set {}, or api_key in [sandbox.{}] of config.toml",
                place.console, place.key_variable, place.name
            ))
        })?;
        let authorization = authorization(place, &key)?;
        agent_base::tls::install_provider();
        let builder = reqwest::Client::builder()
            // A WebSocket needs it.
            .http1_only()
            .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT);
        let builder = if is_here { builder.no_proxy().tls_certs_only([]) } else { builder };
        let http = builder.build().map_err(|error| {
            Error::config("the HTTP client cannot be set up")
                .caused_by(error)
                .hint("are the system's CA certificates installed (package ca-certificates)?")
        })?;
        Ok(Self { place, http, base, key, authorization })
    }

    /// The client, for addresses that were checked.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Returns the host of the provider, for messages.
    pub fn location(&self) -> String {
        self.base.host_str().unwrap_or(self.place.name).to_owned()
    }

    /// A hash of the key.
    pub fn fingerprint(&self) -> Hash {
        Hash::of(self.key.expose_secret())
    }

    /// The address of `path`, whose parts are checked by the caller.
    pub fn url(&self, path: &str) -> Url {
        below(&self.base, path)
    }

    /// The header that carries the key.
    pub fn authorization(&self) -> HeaderMap {
        self.authorization.clone()
    }

    /// A request with the key, to an address that was checked.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url).headers(self.authorization.clone())
    }

    /// An address that the provider named.
    ///
    /// # Errors
    /// It is not of the provider's own hosts: the key does not go there.
    pub fn trusted(&self, address: &str) -> Result<Url> {
        let refused = |why: &str| {
            let address = quote(address);
            Error::sandbox(format!("{} names {address}, {why}: the key is not sent there", self.place.name))
                .hint(format!(
                    "if you host it yourself, {} has to be of the same domain",
                    self.place.url_variable
                ))
        };
        let url = Url::parse(address).map_err(|_| refused("which is not an address"))?;
        match is_of_one_provider(&self.base, &url) {
            true => Ok(url),
            false => Err(refused("which is not one of its hosts")),
        }
    }

    /// Sends a request with a JSON body and returns the JSON answer; `null` where it is empty.
    pub async fn json(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
        repeat: Repeat,
        time: Duration,
    ) -> Result<Value, Failure> {
        self.send(repeat, time, &|| {
            let request = self.request(method.clone(), url.clone());
            match body {
                Some(body) => request.json(body),
                None => request,
            }
        })
        .await
    }

    /// A page of a list, and the header of its answer that names the next.
    pub async fn page(&self, url: Url, next: &str) -> Result<(Value, Option<String>), Failure> {
        let request = || self.request(Method::GET, url.clone());
        let (headers, body) = self.exchange(Repeat::Idempotent, SHORT, &request).await?;
        let next = headers.get(next).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok((self.document(&body)?, next))
    }

    /// Sends a request, again where that is allowed, and returns the JSON answer; `null` where it is empty.
    pub async fn send(
        &self,
        repeat: Repeat,
        time: Duration,
        request: &(dyn Fn() -> RequestBuilder + Sync),
    ) -> Result<Value, Failure> {
        let body = self.send_for_bytes(repeat, time, request).await?;
        self.document(&body)
    }

    /// [`Api::send`] for an answer that is not JSON.
    pub async fn send_for_bytes(
        &self,
        repeat: Repeat,
        time: Duration,
        request: &(dyn Fn() -> RequestBuilder + Sync),
    ) -> Result<Vec<u8>, Failure> {
        Ok(self.exchange(repeat, time, request).await?.1)
    }

    async fn exchange(
        &self,
        repeat: Repeat,
        time: Duration,
        request: &(dyn Fn() -> RequestBuilder + Sync),
    ) -> Result<(HeaderMap, Vec<u8>), Failure> {
        let mut attempt = 1;
        loop {
            let failed = match self.attempt(request(), time).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let may_repeat = failed.was_not_taken || failed.is_passing && repeat == Repeat::Idempotent;
            let wait = failed.wait.unwrap_or(Duration::from_millis(400) * 2u32.pow(attempt - 1));
            if attempt == ATTEMPTS || !may_repeat || wait > MAX_WAIT {
                return Err(*failed.failure);
            }
            sleep(wait.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        request: RequestBuilder,
        time: Duration,
    ) -> Result<(HeaderMap, Vec<u8>), Attempt> {
        let exchange = async {
            let response = request.send().await.map_err(|error| self.not_sent(&error))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = read_bounded(response).await.map_err(|why| {
                failed(None, Error::sandbox(format!("the answer of {} {why}", self.place.name)))
            })?;
            match status.is_success() {
                true => Ok((headers, body)),
                false => Err(self.refused(status.as_u16(), retry_after(&headers), &body)),
            }
        };
        timeout(time, exchange).await.unwrap_or_else(|_| {
            let error =
                Error::sandbox(format!("{} did not answer within {} s", self.place.name, time.as_secs()));
            Err(Attempt { is_passing: true, ..failed(None, error) })
        })
    }

    fn document(&self, body: &[u8]) -> Result<Value, Failure> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(body).map_err(|_| {
            let said = self.masked(&String::from_utf8_lossy(body));
            let error = Error::sandbox(format!("the answer of {} is not JSON: {said}", self.place.name));
            Failure { status: None, error }
        })
    }

    fn not_sent(&self, error: &reqwest::Error) -> Attempt {
        // The causes alone: the address may hold an id or a token.
        let mut causes = Vec::new();
        let mut cause = std::error::Error::source(error);
        while let Some(found) = cause {
            causes.push(found.to_string());
            cause = found.source();
        }
        let why = self.masked(&causes.join(": "));
        let message = format!("{} at {} cannot be reached: {why}", self.place.name, self.location());
        let error_of = Error::sandbox(message)
            .hint("look at the network of this machine, and at the provider's status page");
        Attempt { was_not_taken: error.is_connect(), is_passing: true, ..failed(None, error_of) }
    }

    /// An answer with a status that is not a good one.
    fn refused(&self, status: u16, wait: Option<Duration>, body: &[u8]) -> Attempt {
        let (name, console) = (self.place.name, self.place.console);
        let said = self.masked(&message_of(body));
        let words = said.to_lowercase();
        let is_quota = ["quota", "limit", "concurrent", "exceed"].iter().any(|word| words.contains(word));
        let (what, hint) = match status {
            401 => (
                "does not accept the key".to_owned(),
                format!("{} has to hold a valid key: {console}", self.place.key_variable),
            ),
            403 if is_quota => (
                "refuses for the account's limits".to_owned(),
                format!("look at the account at {console}, or remove sandboxes with `agent sandbox rm`"),
            ),
            403 => (
                "does not allow this to the key".to_owned(),
                format!("look at the key's permissions at {console}"),
            ),
            402 => ("asks for payment".to_owned(), format!("look at the account at {console}")),
            429 => {
                let when = wait.map_or_else(|| "later".to_owned(), |wait| format!("in {} s", wait.as_secs()));
                (
                    "has too many requests or sandboxes of this account".to_owned(),
                    format!("try again {when}, or remove sandboxes with `agent sandbox rm`"),
                )
            }
            404 => (
                "does not know what was asked for".to_owned(),
                "the sandbox is gone, or the image's name is wrong".to_owned(),
            ),
            300..400 => (
                "redirects".to_owned(),
                format!("the key is not sent elsewhere: {} names the right address", self.place.url_variable),
            ),
            400 | 409 | 422 => (
                "refuses the request".to_owned(),
                format!("the provider's words say why; {console} shows what there is"),
            ),
            _ => ("failed".to_owned(), "try again; the provider's status page may know more".to_owned()),
        };
        let colon = if said.is_empty() { "" } else { ": " };
        let scope = match status {
            403 if is_quota => Scope::Room,
            429 => Scope::Room,
            _ => Scope::Unknown,
        };
        let error =
            Error::sandbox(format!("{name} {what} ({status}){colon}{said}")).hint(hint).concerns(scope);
        let is_passing = matches!(status, 408 | 429 | 500 | 502 | 503 | 504);
        Attempt { was_not_taken: status == 429, is_passing, wait, ..failed(Some(status), error) }
    }

    /// A provider's words, bounded, without the key.
    fn masked(&self, text: &str) -> String {
        let key = self.key.expose_secret();
        let text: String = text.chars().take(MAX_MASKED).collect();
        let text = if key.is_empty() { text } else { text.replace(key, "(the key)") };
        quote(&text)
    }
}

/// Characters of a provider's words that are looked at.
const MAX_MASKED: usize = 4 << 10;

/// The header that shows `key`.
fn authorization(place: &ProviderProfile, key: &SecretString) -> Result<HeaderMap> {
    let (name, prefix) = match place.key_header {
        KeyHeader::Bearer => (AUTHORIZATION, "Bearer "),
        KeyHeader::ApiKey => (HeaderName::from_static("x-api-key"), ""),
    };
    let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret()))
        .map_err(|_| Error::config(format!("{} holds characters that no key has", place.key_variable)))?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(name, value)]))
}

/// The address of a server that a key or a token may be sent to, which `variable` names.
///
/// # Errors
/// `Config`: it is not an address, or would send the key in clear text to another machine.
pub fn server_address(variable: &str, text: &str) -> Result<Url> {
    let wrong = |what: &str| Error::config(format!("{variable} {what}"));
    let base = Url::parse(text.trim().trim_end_matches('/'))
        .map_err(|error| wrong("is not an address").caused_by(error))?;
    if base.host_str().is_none() || !base.username().is_empty() || base.password().is_some() {
        return Err(wrong("is not an address of a server").hint("write it like https://host/path"));
    }
    if base.scheme() != "https" && !(base.scheme() == "http" && is_loopback(&base)) {
        return Err(
            wrong("would send the key in clear text").hint("use an address that begins with https://")
        );
    }
    Ok(base)
}

fn failed(status: Option<u16>, error: Error) -> Attempt {
    Attempt {
        failure: Box::new(Failure { status, error }),
        was_not_taken: false,
        is_passing: false,
        wait: None,
    }
}

/// A provider's words on one line, bounded.
pub fn quote(text: &str) -> String {
    one_line(text, LONGEST_QUOTE)
}

/// A form with a file and texts, as `multipart/form-data` (RFC 7578): its content type and its bytes.
pub fn form(texts: &[(&str, &str)], file: &[u8]) -> (String, Bytes) {
    let boundary = Hash::of(file).short(16);
    let mut body = Vec::with_capacity(file.len() + 1024);
    for (name, text) in texts {
        body.extend_from_slice(
            format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
                .as_bytes(),
        );
    }
    let head = "content-disposition: form-data; name=\"file\"; filename=\"guest.gz\"\r\n\
                content-type: application/octet-stream\r\n\r\n";
    body.extend_from_slice(format!("--{boundary}\r\n{head}").as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body.into())
}

/// The message in an error's body, in any of the shapes that providers use.
fn message_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_MASKED)]);
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        let is_page = text.trim_start().starts_with('<');
        return if is_page { "a web page".to_owned() } else { text.into_owned() };
    };
    let of = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")),
        _ => None,
    };
    let error = value.get("error").unwrap_or(&Value::Null);
    let places = [error.get("message"), value.get("message"), value.get("detail"), value.get("error")];
    places.into_iter().flatten().find_map(of).unwrap_or_else(|| text.into_owned())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER).or_else(|| {
        headers.iter().find(|(name, _)| name.as_str().starts_with("retry-after-")).map(|(_, value)| value)
    })?;
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn read_bounded(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "broke off".to_owned())? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("is larger than {} MiB", MAX_ANSWER >> 20));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// An address with `path` behind its own.
pub fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    url.set_path(&format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/')));
    url.set_query(query);
    url
}

/// Returns whether an id may be a part of an address.
pub fn is_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=128).contains(&id.len()) && id.chars().all(fits) && !id.starts_with('.')
}

/// Returns whether the address is of this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Returns whether `url` is of the same provider as `base`: the same host, or below the domain that `base` is in, and not less
/// protected on the way.
fn is_of_one_provider(base: &Url, url: &Url) -> bool {
    let (Some(known), Some(host)) = (base.host_str(), url.host_str()) else { return false };
    if url.scheme() != base.scheme() || !url.username().is_empty() || url.password().is_some() {
        return false;
    }
    if known == host {
        return true;
    }
    // `app.daytona.io` is in `daytona.io`; `daytona.io` itself is in nothing that is only the provider's.
    let domain = match known.split_once('.') {
        Some((_, domain)) if is_owned(domain) && known.parse::<std::net::IpAddr>().is_err() => domain,
        _ => known,
    };
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Returns whether a domain is one owner's: not a top-level domain, and not one like `co.uk`, below which are many owners'.
fn is_owned(domain: &str) -> bool {
    match domain.split_once('.') {
        Some((name, country)) if country.len() == 2 && name.len() <= 3 => false,
        Some(_) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_trusted(base: &str, url: &str) -> bool {
        is_of_one_provider(&Url::parse(base).unwrap(), &Url::parse(url).unwrap())
    }

    #[test]
    fn a_key_goes_to_the_providers_own_hosts_alone() {
        let base = "https://app.daytona.io/api";
        for trusted in
            ["https://proxy.app.daytona.io/toolbox", "https://app.daytona.io/x", "https://eu.daytona.io"]
        {
            assert!(is_trusted(base, trusted), "{trusted}");
        }
        for elsewhere in [
            "https://evil.example",
            "https://evildaytona.io",
            "https://daytona.io.evil.example",
            "http://proxy.app.daytona.io/toolbox",
            "https://user@proxy.app.daytona.io",
            "https://daytona.io@evil.example",
        ] {
            assert!(!is_trusted(base, elsewhere), "{elsewhere}");
        }
        assert!(is_trusted("http://127.0.0.1:80/api", "http://127.0.0.1:81/toolbox"));
        assert!(!is_trusted("http://127.0.0.1:80/api", "http://1.0.0.1/toolbox"));
        assert!(!is_trusted("https://daytona.io", "https://other.io"));
        assert!(!is_trusted("https://company.co.uk/api", "https://evil.co.uk/api"));
        assert!(is_trusted("https://company.co.uk/api", "https://proxy.company.co.uk/api"));
    }

    #[test]
    fn errors_are_read_in_every_shape() {
        for (body, message) in [
            (r#"{"statusCode":403,"message":"no","error":"Forbidden"}"#, "no"),
            (r#"{"message":["a","b"]}"#, "a; b"),
            (r#"{"error":{"message":"inner"}}"#, "inner"),
            (r#"{"detail":"gone"}"#, "gone"),
            ("plain", "plain"),
            ("<html>x", "a web page"),
        ] {
            assert_eq!(message_of(body.as_bytes()), message);
        }
    }

    #[test]
    fn an_id_is_never_a_path() {
        assert!(is_id("a-b_c.1"));
        for bad in ["", "..", "a/b", "a?b", "a b", "a%2f", &"x".repeat(129)] {
            assert!(!is_id(bad), "{bad}");
        }
    }

    #[test]
    fn an_address_is_extended_and_never_replaced() {
        let base = Url::parse("https://h/api/").unwrap();
        assert_eq!(below(&base, "/sandbox/x?a=b").as_str(), "https://h/api/sandbox/x?a=b");
    }
}
