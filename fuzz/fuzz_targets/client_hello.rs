//! Arbitrary bytes as the first ones of a TLS client: `cargo +nightly fuzz run client_hello`.
//!
//! The reader's file needs nothing but the standard library, so that the fuzzer builds only it.

#![no_main]

use agent_network::client_hello::{Hello, MAX, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    // More bytes are waited for only up to the limit, and what has been read stays so, whatever follows.
    assert!(whole != Ok(Hello::Partial) || bytes.len() < MAX);
    for length in 0..bytes.len().min(600) {
        match read(&bytes[..length]) {
            Ok(Hello::Partial) => {}
            sooner => assert_eq!(sooner, whole),
        }
    }
});
