//! Arbitrary bytes as an image file and as a terminal's answers: `cargo +nightly fuzz run pictures`.
//!
//! Both files need nothing but the standard library, so that the fuzzer builds only them.

#![no_main]

use agent_picture::{Header, MAX_PIXELS, MAX_SIDE};
use agent_terminal::pictures::answers::TerminalAnswers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Header { width, height, .. }) = Header::of(bytes) {
        assert!((1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height));
        assert!(u64::from(width) * u64::from(height) <= MAX_PIXELS);
        // A file that ends early is not whole.
        assert!(Header::of(&bytes[..bytes.len() - 1]).is_err());
    }
    // What a terminal answers is the same in one piece and in two.
    let (mut whole, mut pieces) = (TerminalAnswers::default(), TerminalAnswers::default());
    whole.push(bytes);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    pieces.push(first);
    pieces.push(second);
    if bytes.len() < 4096 {
        assert_eq!(whole, pieces);
    }
});
