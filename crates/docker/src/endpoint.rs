//! Where the engine may be: the places that the docker client would look in, in its order, and a few more sockets.

use super::context;
use agent_base::error::{Error, Result};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A way to reach an engine, and who named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address to connect to.
    pub address: Address,
    /// The source that named it.
    pub source: Source,
}

/// The address of an engine, by the kind of connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `host:port` without encryption.
    Tcp(String),
    /// `host:port` with TLS; `ca.pem`, `cert.pem` and `key.pem` are in the directory.
    Tls(String, PathBuf),
}

/// The source that named an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The variable `DOCKER_HOST`.
    DockerHost,
    /// A docker context of this name.
    Context(String),
    /// A socket in a well-known place. Several are tried.
    WellKnown,
}

impl Address {
    /// Returns whether the engine runs on this machine, as far as the address tells.
    pub fn is_near(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Returns whether an ordinary caller runs the engine. In its containers the caller is root, and the user inside is another, who may
    /// not write to directories that the caller makes.
    pub fn is_of_caller(&self) -> bool {
        let Self::Unix(socket) = self else { return false };
        let caller = rustix::process::geteuid();
        !caller.is_root() && std::fs::metadata(socket).is_ok_and(|socket| socket.uid() == caller.as_raw())
    }
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
                    Error::config(
                        "DOCKER_TLS_VERIFY is set, but the directory with the certificates is missing",
                    )
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
        _ => Err(Error::config(format!("{named_by} is {host}, which is not a valid address of an engine"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::hash::Hash;
    use std::fs;

    fn find(variables: &[(&str, &str)]) -> Result<Vec<Endpoint>> {
        candidates(&|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
    }

    fn shown(variables: &[(&str, &str)]) -> Vec<String> {
        find(variables).unwrap().iter().map(Endpoint::to_string).collect()
    }

    /// A home whose docker configuration has this current context, and one context `build` with this meta data.
    fn home(current: &str, meta: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let docker = home.path().join(".docker");
        let hash = Hash::of("build").to_string();
        fs::create_dir_all(docker.join("contexts/meta").join(&hash)).unwrap();
        fs::write(docker.join("config.json"), format!(r#"{{"auths":{{}},"currentContext":"{current}"}}"#))
            .unwrap();
        fs::write(docker.join("contexts/meta").join(&hash).join("meta.json"), meta).unwrap();
        home
    }

    const META: &str = r#"{"Name":"build","Metadata":{},"Endpoints":{"docker":{"Host":"tcp://build:2376","SkipTLSVerify":false}}}"#;

    #[test]
    fn without_a_word_the_sockets_of_docker_and_podman_are_tried() {
        assert_eq!(
            shown(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/run/user/7")]),
            [
                "unix:///var/run/docker.sock",
                "unix:///run/user/7/docker.sock",
                "unix:///h/.docker/run/docker.sock",
                "unix:///h/.docker/desktop/docker.sock",
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock",
            ]
        );
    }

    #[test]
    fn docker_host_comes_before_the_context() {
        let home = home("build", META);
        let home = home.path().to_str().unwrap();
        let one = |host| shown(&[("HOME", home), ("DOCKER_HOST", host)]);
        assert_eq!(one("unix:///x.sock"), ["unix:///x.sock (from DOCKER_HOST)"]);
        assert_eq!(one("tcp://[::1]/"), ["tcp://[::1]:2375 (from DOCKER_HOST)"]);
        assert_eq!(one("engine:99"), ["tcp://engine:99 (from DOCKER_HOST)"]);
        assert_eq!(
            one(""),
            ["tcp://build:2375 (from the docker context `build`)"].map(|s| s.replace("2375", "2376"))
        );
    }

    #[test]
    fn tls_takes_its_certificates_from_the_named_directory_or_the_clients_own() {
        let tls = ("DOCKER_TLS_VERIFY", "1");
        let host = ("DOCKER_HOST", "tcp://engine");
        let address = |variables: &[_]| find(variables).unwrap().remove(0).address;
        let named = address(&[host, tls, ("DOCKER_CERT_PATH", "/certs")]);
        assert_eq!(named, Address::Tls("engine:2376".into(), "/certs".into()));
        let own = address(&[host, tls, ("HOME", "/h")]);
        assert_eq!(own, Address::Tls("engine:2376".into(), "/h/.docker".into()));
        assert!(find(&[host, tls]).is_err());
    }

    #[test]
    fn the_current_context_names_the_engine_and_its_certificates() {
        let home = home("build", META);
        let variables = [("HOME", home.path().to_str().unwrap())];
        assert_eq!(shown(&variables), ["tcp://build:2376 (from the docker context `build`)"]);
        let hash = Hash::of("build").to_string();
        let certs = home.path().join(".docker/contexts/tls").join(hash).join("docker");
        fs::create_dir_all(&certs).unwrap();
        fs::write(certs.join("ca.pem"), "").unwrap();
        assert_eq!(find(&variables).unwrap()[0].address, Address::Tls("build:2376".into(), certs));
    }

    #[test]
    fn docker_context_comes_before_the_current_one_and_default_means_the_sockets() {
        let home = home("missing", META);
        let home = ("HOME", home.path().to_str().unwrap());
        assert_eq!(shown(&[home, ("DOCKER_CONTEXT", "build")]).len(), 1);
        assert_eq!(find(&[home, ("DOCKER_CONTEXT", "default")]).unwrap()[0].source, Source::WellKnown);
        assert_eq!(find(&[home]).unwrap_err().to_string(), "the docker context `missing` does not exist");
    }

    #[test]
    fn what_cannot_be_used_is_said_with_a_way_out() {
        let error = |host| find(&[("DOCKER_HOST", host)]).unwrap_err();
        assert!(error("ssh://me@engine").hint_text().unwrap().contains("ssh -nNT -L"));
        for host in ["npipe:////./pipe/x", "unix://relative", "tcp://", "tcp://a b", "https://engine"] {
            assert_eq!(error(host).exit_code(), agent_base::exit_code::ExitCode::Usage, "{host}");
        }
        let home = home("build", &META.replace("false", "true"));
        assert!(find(&[("HOME", home.path().to_str().unwrap())]).is_err());
        fs::write(home.path().join(".docker/config.json"), "{").unwrap();
        assert!(find(&[("HOME", home.path().to_str().unwrap())]).is_err());
    }
}
