//! The guest's WebSocket on what a client may send: cut anywhere, hostile, or from another implementation.

use agent_wire::sha256::Sha256;
use agent_wire::websocket::{Frames, Handshake, MAX_FRAME, MAX_HEAD, Violation, handshake, head};
use futures_util::{SinkExt, StreamExt};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const SECRET: &str = "0123456789abcdef";

fn verifier() -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(SECRET.as_bytes());
    hash.finish()
}

/// The handshake of RFC 6455, section 1.3, whose answer is known.
fn request(extra: &str) -> Vec<u8> {
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    format!(
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUPGRADE: WebSocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {key}\r\n{extra}\r\n"
    )
    .into_bytes()
}

#[test]
fn a_handshake_that_names_the_secret_is_answered_as_the_standard_says() {
    let whole = request(&format!("X-Agent-Secret: {SECRET}\r\n"));
    for length in 0..whole.len() {
        assert_eq!(handshake(&whole[..length], &verifier()), Handshake::Partial);
    }
    let more = [whole.as_slice(), b"frames"].concat();
    let Handshake::Accepted { answer, length, nonce } = handshake(&more, &verifier()) else {
        panic!("it is accepted")
    };
    assert_eq!((length, nonce), (whole.len(), None));
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
}

#[test]
fn a_number_to_prove_comes_with_the_handshake_or_not_at_all() {
    let secret = format!("X-Agent-Secret: {SECRET}\r\n");
    let accepted = |digits: &str| {
        let asked = request(&format!("{secret}X-Agent-Nonce: {digits}\r\n"));
        let Handshake::Accepted { answer, nonce, .. } = handshake(&asked, &verifier()) else {
            panic!("it is accepted")
        };
        let answer = String::from_utf8(answer).expect("text");
        assert_eq!(answer.contains("\r\nx-agent-nonce: proven\r\n"), nonce.is_some(), "{digits}: {answer}");
        assert!(answer.ends_with("\r\n\r\n") && !answer[..answer.len() - 4].contains("\r\n\r\n"), "{answer}");
        nonce
    };
    assert_eq!(accepted(&"0fA0".repeat(16)), Some([0x0f, 0xa0].repeat(16).try_into().expect("32 bytes")));
    for none in
        ["", "0f", &"0".repeat(63), &"0".repeat(66), &"+f".repeat(32), &"0g".repeat(32), &"é".repeat(32)]
    {
        assert_eq!(accepted(none), None, "{none}");
    }
}

#[test]
fn a_handshake_without_the_secret_is_refused() {
    for extra in [
        "",
        "X-Agent-Secret: \r\n",
        "X-Agent-Secret: 0123456789abcdee\r\n",
        "X-Agent-Secrets: 0123456789abcdef\r\n",
    ] {
        let Handshake::Refused { answer } = handshake(&request(extra), &verifier()) else {
            panic!("{extra}")
        };
        assert!(answer.starts_with(b"HTTP/1.1 403 "), "{extra}");
    }
    for bad in [
        &b"POST / HTTP/1.1\r\n\r\n"[..],
        b"\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n",
        &[b'a'; MAX_HEAD],
    ] {
        let Handshake::Refused { answer } = handshake(bad, &verifier()) else { panic!("refused") };
        assert!(answer.starts_with(b"HTTP/1.1 400 "));
    }
}

#[test]
fn frames_that_no_client_of_ours_sends_are_violations() {
    let read = |bytes: &[u8]| Frames::default().read(bytes, &mut Vec::new(), &mut Vec::new());
    assert_eq!(read(&[0x82, 0x01, 0]), Err(Violation::Unmasked));
    assert_eq!(read(&[0x81, 0x81]), Err(Violation::Kind), "text");
    assert_eq!(read(&[0xc2, 0x81]), Err(Violation::Kind), "a reserved bit");
    assert_eq!(read(&[0x09, 0x80]), Err(Violation::Kind), "a ping in parts");
    assert_eq!(read(&[0x89, 0xfe]), Err(Violation::Kind), "a long ping");
    assert_eq!(read(&[0x80, 0x80]), Err(Violation::Order), "a continuation of nothing");
    let mut huge = vec![0x82, 0xff];
    huge.extend_from_slice(&(MAX_FRAME + 1).to_be_bytes());
    assert_eq!(read(&[huge.as_slice(), &[0; 4]].concat()), Err(Violation::Length));
}

#[tokio::test]
async fn frames_of_another_implementation_arrive_and_ours_arrive_there() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let (mut frames, mut payload, mut answers) = (Frames::default(), Vec::new(), Vec::new());
    for length in [0usize, 1, 125, 126, 65_535, 65_536, 200_000] {
        let sent: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        client.send(Message::binary(sent.clone())).await.expect("sent");
        client.send(Message::Ping(b"here?".as_slice().into())).await.expect("sent");
        payload.clear();
        answers.clear();
        while answers.is_empty() {
            let mut buffer = [0; 4096];
            let length = far.read(&mut buffer).await.expect("bytes");
            frames.read(&buffer[..length], &mut payload, &mut answers).expect("frames");
        }
        assert!(payload == sent, "{length}");
        far.write_all(&answers).await.expect("sent");
        far.write_all(&head(length)).await.expect("sent");
        far.write_all(&sent).await.expect("sent");
        assert_eq!(
            client.next().await.expect("a message").expect("valid"),
            Message::Pong(b"here?".as_slice().into())
        );
        assert_eq!(client.next().await.expect("a message").expect("valid"), Message::binary(sent));
    }
    client.close(None).await.expect("closed");
    let mut buffer = [0; 64];
    let length = far.read(&mut buffer).await.expect("bytes");
    frames.read(&buffer[..length], &mut payload, &mut answers).expect("frames");
    assert!(frames.closed);
}

/// A client's frame.
fn masked(first: u8, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = head(payload.len());
    frame[0] = first;
    frame[1] |= 0x80;
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_an_error_or_bounded(bytes in vec(any::<u8>(), 0..2000)) {
        let (mut payload, mut answers) = (Vec::new(), Vec::new());
        let _ = Frames::default().read(&bytes, &mut payload, &mut answers);
        prop_assert!(payload.len() + answers.len() <= bytes.len());
        let _ = handshake(&bytes, &verifier());
    }

    #[test]
    fn where_the_stream_is_cut_makes_no_difference(
        messages in vec((any::<[u8; 4]>(), vec(any::<u8>(), 0..400), any::<bool>()), 1..6),
        cuts in vec(1usize..50, 1..40),
    ) {
        let mut stream = Vec::new();
        for (mask, bytes, in_parts) in &messages {
            match in_parts {
                true => {
                    let (one, two) = bytes.split_at(bytes.len() / 2);
                    stream.extend(masked(0x02, *mask, one));
                    stream.extend(masked(0x89, *mask, b"ping"));
                    stream.extend(masked(0x80, *mask, two));
                }
                false => stream.extend(masked(0x82, *mask, bytes)),
            }
        }
        let (mut frames, mut payload, mut answers) = (Frames::default(), Vec::new(), Vec::new());
        let (mut rest, mut cuts) = (stream.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*cuts.next().expect("endless")));
            prop_assert_eq!(frames.read(piece, &mut payload, &mut answers), Ok(()));
            rest = after;
        }
        let sent: Vec<u8> = messages.iter().flat_map(|(_, bytes, _)| bytes.clone()).collect();
        prop_assert_eq!(payload, sent);
        let pings = messages.iter().filter(|(_, _, in_parts)| *in_parts).count();
        prop_assert_eq!(answers.len(), 6 * pings);
    }
}
