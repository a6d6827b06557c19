//! The parts of this machine that a virtual machine needs: QEMU, a kernel with its modules, tools.

use super::{kernel, tool};
use crate::settings::{Board, Settings};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// QEMU for this processor.
#[cfg(target_arch = "x86_64")]
pub const QEMU: &str = "qemu-system-x86_64";
#[cfg(not(target_arch = "x86_64"))]
pub const QEMU: &str = "qemu-system-aarch64";
/// The tool that makes read-only images, and the one that makes the writable disk.
pub const MKFS_EROFS: &str = "mkfs.erofs";
pub const MKE2FS: &str = "mke2fs";

/// The parts of this machine that virtual ones need.
#[derive(Debug, Clone)]
pub struct Host {
    pub qemu: PathBuf,
    /// The kernel, and the directory of its modules.
    pub kernel: PathBuf,
    pub modules: PathBuf,
    pub accelerator: Accelerator,
    pub board: Board,
    /// Seconds that a boot may take.
    pub boot_timeout: u32,
}

/// The implementation of the machine's processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accelerator {
    /// The kernel's own support, and the group that may use it.
    Kvm { group: u32 },
    /// QEMU emulates it, for this reason.
    Emulated(String),
}

impl Host {
    /// Looks for everything.
    ///
    /// # Errors
    /// `Config`: what is missing, and what installs it.
    pub fn find(machine: &Machine) -> Result<Self> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::config("virtual machines are made on Linux with an x86-64 processor")
                .hint("choose another --sandbox"));
        }
        let settings = Settings::of(machine);
        let qemu = tool::find(QEMU).ok_or_else(|| missing(QEMU))?;
        for name in [MKFS_EROFS, MKE2FS] {
            tool::find(name).ok_or_else(|| missing(name))?;
        }
        let kernel = match settings.kernel {
            Some(kernel) => kernel,
            None => newest_kernel(machine)?,
        };
        let modules = match settings.modules {
            Some(modules) => modules,
            None => modules_of(machine, &kernel)?,
        };
        let accelerator = accelerator(machine);
        let usual = if matches!(accelerator, Accelerator::Kvm { .. }) { 60 } else { 180 };
        let board = match settings.board {
            Some(board) => board,
            None => board_of(machine, &qemu)?,
        };
        let boot_timeout = settings.boot_timeout.unwrap_or(usual).max(1);
        Ok(Self { qemu, kernel, modules, accelerator, board, boot_timeout })
    }
}

/// The error of a program that is not there.
pub fn missing(program: &str) -> Error {
    let (debian, fedora, arch) = match program {
        MKFS_EROFS => ("erofs-utils", "erofs-utils", "erofs-utils"),
        MKE2FS => ("e2fsprogs", "e2fsprogs", "e2fsprogs"),
        _ => ("qemu-system-x86", "qemu-system-x86-core", "qemu-system-x86"),
    };
    Error::config(format!("virtual machines need {program}, which is not installed")).hint(format!(
        "Debian, Ubuntu: sudo apt install --no-install-recommends {debian}; Fedora: sudo dnf install {fedora}; \
         Arch: sudo pacman -S {arch}"
    ))
}

/// The newest kernel of `/boot` that has modules here and can be read.
fn newest_kernel(machine: &Machine) -> Result<PathBuf> {
    let boot = fs::read_dir(machine.on_host(Path::new("/boot"))).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = boot
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz")))
        .collect();
    let modules = fs::read_dir(machine.on_host(Path::new("/lib/modules"))).into_iter().flatten().flatten();
    found.extend(modules.map(|entry| entry.path().join("vmlinuz")));
    found.retain(|path| path.is_file());
    found.sort_by_key(|path| fs::metadata(path).ok().map(|metadata| metadata.mtime()));
    let unreadable = found.iter().find(|path| File::open(path).is_err()).cloned();
    let usable = |path: &PathBuf| File::open(path).is_ok() && modules_of(machine, path).is_ok();
    found.into_iter().rev().find(usable).ok_or_else(|| match unreadable {
        Some(path) => Error::config(format!("the kernel {} cannot be read by this user", path.display()))
            .hint(format!("sudo chmod 644 {}, or name a copy as kernel in [sandbox.vm]", path.display())),
        None => Error::config("this machine has no kernel that a virtual machine could boot").hint(
            "Debian: sudo apt install --no-install-recommends linux-image-cloud-amd64; or name one as kernel in [sandbox.vm]",
        ),
    })
}

/// The directory of a kernel's modules.
fn modules_of(machine: &Machine, kernel: &Path) -> Result<PathBuf> {
    let version = kernel::version(kernel)?;
    let directory = machine.on_host(&Path::new("/lib/modules").join(&version));
    // That of a package that was unpacked without being installed.
    let beside = kernel.parent().and_then(Path::parent).map(|root| root.join("lib/modules").join(&version));
    [Some(directory), beside]
        .into_iter()
        .flatten()
        .find(|directory| directory.join("modules.dep").is_file())
        .ok_or_else(|| {
            Error::config(format!("the kernel {} has no modules in /lib/modules/{version}", kernel.display()))
                .hint("install the package that has them (and depmod), or name their directory as modules in [sandbox.vm]")
        })
}

/// The file that says which board a QEMU has.
const BOARD: &str = "board";

/// The board that this QEMU has, which takes long to ask for.
fn board_of(machine: &Machine, qemu: &Path) -> Result<Board> {
    let failed =
        |error: std::io::Error| Error::config(format!("{} does not start", qemu.display())).caused_by(error);
    let metadata = fs::metadata(qemu).map_err(failed)?;
    let id = format!("{} {} {} ", metadata.ino(), metadata.size(), metadata.mtime());
    let known = super::start::cache(machine)?.join(BOARD);
    let has_microvm = match fs::read_to_string(&known).ok().filter(|text| text.starts_with(&id)) {
        Some(text) => text.ends_with("microvm"),
        None => {
            let output = Command::new(qemu).args(["-M", "help"]).env_clear().stdin(Stdio::null()).output();
            let output = String::from_utf8_lossy(&output.map_err(failed)?.stdout).into_owned();
            let has_microvm = output.lines().any(|line| line.starts_with("microvm "));
            // Where it cannot be written down, it is asked for again.
            let _ = super::images::write_whole(
                &known,
                format!("{id}{}", if has_microvm { "microvm" } else { "q35" }).as_bytes(),
            );
            has_microvm
        }
    };
    Ok(if has_microvm { Board::Microvm } else { Board::Q35 })
}

/// The file that says in which boot of this machine KVM was found not to work.
const WITHOUT_KVM: &str = "without-kvm";

/// Emulates from now on: KVM says that it works on this machine, and no machine boots with it.
pub fn give_up_kvm(machine: &Machine) {
    let write = || -> Option<()> {
        let path = super::start::cache(machine).ok()?.join(WITHOUT_KVM);
        super::images::write_whole(&path, boot_id(machine)?.as_bytes()).ok()
    };
    // Where it cannot be written down, it is found out again.
    let _ = write();
}

/// A number of this boot of the machine.
fn boot_id(machine: &Machine) -> Option<String> {
    fs::read_to_string(machine.on_host(Path::new("/proc/sys/kernel/random/boot_id"))).ok()
}

/// Returns whether this machine's kernel helps, and who may ask it to.
fn accelerator(machine: &Machine) -> Accelerator {
    let given_up = super::start::cache(machine).ok();
    let given_up = given_up.and_then(|cache| fs::read_to_string(cache.join(WITHOUT_KVM)).ok());
    match given_up.is_some() && given_up == boot_id(machine) {
        true => Accelerator::Emulated("/dev/kvm is there, and no machine boots with it".to_owned()),
        false => kvm(),
    }
}

fn kvm() -> Accelerator {
    const KVM_GET_API_VERSION: libc::c_ulong = 0xAE00;
    const KVM_CREATE_VM: libc::c_ulong = 0xAE01;
    let emulated = |why: String| Accelerator::Emulated(why);
    let file = match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(file) => file,
        Err(error) => return emulated(format!("/dev/kvm: {error}")),
    };
    // SAFETY: neither request takes a pointer; the descriptor that the second one returns is closed.
    unsafe {
        if libc::ioctl(file.as_raw_fd(), KVM_GET_API_VERSION, 0) < 0 {
            return emulated(format!("/dev/kvm: {}", std::io::Error::last_os_error()));
        }
        match libc::ioctl(file.as_raw_fd(), KVM_CREATE_VM, 0) {
            machine @ 0.. => libc::close(machine),
            _ => return emulated(format!("/dev/kvm: {}", std::io::Error::last_os_error())),
        };
    }
    match file.metadata() {
        Ok(metadata) => Accelerator::Kvm { group: metadata.gid() },
        Err(error) => emulated(format!("/dev/kvm: {error}")),
    }
}
