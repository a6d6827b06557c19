//! Who the sandbox's processes are: an ordinary user without a single capability and without a way to get one.

use super::spec::LaunchSpec;
use super::step::{Failure, Step};
use super::{landlock, sys};
use std::fs;

/// Maps the caller's own user and group, and nobody else, into the new user namespace.
pub fn map_own_user(spec: &LaunchSpec) -> Result<(), Failure> {
    // A group map may only be written by one who has given up setgroups(2) (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny").step("give up setgroups")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", spec.uid)).step("map the user")?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", spec.gid)).step("map the group")?;
    // A second wall behind the seccomp filter: no user namespaces below this one.
    let _ = fs::write("/proc/sys/user/max_user_namespaces", "0");
    Ok(())
}

/// Gives up everything: user (where it was root), capabilities in all five sets, and the hope of new ones.
pub fn give_up_privileges(spec: &LaunchSpec, is_root: bool) -> Result<(), Failure> {
    for (resource, limit) in &spec.rlimits {
        sys::lower_limit(*resource, *limit).step("lower the resource limits")?;
    }
    sys::empty_bounding_set().step("empty the capability bounding set")?;
    if is_root {
        sys::become_user(spec.uid, spec.gid).step("become an ordinary user")?;
    }
    sys::drop_capabilities().step("drop the capabilities")?;
    sys::set_no_new_privileges().step("set no_new_privs")?;
    landlock::restrict().step("restrict writing by Landlock")?;
    for program in &spec.seccomp {
        sys::install_filter(program).step("install the seccomp filter")?;
    }
    Ok(())
}
