//! System calls that are refused to the guest and its descendants, beyond what the sandbox refuses.

use crate::sys;
use agent_wire::bpf::{
    self, ALLOW, AND, ARCHITECTURE, FAIL, IF_ANY_BIT, IF_EQUAL, Instruction, LOAD, NUMBER, RETURN, argument,
};
use std::io;

/// The machine, as the kernel's audit names it.
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xC000_00B7;

/// Set in the numbers of system calls with pointers of half the size, on x86-64.
const X32: u32 = 0x4000_0000;

/// Refuses this process and its descendants to allocate disk space without writing to it, which is faster than the quota
/// can be checked; the C library's posix_fallocate(3) writes then. A file that would be too long becomes an error.
pub fn refuse_allocation() {
    // Commands get the default back before their exec.
    sys::ignore_signal(sys::SIGXFSZ);
    // Where the kernel has no filters the disk only fills faster.
    let _ = sys::install_filter(&allocation_filter());
}

/// Refuses this process and its descendants to set the limits of another process (`EPERM`): all here are the same
/// user's, and one that lowers the guest's limits would end the sandbox.
pub fn refuse_limits_of_others() {
    // Where the kernel has no filters a sandbox can end itself.
    let _ = sys::install_filter(&limits_filter());
}

/// Refuses this process and its descendants to change modes, owners, times and attributes (`EROFS`), which no rule about
/// directories covers. Programs for another machine are refused everything.
pub fn refuse_modes() -> io::Result<()> {
    const READ_ONLY_FILE_SYSTEM: u32 = 30;
    // chmod, fchmod, fchmodat, fchmodat2, chown, fchown, lchown, fchownat, [l|f]setxattr, [l|f]removexattr, setxattrat,
    // removexattrat, file_setattr, utime, utimes, futimesat, utimensat.
    #[cfg(target_arch = "x86_64")]
    const CALLS: [u32; 21] =
        [90, 91, 268, 452, 92, 93, 94, 260, 188, 189, 190, 197, 198, 199, 463, 466, 469, 132, 235, 261, 280];
    #[cfg(target_arch = "aarch64")]
    const CALLS: [u32; 15] = [52, 53, 452, 54, 55, 5, 6, 7, 14, 15, 16, 463, 466, 469, 88];
    #[cfg(target_arch = "x86_64")]
    const IOCTL: u32 = 16;
    #[cfg(target_arch = "aarch64")]
    const IOCTL: u32 = 29;
    // FS_IOC_SETFLAGS, FS_IOC_SETVERSION, EXT4_IOC_SETVERSION, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY, FS_IOC_SET_ENCRYPTION_POLICY,
    // which a file that is open for reading is enough for.
    const REQUESTS: [u32; 6] = [0x4008_6602, 0x4008_7602, 0x4008_6604, 0x401c_5820, 0x4080_6685, 0x800c_6613];
    const CALLS_LEFT: u8 = CALLS.len() as u8;
    const REQUESTS_LEFT: u8 = REQUESTS.len() as u8;
    // Behind the calls: whether it is an ioctl, whose request is loaded and judged.
    let refused = CALLS_LEFT + 2 + REQUESTS_LEFT + 1;
    let begin = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 0, refused + 2, MACHINE),
        (LOAD, 0, 0, NUMBER),
        (IF_ANY_BIT, refused, 0, X32),
    ];
    let judge = CALLS.iter().zip(0..).map(|(call, at)| (IF_EQUAL, refused - 1 - at, 0, *call));
    let ioctl = [(IF_EQUAL, 0, REQUESTS_LEFT + 1, IOCTL), (LOAD, 0, 0, argument(1))];
    let requests = REQUESTS.iter().zip(0..).map(|(request, at)| (IF_EQUAL, REQUESTS_LEFT - at, 0, *request));
    let end = [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | READ_ONLY_FILE_SYSTEM)];
    let filter = begin.into_iter().chain(judge).chain(ioctl).chain(requests).chain(end);
    sys::install_filter(&bpf::assemble(filter))
}

/// Installs the filters that the host has stored. One that is damaged, or that the kernel does not take, is an error: the
/// sandbox must not be weaker than its caller believes.
pub fn install(stored: &[u8]) -> io::Result<()> {
    let programs = bpf::stored(stored).ok_or(io::ErrorKind::InvalidData)?;
    programs.into_iter().try_for_each(sys::install_filter)
}

/// fallocate(2) is supported only for freeing space.
fn allocation_filter() -> Vec<[u8; 8]> {
    const PUNCH_HOLE_OR_COLLAPSE: u32 = 0x02 | 0x08;
    const NOT_SUPPORTED: u32 = 95;
    #[cfg(target_arch = "x86_64")]
    let numbers = (285, 324);
    #[cfg(target_arch = "aarch64")]
    let numbers = (47, 352);
    filter(
        numbers,
        &[
            (LOAD, 0, 0, argument(1)),
            (IF_ANY_BIT, 1, 0, PUNCH_HOLE_OR_COLLAPSE),
            (RETURN, 0, 0, FAIL | NOT_SUPPORTED),
        ],
    )
}

/// prlimit(2) is permitted on the caller itself, and where it only asks.
fn limits_filter() -> Vec<[u8; 8]> {
    const NOT_PERMITTED: u32 = 1;
    #[cfg(target_arch = "x86_64")]
    let numbers = (302, 340);
    #[cfg(target_arch = "aarch64")]
    let numbers = (261, 369);
    filter(
        numbers,
        &[
            (LOAD, 0, 0, argument(0)),
            (IF_EQUAL, 5, 0, 0),
            // Both halves of the pointer to the new limits.
            (LOAD, 0, 0, argument(2)),
            (IF_EQUAL, 0, 2, 0),
            (LOAD, 0, 0, argument(2) + 4),
            (IF_EQUAL, 1, 0, 0),
            (RETURN, 0, 0, FAIL | NOT_PERMITTED),
        ],
    )
}

/// Allows every system call but the one of these numbers, the machine's own and that of its 32-bit programs, which `judge`
/// examines. Where it jumps past its end, or comes to it, the call is allowed.
fn filter((number, its_number): (u32, u32), judge: &[Instruction]) -> Vec<[u8; 8]> {
    #[cfg(target_arch = "x86_64")]
    let compatible = 0x4000_0003;
    #[cfg(target_arch = "aarch64")]
    let compatible = 0x4000_0028;
    let judged = judge.len() as u8;
    let select = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 0, 3, MACHINE),
        (LOAD, 0, 0, NUMBER),
        (AND, 0, 0, !X32),
        (IF_EQUAL, 3, judged + 3, number),
        (IF_EQUAL, 0, judged + 2, compatible),
        (LOAD, 0, 0, NUMBER),
        (IF_EQUAL, 0, judged, its_number),
    ];
    bpf::assemble(select.iter().chain(judge).chain(&[(RETURN, 0, 0, ALLOW)]).copied())
}
