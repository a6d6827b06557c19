//! How the guest makes a sandbox of a virtual machine that it is process 1 of: a file in the initial file system, and what it is given
//! of the session once it has booted.

use crate::codec::{self, Field, WireError, record};
use crate::launch_spec::LaunchSpec;
use std::io;
use std::path::PathBuf;

/// The path of the file in the initial file system.
pub const FILE: &str = "/boot.spec";
/// Files of a machine, named as the sandbox around QEMU sees them: the [`SessionSpec`]; the state that is saved; why it could not be.
pub const SESSION_FILE: &str = "/workspace/session";
pub const STATE_FILE: &str = "/workspace/state";
pub const UNSAVED_FILE: &str = "/workspace/unsaved";
/// The disk; and an empty file as long as nothing was written to it since the machine was saved whose state the disk came with.
pub const DISK_FILE: &str = "/workspace/disk";
pub const FRESH_FILE: &str = "/workspace/fresh";
/// Signals to the keeper: save the machine and end it; let it go on. Linux's SIGUSR1 and SIGUSR2.
pub const PAUSE_SIGNAL: i32 = 10;
pub const RESUME_SIGNAL: i32 = 12;
/// The name of the virtio port that carries the streams, and the serial number of the writable disk.
pub const PORT: &str = "agent";
pub const DISK: &str = "disk";
/// The directory in which images are mounted: `IMAGES/N` has the serial number `imageN`.
pub const IMAGES: &str = "/images";
/// The directory of the initial file system once another root is mounted.
pub const INITIAL: &str = "/initial";
/// The directory in which the writable disk is mounted.
pub const WRITABLE: &str = "/writable";
/// The control group of the sandbox within the machine.
pub const CGROUP: &str = "/sys/fs/cgroup/sandbox";

record! {
    /// The work to do at boot.
    #[derive(Default)]
    BootSpec {
        /// Kernel modules of the initial file system, in the order in which they are loaded.
        modules: Vec<PathBuf>,
        /// The number of images.
        images: u32,
    }
}

record! {
    /// The specification of a session, which a machine that has booted is given.
    #[derive(Default)]
    SessionSpec {
        /// Limits of the sandbox within the machine: bytes and processes.
        memory: u64,
        pids: u64,
        /// The sandbox to launch, a [`LaunchSpec`].
        launch: Vec<u8>,
    }
}

impl BootSpec {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads what [`BootSpec::encode`] wrote.
    pub fn decode(input: &[u8]) -> io::Result<Self> {
        codec::decode(input, "the boot specification")
    }
}

impl SessionSpec {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads what [`SessionSpec::encode`] wrote.
    pub fn decode(input: &[u8]) -> io::Result<Self> {
        codec::decode(input, "the specification of a session")
    }

    /// The sandbox to launch.
    pub fn launch(&self) -> io::Result<LaunchSpec> {
        LaunchSpec::decode(&self.launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_returns_what_was_encoded() {
        let launch = LaunchSpec { uid: 7, ..LaunchSpec::default() };
        let boot = BootSpec { modules: vec!["/modules/erofs.ko".into()], images: 2 };
        assert_eq!(BootSpec::decode(&boot.encode()).unwrap(), boot);
        let spec = SessionSpec { memory: 1 << 30, pids: 512, launch: launch.encode() };
        let decoded = SessionSpec::decode(&spec.encode()).unwrap();
        assert_eq!(decoded, spec);
        assert_eq!(decoded.launch().unwrap(), launch);
        assert!(BootSpec::decode(&[1]).is_err());
    }
}
