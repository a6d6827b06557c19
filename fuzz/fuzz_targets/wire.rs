//! Feeds arbitrary bytes to the decoders of the guest's protocol: `cargo +nightly fuzz run wire`.
//!
//! The decoder's file needs nothing but the standard library, so that the fuzzer builds only it.

#![no_main]

use agent_wire as wire;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = wire::Decoder::new();
    // A block is decoded the same way by both sides.
    let size = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size));
    let compressed = wire::Block::Lz4 { size, bytes: bytes.get(4..).unwrap_or_default().to_vec() };
    for block in [wire::Block::Plain(bytes.to_vec()), compressed] {
        let _ = wire::unpack::<wire::Change>(&block);
        let _ = wire::unpack::<wire::Part>(&block);
    }
    // The sizes that a block states are rarely small enough to be decompressed.
    if let Some(output) = wire::lz4::decompress(bytes, bytes.len()) {
        assert_eq!(output.len(), bytes.len());
    }
    if let Some(compressed) = wire::lz4::compress(bytes) {
        assert!(compressed.len() < bytes.len());
        assert_eq!(wire::lz4::decompress(&compressed, bytes.len()).as_deref(), Some(bytes));
    }
    // The first byte chooses the size of the pieces, so that frames are cut everywhere.
    let size = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    for piece in bytes.get(1..).unwrap_or_default().chunks(size) {
        decoder.feed(piece);
        loop {
            match decoder.next() {
                Ok(Some((id, message))) => {
                    // What was decoded encodes to what decodes to the same.
                    let mut again = Vec::new();
                    wire::encode(id, &message, &mut again).unwrap();
                    let mut second = wire::Decoder::new();
                    second.feed(&again);
                    assert_eq!(second.next(), Ok(Some((id, message))));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
