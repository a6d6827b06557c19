//! How the launcher makes one sandbox: a file written by the host, read once by the launcher. The launcher trusts the
//! file: it is the user's own, in a private directory.

use crate::codec::{self, Field, WireError, record};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The name of the file in the sandbox's private directory.
pub const FILE: &str = "spec";
/// The socket at which a container engine inside listens.
pub const ENGINE_SOCKET: &str = "/run/docker.sock";

record! {
    /// The specification of one sandbox.
    #[derive(Default)]
    LaunchSpec {
        /// The user and group that run inside. A launcher that is not root can only keep its own.
        uid: u32,
        gid: u32,
        /// The command of process 1: program (looked up inside; `/proc/self/exe` is the guest) and arguments.
        argv: Vec<OsString>,
        /// Its whole environment.
        env: Vec<(OsString, OsString)>,
        /// Read-only recursive binds: host path, path inside.
        binds: Vec<(PathBuf, PathBuf)>,
        /// Symlinks inside: path, target.
        symlinks: Vec<(PathBuf, PathBuf)>,
        /// The host directory that is the workspace's read-only lower layer, or none.
        overlay: Option<PathBuf>,
        /// The host directory that is the workspace itself, or none. With neither, the workspace is a private one.
        bind_workspace: Option<PathBuf>,
        /// The path of the workspace inside, which `/workspace` then is another name of; empty: `/workspace` itself.
        place: PathBuf,
        /// `$HOME` inside, which `/home/agent` then is another name of; empty: `/home/agent` itself.
        home: PathBuf,
        /// Host directories that are shown at a path inside below writable layers of their own, `caches/N/upper` for the one
        /// with index N. A parent stands before what is below it.
        caches: Vec<(PathBuf, PathBuf)>,
        /// The paths inside of those of `caches` that have to be shown so or not at all, of those that are read-only, and of those
        /// that are their layers alone.
        added: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        own: Vec<PathBuf>,
        /// The directories that lie under the writable layer of the workspace, and above `overlay`; under that of
        /// `$HOME`; and under those of caches, each with its path inside.
        beneath_workspace: Option<PathBuf>,
        beneath_home: Option<PathBuf>,
        beneath_caches: Vec<(PathBuf, PathBuf)>,
        /// Control groups to join. Removed at the end.
        cgroups: Vec<PathBuf>,
        /// Files of control groups to show read-only in `/run/agent/cgroup/`, under their own names.
        cgroup_files: Vec<PathBuf>,
        /// Resource limits: `RLIMIT_*` number, value.
        rlimits: Vec<(i32, u64)>,
        /// Seccomp programs, as `bpf.rs` stores them.
        seccomp: Vec<u8>,
        /// Set if the host's network is shared.
        host_network: bool,
        /// Sizes of `/tmp`, `/dev/shm` and `/run` in bytes.
        tmp_bytes: u64,
        shm_bytes: u64,
        run_bytes: u64,
        /// Names in `/dev` of further devices of the host's.
        devices: Vec<OsString>,
        /// Set if the private directory stays when the sandbox ends.
        keep: bool,
        /// Set if the kernel is the sandbox's own: its user is root, and keeps all that root can do. Only for a launcher that is root.
        own_kernel: bool,
        /// The command of a container engine that runs beside the guest, which waits until it listens at [`ENGINE_SOCKET`]; and its whole
        /// environment. Empty: none. Only with `own_kernel`.
        engine: Vec<OsString>,
        engine_env: Vec<(OsString, OsString)>,
        /// The content of `$HOME/.docker/config.json`, where there is none yet.
        engine_client: Vec<u8>,
    }
}

impl LaunchSpec {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads what [`LaunchSpec::encode`] wrote.
    pub fn decode(input: &[u8]) -> io::Result<Self> {
        codec::decode(input, "the launch specification")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn example() -> LaunchSpec {
        LaunchSpec {
            uid: 1000,
            gid: 100,
            argv: vec!["/proc/self/exe".into(), OsString::from_vec(b"not \xff UTF-8\n".to_vec())],
            env: vec![("A".into(), "".into())],
            binds: vec![("/usr".into(), "/usr".into())],
            symlinks: vec![("/bin".into(), "usr/bin".into())],
            overlay: Some("/home/me/project".into()),
            place: "/home/me/project".into(),
            caches: vec![("/home/me/.cache".into(), "/home/me/.cache".into())],
            cgroups: vec!["/sys/fs/cgroup/a".into()],
            rlimits: vec![(7, 1024)],
            seccomp: vec![0, 1, 255],
            tmp_bytes: u64::MAX,
            keep: true,
            ..LaunchSpec::default()
        }
    }

    #[test]
    fn decode_returns_what_was_encoded() {
        for spec in [LaunchSpec::default(), example()] {
            assert_eq!(LaunchSpec::decode(&spec.encode()).unwrap(), spec);
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let whole = example().encode();
        assert!(LaunchSpec::decode(&whole[..whole.len() - 1]).is_err());
        assert!(LaunchSpec::decode(&[255; 64]).is_err());
        assert!(LaunchSpec::decode(&[whole.as_slice(), b"x"].concat()).is_err());
    }
}
