//! Obstacles that keep this machine from running local sandboxes, and what makes one weaker than a container: as data, for
//! `agent doctor` and for the error of a sandbox that did not start.

use crate::EnforcedLimits;
use crate::cgroup;
use crate::ownership::PREFIX;
use agent_event::Limits;
use serde::Serialize;
use std::fs;
use std::sync::OnceLock;

/// The findings of `agent doctor` about local sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// Obstacles that certainly or probably keep a sandbox from starting. Empty: none known.
    pub obstacles: Vec<Obstacle>,
    /// Properties that a local sandbox on this machine does not hold as well as a container would.
    pub weaknesses: Vec<String>,
}

/// Something of this system that is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The obstacle, in words.
    pub what: String,
    /// The advice for the user.
    pub hint: String,
}

/// Looks at this machine.
pub fn checks() -> Checks {
    Checks { obstacles: obstacles(), weaknesses: weaknesses(enforced_limits(), is_root()) }
}

/// The limits that control groups enforce here. Makes and removes one, once, to see which.
pub(super) fn enforced_limits() -> EnforcedLimits {
    static LIMITS: OnceLock<EnforcedLimits> = OnceLock::new();
    *LIMITS.get_or_init(|| {
        let made = cgroup::make(&format!("{PREFIX}check-{}", std::process::id()), &Limits::default());
        cgroup::remove(&made.directories);
        made.limited
    })
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The known obstacles, the likeliest first.
pub(super) fn obstacles() -> Vec<Obstacle> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if is_root() { obstacles_of_root(&status) } else { obstacles_of_users(sysctl, &status, &mounts) }
}

fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|value| value.trim().to_owned())
}

fn obstacle(what: &str, hint: &str) -> Obstacle {
    Obstacle { what: what.to_owned(), hint: hint.to_owned() }
}

const ELSEWHERE: &str = "run `agent` outside of the container, use --sandbox docker with an engine that it can reach, or a \
     provider's sandbox with a key: --sandbox novita, e2b, daytona, runloop or modal";

fn obstacles_of_root(status: &str) -> Vec<Obstacle> {
    const CAP_SYS_ADMIN: u32 = 21;
    let effective = field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    match effective {
        Some(capabilities) if capabilities & (1 << CAP_SYS_ADMIN) == 0 => {
            vec![obstacle(
                "this root may not make namespaces (CAP_SYS_ADMIN is missing: a container?)",
                ELSEWHERE,
            )]
        }
        _ => Vec::new(),
    }
}

fn obstacles_of_users(sysctl: impl Fn(&str) -> Option<String>, status: &str, mounts: &str) -> Vec<Obstacle> {
    let says = |name: &str, value: &str| sysctl(name).as_deref() == Some(value);
    let mut found = Vec::new();
    if says("kernel/unprivileged_userns_clone", "0") {
        found.push(obstacle(
            "this system forbids user namespaces to ordinary users (kernel.unprivileged_userns_clone = 0)",
            "as root: sysctl -w kernel.unprivileged_userns_clone=1, or use --sandbox docker",
        ));
    }
    if says("user/max_user_namespaces", "0") {
        found.push(obstacle(
            "this system forbids user namespaces (user.max_user_namespaces = 0)",
            "as root: sysctl -w user.max_user_namespaces=10000, or use --sandbox docker",
        ));
    }
    if says("kernel/apparmor_restrict_unprivileged_userns", "1") {
        found.push(obstacle(
            "AppArmor takes the rights out of user namespaces here \
             (kernel.apparmor_restrict_unprivileged_userns = 1)",
            "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or use --sandbox docker",
        ));
    }
    if field(status, "Seccomp") == Some("2") {
        found.push(obstacle("a system call filter is on this process (a container?)", ELSEWHERE));
    }
    let masked = |line: &str| line.split(' ').nth(4).is_some_and(|point| point.starts_with("/proc/"));
    // systemd mounts binfmt_misc on every machine; what hides files of /proc is mounted by container runtimes.
    if mounts.lines().any(|line| masked(line) && !line.contains("/binfmt_misc ")) {
        found.push(obstacle("parts of /proc are hidden here (a container?)", ELSEWHERE));
    }
    found
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns what is weaker than in a container, given the control groups that could be made.
pub(super) fn weaknesses(limited: EnforcedLimits, is_root: bool) -> Vec<String> {
    let mut weaker = Vec::new();
    if !limited.memory {
        weaker.push(
            "memory is limited for each process, not for all of them together (no memory control group)"
                .to_owned(),
        );
    }
    if !limited.pids {
        weaker.push(
            "processes are counted by user, not by sandbox, on Linux before 5.14 (no pids control group)"
                .to_owned(),
        );
    }
    if !limited.cpus {
        weaker.push("processor time is not limited (no cpu control group)".to_owned());
    }
    if !is_root {
        weaker.push("your supplementary groups stay with the processes inside".to_owned());
    }
    let landlock = landlock_version();
    if landlock < 2 {
        weaker.push("read-only mounts alone protect the system's files (no Landlock)".to_owned());
    }
    if landlock < 6 {
        weaker.push(
            "with the full network, abstract Unix sockets of this machine can be reached (Landlock before Linux 6.12)"
                .to_owned(),
        );
    }
    weaker
}

/// The version of Landlock's interface, negative where there is none. The launcher uses it from version 2 on.
fn landlock_version() -> i64 {
    const LANDLOCK_CREATE_RULESET_VERSION: i32 = 1;
    // SAFETY: asking for the version takes a null pointer.
    unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_forbid_namespaces_has_its_own_words() {
        let found = |wanted: &'static str, value: &'static str| {
            let sysctl = move |name: &str| (name == wanted).then(|| value.to_owned());
            let obstacles = obstacles_of_users(sysctl, "Seccomp:\t0\n", "");
            obstacles.into_iter().map(|obstacle| obstacle.what).collect::<String>()
        };
        assert!(
            found("kernel/unprivileged_userns_clone", "0").contains("kernel.unprivileged_userns_clone = 0")
        );
        assert!(found("user/max_user_namespaces", "0").contains("user.max_user_namespaces = 0"));
        assert!(found("kernel/apparmor_restrict_unprivileged_userns", "1").contains("AppArmor"));
        assert_eq!(found("user/max_user_namespaces", "1000"), "");
    }

    #[test]
    fn a_container_is_recognised() {
        let masked = "1 2 0:1 / /proc/kcore rw - tmpfs tmpfs rw\n";
        let plain = "1 2 0:1 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n";
        assert_eq!(obstacles_of_users(|_| None, "Seccomp:\t2\n", masked).len(), 2);
        assert_eq!(obstacles_of_users(|_| None, "Seccomp:\t0\n", plain), []);
        assert_eq!(obstacles_of_root("CapEff:\t00000000a80425fb\n").len(), 1);
        assert_eq!(obstacles_of_root("CapEff:\t000001ffffffffff\n"), []);
    }
}
