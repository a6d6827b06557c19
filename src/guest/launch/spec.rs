//! What the launcher is told: a file of records, written by the host side, read once by the launcher.
//!
//! A record is a list of byte strings, the first of which is its name. Encoded: the number of strings, then each
//! string's length and bytes; numbers are 32-bit little-endian. The launcher trusts the file (it is the user's own, in a
//! private directory), so a record that it does not understand is an error, never skipped.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The name of the file in the sandbox's private directory.
pub const FILE: &str = "spec";

/// How to make one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The user and group that run inside. A launcher that is not root can only keep its own.
    pub uid: u32,
    pub gid: u32,
    /// What to run as PID 1: program (looked up inside; `/proc/self/exe` is the guest) and arguments.
    pub argv: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Read-only recursive binds: host path, path inside.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Symlinks inside: path, target.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// The host directory that is the workspace's read-only lower layer, or none.
    pub overlay: Option<PathBuf>,
    /// The host directory that is the workspace itself, or none. With neither, the workspace is a private one.
    pub bind_workspace: Option<PathBuf>,
    /// Control groups to join. Removed at the end.
    pub cgroups: Vec<PathBuf>,
    /// Files of control groups to show read-only in `/run/agent/cgroup/`, under their own names.
    pub cgroup_files: Vec<PathBuf>,
    /// Resource limits: `RLIMIT_*` number, value.
    pub rlimits: Vec<(i32, u64)>,
    /// Seccomp programs, installed in this order.
    pub seccomp: Vec<Vec<u8>>,
    /// Whether the host's network is shared.
    pub host_network: bool,
    /// Sizes of `/tmp`, `/dev/shm` and `/run` in bytes.
    pub tmp_bytes: u64,
    pub shm_bytes: u64,
    pub run_bytes: u64,
    /// Whether the private directory stays when the sandbox ends.
    pub keep: bool,
}

impl LaunchSpec {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let number = |n: u64| n.to_string().into_bytes();
        let flag = |out: &mut Vec<u8>, name: &str, on: bool| {
            if on {
                record(out, name, &[]);
            }
        };
        record(&mut out, "ids", &[&number(self.uid.into()), &number(self.gid.into())]);
        record(
            &mut out,
            "sizes",
            &[&number(self.tmp_bytes), &number(self.shm_bytes), &number(self.run_bytes)],
        );
        flag(&mut out, "host-network", self.host_network);
        flag(&mut out, "keep", self.keep);
        self.argv.iter().for_each(|word| record(&mut out, "argv", &[word.as_bytes()]));
        self.env
            .iter()
            .for_each(|(name, value)| record(&mut out, "env", &[name.as_bytes(), value.as_bytes()]));
        self.rlimits.iter().for_each(|(resource, value)| {
            record(&mut out, "rlimit", &[resource.to_string().as_bytes(), &number(*value)]);
        });
        for (name, pairs) in [("bind", &self.binds), ("symlink", &self.symlinks)] {
            pairs.iter().for_each(|(a, b)| record(&mut out, name, &[bytes(a), bytes(b)]));
        }
        let one = |path: &Option<PathBuf>| path.iter().cloned().collect::<Vec<_>>();
        for (name, paths) in [
            ("overlay", &one(&self.overlay)),
            ("bind-workspace", &one(&self.bind_workspace)),
            ("cgroup", &self.cgroups),
            ("cgroup-file", &self.cgroup_files),
        ] {
            paths.iter().for_each(|path| record(&mut out, name, &[bytes(path)]));
        }
        self.seccomp.iter().for_each(|program| record(&mut out, "seccomp", &[program]));
        out
    }

    /// Reads what [`LaunchSpec::encode`] wrote.
    pub fn decode(mut input: &[u8]) -> io::Result<Self> {
        let mut spec = Self::default();
        while !input.is_empty() {
            let strings = next_record(&mut input).ok_or_else(|| bad("it ends in the middle of a record"))?;
            let strings: Vec<&[u8]> = strings;
            match strings.as_slice() {
                [b"ids", uid, gid] => (spec.uid, spec.gid) = (parse(uid)?, parse(gid)?),
                [b"sizes", tmp, shm, run] => {
                    (spec.tmp_bytes, spec.shm_bytes, spec.run_bytes) =
                        (parse(tmp)?, parse(shm)?, parse(run)?);
                }
                [b"host-network"] => spec.host_network = true,
                [b"keep"] => spec.keep = true,
                [b"argv", word] => spec.argv.push(text(word)),
                [b"env", name, value] => spec.env.push((text(name), text(value))),
                [b"rlimit", resource, value] => spec.rlimits.push((parse(resource)?, parse(value)?)),
                [b"bind", host, inside] => spec.binds.push((text(host).into(), text(inside).into())),
                [b"symlink", link, target] => spec.symlinks.push((text(link).into(), text(target).into())),
                [b"overlay", lower] => spec.overlay = Some(text(lower).into()),
                [b"bind-workspace", directory] => spec.bind_workspace = Some(text(directory).into()),
                [b"cgroup", path] => spec.cgroups.push(text(path).into()),
                [b"cgroup-file", path] => spec.cgroup_files.push(text(path).into()),
                [b"seccomp", program] => spec.seccomp.push(program.to_vec()),
                _ => return Err(bad("it has an unknown record")),
            }
        }
        Ok(spec)
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn text(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

fn parse<T: std::str::FromStr>(bytes: &[u8]) -> io::Result<T> {
    let number = OsStr::from_bytes(bytes).to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| bad("it has a number that is none"))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the launch specification is damaged: {what}"))
}

fn record(out: &mut Vec<u8>, name: &str, values: &[&[u8]]) {
    // Far below 2^32: a handful of values, none longer than a path or a seccomp program.
    out.extend((values.len() as u32 + 1).to_le_bytes());
    for string in std::iter::once(&name.as_bytes()).chain(values) {
        out.extend((string.len() as u32).to_le_bytes());
        out.extend_from_slice(string);
    }
}

fn next_record<'a>(input: &mut &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let count = next_number(input)?;
    (0..count)
        .map(|_| {
            let length = next_number(input)? as usize;
            let (string, rest) = input.split_at_checked(length)?;
            *input = rest;
            Some(string)
        })
        .collect()
}

fn next_number(input: &mut &[u8]) -> Option<u32> {
    let (number, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> LaunchSpec {
        LaunchSpec {
            uid: 1000,
            gid: 100,
            argv: vec!["/proc/self/exe".into(), OsString::from_vec(b"not \xff UTF-8\n".to_vec())],
            env: vec![("A".into(), "".into())],
            binds: vec![("/usr".into(), "/usr".into())],
            symlinks: vec![("/bin".into(), "usr/bin".into())],
            overlay: Some("/home/me/project".into()),
            cgroups: vec!["/sys/fs/cgroup/a".into()],
            rlimits: vec![(7, 1024)],
            seccomp: vec![vec![0, 1, 255], Vec::new()],
            tmp_bytes: u64::MAX,
            keep: true,
            ..LaunchSpec::default()
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for spec in [LaunchSpec::default(), example()] {
            assert_eq!(LaunchSpec::decode(&spec.encode()).unwrap(), spec);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let whole = example().encode();
        assert!(LaunchSpec::decode(&whole[..whole.len() - 1]).is_err());
        assert!(LaunchSpec::decode(&[255; 64]).is_err());
        assert!(LaunchSpec::decode(b"\x01\0\0\0\x07\0\0\0unknown").is_err());
    }
}
