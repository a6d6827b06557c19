//! The guest program: embedded by `build.rs`, or the one that `AGENT_GUEST` names; and the proof that it is what answers.

use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_guest::{PACKED, PROGRAM};
use agent_wire as wire;
use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The variable that names a ready-made guest.
const VARIABLE: &str = "AGENT_GUEST";

/// The guest, a static Linux executable.
///
/// # Errors
///
/// `AGENT_GUEST` names something that cannot be read, or there is no embedded guest (on other systems than Linux,
/// without the musl target).
pub fn bytes(machine: &Machine) -> Result<Cow<'static, [u8]>> {
    if let Some(path) = machine.variable(VARIABLE).map(PathBuf::from) {
        return std::fs::read(&path).map(Cow::Owned).map_err(|error| {
            Error::config(format!("{VARIABLE} names {}, which cannot be read", path.display()))
                .hint(format!("unset {VARIABLE}, or name a guest built for the sandbox's Linux"))
                .caused_by(error)
        });
    }
    if PROGRAM.is_empty() {
        return Err(Error::config("this build of agent has no guest in it")
            .hint(format!("name one built on Linux with {VARIABLE}=/path/to/guest")));
    }
    Ok(Cow::Borrowed(PROGRAM))
}

/// The embedded guest, compressed with gzip; `None` where `AGENT_GUEST` names another.
pub fn packed(machine: &Machine) -> Option<&'static [u8]> {
    (machine.variable(VARIABLE).is_none() && !PROGRAM.is_empty()).then_some(PACKED)
}

/// The guest as a program that can be executed here: a sealed file in memory, which nothing can change while it runs. The
/// path holds as long as the file is open.
///
/// The sandboxes of one process share the file of the embedded guest, where the kernel also seals that it can be executed: a
/// process inside that has the same user could take that away from the others.
pub fn program(machine: &Machine) -> Result<(String, File)> {
    static SHARED: OnceLock<File> = OnceLock::new();
    let failed = |error: std::io::Error| Error::sandbox("the guest cannot be laid out").caused_by(error);
    let program = |file: File| (format!("/proc/self/fd/{}", file.as_raw_fd()), file);
    let is_embedded = machine.variable(VARIABLE).is_none();
    if let Some(shared) = SHARED.get().filter(|_| is_embedded) {
        return shared.try_clone().map(program).map_err(failed);
    }
    let file = file_in_memory(&bytes(machine)?).map_err(failed)?;
    let stays_executable = seal(&file, F_SEAL_EXEC).is_ok();
    seal(&file, libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
        .map_err(failed)?;
    if is_embedded && stays_executable {
        // Another thread may have been quicker: then this file serves one sandbox.
        let _ = SHARED.set(file.try_clone().map_err(failed)?);
    }
    Ok(program(file))
}

/// The permission to execute a file stays as it is (fcntl(2), Linux 6.3).
const F_SEAL_EXEC: i32 = 0x20;

fn file_in_memory(content: &[u8]) -> std::io::Result<File> {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(content)?;
    Ok(file)
}

fn seal(file: &File, seals: i32) -> std::io::Result<()> {
    // SAFETY: takes no pointer.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0.. => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns whether the guest is built for this machine's processor, so that what is made for this machine serves it too.
pub fn is_for_this_processor(machine: &Machine) -> Result<bool> {
    // `e_machine` of the ELF header (elf(5)).
    const MACHINE: std::ops::Range<usize> = 18..20;
    let expected: u16 = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => return Ok(false),
    };
    Ok(bytes(machine)?.get(MACHINE) == Some(&expected.to_le_bytes()))
}

/// Returns what a connection begins with: a number that was never sent before, which the guest returns hashed with its build. A stream that
/// was recorded earlier cannot answer, and neither can a guest of other sources, whose messages may mean something else.
pub fn nonce() -> [u8; 32] {
    std::array::from_fn(|_| fastrand::u8(..))
}

/// The answer of a guest of this build.
pub fn proof(nonce: &[u8; 32]) -> [u8; 32] {
    Hash::of(wire::proven(nonce, agent_guest::BUILD)).0
}

/// A short hash of a guest's bytes: 12 hexadecimal digits. Files and volumes that hold a guest are named by it.
pub fn id(guest: &[u8]) -> String {
    Hash::of(guest).short(6)
}
