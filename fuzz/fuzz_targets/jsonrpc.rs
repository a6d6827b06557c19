//! Arbitrary bytes as the output of an MCP server, in pieces of any size: `cargo +nightly fuzz run jsonrpc`.

#![no_main]

use agent_mcp::jsonrpc::{Lines, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };
    let mut lines = Lines::new(4096);
    for piece in data.chunks(usize::from(cut).max(1)) {
        lines.push(piece);
        while let Ok(Some(line)) = lines.next_line() {
            if let Ok(message) = Message::parse(line) {
                let again = message.to_line();
                assert!(Message::parse(again.trim_ascii()).is_ok());
            }
        }
    }
});
