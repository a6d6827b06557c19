//! Where the engine may be: the places that the docker client would look in, in its order, and a few more sockets.

use super::context;
use crate::error::{Error, Result};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// A way to reach an engine, and who named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// How to connect.
    pub address: Address,
    /// Who said so.
    pub source: Source,
}

/// How to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `host:port` without encryption.
    Tcp(String),
    /// `host:port` with TLS; `ca.pem`, `cert.pem` and `key.pem` are in the directory.
    Tls(String, PathBuf),
}

/// Who named an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The variable `DOCKER_HOST`.
    DockerHost,
    /// A docker context of this name.
    Context(String),
    /// A socket in a well-known place. Several are tried.
    WellKnown,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp(host) => write!(f, "tcp://{host}"),
            Address::Tls(host, _) => write!(f, "tcp://{host} (TLS)"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::DockerHost => write!(f, "{} (from DOCKER_HOST)", self.address),
            Source::Context(name) => write!(f, "{} (from the docker context `{name}`)", self.address),
            Source::WellKnown => self.address.fmt(f),
        }
    }
}

/// The variables that matter here, looked up by name. A parameter, so that tests need not touch the process's own.
pub type Variables<'a> = &'a (dyn Fn(&str) -> Option<OsString> + Sync);

/// The places to try, in order: `DOCKER_HOST` alone, else the docker context alone (`DOCKER_CONTEXT`, or
/// `currentContext` of the docker configuration), else the well-known sockets of Docker and Podman.
pub fn candidates(variables: Variables<'_>) -> Result<Vec<Endpoint>> {
    if let Some(host) = text(variables, "DOCKER_HOST")? {
        let certs = match text(variables, "DOCKER_TLS_VERIFY")? {
            Some(_) => {
                let named = path(variables, "DOCKER_CERT_PATH").or_else(|| context::config_dir(variables));
                Some(named.ok_or_else(|| {
                    Error::config("DOCKER_TLS_VERIFY is set, but there is no directory with certificates")
                        .hint("set DOCKER_CERT_PATH to the directory of ca.pem, cert.pem and key.pem")
                })?)
            }
            None => None,
        };
        let address = parse_host(&host, certs.as_deref(), "DOCKER_HOST")?;
        return Ok(vec![Endpoint { address, source: Source::DockerHost }]);
    }
    if let Some(endpoint) = context::current(variables)? {
        return Ok(vec![endpoint]);
    }
    let well_known = |socket| Endpoint { address: Address::Unix(socket), source: Source::WellKnown };
    Ok(sockets(variables).into_iter().map(well_known).collect())
}

/// The sockets of a system-wide engine, a rootless one, Docker Desktop, and Podman's two.
fn sockets(variables: Variables<'_>) -> Vec<PathBuf> {
    let runtime = path(variables, "XDG_RUNTIME_DIR");
    let home = path(variables, "HOME");
    let below = |base: &Option<PathBuf>, rest: &str| base.as_ref().map(|base| base.join(rest));
    [
        Some(PathBuf::from("/var/run/docker.sock")),
        below(&runtime, "docker.sock"),
        below(&home, ".docker/run/docker.sock"),
        below(&home, ".docker/desktop/docker.sock"),
        below(&runtime, "podman/podman.sock"),
        Some(PathBuf::from("/run/podman/podman.sock")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The address that `host` names, in the spellings that the docker client takes. `certs` asks for TLS on TCP.
pub(super) fn parse_host(host: &str, certs: Option<&Path>, named_by: &str) -> Result<Address> {
    let (scheme, rest) = host.split_once("://").unwrap_or(("tcp", host));
    let rest = rest.trim_end_matches('/');
    match (scheme, certs) {
        ("unix", _) if rest.starts_with('/') => Ok(Address::Unix(PathBuf::from(rest))),
        ("tcp" | "http" | "https", Some(certs)) if is_authority(rest) => {
            Ok(Address::Tls(with_port(rest, 2376), certs.to_owned()))
        }
        ("tcp" | "http", None) if is_authority(rest) => Ok(Address::Tcp(with_port(rest, 2375))),
        ("https", None) => Err(Error::config(format!("{named_by} is {host}, but no certificates are named"))
            .hint("set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH")),
        ("ssh", _) => {
            Err(Error::sandbox(format!("{named_by} is {host}: an engine over ssh cannot be used directly"))
                .hint(format!(
                    "forward its socket, `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock {rest}`, and set \
                     DOCKER_HOST=unix:///tmp/docker.sock; or use `--sandbox local`"
                )))
        }
        _ => Err(Error::config(format!("{named_by} is {host}, which is no address of an engine"))
            .hint("unix:///path/to/docker.sock or tcp://host:port")),
    }
}

fn is_authority(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']'))
}

fn with_port(authority: &str, port: u16) -> String {
    let after_address = authority.rsplit(']').next().unwrap_or(authority);
    if after_address.contains(':') { authority.to_owned() } else { format!("{authority}:{port}") }
}

/// A variable that is set and not empty. One that is not UTF-8 names no endpoint.
pub(super) fn text(variables: Variables<'_>, name: &str) -> Result<Option<String>> {
    match variables(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => {
            value.into_string().map(Some).map_err(|_| Error::config(format!("{name} is not valid UTF-8")))
        }
    }
}

/// A variable that holds a path and is not empty.
pub(super) fn path(variables: Variables<'_>, name: &str) -> Option<PathBuf> {
    variables(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
