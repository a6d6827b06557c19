//! The system calls that the launcher needs. Constants are those of `<linux/*.h>`, the same on every architecture but
//! where documented.

use crate::sys::ffi::{
    chroot, close, dup2, fchdir, fcntl, getegid, geteuid, getrlimit, ioctl, mount, prctl, setgroups,
    sethostname, setresgid, setresuid, setrlimit, setsid, signal, socket, syscall, umount2, unshare, waitpid,
};
use crate::sys::{ResourceLimit, SIGKILL, check};
use std::ffi::{CStr, CString, OsStr, c_int, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub const MS_RDONLY: c_ulong = 1;
pub const MS_NOSUID: c_ulong = 2;
pub const MS_NODEV: c_ulong = 4;
pub const MS_NOEXEC: c_ulong = 8;
pub const MS_REMOUNT: c_ulong = 32;
pub const MS_NOATIME: c_ulong = 1024;
pub const MS_NODIRATIME: c_ulong = 2048;
pub const MS_BIND: c_ulong = 4096;
pub const MS_MOVE: c_ulong = 8192;
pub const MS_REC: c_ulong = 16384;
pub const MS_PRIVATE: c_ulong = 1 << 18;
pub const MS_RELATIME: c_ulong = 1 << 21;
const MNT_DETACH: c_int = 2;

pub const CLONE_NEWNS: c_ulong = 0x0002_0000;
pub const CLONE_NEWCGROUP: c_ulong = 0x0200_0000;
pub const CLONE_NEWUTS: c_ulong = 0x0400_0000;
pub const CLONE_NEWIPC: c_ulong = 0x0800_0000;
pub const CLONE_NEWUSER: c_ulong = 0x1000_0000;
pub const CLONE_NEWPID: c_ulong = 0x2000_0000;
pub const CLONE_NEWNET: c_ulong = 0x4000_0000;
const SIGCHLD: c_ulong = 17;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const CLONE: i64 = 56;
    pub const PIVOT_ROOT: i64 = 155;
    pub const CAPSET: i64 = 126;
    pub const SETNS: i64 = 308;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const CLONE: i64 = 220;
    pub const PIVOT_ROOT: i64 = 41;
    pub const CAPSET: i64 = 91;
    pub const SETNS: i64 = 268;
}
// From Linux 5.1 on, system calls have the same number everywhere.
const SYS_OPEN_TREE: i64 = 428;
const SYS_MOVE_MOUNT: i64 = 429;
const SYS_FSCONFIG: i64 = 431;
const SYS_FSPICK: i64 = 433;
const SYS_CLOSE_RANGE: i64 = 436;
const SYS_MOUNT_SETATTR: i64 = 442;
const SYS_LANDLOCK_CREATE_RULESET: i64 = 444;
const SYS_LANDLOCK_ADD_RULE: i64 = 445;
const SYS_LANDLOCK_RESTRICT_SELF: i64 = 446;

fn c_string(text: impl AsRef<OsStr>) -> io::Result<CString> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| io::Error::other("a NUL byte in a path"))
}

/// mount(2).
pub fn mount_at(source: &Path, target: &Path, kind: &str, flags: c_ulong, data: &OsStr) -> io::Result<()> {
    let (source, target, kind, data) =
        (c_string(source)?, c_string(target)?, c_string(kind)?, c_string(data)?);
    // SAFETY: all four are NUL-terminated and outlive the call.
    check(unsafe { mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) })?;
    Ok(())
}

/// Detaches the mount at `target`; processes that use it keep it.
pub fn unmount(target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: the path is NUL-terminated.
    check(unsafe { umount2(target.as_ptr(), MNT_DETACH) }).map(drop)
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const AT_FDCWD: c_int = -100;
const AT_EMPTY_PATH: c_int = 0x1000;
const AT_RECURSIVE: c_int = 0x8000;

/// Sets `flags` on the mount at `target` and on all below it. The attributes' bits have the values of `MS_RDONLY`,
/// `MS_NOSUID`, `MS_NODEV` and `MS_NOEXEC`.
pub fn mount_set_recursive(target: &Path, flags: c_ulong) -> io::Result<()> {
    let attr = MountAttr { set: flags, clear: 0, propagation: 0, user_namespace: 0 };
    set_attributes(AT_FDCWD, &c_string(target)?, AT_RECURSIVE, &attr)
}

/// mount_setattr(2).
fn set_attributes(directory: i32, path: &CStr, flags: c_int, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated, and the size given is that of the structure pointed to.
    check(unsafe {
        syscall(
            SYS_MOUNT_SETATTR,
            directory,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// A copy of the mount at `path` that is nowhere yet, without what is mounted below it.
pub fn clone_mount(path: &Path) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: c_int = 1;
    const O_CLOEXEC: c_int = 0o2_000_000;
    let path = c_string(path)?;
    // SAFETY: the path is NUL-terminated; the descriptor that is returned is new and nobody else's.
    unsafe {
        let fd = check(syscall(SYS_OPEN_TREE, AT_FDCWD, path.as_ptr(), OPEN_TREE_CLONE | O_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Shows the owners of a mount that is nowhere yet as a user namespace maps them, and sets `flags` on it.
pub fn map_owners(mount: i32, user_namespace: i32, flags: c_ulong) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    let set = MOUNT_ATTR_IDMAP | flags;
    let attr = MountAttr { set, clear: 0, propagation: 0, user_namespace: user_namespace as u64 };
    set_attributes(mount, c"", AT_EMPTY_PATH, &attr)
}

/// Puts a mount that is nowhere yet at `target`.
pub fn attach_mount(mount: i32, target: &Path) -> io::Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: c_int = 4;
    let target = c_string(target)?;
    // SAFETY: both paths are NUL-terminated.
    check(unsafe {
        syscall(SYS_MOVE_MOUNT, mount, c"".as_ptr(), AT_FDCWD, target.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH)
    })
    .map(drop)
}

/// Changes the settings of the file system at `target` to those that it has.
pub fn reconfigure(target: &Path) -> io::Result<()> {
    const FSPICK_CLOEXEC: c_int = 1;
    const FSPICK_SYMLINK_NOFOLLOW: c_int = 2;
    const FSCONFIG_CMD_RECONFIGURE: c_int = 7;
    let target = c_string(target)?;
    let none = std::ptr::null::<c_void>();
    // SAFETY: the path is NUL-terminated; the descriptor that is returned is new and nobody else's; the command has no arguments.
    unsafe {
        let flags = FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW;
        let fd = check(syscall(SYS_FSPICK, AT_FDCWD, target.as_ptr(), flags))?;
        let context = OwnedFd::from_raw_fd(fd as i32);
        check(syscall(SYS_FSCONFIG, context.as_raw_fd(), FSCONFIG_CMD_RECONFIGURE, none, none, 0)).map(drop)
    }
}

/// Joins a namespace of this kind. Joining mounts takes their root and leaves the current directory there.
pub fn join(namespace: &File, kind: c_ulong) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the other argument is a number.
    check(unsafe { syscall(number::SETNS, namespace.as_raw_fd(), kind as c_int) }).map(drop)
}

/// Makes the current directory the root and forgets the old one.
pub fn pivot_to_current_directory() -> io::Result<()> {
    let here: &CStr = c".";
    // SAFETY: NUL-terminated constants. pivot_root(".", ".") stacks the old root on the new one (pivot_root(2), NOTES).
    unsafe {
        check(syscall(number::PIVOT_ROOT, here.as_ptr(), here.as_ptr()))?;
        check(umount2(here.as_ptr(), MNT_DETACH))?;
    }
    std::env::set_current_dir("/")
}

/// chroot(2).
pub fn change_root(path: &Path) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path is NUL-terminated.
    check(unsafe { chroot(path.as_ptr()) }).map(drop)
}

/// Like fork(2), the child in new namespaces. 0 in the child. Only for a process with a single thread.
pub fn fork_into(namespaces: c_ulong) -> io::Result<i32> {
    // SAFETY: without CLONE_VM and with a null stack this is fork(2); the process has a single thread.
    let pid = check(unsafe { syscall(number::CLONE, namespaces | SIGCHLD, 0, 0, 0, 0) })?;
    Ok(pid as i32)
}

/// unshare(2).
pub fn unshare_namespaces(namespaces: c_ulong) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { unshare(namespaces as c_int) }).map(drop)
}

/// The wait status of the child `pid`.
pub fn wait_for(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        match check(unsafe { waitpid(pid, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| status),
        }
    }
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: i32) {
    // SAFETY: the launcher owns no descriptor yet when it calls this.
    let result = unsafe { syscall(SYS_CLOSE_RANGE, first, u32::MAX, 0) };
    if result < 0 {
        // Before Linux 5.9.
        (first..1024).for_each(|fd| {
            // SAFETY: as above.
            unsafe { close(fd) };
        });
    }
}

/// Makes `new` a copy of `old` that survives exec.
pub fn duplicate_to(old: i32, new: i32) -> io::Result<()> {
    // SAFETY: takes no pointer; the owner of `new` is replaced on purpose.
    check(unsafe { dup2(old, new) }).map(drop)
}

/// A copy of `fd`, numbered 10 or higher, that exec closes.
pub fn duplicate_above(fd: i32) -> io::Result<i32> {
    const F_DUPFD_CLOEXEC: c_int = 1030;
    // SAFETY: takes no pointer.
    check(unsafe { fcntl(fd, F_DUPFD_CLOEXEC, 10) })
}

/// Leaves the caller's session and terminal. An error means that the process leads one already.
pub fn leave_session() {
    // SAFETY: takes nothing.
    unsafe { setsid() };
}

/// The default action again: an ignored signal stays ignored through exec.
pub fn default_signal(number: i32) {
    // SAFETY: SIG_DFL (0) runs no code of ours.
    unsafe { signal(number, 0) };
}

/// geteuid(2).
pub fn effective_user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { geteuid() }
}

/// getegid(2).
pub fn effective_group() -> u32 {
    // SAFETY: cannot fail.
    unsafe { getegid() }
}

/// fchdir(2).
pub fn enter_directory(fd: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { fchdir(fd) }).map(drop)
}

/// sethostname(2).
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the length is that of the name.
    check(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Lowers a resource limit for good; one that is lower already stays.
pub fn lower_limit(resource: i32, limit: u64) -> io::Result<()> {
    let mut now = ResourceLimit { soft: 0, hard: 0 };
    // SAFETY: both pointers are to structures of the C library's layout on 64-bit Linux.
    unsafe {
        check(getrlimit(resource, &raw mut now))?;
        let new = ResourceLimit { soft: limit.min(now.hard), hard: limit.min(now.hard) };
        check(setrlimit(resource, &raw const new))?;
    }
    Ok(())
}

/// Raises a hard limit to `limit` where it is lower.
pub fn raise_limit(resource: i32, limit: u64) -> io::Result<()> {
    let mut now = ResourceLimit { soft: 0, hard: 0 };
    // SAFETY: both pointers are to structures of the C library's layout on 64-bit Linux.
    unsafe {
        check(getrlimit(resource, &raw mut now))?;
        let new = ResourceLimit { soft: now.soft, hard: limit.max(now.hard) };
        check(setrlimit(resource, &raw const new))?;
    }
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub fn loopback_up() -> io::Result<()> {
    const AF_INET: c_int = 2;
    const SOCK_DGRAM: c_int = 2;
    const SIOCGIFFLAGS: c_ulong = 0x8913;
    const SIOCSIFFLAGS: c_ulong = 0x8914;
    const IFF_UP: u16 = 1;
    // `struct ifreq` of 64-bit Linux: the name, then a union that starts with the flags.
    #[repr(C)]
    struct InterfaceRequest {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }
    let mut request = InterfaceRequest { name: [0; 16], flags: 0, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: the request is as large as the kernel's and outlives both calls; the socket is ours and closed here.
    unsafe {
        let fd = check(socket(AF_INET, SOCK_DGRAM, 0))?;
        let read = check(ioctl(fd, SIOCGIFFLAGS, &raw mut request));
        request.flags |= IFF_UP;
        let written = read.and_then(|_| check(ioctl(fd, SIOCSIFFLAGS, &raw const request)));
        close(fd);
        written.map(drop)
    }
}

fn process_control(option: c_int, first: c_ulong, second: c_ulong) -> io::Result<()> {
    const NONE: c_ulong = 0;
    // SAFETY: no option used here takes a pointer but PR_SET_SECCOMP, whose caller answers for it.
    check(unsafe { prctl(option, first, second, NONE, NONE) }).map(drop)
}

/// Kills this process when the thread that made it ends.
pub fn die_with_parent() -> io::Result<()> {
    const PR_SET_PDEATHSIG: c_int = 1;
    process_control(PR_SET_PDEATHSIG, SIGKILL as c_ulong, 0)
}

/// No program executed from here on gains privileges (set-user-id bits, file capabilities).
pub fn set_no_new_privileges() -> io::Result<()> {
    const PR_SET_NO_NEW_PRIVS: c_int = 38;
    process_control(PR_SET_NO_NEW_PRIVS, 1, 0)
}

/// Takes every capability that this kernel knows out of the bounding and the ambient set.
pub fn empty_bounding_set() -> io::Result<()> {
    const PR_CAPBSET_DROP: c_int = 24;
    const PR_CAP_AMBIENT: c_int = 47;
    const PR_CAP_AMBIENT_CLEAR_ALL: c_ulong = 4;
    const EINVAL: i32 = 22;
    process_control(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0)?;
    for capability in 0..64 {
        match process_control(PR_CAPBSET_DROP, capability, 0) {
            // One past the last that the kernel knows.
            Err(error) if error.raw_os_error() == Some(EINVAL) && capability > 0 => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Empties the effective, permitted and inheritable sets.
pub fn drop_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    let sets = [0u32; 6];
    // SAFETY: version 3 takes a header of two words and two structures of three.
    check(unsafe { syscall(number::CAPSET, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Becomes another user and group without supplementary groups. Only for root.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no group is pointed to, and the other two take no pointer.
    unsafe {
        check(setgroups(0, std::ptr::null()))?;
        check(setresgid(gid, gid, gid))?;
        check(setresuid(uid, uid, uid))?;
    }
    Ok(())
}

/// The version of Landlock's interface, 0 where there is none.
pub fn landlock_version() -> i64 {
    const LANDLOCK_CREATE_RULESET_VERSION: c_int = 1;
    // SAFETY: asking for the version takes a null pointer.
    let version = unsafe {
        syscall(
            SYS_LANDLOCK_CREATE_RULESET,
            std::ptr::null::<c_void>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    version.max(0)
}

/// A set of rules without a rule: all that it handles is refused.
pub fn landlock_rules(file_rights: u64, scopes: u64) -> io::Result<OwnedFd> {
    // `struct landlock_ruleset_attr`: rights to files, rights to the network, scopes. A kernel that knows no scopes takes
    // it as long as there are none.
    let attr: [u64; 3] = [file_rights, 0, scopes];
    // SAFETY: the size given is that of the structure pointed to; the descriptor that is returned is new.
    unsafe {
        let fd = check(syscall(SYS_LANDLOCK_CREATE_RULESET, attr.as_ptr(), size_of_val(&attr), 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Allows `file_rights` below an open directory.
pub fn landlock_allow(rules: i32, file_rights: u64, directory: i32) -> io::Result<()> {
    const LANDLOCK_RULE_PATH_BENEATH: c_int = 1;
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        directory: i32,
    }
    let rule = PathBeneath { rights: file_rights, directory };
    // SAFETY: the rule has the kernel's layout, which is packed, and outlives the call.
    check(unsafe { syscall(SYS_LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PATH_BENEATH, &raw const rule, 0) })
        .map(drop)
}

/// Applies the rules to this thread and its descendants. After no_new_privs.
pub fn landlock_restrict(rules: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { syscall(SYS_LANDLOCK_RESTRICT_SELF, rules, 0) }).map(drop)
}
