//! The connection to the engine: found, reached, and known to be on this machine or not.

use super::endpoint::{Address, Endpoint, Source, candidates};
use super::failure;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use bollard::models::SystemInfo;
use bollard::{API_DEFAULT_VERSION, Docker};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The time limit for an engine to answer its first ping.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for the answer to one request, in seconds. Streams may go on for longer.
const REQUEST_TIMEOUT_SECS: u64 = 120;

/// An engine that answers.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The client. It asks without a version in the path, which an engine answers in its own: nothing to negotiate.
    pub(super) client: Docker,
    /// The endpoint at which it was found.
    pub endpoint: Endpoint,
    /// The machine that asks.
    pub(super) machine: Arc<Machine>,
}

impl Engine {
    /// Finds the engine as the docker client does and makes sure that it answers.
    pub async fn find(machine: Arc<Machine>) -> Result<Engine> {
        let candidates = candidates(&|name| machine.variable(name).map(OsStr::to_owned))?;
        Self::find_among(candidates, machine).await
    }

    /// The first of `endpoints` that answers.
    async fn find_among(endpoints: Vec<Endpoint>, machine: Arc<Machine>) -> Result<Engine> {
        let mut first_failure = None;
        for endpoint in endpoints {
            match Self::connect(&endpoint, &machine).await {
                Ok(engine) => return Ok(engine),
                Err(Unreachable::Absent) if endpoint.source == Source::WellKnown => {}
                Err(failure) => {
                    first_failure.get_or_insert(failure.into_error(&endpoint));
                }
            }
        }
        Err(first_failure.unwrap_or_else(|| {
            Error::sandbox("no Docker engine was found")
                .hint("start Docker or Podman, point DOCKER_HOST at an engine, or use `--sandbox local`")
        }))
    }

    async fn connect(endpoint: &Endpoint, machine: &Arc<Machine>) -> Result<Engine, Unreachable> {
        if let Address::Unix(socket) = &endpoint.address {
            probe(socket).await?;
        }
        let client = client(&endpoint.address).map_err(|error| Unreachable::Failed(failure::text(&error)))?;
        match timeout(CONNECT_TIMEOUT, client.ping()).await {
            Ok(Ok(_)) => Ok(Engine { client, endpoint: endpoint.clone(), machine: Arc::clone(machine) }),
            Ok(Err(error)) => Err(Unreachable::Failed(failure::text(&error))),
            Err(_) => Err(Unreachable::Failed(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))),
        }
    }

    /// Returns what the engine says of itself.
    pub async fn info(&self) -> Result<SystemInfo> {
        self.client.info().await.map_err(|error| failure::error("the engine does not describe itself", error))
    }

    /// Returns whether the engine runs on this very machine, so that paths mean the same to both: it is reached over a Unix
    /// socket, and its host name and kernel are ours. An engine in a virtual machine differs in both.
    pub fn is_on_this_machine(&self, info: &SystemInfo) -> bool {
        let ours = uname();
        cfg!(target_os = "linux")
            && matches!(self.endpoint.address, Address::Unix(_))
            && info.name.as_ref() == Some(&ours.nodename)
            && info.kernel_version.as_ref() == Some(&ours.release)
    }
}

/// The reason why an endpoint cannot be used.
enum Unreachable {
    /// Nothing is there.
    Absent,
    /// It is there, but this user may not use it.
    Denied,
    /// Anything else.
    Failed(String),
}

impl Unreachable {
    fn into_error(self, endpoint: &Endpoint) -> Error {
        match self {
            Unreachable::Absent => Error::sandbox(format!("no Docker engine answers at {endpoint}"))
                .hint("start the engine, or use `--sandbox local`"),
            Unreachable::Denied => Error::sandbox(format!("permission to use the Docker engine at {endpoint} is denied"))
                .hint(
                    "join the group that owns the socket (`sudo usermod -aG docker $USER`, then log in again), use a \
                     rootless engine, or use `--sandbox local`",
                ),
            Unreachable::Failed(why) => {
                Error::sandbox(format!("the Docker engine at {endpoint} does not answer: {why}"))
                    .hint("`docker info` should work first; or use `--sandbox local`")
            }
        }
    }
}

/// Tells absent from forbidden, which the HTTP client's error does not.
async fn probe(socket: &Path) -> Result<(), Unreachable> {
    match timeout(CONNECT_TIMEOUT, UnixStream::connect(socket)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
                Unreachable::Absent
            }
            ErrorKind::PermissionDenied => Unreachable::Denied,
            _ => Unreachable::Failed(error.to_string()),
        }),
        Err(_) => Err(Unreachable::Failed("the socket takes no connection".to_owned())),
    }
}

fn client(address: &Address) -> Result<Docker, bollard::errors::Error> {
    match address {
        Address::Unix(path) => {
            Docker::connect_with_unix(&path.to_string_lossy(), REQUEST_TIMEOUT_SECS, API_DEFAULT_VERSION)
        }
        Address::Tcp(host) => Docker::connect_with_http(host, REQUEST_TIMEOUT_SECS, API_DEFAULT_VERSION),
        Address::Tls(host, certs) => {
            // bollard panics without a process-wide provider; one that is installed already is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let file = |name| certs.join(name);
            Docker::connect_with_ssl(
                host,
                &file("key.pem"),
                &file("cert.pem"),
                &file("ca.pem"),
                REQUEST_TIMEOUT_SECS,
                API_DEFAULT_VERSION,
            )
        }
    }
}

/// Host name and kernel release of this machine.
pub(super) struct Uname {
    pub nodename: String,
    pub release: String,
}

/// `uname -n` and `uname -r`.
pub(super) fn uname() -> Uname {
    let uname = rustix::system::uname();
    let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
    Uname { nodename: text(uname.nodename()), release: text(uname.release()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    fn well_known(path: PathBuf) -> Endpoint {
        Endpoint { address: Address::Unix(path), source: Source::WellKnown }
    }

    async fn find_among(endpoint: Endpoint) -> Result<Engine> {
        Engine::find_among(vec![endpoint], Arc::new(Machine::new([]))).await
    }

    #[tokio::test]
    async fn with_no_socket_anywhere_the_error_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = find_among(well_known(dir.path().join("none.sock"))).await.unwrap_err();
        assert_eq!(error.to_string(), "no Docker engine was found");
        assert!(error.hint_text().unwrap().contains("--sandbox local"));
    }

    #[tokio::test]
    async fn a_socket_that_nobody_serves_is_passed_over_but_not_where_it_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let stale = dir.path().join("stale.sock");
        drop(UnixListener::bind(&stale).unwrap());
        assert!(find_among(well_known(stale.clone())).await.unwrap_err().to_string().contains("was found"));
        let named = Endpoint { address: Address::Unix(stale), source: Source::DockerHost };
        let error = find_among(named).await.unwrap_err();
        assert!(error.to_string().ends_with("stale.sock (from DOCKER_HOST)"), "{error}");
    }

    #[tokio::test]
    async fn something_that_is_no_engine_is_an_error_and_not_a_hang() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("odd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        // Takes the probe's connection and the client's, and closes both.
        let server = std::thread::spawn(move || (0..2).for_each(|_| drop(listener.accept())));
        let error = find_among(well_known(socket)).await.unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
        server.join().unwrap();
    }
}
