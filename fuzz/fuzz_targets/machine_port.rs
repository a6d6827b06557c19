//! Feeds arbitrary bytes to what reads the port of a virtual machine: `cargo +nightly fuzz run machine_port`.
//!
//! The guest is a program without a library, so that its files are named here.

#![no_main]

#[path = "../../crates/guest/src/machine/mux.rs"]
#[allow(dead_code)]
mod mux;
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
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fuzz_target!(|bytes: &[u8]| {
    let (Ok((mut machine, port)), Ok((mut client, stream))) = (UnixStream::pair(), UnixStream::pair()) else {
        return;
    };
    let (Ok(mut mux), Ok(copy)) = (mux::Mux::new(port.into()), stream.try_clone()) else { return };
    let _ = mux.open(stream.into(), copy.into());
    for end in [&machine, &client] {
        end.set_nonblocking(true).unwrap();
    }
    // The first byte chooses the size of the pieces, so that frames are cut everywhere.
    let size = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    let (mut poll, mut events, mut taken) = (sys::Poll::default(), Vec::new(), vec![0; 1 << 16]);
    for piece in bytes.get(1..).unwrap_or_default().chunks(size) {
        if machine.write_all(piece).is_err() {
            return;
        }
        poll.clear();
        mux.interest(&mut poll);
        poll.wait(Some(Duration::ZERO));
        if mux.step(&poll, &mut events).is_err() {
            return;
        }
        events.clear();
        // Whatever comes in, what waits to go out stays bounded.
        assert!(mux.has_space());
        while client.read(&mut taken).is_ok_and(|length| length > 0) {}
        while machine.read(&mut taken).is_ok_and(|length| length > 0) {}
    }
});
