//! The name that a TLS client asks for, read from bytes that nobody vouches for.

use agent_network::{Hello, Malformed, read_hello};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

/// The first flight of a real TLS client.
pub fn greeting_of_a_client(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a greeting");
    bytes
}

fn length_prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &length_prefixed(content)].concat()
}

fn server_name(name: &str) -> Vec<u8> {
    let entry = [&[0][..], &length_prefixed(name.as_bytes())].concat();
    extension(0, &length_prefixed(&entry))
}

/// A ClientHello with these extensions, as one handshake message.
fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend(length_prefixed(&extensions.concat()));
    let length = (body.len() as u32).to_be_bytes();
    [&[1][..], &length[1..], &body].concat()
}

/// The message cut into records of these sizes.
fn records(message: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), message);
    let mut sizes = sizes.iter().copied().chain(std::iter::repeat(16_000));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
        out.extend([22, 3, 1]);
        out.extend(length_prefixed(piece));
        rest = after;
    }
    out
}

fn named(name: &str) -> Result<Hello, Malformed> {
    Ok(Hello::Tls(Some(name.to_owned())))
}

#[test]
fn a_real_clients_name_is_read() {
    assert_eq!(read_hello(&greeting_of_a_client("pypi.org")), named("pypi.org"));
    assert_eq!(
        read_hello(&greeting_of_a_client("192.0.2.1")),
        Ok(Hello::Tls(None)),
        "no name for an address"
    );
}

#[test]
fn other_protocols_and_broken_tls_are_distinguished() {
    assert_eq!(read_hello(b""), Ok(Hello::Partial));
    for plain in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01", b"\x16\x16\x16"] {
        assert_eq!(read_hello(plain), Ok(Hello::NotTls), "{plain:?}");
    }
    let hello = message(&[server_name("a.com")]);
    let mut other_message = hello.clone();
    other_message[0] = 2;
    let mut cut_short = hello.clone();
    cut_short[3] -= 1;
    let alert_between = [&records(&hello[..10], &[])[..], &[21, 3, 1, 0, 2, 1, 0]].concat();
    for broken in [
        records(&other_message, &[]),
        records(&cut_short, &[]),
        records(&message(&[server_name("a.com"), server_name("b.com")]), &[]),
        records(&message(&[server_name("")]), &[]),
        records(&message(&[server_name("bücher.de")]), &[]),
        records(&message(&[extension(0, &[0, 9, 0, 0, 1, b'a', 0, 0, 2, b'b', b'b'])]), &[]),
        records(&message(&[extension(0, &[0, 4, 1, 0, 1, b'a'])]), &[]),
        alert_between,
        vec![22, 3, 1, 0, 0],
        vec![22, 3, 1, 0xff, 0xff],
        [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 16_380]].concat(),
    ] {
        assert_eq!(read_hello(&broken), Err(Malformed), "{broken:?}");
    }
}

proptest! {
    #[test]
    fn a_name_is_read_however_its_records_are_cut(
        name in "[a-z0-9.-]{1,60}",
        others in vec((1u16..0xffff, vec(any::<u8>(), 0..50)), 0..6),
        at in 0usize..6,
        sizes in vec(1usize..400, 0..30),
        behind in vec(any::<u8>(), 0..50),
    ) {
        let mut extensions: Vec<Vec<u8>> = others.iter().map(|(kind, content)| extension(*kind, content)).collect();
        extensions.insert(at.min(extensions.len()), server_name(&name));
        let mut bytes = records(&message(&extensions), &sizes);
        for length in 0..bytes.len() {
            prop_assert_eq!(read_hello(&bytes[..length]), Ok(Hello::Partial), "not yet whole at {}", length);
        }
        bytes.extend(behind);
        prop_assert_eq!(read_hello(&bytes), named(&name));
    }

    #[test]
    fn arbitrary_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..2000), tls in any::<bool>()) {
        let bytes = if tls { [&[22, 3, 1][..], &bytes].concat() } else { bytes };
        let _ = read_hello(&bytes);
    }

    #[test]
    fn what_has_been_read_does_not_change_with_what_follows(
        flips in vec((0usize..300, any::<u8>()), 0..4),
        behind in vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = greeting_of_a_client("example.com");
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let first = read_hello(&bytes);
        bytes.extend(behind);
        if first != Ok(Hello::Partial) {
            prop_assert_eq!(read_hello(&bytes), first);
        }
    }
}
