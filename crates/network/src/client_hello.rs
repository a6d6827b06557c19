//! The server name in a TLS client's first bytes (RFC 8446 section 4.1.2, RFC 6066 section 3).
//!
//! Uses only the standard library, so that a fuzzer builds nothing else.

use std::fmt;

/// The longest ClientHello that is read, in bytes, with its framing. Large ones, with post-quantum key shares, take about
/// 2 KiB.
pub const MAX: usize = 16 << 10;

/// Record type and message type.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The longest content of one record, in bytes.
const MAX_RECORD: usize = 16 << 10;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The kind of a connection, by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// An incomplete ClientHello: more bytes are needed.
    Partial,
    /// Not TLS.
    NotTls,
    /// A complete ClientHello, and the server name in it, if any.
    Tls(Option<String>),
}

/// It starts like TLS but is not a valid ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the TLS greeting is malformed")
    }
}

/// Reads the first bytes of a connection. What follows the ClientHello is ignored.
///
/// # Errors
///
/// The bytes start like TLS and cannot become a ClientHello of at most 16 KiB.
pub fn read(bytes: &[u8]) -> Result<Hello, Malformed> {
    match bytes {
        [] | [HANDSHAKE] => return Ok(Hello::Partial),
        [HANDSHAKE, 3, ..] => {}
        _ => return Ok(Hello::NotTls),
    }
    match message(bytes)? {
        Some(hello) => server_name(&hello).map(Hello::Tls).ok_or(Malformed),
        None if bytes.len() >= MAX => Err(Malformed),
        None => Ok(Hello::Partial),
    }
}

/// The body of the handshake message, joined from the records that carry it; `None` while it is incomplete.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut input = bytes;
    let mut message = Vec::new();
    while let Some(record) = record(&mut input)? {
        message.extend_from_slice(record);
        match *message {
            [kind, ..] if kind != CLIENT_HELLO => return Err(Malformed),
            [_, a, b, c, ..] => {
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                if length > MAX {
                    return Err(Malformed);
                }
                if let Some(body) = message.get(4..4 + length) {
                    return Ok(Some(body.to_vec()));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The content of the next complete record, if any. Only handshake records are valid.
fn record<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let &[kind, major, _, high, low, ref rest @ ..] = *input else { return Ok(None) };
    let length = usize::from(high) << 8 | usize::from(low);
    if kind != HANDSHAKE || major != 3 || !(1..=MAX_RECORD).contains(&length) {
        return Err(Malformed);
    }
    let Some((content, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    *input = rest;
    Ok(Some(content))
}

/// The name in a ClientHello's body; `None` where that is malformed. Every length has to add up, and the name may occur
/// only once, so that no server reads it differently.
fn server_name(hello: &[u8]) -> Option<Option<String>> {
    let mut input = hello;
    let (_version, _random) = (take(&mut input, 2)?, take(&mut input, 32)?);
    let (_session, _suites) = (short(&mut input)?, long(&mut input)?);
    let _compression = short(&mut input)?;
    if input.is_empty() {
        return Some(None);
    }
    let mut extensions = long(&mut input)?;
    if !input.is_empty() {
        return None;
    }
    let mut name = None;
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(take(&mut extensions, 2)?.try_into().ok()?);
        let content = long(&mut extensions)?;
        if kind == SERVER_NAME && name.replace(one_name(content)?).is_some() {
            return None;
        }
    }
    Some(name)
}

/// The only host name of the extension.
fn one_name(mut extension: &[u8]) -> Option<String> {
    let mut list = long(&mut extension)?;
    let kind = take(&mut list, 1)?;
    let name = long(&mut list)?;
    let is_whole = extension.is_empty() && list.is_empty() && kind == [HOST_NAME] && !name.is_empty();
    is_whole.then(|| std::str::from_utf8(name).ok().filter(|name| name.is_ascii()).map(str::to_owned))?
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(head)
}

/// A field prefixed with a one-byte length.
fn short<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(input, 1)?[0];
    take(input, length.into())
}

/// A field prefixed with a two-byte length.
fn long<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u16::from_be_bytes(take(input, 2)?.try_into().ok()?);
    take(input, length.into())
}
