//! `guest enter SPEC`: becomes the guest of the container that this process is the first one of.
//!
//! `SPEC` is a [`LaunchSpec`] in hexadecimal digits, of which arguments, environment, resource limits and filters count.
//! The container is confined by its runtime; what is added here holds whatever that enforces.

use super::step::{FailedStep, Step};
use super::{identity, sys};
use crate::socket_memory;
use agent_wire::launch_spec::LaunchSpec;
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The prefix of variables that the kubelet adds to the environment of every container: the sandbox has nothing to do with the cluster.
const CLUSTER_VARIABLES: &str = "KUBERNETES_";

/// `guest enter SPEC`. Returns only what went wrong.
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(spec), None) = (arguments.next(), arguments.next()) else {
        return Err(crate::USAGE.to_owned());
    };
    let spec = crate::hex(&spec).ok_or("the specification is not in hexadecimal digits")?;
    let spec = LaunchSpec::decode(&spec).map_err(|error| error.to_string())?;
    match enter(&spec) {
        Err(failure) => Err(failure.to_string()),
        Ok(never) => match never {},
    }
}

fn enter(spec: &LaunchSpec) -> Result<Infallible, FailedStep> {
    sys::close_from(3);
    crate::sys::set_umask(0o022);
    std::env::set_current_dir("/workspace").step("enter /workspace")?;
    // The filters refuse it, to the guest as well.
    let questions = socket_memory::questions_for_the_guest();
    identity::give_up_gaining_privileges(spec)?;
    let mut guest = Command::new("/proc/self/exe");
    guest.args(&spec.argv);
    if let Some(fd) = questions {
        guest.args(["--socket-questions-fd", &fd.to_string()]);
    }
    guest.envs(spec.env.iter().map(|(name, value)| (name, value)));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(CLUSTER_VARIABLES.as_bytes()) {
            guest.env_remove(name);
        }
    }
    Err(FailedStep::new("start the guest", guest.exec()))
}
