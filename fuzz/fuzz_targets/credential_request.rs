//! Arbitrary bytes as requests to a host that a credential is bound to: `cargo +nightly fuzz run credential_request`.

#![no_main]

use agent_network::credentials::chunks::{Chunks, Step};
use agent_network::credentials::head::{Framing, MAX_HEAD, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    // More bytes are waited for only up to the limit, and what has been read stays so, whatever follows.
    assert!(whole != Ok(None) || bytes.len() < MAX_HEAD);
    for length in 0..bytes.len().min(600) {
        match read(&bytes[..length]) {
            Ok(None) => {}
            Ok(head) => assert_eq!(Ok(head), whole),
            Err(_) => assert!(whole.is_err()),
        }
    }
    let Ok(Some(head)) = whole else { return chunks(bytes) };
    assert!(head.path.starts_with('/') && !head.path.contains(['?', '#', ' ']));
    for name in ["content-length", "transfer-encoding", "connection", "upgrade", "expect", "trailer", "te"] {
        assert!(!head.fields.contains_key(name));
    }
    if head.framing == Framing::Chunked {
        chunks(&bytes[head.length..]);
    }
});

fn chunks(mut bytes: &[u8]) {
    let mut chunks = Chunks::default();
    while let Ok(step) = chunks.step(bytes) {
        match step {
            Step::Data(length) | Step::Skip(length) => {
                assert!((1..=bytes.len()).contains(&length));
                bytes = &bytes[length..];
            }
            Step::More => return assert!(bytes.is_empty()),
            Step::Ended => return,
        }
    }
}
