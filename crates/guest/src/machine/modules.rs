//! Loading kernel modules.

use crate::sys::{check, ffi::syscall};
use std::ffi::{c_int, c_long};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

#[cfg(target_arch = "x86_64")]
const SYS_FINIT_MODULE: c_long = 313;
#[cfg(target_arch = "aarch64")]
const SYS_FINIT_MODULE: c_long = 273;
const EEXIST: i32 = 17;

/// Loads a module; one that is loaded already, or built in, is none the worse.
pub fn load(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the parameters are NUL-terminated.
    match check(unsafe { syscall(SYS_FINIT_MODULE, file.as_raw_fd(), c"".as_ptr(), 0 as c_int) }) {
        Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(()),
        result => result.map(drop),
    }
}
