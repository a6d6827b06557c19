//! The frames of a Connect stream: a byte of flags, four bytes of length (big-endian), the payload.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// The longest payload that is read.
pub const MAX_ENVELOPE: usize = 8 << 20;
/// Flags and length.
const HEAD: usize = 5;
const COMPRESSED: u8 = 0x01;
const END: u8 = 0x02;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Set if it ends the stream.
    pub is_end: bool,
    /// The message.
    pub payload: Bytes,
}

/// The fault of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvelopeError {
    /// The payload is longer than [`MAX_ENVELOPE`].
    TooLong(usize),
    /// Compression was not offered.
    Compressed,
    /// Flags without a meaning.
    Flags(u8),
    /// The stream ended within a frame.
    Incomplete,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(length) => {
                write!(f, "a message of {length} bytes is longer than {} MiB", MAX_ENVELOPE >> 20)
            }
            Self::Compressed => f.write_str("compressed messages are not accepted"),
            Self::Flags(flags) => write!(f, "a message has the unknown flags {flags:#04x}"),
            Self::Incomplete => f.write_str("the stream ended within a message"),
        }
    }
}

/// Puts frames together from the pieces that arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Adds what has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if it has arrived whole.
    ///
    /// # Errors
    /// The frame is not valid; nothing behind it can be read.
    pub fn pop(&mut self) -> Result<Option<Envelope>, EnvelopeError> {
        let Some((&flags, rest)) = self.buffer.split_first() else { return Ok(None) };
        if flags & COMPRESSED != 0 {
            return Err(EnvelopeError::Compressed);
        }
        if flags & !END != 0 {
            return Err(EnvelopeError::Flags(flags));
        }
        let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_ENVELOPE {
            return Err(EnvelopeError::TooLong(length));
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        self.buffer.advance(HEAD);
        Ok(Some(Envelope { is_end: flags & END != 0, payload: self.buffer.split_to(length).freeze() }))
    }

    /// Checks that nothing is left at the end of the stream.
    ///
    /// # Errors
    /// The stream ended within a frame.
    pub fn finish(&self) -> Result<(), EnvelopeError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(EnvelopeError::Incomplete) }
    }
}

/// A frame as bytes. A payload of ours is always shorter than 4 GiB.
pub fn encode(payload: &[u8], is_end: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + payload.len());
    frame.put_u8(if is_end { END } else { 0 });
    frame.put_u32(payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_any_pieces() {
        let frames = [encode(b"one", false), encode(b"", false), encode(b"{}", true)].concat();
        for size in 1..=frames.len() {
            let mut decoder = Decoder::default();
            let mut payloads = Vec::new();
            for piece in frames.chunks(size) {
                decoder.push(piece);
                while let Some(envelope) = decoder.pop().unwrap() {
                    payloads.push((envelope.payload, envelope.is_end));
                }
            }
            decoder.finish().unwrap();
            assert_eq!(payloads, [("one".into(), false), ("".into(), false), ("{}".into(), true)]);
        }
    }

    #[test]
    fn a_long_or_strange_frame_is_refused_by_its_head() {
        let refused = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            decoder.pop().unwrap_err()
        };
        assert_eq!(refused(&[0, 0xff, 0xff, 0xff, 0xff]), EnvelopeError::TooLong(u32::MAX as usize));
        assert_eq!(refused(&[1]), EnvelopeError::Compressed);
        assert_eq!(refused(&[0x80]), EnvelopeError::Flags(0x80));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, 9, b'x']);
        assert_eq!(decoder.pop(), Ok(None));
        assert_eq!(decoder.finish(), Err(EnvelopeError::Incomplete));
    }
}
