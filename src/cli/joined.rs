//! A session's sandbox that is still there: it stays as it was made, whatever a later call asks for.

use crate::cli::config::{Config, SandboxConfig};
use crate::event::SandboxInfo;
use crate::sandbox::Network;

/// What the call gets of the sandbox `is`, and a notice for the person where a flag of the call does nothing to it.
pub fn joined(config: &Config, is: &SandboxInfo) -> (SandboxConfig, Option<String>) {
    let asked = &config.sandbox;
    let network = match (is.network.as_str(), &asked.network) {
        ("full", _) => Network::Full,
        (_, Network::Full) => Network::None,
        // Hosts are judged on this side, by each call anew.
        (_, other) => other.clone(),
    };
    let image = is.image.clone().filter(|image| image != "host");
    let runtime = is.runtime.clone();
    let has = SandboxConfig { image, runtime, limits: is.limits.clone(), network, ..asked.clone() };
    let idle = idle(config, &has);
    let notice = || {
        format!(
            "The sandbox of this session is still there and stays as it was made: without effect is {}.",
            idle.join(", ")
        )
    };
    let notice = (!idle.is_empty()).then(notice);
    (has, notice)
}

/// The flags of the call that ask for something else than the sandbox has, or that only count when one is made.
fn idle(config: &Config, has: &SandboxConfig) -> Vec<&'static str> {
    let (asked, options) = (&config.sandbox, &config.options);
    let image = asked.image.as_ref().filter(|image| *image != "host");
    let differs = [
        ("--workspace-mode", options.workspace_mode.is_some()),
        ("--include", !options.include.is_empty()),
        ("--exclude", !options.exclude.is_empty()),
        ("--image", options.image.is_some() && image != has.image.as_ref()),
        ("--runtime", options.runtime.is_some() && asked.runtime != has.runtime),
        ("--network", options.network.is_some() && asked.network != has.network),
        ("--memory", options.memory.is_some() && asked.limits.memory != has.limits.memory),
        ("--cpus", options.cpus.is_some() && asked.limits.cpus != has.limits.cpus),
        ("--pids", options.pids.is_some() && asked.limits.pids != has.limits.pids),
        ("--disk", options.disk.is_some() && asked.limits.disk != has.limits.disk),
        ("--ttl", options.ttl.is_some()),
        ("--delete-after", options.delete_after.is_some()),
    ];
    differs.into_iter().filter_map(|(flag, differs)| differs.then_some(flag)).collect()
}
