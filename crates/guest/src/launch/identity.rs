//! Who the sandbox's processes are: an ordinary user without a single capability and without a way to get one.

use super::step::{FailedStep, Step};
use super::{landlock, sys};
use crate::filters;
use agent_wire::launch_spec::LaunchSpec;
use std::fs;
use std::path::Path;

/// Returns whether this process's user namespace maps the sandbox's user and group, so that root can become them.
pub fn can_become(spec: &LaunchSpec) -> bool {
    [("/proc/self/uid_map", spec.uid), ("/proc/self/gid_map", spec.gid)]
        .into_iter()
        .all(|(file, id)| fs::read_to_string(file).is_ok_and(|map| map.lines().any(|line| maps_id(line, id))))
}

/// Returns whether a line of a map (user_namespaces(7)), `FIRST OUTSIDE COUNT`, maps `id`.
fn maps_id(line: &str, id: u32) -> bool {
    let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or_default());
    let (first, count) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
    (first..first.saturating_add(count)).contains(&u64::from(id))
}

/// Maps the caller's user and group, and nobody else, into the new user namespace, as the sandbox's.
pub fn map_caller(spec: &LaunchSpec, (uid, gid): (u32, u32)) -> Result<(), FailedStep> {
    // A group map may only be written by one who has given up setgroups(2) (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny").step("give up setgroups")?;
    fs::write("/proc/self/uid_map", format!("{} {uid} 1", spec.uid)).step("map the user")?;
    fs::write("/proc/self/gid_map", format!("{} {gid} 1", spec.gid)).step("map the group")?;
    // A second barrier behind the seccomp filter: no user namespaces below this one.
    let _ = fs::write("/proc/sys/user/max_user_namespaces", "0");
    // The kernel counts these by user, and gives each user few: a sandbox may not take all of them.
    for (name, most) in [("max_inotify_instances", "64"), ("max_inotify_watches", "32768")] {
        let _ = fs::write(format!("/proc/sys/user/{name}"), most);
    }
    Ok(())
}

/// For an ordinary user, who has no capability to give up: none can be gained from here on, and the rest as below.
pub fn give_up_gaining_privileges(spec: &LaunchSpec) -> Result<(), FailedStep> {
    lower_limits(spec)?;
    confine(spec, &[])
}

/// Gives up everything: user (where it was root), capabilities in all five sets, and the hope of new ones. `own` are
/// directories that are written to beside the usual ones.
pub fn give_up_privileges(spec: &LaunchSpec, is_root: bool, own: &[&Path]) -> Result<(), FailedStep> {
    lower_limits(spec)?;
    sys::empty_bounding_set().step("empty the capability bounding set")?;
    if is_root {
        sys::become_user(spec.uid, spec.gid).step("become an ordinary user")?;
    }
    sys::drop_capabilities().step("drop the capabilities")?;
    confine(spec, own)
}

/// Lowers the limits of each process.
pub fn lower_limits(spec: &LaunchSpec) -> Result<(), FailedStep> {
    let mut limits = spec.rlimits.iter();
    limits
        .try_for_each(|(resource, limit)| sys::lower_limit(*resource, *limit))
        .step("lower the resource limits")
}

fn confine(spec: &LaunchSpec, own: &[&Path]) -> Result<(), FailedStep> {
    sys::set_no_new_privileges().step("set no_new_privs")?;
    landlock::restrict(own).step("restrict writing by Landlock")?;
    filters::install(&spec.seccomp).step("install the seccomp filters")
}
