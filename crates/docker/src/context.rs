//! Docker contexts: named endpoints that the docker client keeps below `~/.docker`.
//!
//! Format: `config.json` has `currentContext`; `contexts/meta/<sha256 of the name>/meta.json` has
//! `Endpoints.docker.Host`; `contexts/tls/<the same>/docker/` holds `ca.pem`, `cert.pem` and `key.pem`.

use super::endpoint::{Endpoint, Source, Variables, parse_host, path, text};
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use serde::Deserialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "Endpoints")]
    endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Endpoints {
    docker: Option<DockerEndpoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerEndpoint {
    host: Option<String>,
    #[serde(rename = "SkipTLSVerify", default)]
    skip_tls_verify: bool,
}

/// The docker client's directory: `DOCKER_CONFIG`, or `~/.docker`.
pub(super) fn config_dir(variables: Variables<'_>) -> Option<PathBuf> {
    path(variables, "DOCKER_CONFIG").or_else(|| path(variables, "HOME").map(|home| home.join(".docker")))
}

/// The endpoint of the context in use; `None` where it is the default one, which stands for the sockets.
pub(super) fn current(variables: Variables<'_>) -> Result<Option<Endpoint>> {
    let Some(dir) = config_dir(variables) else { return Ok(None) };
    let name = match text(variables, "DOCKER_CONTEXT")? {
        Some(name) => Some(name),
        None => read::<ConfigFile>(&dir.join("config.json"))?.and_then(|config| config.current_context),
    };
    match name.filter(|name| !name.is_empty() && name != "default") {
        Some(name) => load(&dir, &name).map(Some),
        None => Ok(None),
    }
}

fn load(dir: &Path, name: &str) -> Result<Endpoint> {
    let hash = Hash::of(name).to_string();
    let unusable = |why: &str| {
        Error::config(format!("the docker context `{name}` {why}")).hint(
            "`docker context ls` shows the contexts, `docker context use default` goes back to the default",
        )
    };
    let meta: Meta = read(&dir.join("contexts/meta").join(&hash).join("meta.json"))?
        .ok_or_else(|| unusable("does not exist"))?;
    let docker = meta.endpoints.docker.ok_or_else(|| unusable("has no docker endpoint"))?;
    let host = docker.host.filter(|host| !host.is_empty()).ok_or_else(|| unusable("names no host"))?;
    let certs = dir.join("contexts/tls").join(&hash).join("docker");
    let certs = certs.join("ca.pem").exists().then_some(certs);
    if docker.skip_tls_verify {
        return Err(unusable("does not verify the engine's certificate, which `agent` requires"));
    }
    let address = parse_host(&host, certs.as_deref(), &format!("the docker context `{name}`"))?;
    Ok(Endpoint { address, source: Source::Context(name.to_owned()) })
}

/// A JSON file of the docker client; `None` where it does not exist.
fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => {
            return Err(Error::config(format!("{} cannot be read", path.display())).caused_by(error));
        }
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        Error::config(format!("{} is not what it should be", path.display())).caused_by(error)
    })
}
