//! Arbitrary bytes as the beginning of a push: `cargo +nightly fuzz run credential_push`.

#![no_main]

use agent_network::credentials::push::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(push) = read(bytes) else { return };
    // What the user reads is one line, and no more commits are shown than there are bytes for.
    assert!(!push.description().contains(char::is_control) && push.commits <= bytes.len());
});
