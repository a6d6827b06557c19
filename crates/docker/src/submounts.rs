//! Mounts below the directories that a sandbox sees read-only.
//!
//! Engines before 25 make only the top of a bind mount read-only: a file system mounted below `/usr` or `/opt` would come
//! along writable. So every bind is made without what is mounted below it, and each of those gets a bind of its own.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// `binds`, and a further bind for each mount point below one of them.
pub(super) fn with_submounts(binds: Vec<(PathBuf, PathBuf)>) -> Vec<(PathBuf, PathBuf)> {
    let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    add_submounts(binds, &mount_points(&mountinfo))
}

fn add_submounts(mut binds: Vec<(PathBuf, PathBuf)>, mount_points: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    for index in 0..binds.len() {
        let (host, inside) = binds[index].clone();
        for mount_point in mount_points {
            let Ok(below) = mount_point.strip_prefix(&host) else { continue };
            let target = inside.join(below);
            if below != Path::new("") && !binds.iter().any(|(_, inside)| *inside == target) {
                binds.push((mount_point.clone(), target));
            }
        }
    }
    binds
}

/// The mount points in a `mountinfo` (`man 5 proc_pid_mountinfo`), but those of user-space file systems: the engine, which
/// is another user, may not even be allowed to look at them.
fn mount_points(mountinfo: &[u8]) -> Vec<PathBuf> {
    let is_fuse = |line: &[u8]| {
        let after =
            line.windows(3).position(|three| three == b" - ").map_or(&line[..0], |at| &line[at + 3..]);
        after.starts_with(b"fuse")
    };
    let point = |line: &[u8]| line.split(|&b| b == b' ').nth(4).map(unescape);
    mountinfo.split(|&b| b == b'\n').filter(|line| !is_fuse(line)).filter_map(point).collect()
}

/// Spaces, tabs, newlines and backslashes are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mount_below_a_bind_becomes_a_bind() {
        let mountinfo = b"23 1 8:1 / / rw - ext4 /dev/a rw\n\
            24 23 0:5 / /opt/my\\040data rw,nosuid shared:3 - tmpfs tmpfs rw\n\
            25 23 0:6 / /usr/home rw - fuse.sshfs x rw\n\
            26 23 0:7 / /usr/local rw - ext4 /dev/b rw\n\
            short line\n";
        let binds = vec![("/usr".into(), "/usr".into()), ("/opt".into(), "/toolchains/opt".into())];
        let all = add_submounts(binds.clone(), &mount_points(mountinfo));
        assert_eq!(all[..2], binds);
        assert_eq!(
            all[2..],
            [
                ("/usr/local".into(), "/usr/local".into()),
                ("/opt/my data".into(), "/toolchains/opt/my data".into())
            ]
        );
    }
}
