//! The facts about the engine for `agent doctor`, as data and in words.

use super::endpoint::Source;
use super::{Docker, host_image, named_image};
use agent_base::error::{Error, Result};
use bollard::models::SystemInfo;
use serde::Serialize;
use std::path::Path;

/// The engine and what it can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// The address at which it answers, and who named that.
    pub endpoint: String,
    /// Set if the place was named by `DOCKER_HOST` or a docker context, rather than found.
    pub named: bool,
    /// The engine's version.
    pub version: String,
    /// Its operating system, as it calls it.
    pub operating_system: String,
    /// Set if it runs on this machine, so that the image `host` and mounts of the workspace are possible.
    pub on_this_machine: bool,
    /// Set if it runs without root.
    pub rootless: bool,
    /// Set if root inside a container is somebody else outside.
    pub userns_remap: bool,
    /// Set if it filters system calls.
    pub seccomp: bool,
    /// OCI runtimes that `--runtime` takes, sorted.
    pub runtimes: Vec<String>,
    /// Those among `runtimes` that isolate a sandbox more strongly than namespaces do (gVisor, Kata).
    pub stronger_runtimes: Vec<String>,
    /// `1` or `2`.
    pub cgroup_version: String,
    /// Limits that this engine cannot enforce: among `memory`, `swap`, `cpus` and `pids`.
    pub unenforced: Vec<&'static str>,
    /// The driver by which it stores containers.
    pub storage_driver: String,
}

impl Docker {
    /// Asks the engine about itself. Takes some ten milliseconds.
    pub async fn checks(&self) -> Result<Checks> {
        let info = self.engine().info().await?;
        let on_this_machine = self.engine().is_on_this_machine(&info);
        let endpoint = &self.engine().endpoint;
        Ok(Checks::new(endpoint.to_string(), endpoint.source != Source::WellKnown, on_this_machine, info))
    }

    /// Returns whether the engine has the image `name`, so that it need not be pulled.
    pub async fn has_image(&self, name: &str) -> Result<bool> {
        named_image::is_there(self.engine(), name).await
    }

    /// Returns what is said where the image `host` was named and the engine runs elsewhere.
    pub fn host_is_not_here(&self) -> Error {
        host_image::not_here(self.engine())
    }
}

impl Checks {
    fn new(endpoint: String, named: bool, on_this_machine: bool, info: SystemInfo) -> Checks {
        let security = info.security_options.unwrap_or_default();
        let has = |name: &str| security.iter().any(|option| option.split(',').any(|part| part == name));
        // An engine also lists the runtimes that it would know how to use. On another machine nobody can look.
        let is_installed = |path: Option<&str>| {
            !on_this_machine || path.is_none_or(|path| !path.starts_with('/') || Path::new(path).exists())
        };
        let listed = info.runtimes.unwrap_or_default().into_iter();
        let mut runtimes: Vec<String> = listed
            .filter(|(_, runtime)| is_installed(runtime.path.as_deref()))
            .map(|(name, _)| name)
            .collect();
        runtimes.sort();
        let is_stronger =
            |name: &&String| ["runsc", "gvisor", "kata", "krun"].iter().any(|w| name.contains(w));
        let limits = [
            ("memory", info.memory_limit),
            ("swap", info.swap_limit),
            ("cpus", info.cpu_cfs_quota),
            ("pids", info.pids_limit),
        ];
        let unknown = || "unknown".to_owned();
        Checks {
            endpoint,
            named,
            version: info.server_version.unwrap_or_else(unknown),
            operating_system: info.operating_system.unwrap_or_else(unknown),
            on_this_machine,
            rootless: has("name=rootless"),
            userns_remap: has("name=userns"),
            seccomp: has("name=seccomp"),
            stronger_runtimes: runtimes.iter().filter(is_stronger).cloned().collect(),
            runtimes,
            cgroup_version: info.cgroup_version.map_or_else(unknown, |version| version.to_string()),
            unenforced: limits
                .iter()
                .filter(|(_, able)| *able == Some(false))
                .map(|(name, _)| *name)
                .collect(),
            storage_driver: info.driver.unwrap_or_else(unknown),
        }
    }

    /// Returns whether `--runtime NAME` is possible, as far as the engine says: it also takes paths and the names of containerd's
    /// shims, which it does not list.
    pub fn has_runtime(&self, name: &str) -> bool {
        name.contains(['/', '.']) || self.runtimes.iter().any(|runtime| runtime == name)
    }

    /// The same in sentences, the most important first.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("engine {} on {}, at {}", self.version, self.operating_system, self.endpoint),
            if self.on_this_machine {
                "it runs on this machine: the image `host` serves, nothing has to be pulled".to_owned()
            } else {
                format!("it runs elsewhere: the default image is {}", agent_sandbox::image::DEFAULT)
            },
            format!("storage {}, cgroup version {}", self.storage_driver, self.cgroup_version),
        ];
        if !self.seccomp {
            words.push("it does not filter system calls: its seccomp profile is off".to_owned());
        }
        if !self.unenforced.is_empty() {
            words.push(format!("it cannot enforce these limits: {}", self.unenforced.join(", ")));
        }
        words.push(self.isolation());
        words
    }

    fn isolation(&self) -> String {
        let mut stronger = Vec::new();
        if self.rootless {
            stronger.push("the engine runs without root".to_owned());
        }
        if self.userns_remap {
            stronger.push("users inside are mapped to others outside".to_owned());
        }
        if !self.stronger_runtimes.is_empty() {
            stronger.push(format!("`--runtime {}` is there", self.stronger_runtimes.join("` or `")));
        }
        match stronger.is_empty() {
            true => {
                "stronger isolation is available: a rootless engine, userns-remap, or --runtime runsc or kata"
                    .to_owned()
            }
            false => format!("stronger than usual: {}", stronger.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_configured_and_not_installed_is_not_offered() {
        let runtime = |path: &str| bollard::models::Runtime { path: Some(path.into()), ..Default::default() };
        let runtimes =
            [("runc", runtime("runc")), ("kata", runtime("/no/such/kata")), ("runsc", runtime("/bin/sh"))];
        let info = SystemInfo {
            runtimes: Some(runtimes.map(|(name, runtime)| (name.to_owned(), runtime)).into()),
            ..Default::default()
        };
        assert_eq!(Checks::new(String::new(), false, true, info.clone()).runtimes, ["runc", "runsc"]);
        assert_eq!(Checks::new(String::new(), false, false, info).runtimes, ["kata", "runc", "runsc"]);
    }

    #[test]
    fn what_the_engine_says_becomes_words() {
        let info = SystemInfo {
            server_version: Some("28.0.1".into()),
            operating_system: Some("Fedora".into()),
            security_options: Some(vec!["name=seccomp,profile=builtin".into(), "name=rootless".into()]),
            runtimes: Some(
                [("runc".into(), Default::default()), ("runsc".into(), Default::default())].into(),
            ),
            pids_limit: Some(false),
            driver: Some("overlay2".into()),
            ..Default::default()
        };
        let checks = Checks::new("unix:///run/user/1000/docker.sock".into(), false, true, info);
        assert!(checks.rootless && checks.seccomp && !checks.userns_remap);
        insta::assert_snapshot!(checks.words().join("\n"), @r"
        engine 28.0.1 on Fedora, at unix:///run/user/1000/docker.sock
        it runs on this machine: the image `host` serves, nothing has to be pulled
        storage overlay2, cgroup version unknown
        it cannot enforce these limits: pids
        stronger than usual: the engine runs without root; `--runtime runsc` is there
        ");
    }
}
