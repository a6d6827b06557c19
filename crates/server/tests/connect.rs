//! The frames and messages of `agent serve`, whatever a client sends.

use agent_envd::envelope::{Decoder, EnvelopeError, MAX_ENVELOPE, encode};
use agent_envd::messages::filesystem::{EntryInfo, EntryResponse, Timestamp, WatchRequest};
use agent_envd::messages::process::{
    DataEvent, Event, EventResponse, Output, ProcessConfig, ProcessInput, ProcessSelector, Pty, PtySize,
    Selector, SendInputRequest, SendSignalRequest, StartRequest, StreamInputRequest,
};
use agent_server::e2b::connect::Codec;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn start_request() -> impl Strategy<Value = StartRequest> {
    let config = (".*", vec(".*", 0..4), btree_map(".*", ".*", 0..4), option::of(".*"))
        .prop_map(|(cmd, args, envs, cwd)| ProcessConfig { cmd, args, envs, cwd });
    let pty = option::of((any::<u32>(), any::<u32>()))
        .prop_map(|size| Pty { size: size.map(|(cols, rows)| PtySize { cols, rows }) });
    (option::of(config), option::of(pty), option::of(".*"), any::<Option<bool>>())
        .prop_map(|(process, pty, tag, stdin)| StartRequest { process, pty, tag, stdin })
}

fn entry() -> impl Strategy<Value = EntryInfo> {
    let time = (-62_135_596_800i64..253_402_207_200, 0..1_000_000_000i32)
        .prop_map(|(seconds, nanos)| Timestamp { seconds, nanos });
    let metadata = btree_map("[a-z]{1,9}", ".*", 0..3);
    (".*", 0..4i32, any::<i64>(), any::<u32>(), option::of(time), option::of(".*"), metadata).prop_map(
        |(name, kind, size, mode, modified_time, symlink_target, metadata)| EntryInfo {
            path: format!("/{name}"),
            name,
            kind,
            size,
            mode,
            permissions: "-rw-r--r--".into(),
            owner: "user".into(),
            group: "user".into(),
            modified_time,
            symlink_target,
            metadata,
        },
    )
}

proptest! {
    #[test]
    fn frames_are_the_same_in_any_pieces(
        payloads in vec(vec(any::<u8>(), 0..300), 0..6),
        size in 1..400usize,
    ) {
        let bytes: Vec<u8> = payloads.iter().flat_map(|payload| encode(payload, false)).collect();
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            while let Some(envelope) = decoder.pop().unwrap() {
                prop_assert!(!envelope.is_end);
                found.push(envelope.payload.to_vec());
            }
        }
        prop_assert_eq!(decoder.finish(), Ok(()));
        prop_assert_eq!(found, payloads);
    }

    #[test]
    fn arbitrary_bytes_are_frames_or_refused(bytes in vec(any::<u8>(), 0..600)) {
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let mut taken = 0;
        loop {
            match decoder.pop() {
                Ok(Some(envelope)) => taken += 5 + envelope.payload.len(),
                Ok(None) => break,
                Err(EnvelopeError::TooLong(length)) => {
                    prop_assert!(length > MAX_ENVELOPE);
                    break;
                }
                Err(_) => break,
            }
        }
        prop_assert!(taken <= bytes.len());
    }

    #[test]
    fn arbitrary_bytes_are_messages_or_refused(bytes in vec(any::<u8>(), 0..600)) {
        for codec in [Codec::Json, Codec::Proto] {
            let _ = codec.decode::<StartRequest>(&bytes);
            let _ = codec.decode::<StreamInputRequest>(&bytes);
            let _ = codec.decode::<SendSignalRequest>(&bytes);
            let _ = codec.decode::<WatchRequest>(&bytes);
        }
    }

    #[test]
    fn a_request_means_the_same_in_both_encodings(request in start_request()) {
        for codec in [Codec::Json, Codec::Proto] {
            prop_assert_eq!(&codec.decode::<StartRequest>(&codec.encode(&request)).unwrap(), &request);
        }
    }

    #[test]
    fn input_and_output_are_any_bytes(bytes in vec(any::<u8>(), 0..600), pid in any::<u32>()) {
        let process = Some(ProcessSelector { selector: Some(Selector::Pid(pid)) });
        let input = agent_envd::messages::process::Input::Stdin(bytes.clone());
        let request = SendInputRequest { process, input: Some(ProcessInput { input: Some(input) }) };
        let event = Event::Data(DataEvent { output: Some(Output::Stderr(bytes)) }).response();
        for codec in [Codec::Json, Codec::Proto] {
            prop_assert_eq!(&codec.decode::<SendInputRequest>(&codec.encode(&request)).unwrap(), &request);
            prop_assert_eq!(&codec.decode::<EventResponse>(&codec.encode(&event)).unwrap(), &event);
        }
    }

    #[test]
    fn an_entry_means_the_same_in_both_encodings(entry in entry()) {
        let response = EntryResponse { entry: Some(entry) };
        for codec in [Codec::Json, Codec::Proto] {
            prop_assert_eq!(&codec.decode::<EntryResponse>(&codec.encode(&response)).unwrap(), &response);
        }
    }
}

#[test]
fn json_is_read_as_the_sdks_write_it() {
    let text = br#"{"process":{"pid":7},"signal":"SIGNAL_SIGKILL","unknown":[1]}"#;
    let request: SendSignalRequest = Codec::Json.decode(text).unwrap();
    assert_eq!(request.signal, 9);
    assert_eq!(request.process.unwrap().selector, Some(Selector::Pid(7)));
    let text = br#"{"process":{"cmd":"/bin/bash","args":["-l"]},"stdin":false}"#;
    let request: StartRequest = Codec::Json.decode(text).unwrap();
    assert_eq!((request.stdin, request.pty), (Some(false), None));
    // Both alphabets of base64, with and without padding.
    for data in ["+/8=", "+/8", "-_8=", "-_8"] {
        let text = format!(r#"{{"input":{{"stdin":"{data}"}}}}"#);
        let request: SendInputRequest = Codec::Json.decode(text.as_bytes()).unwrap();
        assert_eq!(
            request.input.unwrap().input,
            Some(agent_envd::messages::process::Input::Stdin(vec![0xfb, 0xff])),
            "{data}"
        );
    }
}
