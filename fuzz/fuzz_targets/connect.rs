//! Arbitrary bytes as the body of a Connect call: `cargo +nightly fuzz run connect`.

#![no_main]

use agent_envd::envelope::{Decoder, MAX_ENVELOPE};
use agent_envd::messages::filesystem::WatchResponse;
use agent_envd::messages::process::{EventResponse, StartRequest, StreamInputRequest};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What could be read is read again after it was written.
fn check<M: Message + Serialize + DeserializeOwned + Default + PartialEq>(payload: &[u8]) {
    if let Ok(message) = M::decode(payload) {
        assert!(M::decode(&message.encode_to_vec()[..]).is_ok_and(|again| again == message));
    }
    let _ = serde_json::from_slice::<M>(payload);
}

fuzz_target!(|bytes: &[u8]| {
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut decoder = Decoder::default();
    for piece in [first, rest] {
        decoder.push(piece);
        while let Ok(Some(envelope)) = decoder.pop() {
            assert!(envelope.payload.len() <= MAX_ENVELOPE);
            check::<StartRequest>(&envelope.payload);
            check::<StreamInputRequest>(&envelope.payload);
            check::<EventResponse>(&envelope.payload);
            check::<WatchResponse>(&envelope.payload);
        }
    }
});
