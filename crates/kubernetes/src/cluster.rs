//! The API server: how it is found, and requests to it. Answers are read as JSON of which nothing is taken for granted.

use super::failure;
use super::settings::Settings;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use futures_util::Stream;
use http::{Method, Request, StatusCode};
use kube::client::Connection;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 20;
/// The time limit for a request, and for the upgrade of a connection.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Characters that are left as they are in a query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A namespace of a cluster, with the user's credentials.
#[derive(Clone)]
pub(super) struct Cluster {
    /// With the credentials that were read last.
    client: Arc<Mutex<kube::Client>>,
    /// The machine and the settings that the configuration comes from.
    source: Arc<(Arc<Machine>, Settings)>,
    /// The namespace of the pods.
    pub namespace: String,
    /// The API server, for messages.
    pub location: String,
    /// Its address, where it is not this machine's own.
    pub address: Option<SocketAddr>,
}

impl Cluster {
    /// The cluster that `kubectl` would talk to.
    pub async fn connect(machine: &Arc<Machine>, settings: &Settings) -> Result<Self> {
        let config = configuration(machine, settings).await?;
        let namespace = settings.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        if !is_name(&namespace) {
            return Err(Error::config(format!("{:?} is not a valid namespace", namespace)));
        }
        let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).parse();
        let address = host.ok().filter(|host: &std::net::IpAddr| !host.is_loopback());
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let location = location(&config);
        let client = kube::Client::try_from(config)
            .map_err(|error| failure::error("the connection to the cluster could not be set up", error))?;
        let address = address.map(|host| SocketAddr::new(host, port));
        let source = Arc::new((Arc::clone(machine), settings.clone()));
        Ok(Self { client: Arc::new(Mutex::new(client)), source, namespace, location, address })
    }

    fn client(&self) -> kube::Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the credentials again: those of a long session are renewed meanwhile, in the kubeconfig, in a file that it names, or by
    /// its plugin. `false` where there are none, or only those of another cluster.
    async fn renew(&self) -> bool {
        let (machine, settings) = &*self.source;
        let Ok(config) = configuration(machine, settings).await else { return false };
        if location(&config) != self.location {
            return false;
        }
        let client = kube::Client::try_from(config);
        let is_renewed = client.is_ok();
        if let Ok(client) = client {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
        is_renewed
    }

    /// Returns whether a request that was answered with this status is worth repeating: the credentials were not accepted, and there are
    /// others now.
    async fn is_renewed_after(&self, code: Option<u16>) -> bool {
        code == Some(401) && self.renew().await
    }

    /// The path of what is in the namespace: `pods`, or `pods/NAME`.
    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// The path of the namespace's objects of another group.
    pub fn group_path(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{rest}", self.namespace)
    }

    /// A request and its answer.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> kube::Result<Value> {
        let answer = async {
            let answered = self.send_once(&method, path, body).await;
            let code = answered.as_ref().err().and_then(failure::code);
            match self.is_renewed_after(code).await {
                true => self.send_once(&method, path, body).await,
                false => answered,
            }
        };
        timeout(TIMEOUT, answer).await.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
    }

    async fn send_once(&self, method: &Method, path: &str, body: Option<&Value>) -> kube::Result<Value> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request =
            Request::builder().method(method.clone()).uri(path).header("accept", "application/json");
        if body.is_some() {
            let kind = match *method {
                Method::PATCH => "application/merge-patch+json",
                _ => "application/json",
            };
            request = request.header("content-type", kind);
        }
        let request =
            request.body(kube::client::Body::from(text.into_bytes())).map_err(kube::Error::HttpError)?;
        let response = self.client().send(request).await?;
        let status = response.status();
        let bytes = axum::body::to_bytes(axum::body::Body::new(response.into_body()), MAX_ANSWER).await;
        let bytes = bytes.map_err(|error| kube::Error::Service(error.into()))?;
        read(status, &bytes)
    }

    /// Returns what is at `path`; `None` where there is nothing.
    pub async fn get(&self, path: &str) -> kube::Result<Option<Value>> {
        match self.send(Method::GET, path, None).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if failure::code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns what is created at `path`.
    pub async fn create(&self, path: &str, body: &Value) -> kube::Result<Value> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Deletes what is at `path`, and returns it as it is then. `None` where there is nothing, or something else than the
    /// preconditions of `options` name.
    pub async fn delete(&self, path: &str, options: &Value) -> kube::Result<Option<Value>> {
        match self.send(Method::DELETE, path, Some(options)).await {
            Ok(deleted) => Ok(Some(deleted)),
            Err(error) if failure::code(&error) == Some(404) => Ok(None),
            Err(error) if failure::code(&error) == Some(409) && options.get("preconditions").is_some() => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Follows one object of the namespace's list at `path`, from `version` on.
    pub async fn watch(
        &self,
        path: &str,
        name: &str,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<Value>>> + use<>> {
        self.watch_selected(path, &format!("metadata.name={name}"), version).await
    }

    /// Follows the objects of the namespace's list at `path` that a field selector chooses. Without a `version`, those that are there
    /// come first.
    pub async fn watch_selected(
        &self,
        path: &str,
        selector: &str,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<Value>>> + use<>> {
        let (selector, version) = (escape(selector), escape(version));
        let uri = format!(
            "{path}?watch=true&fieldSelector={selector}&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=290"
        );
        let request = Request::builder().uri(uri).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client().request_events(request).await
    }

    /// Starts `command` in a container of a pod and connects to its streams.
    pub async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> kube::Result<Connection> {
        let mut uri = format!(
            "{}?container={}&stdin=true&stdout=true&stderr=true",
            self.path(&format!("pods/{pod}/exec")),
            escape(container)
        );
        for word in command {
            uri = format!("{uri}&command={}", escape(word));
        }
        let connection = async {
            let connected = self.connect_once(&uri).await;
            let code = connected.as_ref().err().and_then(failure::code);
            match self.is_renewed_after(code).await {
                true => self.connect_once(&uri).await,
                false => connected,
            }
        };
        timeout(TIMEOUT, connection).await.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
    }

    async fn connect_once(&self, uri: &str) -> kube::Result<Connection> {
        let request = Request::builder().uri(uri).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client().connect(request).await
    }
}

/// The API server of a configuration.
fn location(config: &kube::Config) -> String {
    config.cluster_url.to_string().trim_end_matches('/').to_owned()
}

/// The answer's JSON, or the error that it states.
fn read(status: StatusCode, bytes: &[u8]) -> kube::Result<Value> {
    if status.is_success() {
        return serde_json::from_slice(bytes).map_err(kube::Error::SerdeError);
    }
    let stated = serde_json::from_slice::<kube::core::Status>(bytes).ok();
    let text = || String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).into_owned();
    let mut stated = stated.unwrap_or_else(|| kube::core::Status::failure(&text(), ""));
    stated.code = status.as_u16();
    Err(kube::Error::Api(Box::new(stated)))
}

/// As `kubectl` finds it: the files of `KUBECONFIG`, or `~/.kube/config`; in a pod of the cluster, what is mounted there.
async fn configuration(machine: &Machine, settings: &Settings) -> Result<kube::Config> {
    let hint = "`kubectl config view` shows what is configured; KUBECONFIG and --kube-context choose";
    let broken = |error| {
        Error::config("the configuration of the cluster cannot be used")
            .hint(hint)
            .caused_by(anyhow::Error::new(error))
    };
    let named = machine.variable("KUBECONFIG").filter(|value| !value.is_empty());
    let files: Vec<PathBuf> = match named {
        Some(named) => std::env::split_paths(named).filter(|file| file.is_file()).collect(),
        None => machine
            .home()
            .map(|home| home.join(".kube/config"))
            .filter(|file| file.is_file())
            .into_iter()
            .collect(),
    };
    let mut merged: Option<Kubeconfig> = None;
    for file in &files {
        let read = Kubeconfig::read_from(file).map_err(broken)?;
        merged = Some(match merged {
            Some(before) => before.merge(read).map_err(broken)?,
            None => read,
        });
    }
    match merged {
        Some(config) => {
            let options = KubeConfigOptions { context: settings.context.clone(), ..Default::default() };
            kube::Config::from_custom_kubeconfig(config, &options).await.map_err(broken)
        }
        None => kube::Config::incluster().map_err(|_| {
            Error::config(
                "no cluster is configured: there is neither a kubeconfig nor a pod's service account here",
            )
            .hint("set KUBECONFIG, or write ~/.kube/config as your provider's tool does it")
        }),
    }
}

/// A value of a query.
pub(super) fn escape(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Returns whether a text is a name of the API, which may be part of a path.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    !text.is_empty() && text.len() <= 253 && text.bytes().all(fits) && !text.starts_with('.')
}
