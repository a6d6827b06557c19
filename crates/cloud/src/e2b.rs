//! E2B and Novita: one control plane in two variants, and envd in each sandbox, which takes files and runs commands.

use super::api::{
    Api, Failure, KeyHeader, LONG, ProviderProfile, Repeat, SHORT, form, is_loopback, quote, server_address,
};
use super::envd;
use super::provider::{CAPABILITIES, CREATION, Creation, Executed, Instance, Provider, is_isolated, leash};
use super::snapshot::ListedSnapshot;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::ownership::{HOST, SESSION, this_host};
use agent_sandbox::{Capabilities, OnProgress, State};
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use url::form_urlencoded;

/// The backends' names.
pub const E2B_NAME: &str = "e2b";
pub const NOVITA_NAME: &str = "novita";

/// envd's port.
const ENVD_PORT: u16 = 49983;
/// Sandboxes of one page of a list, and pages.
const PAGE: usize = 100;
const MAX_PAGES: usize = 50;
/// The label that says for how many seconds a sandbox exists without a client.
const LEASH: &str = "agent.leash";
/// `root:` for HTTP's basic authentication: who files belong to and commands run as. There is no password.
const AS_ROOT: &str = "Basic cm9vdDo=";

/// The differences between the vendors.
pub struct Vendor {
    place: ProviderProfile,
    /// The vendor's domain, unless the variable says otherwise.
    domain: &'static str,
    domain_variable: &'static str,
    /// One address for all sandboxes, which then are named in headers.
    sandbox_url_variable: &'static str,
    sandbox_header: &'static str,
    port_header: &'static str,
    /// Creation has a second version, which can be repeated without making a second sandbox.
    creates_once: bool,
    /// A pause without a body: another is not documented.
    pauses_without_body: bool,
    /// A sandbox can be copied into a template, from which others are made with metadata of their own.
    has_snapshots: bool,
}

/// E2B, and who else speaks its protocol.
pub static E2B: Vendor = Vendor {
    place: ProviderProfile {
        name: E2B_NAME,
        default_url: "https://api.e2b.app",
        url_variable: "E2B_API_URL",
        key_variable: "E2B_API_KEY",
        key_header: KeyHeader::ApiKey,
        console: "https://e2b.dev/dashboard",
    },
    domain: "e2b.app",
    domain_variable: "E2B_DOMAIN",
    sandbox_url_variable: "E2B_SANDBOX_URL",
    sandbox_header: "e2b-sandbox-id",
    port_header: "e2b-sandbox-port",
    creates_once: true,
    pauses_without_body: false,
    has_snapshots: true,
};

/// Novita.
pub static NOVITA: Vendor = Vendor {
    place: ProviderProfile {
        name: NOVITA_NAME,
        default_url: "https://api.us-phx-1.sandbox.novita.ai",
        url_variable: "NOVITA_API_URL",
        key_variable: "NOVITA_API_KEY",
        key_header: KeyHeader::ApiKey,
        console: "https://novita.ai/settings/key-management",
    },
    domain: "us-phx-1.sandbox.novita.ai",
    domain_variable: "NOVITA_DOMAIN",
    sandbox_url_variable: "NOVITA_SANDBOX_URL",
    sandbox_header: "novita-sandbox-id",
    port_header: "novita-sandbox-port",
    creates_once: false,
    pauses_without_body: true,
    // What its `clone` makes has the metadata of its source or none, and whether the source of a `commit` continues is not documented.
    has_snapshots: false,
};

/// The API of E2B or Novita.
pub struct E2b {
    vendor: &'static Vendor,
    api: Api,
    domain: String,
    /// The one address of all sandboxes, where there is one.
    sandboxes: Option<Url>,
}

impl E2b {
    /// The vendor, as the environment of this machine describes it.
    ///
    /// # Errors
    /// `Config` where there is no key, or an address is not valid.
    pub fn connect(vendor: &'static Vendor, machine: &Machine) -> Result<Self> {
        let text = |name: &str| machine.text(name).filter(|text| !text.trim().is_empty());
        let named = text(vendor.domain_variable);
        let domain = named.as_deref().map_or(vendor.domain, str::trim).to_ascii_lowercase();
        let of_domain =
            domain_address(&domain).and_then(|_| Url::parse(&format!("https://api.{domain}")).ok());
        let of_domain = of_domain.ok_or_else(|| {
            Error::config(format!("{} is not the name of a domain", vendor.domain_variable))
                .hint(format!("write it like {}", vendor.domain))
        });
        let sandboxes = text(vendor.sandbox_url_variable);
        let sandboxes =
            sandboxes.map(|text| server_address(vendor.sandbox_url_variable, &text)).transpose()?;
        // Where both addresses are set, nothing is below the domain, which may be one of `agent serve`, with a port.
        let base = match (text(vendor.place.url_variable), &sandboxes) {
            (Some(text), Some(_)) => server_address(vendor.place.url_variable, &text)?,
            (Some(text), None) => of_domain.and(server_address(vendor.place.url_variable, &text))?,
            (None, _) => of_domain?,
        };
        let is_here = is_loopback(&base) && sandboxes.as_ref().is_some_and(is_loopback);
        let api = Api::at(&vendor.place, machine, base, is_here)?;
        Ok(Self { vendor, api, domain, sandboxes })
    }

    async fn post(&self, path: &str, body: Option<&Value>, repeat: Repeat) -> Result<Value, Failure> {
        self.api.json(Method::POST, self.api.url(path), body, repeat, LONG).await
    }

    /// Makes a sandbox. Where the answer was lost, it is looked for instead of being made twice.
    async fn post_creation(&self, creation: &Creation<'_>) -> Result<Value> {
        let mut body = self.creation_body(creation);
        if self.vendor.creates_once {
            match self.post_once(creation, &body).await {
                // Imitators of E2B, and its own releases for self-hosting, may have the first version alone.
                Err(Failure { status: Some(404 | 405), .. }) => {}
                made => return Ok(made?),
            }
        }
        // Without it there is no token, and an id alone opens the sandbox.
        body["secure"] = true.into();
        match self.post("sandboxes", Some(&body), Repeat::Never).await {
            Ok(made) => Ok(made),
            Err(Failure { status: None | Some(500..), error }) => {
                let found = self.with_label(CREATION, creation.labels.get(CREATION)).await?;
                let found = found.into_iter().next().ok_or(error)?;
                Ok(json!({ "sandboxID": found.id }))
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// The second version of creation: the same key makes one sandbox, however often it is sent.
    async fn post_once(&self, creation: &Creation<'_>, body: &Value) -> Result<Value, Failure> {
        let key = creation.labels.get(CREATION).cloned().unwrap_or_default();
        let request = || {
            let request = self.api.request(Method::POST, self.api.url("v2/sandboxes"));
            request.header("idempotency-key", &key).json(body)
        };
        self.api.send(Repeat::Idempotent, LONG, &request).await
    }

    fn creation_body(&self, creation: &Creation<'_>) -> Value {
        let spec = creation.spec;
        let seconds = leash(spec).as_secs();
        let mut metadata = creation.labels.clone();
        metadata.insert(LEASH.to_owned(), seconds.to_string());
        let mut body = json!({
            "templateID": spec.snapshot.as_deref().or(spec.image.as_deref()).unwrap_or("base"),
            "timeout": seconds,
            "metadata": metadata,
            // What is kept is paused at the end of its time, with its memory, and not removed.
            "autoPause": !spec.ephemeral,
            "network": { "allowPublicTraffic": false },
        });
        if is_isolated(spec) {
            body["allow_internet_access"] = false.into();
            body["network"]["denyOut"] = json!(["0.0.0.0/0"]);
        }
        body
    }

    /// The sandboxes whose metadata has this value.
    async fn with_label(&self, name: &str, value: Option<&String>) -> Result<Vec<Instance>> {
        let value = value.map_or("", String::as_str);
        let label = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
        let mut url = self.api.url("v2/sandboxes");
        url.query_pairs_mut().append_pair("metadata", &label).append_pair("state", "running,paused");
        let listed = self.pages(url).await?;
        // What is not ours, or not understood, is left alone.
        let ours = listed.iter().filter_map(|item| self.instance(item).ok());
        Ok(ours.filter(|found| found.labels.get(name).is_some_and(|label| label == value)).collect())
    }

    /// Returns what a list holds, of all of its pages.
    async fn pages(&self, url: Url) -> Result<Vec<Value>, Failure> {
        let (mut found, mut next) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let mut url = url.clone();
            url.query_pairs_mut().append_pair("limit", &PAGE.to_string());
            if let Some(next) = &next {
                url.query_pairs_mut().append_pair("nextToken", next);
            }
            let (page, token) = self.api.page(url, "x-next-token").await?;
            let items = page.as_array().cloned().unwrap_or_default();
            next = token.filter(|token| !token.is_empty() && !items.is_empty());
            found.extend(items);
            if next.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// The id of a copy: that of a template, or its name in the team's namespace, with a tag.
    fn checked_snapshot(&self, value: &Value) -> Result<String> {
        let id = text(value, "snapshotID");
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
        match (1..=256).contains(&id.len()) && id.chars().all(fits) {
            true => Ok(id.to_owned()),
            false => {
                let id = quote(id);
                Err(Error::sandbox(format!("{} names a snapshot {id}, which is not a valid id", self.name())))
            }
        }
    }

    /// The id in a description. It becomes part of a host's name; older ones end with the id of a client.
    fn checked_id(&self, value: &Value) -> Result<String> {
        let id = text(value, "sandboxID");
        let is_id = (1..=63).contains(&id.len())
            && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !id.starts_with('-');
        match is_id {
            true => Ok(id.to_owned()),
            false => {
                let id = quote(id);
                Err(Error::sandbox(format!("{} names a sandbox {id}, which is not a valid id", self.name())))
            }
        }
    }

    /// Reads a description of a sandbox. Those in a list have no tokens.
    fn instance(&self, value: &Value) -> Result<Instance> {
        let metadata = value.get("metadata").and_then(Value::as_object).into_iter().flatten();
        let labels: HashMap<String, String> =
            metadata.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let address = match text(value, "domain") {
            "" => None,
            // As `agent serve` says that it has none, and one address for all of them.
            domain if domain.starts_with('@') && self.sandboxes.is_some() => None,
            domain => Some(self.checked_domain(domain)?),
        };
        let token = |name| Some(text(value, name)).filter(|token| !token.is_empty()).map(str::to_owned);
        Ok(Instance {
            id: self.checked_id(value)?,
            state: Some(if text(value, "state") == "paused" { State::Paused } else { State::Running }),
            labels,
            created: text(value, "startedAt").to_owned(),
            address,
            token: token("trafficAccessToken"),
            access: token("envdAccessToken"),
        })
    }

    /// The domain that a sandbox is in, which has to be the vendor's: the guest and its secret go there.
    fn checked_domain(&self, domain: &str) -> Result<Url> {
        let own = format!(".{}", self.domain);
        match domain_address(domain) {
            Some(url) if domain == self.domain || domain.ends_with(&own) => Ok(url),
            _ => self.api.trusted(&format!("https://{domain}")),
        }
    }

    /// The address of a path at a port of the sandbox, and the headers that lead there.
    fn address(&self, instance: &Instance, port: u16, path: &str) -> Result<(Url, HeaderMap)> {
        let mut headers = HeaderMap::new();
        if let Some(base) = &self.sandboxes {
            headers.insert(HeaderName::from_static(self.vendor.sandbox_header), self.header(&instance.id)?);
            headers.insert(HeaderName::from_static(self.vendor.port_header), HeaderValue::from(port));
            return Ok((super::api::below(base, path), headers));
        }
        let domain = instance.address.as_ref().and_then(Url::host_str).unwrap_or(&self.domain);
        let url = Url::parse(&format!("https://{port}-{}.{domain}/{path}", instance.id));
        let url = url.map_err(|error| Error::sandbox("the sandbox has no valid address").caused_by(error))?;
        Ok((url, headers))
    }

    fn header(&self, text: &str) -> Result<HeaderValue> {
        let mut value = HeaderValue::from_str(text)
            .map_err(|_| Error::sandbox(format!("{} names a token that is not valid", self.name())))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The same of envd, whose token an answer to a creation or connection has.
    fn envd(&self, instance: &Instance, path: &str) -> Result<(Url, HeaderMap)> {
        let (url, mut headers) = self.address(instance, ENVD_PORT, path)?;
        let access = instance.access.as_deref().ok_or_else(|| {
            Error::sandbox(format!("{} names no access token of the sandbox", self.name()))
                .hint("its commands and files would be open to everybody: such a sandbox is not used")
        })?;
        headers.insert(HeaderName::from_static("x-access-token"), self.header(access)?);
        Ok((url, headers))
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let url = self.api.url(&format!("sandboxes/{id}"));
        match self.api.json(Method::DELETE, url, None, Repeat::Idempotent, SHORT).await {
            Ok(_) | Err(Failure { status: Some(404), .. }) => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }

    /// Returns what a request to a sandbox failed with: its edge answers for one that is gone, with the status of a bad gateway.
    fn of_sandbox(&self, failure: Failure) -> Error {
        match failure.status {
            Some(502) => Error::sandbox(format!("the {} sandbox is gone, or does not answer", self.name()))
                .caused_by(failure.error)
                .hint("`agent resume` starts another sandbox from the session's checkpoints"),
            _ => failure.error,
        }
    }

    /// Connects to a sandbox, which resumes a paused one and names its tokens.
    async fn connect_to(&self, instance: &Instance) -> Result<Instance> {
        let body = json!({ "timeout": leash_of(instance).as_secs() });
        let path = format!("sandboxes/{}/connect", instance.id);
        let connected = self.instance(&self.post(&path, Some(&body), Repeat::Idempotent).await?)?;
        match connected.id == instance.id {
            true => Ok(Instance { labels: instance.labels.clone(), ..connected }),
            false => Err(Error::sandbox(format!("{} answers with another sandbox", self.name()))),
        }
    }
}

#[async_trait]
impl Provider for E2b {
    fn name(&self) -> &'static str {
        self.vendor.place.name
    }

    fn location(&self) -> String {
        self.api.location()
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn fingerprint(&self) -> Hash {
        self.api.fingerprint()
    }

    /// Returns every interface: what listens on the loopback one alone is found by a scan, once a second.
    fn listen_address(&self) -> &'static str {
        "0.0.0.0"
    }

    async fn create(
        &self,
        creation: &Creation<'_>,
        _on_progress: OnProgress<'_>,
    ) -> Result<(Instance, Vec<String>)> {
        let made = self.post_creation(creation).await?;
        let id = self.checked_id(&made)?;
        let mut labels = creation.labels.clone();
        labels.insert(LEASH.to_owned(), leash(creation.spec).as_secs().to_string());
        let usable = async {
            let made = Instance { labels, ..self.instance(&made)? };
            match made.access {
                Some(_) => Ok(made),
                // It was looked for, or comes from an imitator.
                None => self.connect_to(&made).await,
            }
        };
        match usable.await {
            Ok(made) => {
                let each = "memory and processes are limited for each process";
                Ok((made, vec![format!("The template decides about processors, memory and disk; {each}.")]))
            }
            Err(error) => {
                // What cannot be removed now ends by its own clock.
                let _ = self.delete(&id).await;
                Err(error)
            }
        }
    }

    async fn of_session(&self, session: &str) -> Result<Vec<Instance>> {
        self.with_label(SESSION, Some(&session.to_owned())).await
    }

    async fn list(&self) -> Result<Vec<Instance>> {
        let found = self.with_label(HOST, Some(&this_host())).await?;
        Ok(found.into_iter().filter(|instance| instance.labels.contains_key(SESSION)).collect())
    }

    async fn upload(&self, instance: &Instance, path: &str, bytes: &[u8]) -> Result<()> {
        let (mut url, headers) = self.envd(instance, "files")?;
        url.query_pairs_mut().append_pair("path", path).append_pair("username", "root");
        let (kind, body) = form(&[], bytes);
        let request = || {
            let request = self.api.http().post(url.clone()).headers(headers.clone());
            request.header(CONTENT_TYPE, &kind).body(body.clone())
        };
        // The same file again is the same file.
        let sent = self.api.send_for_bytes(Repeat::Idempotent, LONG, &request).await;
        sent.map(drop).map_err(|failure| self.of_sandbox(failure))
    }

    async fn execute(&self, instance: &Instance, command: &str) -> Result<Executed> {
        let (url, headers) = self.envd(instance, "process.Process/Start")?;
        let body = envd::start_request(command);
        let request = || {
            let request = self.api.http().post(url.clone()).headers(headers.clone());
            request
                .header(AUTHORIZATION, AS_ROOT)
                .header(CONTENT_TYPE, envd::CONTENT_TYPE)
                .header("connect-protocol-version", "1")
                // The life of the process, in milliseconds.
                .header("connect-timeout-ms", LONG.as_millis().to_string())
                .body(body.clone())
        };
        let answer = self.api.send_for_bytes(Repeat::Never, LONG, &request).await;
        let answer = answer.map_err(|failure| self.of_sandbox(failure))?;
        envd::executed(self.name(), &answer)
    }

    async fn port(&self, instance: &Instance, port: u16) -> Result<(Url, HeaderMap)> {
        let connected = match instance.access {
            Some(_) => instance.clone(),
            None => self.connect_to(instance).await?,
        };
        let (url, mut headers) = self.address(&connected, port, "")?;
        if let Some(token) = &connected.token {
            headers.insert(HeaderName::from_static("e2b-traffic-access-token"), self.header(token)?);
        }
        Ok((url, headers))
    }

    /// The edge holds a request for a port at which nothing listens for a second, and answers it with 502 then.
    fn is_concurrent(&self) -> bool {
        true
    }

    fn http(&self) -> Option<&reqwest::Client> {
        Some(self.api.http())
    }

    async fn refresh(&self, instance: &Instance) -> Result<()> {
        let body = json!({ "timeout": leash_of(instance).as_secs() });
        let path = format!("sandboxes/{}/timeout", instance.id);
        Ok(self.post(&path, Some(&body), Repeat::Idempotent).await.map(drop)?)
    }

    async fn remove(&self, instance: &Instance) -> Result<()> {
        self.delete(&instance.id).await
    }

    /// Without memory where the account has that: then nothing of the source runs in the copy. What came with memory is ended
    /// before the fork's own guest starts.
    async fn snapshot(&self, instance: &Instance, name: &str) -> Result<Option<String>> {
        if !self.vendor.has_snapshots {
            return Ok(None);
        }
        let path = format!("sandboxes/{}/snapshots", instance.id);
        let of_files = json!({ "name": name, "memory": false });
        let made = match self.post(&path, Some(&of_files), Repeat::Never).await {
            Err(Failure { status: Some(400 | 409), .. }) => {
                self.post(&path, Some(&json!({ "name": name })), Repeat::Never).await
            }
            made => made,
        };
        self.checked_snapshot(&made?).map(Some)
    }

    async fn snapshots(&self) -> Result<Vec<ListedSnapshot>> {
        if !self.vendor.has_snapshots {
            return Ok(Vec::new());
        }
        let listed = match self.pages(self.api.url("snapshots")).await {
            // Imitators of E2B have none.
            Err(Failure { status: Some(404 | 405), .. }) => return Ok(Vec::new()),
            listed => listed?,
        };
        let snapshot = |item: &Value| {
            // In the team's namespace, and with a tag.
            let name = item["names"].get(0).and_then(Value::as_str)?;
            let name = name.rsplit('/').next()?.split(':').next()?.to_owned();
            Some(ListedSnapshot { id: self.checked_snapshot(item).ok()?, name })
        };
        Ok(listed.iter().filter_map(snapshot).collect())
    }

    async fn remove_snapshot(&self, id: &str) -> Result<()> {
        let mut url = self.api.url("templates");
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(id);
        }
        match self.api.json(Method::DELETE, url, None, Repeat::Idempotent, SHORT).await {
            Ok(_) | Err(Failure { status: Some(404), .. }) => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }

    /// Memory and processes are kept.
    async fn pause(&self, instance: &Instance) -> Result<()> {
        let body = json!({});
        let body = (!self.vendor.pauses_without_body).then_some(&body);
        Ok(self.post(&format!("sandboxes/{}/pause", instance.id), body, Repeat::Never).await.map(drop)?)
    }

    async fn resume(&self, instance: &Instance) -> Result<(Instance, bool)> {
        Ok((self.connect_to(instance).await?, false))
    }
}

/// Returns the time by which the end of a sandbox is set ahead, as its metadata says.
fn leash_of(instance: &Instance) -> Duration {
    let seconds = instance.labels.get(LEASH).and_then(|seconds| seconds.parse().ok());
    seconds.map_or(super::provider::LEASH, Duration::from_secs)
}

/// The address of a domain, where that is all it is.
fn domain_address(domain: &str) -> Option<Url> {
    let url = Url::parse(&format!("https://{domain}")).ok()?;
    (url.host_str() == Some(domain) && url.port().is_none() && url.path() == "/").then_some(url)
}

/// A text of an answer, empty where there is none.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(vendor: &'static Vendor, variables: &[(&str, &str)]) -> Result<E2b> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let keys = [("E2B_API_KEY".into(), "e2b_x".into()), ("NOVITA_API_KEY".into(), "nvta_x".into())];
        E2b::connect(vendor, &Machine::new(variables.chain(keys)))
    }

    fn made(api: &E2b, domain: &str) -> Result<Instance> {
        api.instance(&json!({ "sandboxID": "i1", "envdAccessToken": "t", "domain": domain }))
    }

    #[test]
    fn a_sandbox_is_below_the_vendors_domain_or_its_own() {
        let e2b = connect(&E2B, &[]).unwrap();
        let address = |api: &E2b, domain| {
            let (url, headers) = api.address(&made(api, domain).unwrap(), 21_000, "x").unwrap();
            (url.to_string(), headers.len())
        };
        assert_eq!(address(&e2b, ""), ("https://21000-i1.e2b.app/x".to_owned(), 0));
        assert_eq!(address(&e2b, "eu.e2b.app"), ("https://21000-i1.eu.e2b.app/x".to_owned(), 0));
        for elsewhere in ["evil.example", "e2b.app.evil.example", "e2b.app/x", "x@e2b.app", "e2b.app:1", ".."]
        {
            assert!(made(&e2b, elsewhere).is_err(), "{elsewhere}");
        }
        let novita = connect(&NOVITA, &[]).unwrap();
        assert_eq!(address(&novita, "").0, "https://21000-i1.us-phx-1.sandbox.novita.ai/x");
        assert_eq!(novita.location(), "api.us-phx-1.sandbox.novita.ai");
        let own = connect(&E2B, &[("E2B_DOMAIN", "sandbox.example.org")]).unwrap();
        assert_eq!(own.location(), "api.sandbox.example.org");
        assert_eq!(address(&own, "").0, "https://21000-i1.sandbox.example.org/x");
        let here = [("E2B_API_URL", "http://127.0.0.1:1"), ("E2B_SANDBOX_URL", "http://127.0.0.1:2/s")];
        assert_eq!(address(&connect(&E2B, &here).unwrap(), ""), ("http://127.0.0.1:2/s/x".to_owned(), 2));
        // `agent serve --print-env` printed what `agent --sandbox e2b` refused.
        let served = [here[0], here[1], ("E2B_DOMAIN", "@127.0.0.1:2")];
        let served = connect(&E2B, &served).unwrap();
        assert_eq!(address(&served, "@127.0.0.1:2"), ("http://127.0.0.1:2/s/x".to_owned(), 2));
    }

    #[test]
    fn addresses_that_would_reveal_a_key_are_refused() {
        for (name, value) in [
            ("E2B_API_URL", "http://api.e2b.app"),
            ("E2B_SANDBOX_URL", "http://e2b.app"),
            ("E2B_SANDBOX_URL", "https://user@e2b.app"),
            ("E2B_DOMAIN", "e2b.app/x"),
            ("E2B_DOMAIN", "e2b.app:443"),
        ] {
            let error = connect(&E2B, &[(name, value)]).err().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn the_id_of_a_snapshot_is_a_template_of_the_team() {
        let e2b = connect(&E2B, &[]).unwrap();
        for id in ["abc123", "abc123:default", "my-team/agent-fork-x-1-y:default"] {
            assert_eq!(e2b.checked_snapshot(&json!({ "snapshotID": id })).unwrap(), id);
        }
        for id in ["", "a b", "a\n", "a?b", "a%2f", &"a".repeat(257)] {
            assert!(e2b.checked_snapshot(&json!({ "snapshotID": id })).is_err(), "{id}");
        }
    }

    #[test]
    fn an_id_that_would_name_another_host_is_refused() {
        let e2b = connect(&E2B, &[]).unwrap();
        for id in ["", "a.b", "a/b", "-a", "a_b", "a@b", &"a".repeat(64)] {
            assert!(e2b.instance(&json!({ "sandboxID": id })).is_err(), "{id}");
        }
    }
}
