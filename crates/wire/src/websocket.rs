//! The guest's side of a WebSocket (RFC 6455): the handshake, which asks for a secret, and frames of bytes.
//!
//! What arrives is a stream, so payload is passed on as it arrives and no frame is ever kept whole.

use crate::sha1::sha1;
use crate::sha256::Sha256;

/// Bytes of a handshake's head.
pub const MAX_HEAD: usize = 16 << 10;
/// Bytes that one frame may say it has: a proxy on the way may merge frames.
pub const MAX_FRAME: u64 = 16 << 20;
/// The header that carries the session's secret: 64 hexadecimal digits.
pub const SECRET_HEADER: &str = "x-agent-secret";
/// The header that carries the number which the guest is to prove: 64 hexadecimal digits. The answer to a greeting is then the first
/// that is in the frames, without a round trip of its own. An answer to the handshake has it too where that was understood.
pub const NONCE_HEADER: &str = "x-agent-nonce";
/// RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The kind of a client, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The head is not complete yet.
    Partial,
    /// The answer, where in the input the frames begin, and the number to prove at once.
    Accepted { answer: Vec<u8>, length: usize, nonce: Option<[u8; 32]> },
    /// The answer, after which the connection is closed.
    Refused { answer: &'static [u8] },
}

const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Reads a client's handshake. `verifier` is the SHA-256 of the secret's hexadecimal digits.
pub fn handshake(input: &[u8], verifier: &[u8; 32]) -> Handshake {
    let within = &input[..input.len().min(MAX_HEAD)];
    let Some(end) = within.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return match input.len() < MAX_HEAD {
            true => Handshake::Partial,
            false => Handshake::Refused { answer: BAD_REQUEST },
        };
    };
    let refused = Handshake::Refused { answer: BAD_REQUEST };
    let Ok(head) = str::from_utf8(&input[..end]) else { return refused };
    let header = |name: &str| {
        head.split("\r\n").skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.trim().eq_ignore_ascii_case(name).then_some(value.trim())
        })
    };
    let asks =
        head.starts_with("GET ") && header("upgrade").is_some_and(|u| u.eq_ignore_ascii_case("websocket"));
    let Some(key) = header("sec-websocket-key").filter(|key| asks && (16..=64).contains(&key.len())) else {
        return refused;
    };
    let mut hash = Sha256::new();
    hash.update(header(SECRET_HEADER).unwrap_or_default().as_bytes());
    // Both are hashes, so the time that the comparison takes reveals nothing about the secret.
    if hash.finish() != *verifier {
        return Handshake::Refused { answer: FORBIDDEN };
    }
    let accept = base64(&sha1(format!("{key}{MAGIC}").as_bytes()));
    let nonce = header(NONCE_HEADER).and_then(number);
    let understood = if nonce.is_some() { format!("{NONCE_HEADER}: proven\r\n") } else { String::new() };
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: \
         {accept}\r\n{understood}\r\n"
    );
    Handshake::Accepted { answer: answer.into_bytes(), length: end + 4, nonce }
}

/// The number that 64 hexadecimal digits stand for.
fn number(digits: &str) -> Option<[u8; 32]> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let bytes = pairs.iter().map(|pair| match pair.iter().all(u8::is_ascii_hexdigit) {
        true => u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok(),
        false => None,
    });
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The reason why a client's frames are not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Reserved bits, an unknown kind, text, or a control frame that is fragmented or too long.
    Kind,
    /// A client has to mask.
    Unmasked,
    /// More than [`MAX_FRAME`].
    Length,
    /// A continuation of nothing, or a message within a message.
    Order,
}

/// Reads a client's frames.
#[derive(Debug, Default)]
pub struct Frames {
    /// The head of the next frame, as far as it has arrived: two bytes, up to eight of the length, four of the mask.
    head: Vec<u8>,
    /// Of the current frame: its kind, what is missing of its payload, the mask and the place in it.
    kind: u8,
    missing: u64,
    mask: [u8; 4],
    at: usize,
    /// The payload of a control frame.
    control: Vec<u8>,
    /// A message continues in the next frame.
    continues: bool,
    /// The client has said goodbye.
    pub closed: bool,
}

impl Frames {
    /// Decodes `input`: payload is appended to `payload`, answers to pings and to a goodbye to `answers`. What follows a
    /// goodbye is not read.
    pub fn read(
        &mut self,
        mut input: &[u8],
        payload: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        while !self.closed && !input.is_empty() {
            if self.missing == 0 {
                input = self.read_head(input)?;
                if self.missing > 0 || !self.head.is_empty() {
                    continue;
                }
            } else {
                input = self.read_payload(input, payload);
            }
            if self.missing == 0 && self.kind >= CLOSE {
                self.answer(answers);
            }
        }
        Ok(())
    }

    /// Takes bytes of the head. When it is complete, it is empty again and `missing` is set.
    fn read_head<'a>(&mut self, mut input: &'a [u8]) -> Result<&'a [u8], Violation> {
        while let Some((byte, rest)) = input.split_first() {
            self.head.push(*byte);
            input = rest;
            let Some(length) = self.head_length()? else { continue };
            if self.head.len() == length {
                self.begin(length)?;
                self.head.clear();
                break;
            }
        }
        Ok(input)
    }

    /// Returns the length of the head, once that is known.
    fn head_length(&self) -> Result<Option<usize>, Violation> {
        let [first, second, ..] = *self.head else { return Ok(None) };
        let (kind, ends) = (first & 15, first & 0x80 != 0);
        let is_control = kind >= CLOSE;
        let is_known = matches!(kind, CONTINUATION | BINARY | CLOSE | PING | PONG);
        if first & 0x70 != 0 || !is_known || is_control && (!ends || second & 0x7f > 125) {
            return Err(Violation::Kind);
        }
        if second & 0x80 == 0 {
            return Err(Violation::Unmasked);
        }
        if !is_control && (kind == CONTINUATION) != self.continues {
            return Err(Violation::Order);
        }
        Ok(Some(match second & 0x7f {
            126 => 8,
            127 => 14,
            _ => 6,
        }))
    }

    fn begin(&mut self, length: usize) -> Result<(), Violation> {
        let (head, mask) = self.head.split_at(length - 4);
        let short = u64::from(head[1] & 0x7f);
        let size = match &head[2..] {
            [] => short,
            bytes => bytes.iter().fold(0, |size, byte| size << 8 | u64::from(*byte)),
        };
        if size > MAX_FRAME {
            return Err(Violation::Length);
        }
        self.mask.copy_from_slice(mask);
        (self.kind, self.missing, self.at) = (head[0] & 15, size, 0);
        self.control.clear();
        if self.kind < CLOSE {
            self.continues = head[0] & 0x80 == 0;
        }
        Ok(())
    }

    fn read_payload<'a>(&mut self, input: &'a [u8], payload: &mut Vec<u8>) -> &'a [u8] {
        let length = usize::try_from(self.missing).unwrap_or(usize::MAX).min(input.len());
        let (here, rest) = input.split_at(length);
        let target = if self.kind < CLOSE { payload } else { &mut self.control };
        let (mask, at) = (self.mask, self.at);
        target.extend(here.iter().enumerate().map(|(index, byte)| byte ^ mask[(at + index) % 4]));
        self.at = (at + length) % 4;
        self.missing -= length as u64;
        rest
    }

    fn answer(&mut self, answers: &mut Vec<u8>) {
        let kind = match self.kind {
            PING => PONG,
            CLOSE => CLOSE,
            _ => return,
        };
        self.closed = kind == CLOSE;
        answers.extend_from_slice(&[0x80 | kind, self.control.len() as u8]);
        answers.append(&mut self.control);
    }
}

/// The head of a frame with `length` bytes of payload, which follow as they are.
pub fn head(length: usize) -> Vec<u8> {
    let mut head = vec![0x80 | BINARY];
    match length {
        0..126 => head.push(length as u8),
        126..0x1_0000 => {
            head.push(126);
            head.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head
}
