//! Feeds arbitrary bytes to what reads the monitor of QEMU: `cargo +nightly fuzz run machine_monitor`.
//!
//! The guest is a program without a library, so that its files are named here.

#![no_main]

#[path = "../../crates/guest/src/machine/monitor.rs"]
#[allow(dead_code)]
mod monitor;
#[path = "../../crates/guest/src/sys.rs"]
#[allow(dead_code)]
mod sys;

/// What these files use of the guest's clients.
mod client {
    pub fn would_block(error: &std::io::Error) -> bool {
        error.kind() == std::io::ErrorKind::WouldBlock
    }
}

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::os::unix::net::UnixStream;

fuzz_target!(|bytes: &[u8]| {
    let Ok((mut qemu, stream)) = UnixStream::pair() else { return };
    let Ok(mut monitor) = monitor::Monitor::new(stream) else { return };
    qemu.set_nonblocking(true).unwrap();
    // The first byte chooses the size of the pieces, so that lines are cut everywhere.
    let size = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    let (mut is_full, mut said) = (false, Vec::new());
    for piece in bytes.get(1..).unwrap_or_default().chunks(size) {
        said.extend_from_slice(piece);
        if qemu.write_all(piece).is_err() {
            return;
        }
        match monitor.disk_is_full() {
            Ok(is_it) => is_full |= is_it,
            Err(_) => return,
        }
    }
    // A disk is never called full that nobody has said to be.
    let nospace = br#""nospace": true"#;
    assert!(!is_full || said.windows(nospace.len()).any(|found| found == nospace));
});
