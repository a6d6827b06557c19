//! The backends by name, and which one a session gets.

use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_cloud::{self as cloud, Cloud, Daytona, E2B, E2b, NOVITA, Runloop};
use agent_docker::{self as docker, Docker};
use agent_kubernetes as kubernetes;
use agent_sandbox::local::{self, Local};
use agent_sandbox::{Backend, Capabilities};
use agent_vm as vm;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Deserializer};
use std::str::FromStr;
use std::sync::Arc;

type Connecting = BoxFuture<'static, Result<Arc<dyn Backend>>>;

/// A kind of backend, as far as it is known before it is connected to.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// The most that a backend of this kind can do.
    pub capabilities: Capabilities,
    /// Set if `auto` may choose it.
    automatic: bool,
    connect: fn(Arc<Machine>) -> Connecting,
}

/// Every kind; `auto` takes the first that works.
pub static KINDS: [Kind; 9] = [
    Kind {
        name: docker::NAME,
        about: "A locked-down container",
        capabilities: docker::CAPABILITIES,
        automatic: true,
        connect: |machine| {
            Box::pin(async move { Ok(Arc::new(Docker::connect(machine).await?) as Arc<dyn Backend>) })
        },
    },
    Kind {
        name: local::NAME,
        about: "Linux namespaces",
        capabilities: local::CAPABILITIES,
        automatic: true,
        connect: |machine| Box::pin(async move { Ok(Arc::new(Local::new(machine)) as Arc<dyn Backend>) }),
    },
    Kind {
        name: vm::NAME,
        about: "A virtual machine of QEMU",
        capabilities: vm::CAPABILITIES,
        automatic: false,
        connect: connect_vm,
    },
    Kind {
        name: kubernetes::NAME,
        about: "A locked-down pod",
        capabilities: kubernetes::CAPABILITIES,
        automatic: false,
        connect: connect_kubernetes,
    },
    Kind {
        name: cloud::E2B_NAME,
        about: "A sandbox of E2B's",
        capabilities: cloud::CAPABILITIES,
        automatic: false,
        connect: |machine| {
            Box::pin(async move {
                Ok(Arc::new(Cloud::new(E2b::connect(&E2B, &machine)?, machine)) as Arc<dyn Backend>)
            })
        },
    },
    Kind {
        name: cloud::NOVITA_NAME,
        about: "A sandbox of Novita's",
        capabilities: cloud::CAPABILITIES,
        automatic: false,
        connect: |machine| {
            Box::pin(async move {
                Ok(Arc::new(Cloud::new(E2b::connect(&NOVITA, &machine)?, machine)) as Arc<dyn Backend>)
            })
        },
    },
    Kind {
        name: cloud::DAYTONA,
        about: "A sandbox of Daytona's",
        capabilities: cloud::CAPABILITIES,
        automatic: false,
        connect: |machine| {
            Box::pin(async move {
                Ok(Arc::new(Cloud::new(Daytona::connect(&machine)?, machine)) as Arc<dyn Backend>)
            })
        },
    },
    Kind {
        name: cloud::RUNLOOP,
        about: "A devbox of Runloop's",
        capabilities: cloud::CAPABILITIES,
        automatic: false,
        connect: |machine| {
            Box::pin(async move {
                Ok(Arc::new(Cloud::new(Runloop::connect(&machine)?, machine)) as Arc<dyn Backend>)
            })
        },
    },
    Kind {
        name: cloud::MODAL,
        about: "A sandbox of Modal's",
        capabilities: cloud::MODAL_CAPABILITIES,
        automatic: false,
        connect: connect_modal,
    },
];

#[cfg(feature = "modal")]
fn connect_modal(machine: Arc<Machine>) -> Connecting {
    Box::pin(async move {
        Ok(Arc::new(Cloud::new(cloud::Modal::connect(&machine)?, machine)) as Arc<dyn Backend>)
    })
}

#[cfg(not(feature = "modal"))]
fn connect_modal(_machine: Arc<Machine>) -> Connecting {
    Box::pin(async {
        Err(Error::config("this build of agent has no client of Modal in it")
            .hint("build it with its default features, or with --features modal"))
    })
}

#[cfg(feature = "kubernetes")]
fn connect_kubernetes(machine: Arc<Machine>) -> Connecting {
    Box::pin(async move { Ok(Arc::new(kubernetes::Kubernetes::connect(machine).await?) as Arc<dyn Backend>) })
}

#[cfg(not(feature = "kubernetes"))]
fn connect_kubernetes(_machine: Arc<Machine>) -> Connecting {
    Box::pin(async {
        Err(Error::config("this build of agent has no Kubernetes client in it")
            .hint("build it with its default features, or with --features kubernetes"))
    })
}

#[cfg(feature = "vm")]
fn connect_vm(machine: Arc<Machine>) -> Connecting {
    Box::pin(async move { Ok(Arc::new(vm::Vm::connect(machine)?) as Arc<dyn Backend>) })
}

#[cfg(not(feature = "vm"))]
fn connect_vm(_machine: Arc<Machine>) -> Connecting {
    Box::pin(async {
        Err(Error::config("this build of agent makes no virtual machines")
            .hint("build it with its default features, or with --features vm"))
    })
}

impl Kind {
    /// The kind called `name`.
    ///
    /// # Errors
    /// `Config` where there is none.
    pub fn named(name: &str) -> Result<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            Error::config(format!("unknown backend {} (known: {})", name.escape_debug(), known.join(", ")))
        })
    }

    /// The backend, where it can be used on `machine`.
    pub async fn connect(&self, machine: &Arc<Machine>) -> Result<Arc<dyn Backend>> {
        (self.connect)(Arc::clone(machine)).await
    }

    /// Returns whether `auto` may choose it. What it may not choose is on another machine.
    pub fn is_automatic(&self) -> bool {
        self.automatic
    }

    fn accepts(&self, image: Option<&str>, runtime: Option<&str>) -> Result<()> {
        self.capabilities.check_image(self.name, image, runtime)
    }
}

/// The value of `--sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxChoice {
    /// The first backend that works.
    #[default]
    Auto,
    /// The backend of this name, which is in [`KINDS`].
    Named(&'static str),
}

impl SandboxChoice {
    /// The word for the automatic choice.
    pub const AUTO: &'static str = "auto";

    /// Returns whether it names a backend without OCI runtimes.
    pub fn lacks_runtimes(self) -> bool {
        matches!(self, Self::Named(name) if Kind::named(name).is_ok_and(|kind| !kind.capabilities.runtimes))
    }
}

impl FromStr for SandboxChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            Self::AUTO => Ok(Self::Auto),
            name => Ok(Self::Named(Kind::named(name)?.name)),
        }
    }
}

impl schemars::JsonSchema for SandboxChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SandboxChoice".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<&str> =
            std::iter::once(Self::AUTO).chain(KINDS.iter().map(|kind| kind.name)).collect();
        schemars::json_schema!({ "enum": names })
    }
}

impl<'de> Deserialize<'de> for SandboxChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A backend, and why it was chosen.
pub struct Chosen {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// One line for the user; `None` where the backend was named.
    pub reason: Option<String>,
    /// Set if it was chosen because a better one does not work.
    pub is_fallback: bool,
}

/// The backend that was named, or with `auto` the first that works and has `image` and `runtime`.
///
/// # Errors
/// The named backend does not work (it is never replaced by another), or has no images or runtimes where one is named.
pub async fn choose(
    choice: SandboxChoice,
    image: Option<&str>,
    runtime: Option<&str>,
    machine: &Arc<Machine>,
) -> Result<Chosen> {
    if let SandboxChoice::Named(name) = choice {
        let kind = Kind::named(name)?;
        kind.accepts(image, runtime)?;
        return Ok(Chosen { backend: kind.connect(machine).await?, reason: None, is_fallback: false });
    }
    let mut first_failure: Option<Error> = None;
    for kind in KINDS.iter().filter(|kind| kind.automatic && kind.accepts(image, runtime).is_ok()) {
        match kind.connect(machine).await {
            Ok(backend) => {
                let why = first_failure.as_ref().map_or_else(|| backend.location(), Error::to_string);
                let reason = Some(format!("sandbox: {} ({why})", kind.name));
                return Ok(Chosen { backend, reason, is_fallback: first_failure.is_some() });
            }
            Err(error) => first_failure = first_failure.or(Some(error)),
        }
    }
    Err(first_failure.unwrap_or_else(|| Error::sandbox("no backend can start this sandbox")))
}

/// The backend of an earlier session.
pub async fn by_name(name: &str, machine: &Arc<Machine>) -> Result<Arc<dyn Backend>> {
    Kind::named(name)?.connect(machine).await
}

/// Removes, in the background, what is left over on `backend`: once in the life of this process.
pub fn sweep_once(backend: &Arc<dyn Backend>) {
    static SWEPT: Lock<Vec<&str>> = Lock::new(Vec::new());
    let mut swept = SWEPT.lock();
    if swept.contains(&backend.name()) {
        return;
    }
    swept.push(backend.name());
    let backend = Arc::clone(backend);
    tokio::spawn(async move {
        // What cannot be removed now is swept by a later process.
        let _ = backend.sweep().await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_backend_is_refused_with_the_known_ones() {
        let error = "podman".parse::<SandboxChoice>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend podman (known: docker, local, vm, kubernetes, e2b, novita, daytona, runloop, modal)"
        );
        assert_eq!("auto".parse::<SandboxChoice>().unwrap(), SandboxChoice::Auto);
        assert_eq!("local".parse::<SandboxChoice>().unwrap(), SandboxChoice::Named("local"));
    }

    #[test]
    fn docker_inside_is_refused_by_name_where_the_kernel_is_not_the_sandboxs_own() {
        let spec = agent_sandbox::Spec { docker: true, ..agent_sandbox::Spec::new("a-session") };
        for kind in &KINDS {
            let checked = kind.capabilities.check(kind.name, &spec).map_err(|error| error.to_string());
            let refused = format!("Docker cannot run inside of the {} sandbox", kind.name);
            assert_eq!(checked, if kind.name == vm::NAME { Ok(()) } else { Err(refused) });
        }
    }
}
