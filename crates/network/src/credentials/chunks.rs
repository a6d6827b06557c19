//! A body in chunks, without extensions and without trailers.

/// The digits of a chunk's size.
const MAX_DIGITS: usize = 8;

/// Reads the chunks of one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks(ChunkState);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// Before a chunk's size, of which so many digits have been read.
    Size {
        digits: usize,
        size: u64,
    },
    /// After the size.
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// After the data: CR, then LF.
    DataReturn,
    DataFeed,
    /// After the last chunk: CR, then LF.
    EndReturn,
    EndFeed,
    Ended,
}

/// A step of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes of data are next.
    Data(usize),
    /// So many bytes are not data.
    Skip(usize),
    /// More bytes are needed.
    More,
    /// The body has ended.
    Ended,
}

impl Default for Chunks {
    fn default() -> Self {
        Self(ChunkState::Size { digits: 0, size: 0 })
    }
}

impl Chunks {
    /// Reads the next bytes. Those that a step names are not passed again.
    ///
    /// # Errors
    /// The reason why they are not chunks as this proxy passes them on.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, &'static str> {
        if self.0 == ChunkState::Ended {
            return Ok(Step::Ended);
        }
        let Some(first) = bytes.first().copied() else { return Ok(Step::More) };
        if let ChunkState::Data { left } = self.0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let left = left - length as u64;
            self.0 = if left == 0 { ChunkState::DataReturn } else { ChunkState::Data { left } };
            return Ok(Step::Data(length));
        }
        self.0 = self.after(first)?;
        Ok(Step::Skip(1))
    }

    fn after(self, byte: u8) -> Result<ChunkState, &'static str> {
        match (self.0, byte) {
            (ChunkState::Size { digits, size }, digit)
                if digit.is_ascii_hexdigit() && digits < MAX_DIGITS =>
            {
                let digit = char::from(digit).to_digit(16).unwrap_or_default();
                Ok(ChunkState::Size { digits: digits + 1, size: size * 16 + u64::from(digit) })
            }
            (ChunkState::Size { digits: 1.., size }, b'\r') => Ok(ChunkState::SizeEnd { size }),
            (ChunkState::Size { digits: 1.., .. }, b';') => Err("a chunk has an extension"),
            (ChunkState::SizeEnd { size: 0 }, b'\n') => Ok(ChunkState::EndReturn),
            (ChunkState::SizeEnd { size }, b'\n') => Ok(ChunkState::Data { left: size }),
            (ChunkState::DataReturn, b'\r') => Ok(ChunkState::DataFeed),
            (ChunkState::DataFeed, b'\n') => Ok(ChunkState::Size { digits: 0, size: 0 }),
            (ChunkState::EndReturn, b'\r') => Ok(ChunkState::EndFeed),
            (ChunkState::EndReturn, _) => Err("the body has trailers"),
            (ChunkState::EndFeed, b'\n') => Ok(ChunkState::Ended),
            _ => Err("a chunk of the body is not valid"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The data, and what follows the body.
    fn read(mut bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
        let (mut chunks, mut data) = (Chunks::default(), Vec::new());
        loop {
            match chunks.step(bytes)? {
                Step::Data(length) => {
                    data.extend_from_slice(&bytes[..length]);
                    bytes = &bytes[length..];
                }
                Step::Skip(length) => bytes = &bytes[length..],
                Step::More => return Err("more"),
                Step::Ended => return Ok((data, bytes)),
            }
        }
    }

    #[test]
    fn only_plain_chunks_are_read() {
        assert_eq!(
            read(b"3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nGET"),
            Ok((b"abc0123456789".to_vec(), &b"GET"[..]))
        );
        for (bytes, reason) in [
            (&b"3;x=y\r\nabc\r\n0\r\n\r\n"[..], "extension"),
            (b"0\r\nX: y\r\n\r\n", "trailers"),
            (b"3\nabc\r\n0\r\n\r\n", "not valid"),
            (b"3 \r\nabc\r\n0\r\n\r\n", "not valid"),
            (b"0x3\r\nabc\r\n0\r\n\r\n", "not valid"),
            (b"-3\r\nabc\r\n0\r\n\r\n", "not valid"),
            (b"\r\nabc\r\n0\r\n\r\n", "not valid"),
            (b"3\r\nabcd\r\n0\r\n\r\n", "not valid"),
            (b"3\r\nabc\n0\r\n\r\n", "not valid"),
            (b"123456789\r\n", "not valid"),
            (b"3\r\nabc\r\n0\r\n", "more"),
        ] {
            let refused = read(bytes).unwrap_err();
            assert!(refused.contains(reason), "{}: {refused}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6)) {
            let mut written = Vec::new();
            for part in &parts {
                written.extend(format!("{:x}\r\n", part.len()).into_bytes());
                written.extend(part);
                written.extend(b"\r\n");
            }
            written.extend(b"0\r\n\r\nnext");
            let (data, rest) = read(&written).unwrap();
            prop_assert_eq!((data, rest), (parts.concat(), &b"next"[..]));
        }
    }
}
