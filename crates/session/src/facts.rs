//! The facts that the model of a session learns at its beginning: where it works, and with what.

use super::settings::{SandboxSettings, WorkspaceSettings};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_base::sanitise::one_line;
use agent_core::{Checkout, SandboxFacts};
use agent_network::credentials::Credential;
use agent_sandbox::{Network, host_tree, own_place};
use agent_tools::code;
use agent_workspace::tracked;
use std::path::Path;

/// Largest description of an operating system that is read, and characters of its name.
const MAX_RELEASE: u64 = 16 << 10;
const MAX_SYSTEM: usize = 80;

/// Returns what the system prompt says about the sandbox and the workspace. Blocking.
pub(super) fn facts(
    sandbox: &SandboxSettings,
    workspace: &WorkspaceSettings,
    mut programs: Vec<String>,
    asks_about_network: bool,
) -> SandboxFacts {
    let SandboxSettings { network, limits, image, directory, credentials, added, .. } = sandbox.clone();
    let machine = &workspace.machine;
    programs.retain(|program| PROGRAMS.contains(&program.as_str()));
    let checkout = tracked::branch(&workspace.root).map(|branch| Checkout {
        branch,
        has_uncommitted: tracked::has_uncommitted(&workspace.root, &workspace.object_stores, machine),
    });
    let date = jiff::Zoned::now().date().to_string();
    let system = shows_this_machine(sandbox).then(|| system(machine));
    SandboxFacts {
        workspace: own_place(sandbox.backend.as_ref(), &workspace.root).unwrap_or_default(),
        directory,
        added: added.into_iter().map(|added| (added.path, added.read_only)).collect(),
        date,
        system,
        checkout,
        network: with_hosts_of(&credentials, network),
        credentials: credentials.iter().map(|credential| credential.rule.description()).collect(),
        asks_about_network,
        limits,
        image,
        programs,
        skills: None,
    }
}

/// The hosts of credentials can be reached, whatever the list names.
fn with_hosts_of(credentials: &[Credential], network: Network) -> Network {
    let hosts = credentials.iter().flat_map(|credential| &credential.rule.hosts).map(ToString::to_string);
    match network {
        Network::Hosts(named) => Network::Hosts(named.into_iter().chain(hosts).collect()),
        Network::None if !credentials.is_empty() => Network::Hosts(hosts.collect()),
        network => network,
    }
}

/// `Debian GNU/Linux 12 (bookworm), x86_64`
fn system(machine: &Machine) -> String {
    let path = machine.on_host(Path::new("/etc/os-release"));
    let release = plain_file::read(&path, MAX_RELEASE, Links::Follow).unwrap_or_default();
    let release = String::from_utf8_lossy(&release).into_owned();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map_or("Linux", |name| name.trim_matches(['"', '\'']));
    format!("{}, {}", one_line(name, MAX_SYSTEM), std::env::consts::ARCH)
}

/// Returns whether the sandbox has this machine's own system: an engine on another machine shows that machine's, or that of an
/// image.
fn shows_this_machine(sandbox: &SandboxSettings) -> bool {
    sandbox.backend.capabilities().host_paths && sandbox.image.as_deref().is_none_or(|image| image == "host")
}

/// The programs of this machine, where the sandbox shows them, as far as anybody wants to know of them.
pub(super) fn host_programs(sandbox: &SandboxSettings, machine: &Machine) -> Vec<String> {
    let further = code::PROGRAMS.iter().filter(|program| !PROGRAMS.contains(program));
    let names: Vec<&str> = PROGRAMS.iter().chain(further).copied().collect();
    if shows_this_machine(sandbox) { host_tree::host_programs(machine, &names) } else { Vec::new() }
}

/// The programs that the system prompt mentions where they exist.
const PROGRAMS: [&str; 18] = [
    "bash", "git", "make", "cmake", "gcc", "clang", "rustc", "cargo", "go", "python3", "pip", "node", "npm",
    "java", "mvn", "ruby", "rg", "jq",
];
