//! Arbitrary bytes as a client's handshake and frames: `cargo +nightly fuzz run websocket`.
//!
//! The reader's file needs nothing but the standard library, so that the fuzzer builds only it.

#![no_main]

use agent_wire::websocket::{Frames, Handshake, MAX_HEAD, handshake};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let answered = handshake(bytes, &[0; 32]);
    assert!(answered != Handshake::Partial || bytes.len() < MAX_HEAD);
    let (mut frames, mut payload, mut answers) = (Frames::default(), Vec::new(), Vec::new());
    let whole = frames.read(bytes, &mut payload, &mut answers);
    assert!(payload.len() + answers.len() <= bytes.len());
    // A byte at a time is the same.
    let (mut frames, mut again, mut answered) = (Frames::default(), Vec::new(), Vec::new());
    let pieces = bytes.chunks(1).try_for_each(|piece| frames.read(piece, &mut again, &mut answered));
    assert_eq!((pieces, again, answered), (whole, payload, answers));
});
