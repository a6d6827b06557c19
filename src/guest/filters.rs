//! System calls that are refused to the guest and its descendants, beyond what the sandbox refuses.

use crate::sys;
use std::path::Path;
use std::{fs, io};

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

/// Installs the filters in `file`, one after the other. Each is its length in bytes as a little-endian `u32`, then its
/// instructions (`struct sock_filter`).
///
/// A filter that the kernel does not take is an error: the sandbox must not be weaker than its caller believes.
pub fn install(file: &Path) -> io::Result<()> {
    let bytes = fs::read(file)?;
    let mut rest = bytes.as_slice();
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (program, after) = after.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        let (instructions, []) = program.as_chunks::<8>() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        sys::install_filter(instructions)?;
        rest = after;
    }
    Ok(())
}

/// An instruction: its code, how far to jump where it holds and where it does not, its value.
type Instruction = (u16, u8, u8, u32);

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const FAIL: u32 = 0x0005_0000;

/// Where the lower half of an argument is in `struct seccomp_data`, on the little-endian machines that there are.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
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
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const X32: u32 = 0x4000_0000;
    #[cfg(target_arch = "x86_64")]
    let (machine, compatible) = (0xC000_003E, 0x4000_0003);
    #[cfg(target_arch = "aarch64")]
    let (machine, compatible) = (0xC000_00B7, 0x4000_0028);
    let judged = judge.len() as u8;
    let select = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 0, 3, machine),
        (LOAD, 0, 0, NUMBER),
        (AND, 0, 0, !X32),
        (IF_EQUAL, 3, judged + 3, number),
        (IF_EQUAL, 0, judged + 2, compatible),
        (LOAD, 0, 0, NUMBER),
        (IF_EQUAL, 0, judged, its_number),
    ];
    let bytes = |(code, yes, no, value): &Instruction| {
        let (code, value) = (code.to_ne_bytes(), value.to_ne_bytes());
        [code[0], code[1], *yes, *no, value[0], value[1], value[2], value[3]]
    };
    select.iter().chain(judge).chain(&[(RETURN, 0, 0, ALLOW)]).map(bytes).collect()
}
