//! Which backend a session gets.

use super::docker::Docker;
use super::local::Local;
use super::{Backend, Network};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Which backend a session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxChoice {
    /// Docker if its engine answers, else local.
    Auto,
    /// A locked-down container.
    Docker,
    /// Linux namespaces.
    Local,
}

/// A backend, and why it is this one where the person did not say.
pub struct Chosen {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// One line for the person; absent where the backend was named.
    pub reason: Option<String>,
}

/// The backend that was named, or with `auto` docker if its engine answers, else local.
///
/// # Errors
/// `Sandbox` where the named one cannot serve: it is never replaced by another. `Config` where a local one was named with an
/// `image` or a `runtime`, which only an engine has.
pub async fn choose(choice: SandboxChoice, image: Option<&str>, runtime: Option<&str>) -> Result<Chosen> {
    let named = |backend: Arc<dyn Backend>| Chosen { backend, reason: None };
    match choice {
        SandboxChoice::Docker => Ok(named(Arc::new(Docker::connect().await?))),
        SandboxChoice::Local => {
            no_engine_needed(image, runtime)?;
            Ok(named(Arc::new(Local)))
        }
        SandboxChoice::Auto => match Docker::connect().await {
            Ok(docker) => {
                let reason = format!("sandbox: docker ({})", docker.engine().endpoint);
                Ok(Chosen { backend: Arc::new(docker), reason: Some(reason) })
            }
            // An image or a runtime needs an engine; what is wrong with the engine is then the thing to know.
            Err(error) if no_engine_needed(image, runtime).is_err() => Err(error),
            Err(no_engine) => {
                let reason = format!("sandbox: local ({no_engine})");
                Ok(Chosen { backend: Arc::new(Local), reason: Some(reason) })
            }
        },
    }
}

/// The backend that an earlier session ran on.
pub async fn by_name(name: &str) -> Result<Arc<dyn Backend>> {
    match name {
        "docker" => Ok(Arc::new(Docker::connect().await?)),
        "local" => Ok(Arc::new(Local)),
        other => Err(Error::sandbox(format!("{other:?} is no backend that this version knows"))),
    }
}

/// Whether a local sandbox serves. A wall that was asked for is never left out without a word: a runtime of its own is a
/// stronger one.
///
/// # Errors
/// `Config`: only an engine has images and runtimes.
pub fn no_engine_needed(image: Option<&str>, runtime: Option<&str>) -> Result<()> {
    let image = image.filter(|image| *image != "host").map(|image| ("image", image));
    let Some((what, name)) = image.or(runtime.map(|runtime| ("runtime", runtime))) else { return Ok(()) };
    Err(Error::config(format!("the local sandbox has no {what}s, so not {name} either")).hint(format!(
        "leave --{what} out (or AGENT_{}, or {what} in config.toml), or use --sandbox docker",
        what.to_uppercase()
    )))
}

/// The network in the words of `session_started`.
pub fn network_words(network: &Network) -> String {
    match network {
        Network::None => "none".to_owned(),
        Network::Full => "full".to_owned(),
        Network::Hosts(hosts) => hosts.join(","),
    }
}
