//! The size of an image and whether the file is whole, from its structure alone: nothing is decompressed.

/// The most pixels that an image may have: what decodes it needs four bytes for each.
pub const MAX_PIXELS: u64 = 25_000_000;
/// The longest side.
pub const MAX_SIDE: u32 = 20_000;

/// A format that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Png,
    Jpeg,
}

impl Format {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Png => "image/png",
            Format::Jpeg => "image/jpeg",
        }
    }
}

/// The header of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub format: Format,
    /// In pixels; neither is 0.
    pub width: u32,
    pub height: u32,
}

impl Header {
    /// The header of a whole PNG or JPEG file that is not too large to decode; else why it is not shown.
    pub fn of(bytes: &[u8]) -> Result<Self, String> {
        let header = if bytes.starts_with(PNG_SIGNATURE) {
            png(bytes).ok_or("it is not a whole PNG file")?
        } else if bytes.starts_with(&[0xff, 0xd8]) {
            jpeg(bytes).ok_or("it is not a whole JPEG file")?
        } else {
            return Err("it is neither PNG nor JPEG".to_owned());
        };
        let Header { width, height, .. } = header;
        let pixels = u64::from(width) * u64::from(height);
        match pixels {
            0 => Err("it has no pixels".to_owned()),
            _ if width > MAX_SIDE || height > MAX_SIDE || pixels > MAX_PIXELS => {
                Err(format!("{width}×{height} pixels are too many"))
            }
            _ => Ok(header),
        }
    }
}

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Colour types and the bit depths that each of them may have (PNG, table 11.1).
const PNG_DEPTHS: [(u8, &[u8]); 5] =
    [(0, &[1, 2, 4, 8, 16]), (2, &[8, 16]), (3, &[1, 2, 4, 8]), (4, &[8, 16]), (6, &[8, 16])];

/// Follows the chunks: `IHDR` first, `IDAT` somewhere, `IEND` at the very end, nothing after it.
fn png(bytes: &[u8]) -> Option<Header> {
    let mut rest = &bytes[PNG_SIGNATURE.len()..];
    let mut header = None;
    let mut has_data = false;
    loop {
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let name: [u8; 4] = *rest.get(4..)?.first_chunk()?;
        let content = rest.get(8..)?.get(..length)?;
        // The four bytes after the content are its checksum, which the decoder compares.
        rest = rest.get(8 + length + 4..)?;
        match (&name, header) {
            (b"IHDR", None) => header = Some(png_header(content)?),
            (b"IHDR", Some(_)) | (_, None) => return None,
            (b"IDAT", _) => has_data = true,
            (b"IEND", _) => break,
            _ if !name.iter().all(u8::is_ascii_alphabetic) => return None,
            _ => {}
        }
    }
    header.filter(|_| has_data && rest.is_empty())
}

fn png_header(content: &[u8]) -> Option<Header> {
    let &[a, b, c, d, e, f, g, h, depth, colour, 0, 0, 0 | 1] = content else { return None };
    PNG_DEPTHS.iter().find(|(known, depths)| *known == colour && depths.contains(&depth))?;
    let (width, height) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    Some(Header { format: Format::Png, width, height })
}

/// Follows the segments up to the first scan. The frame header is the first SOF segment; the file ends with EOI.
fn jpeg(bytes: &[u8]) -> Option<Header> {
    let mut rest = bytes.strip_suffix(&[0xff, 0xd9])?.get(2..)?;
    let mut header = None;
    loop {
        // Any number of fill bytes may stand before the marker.
        while let [0xff, 0xff, ..] = rest {
            rest = &rest[1..];
        }
        let &[0xff, marker] = rest.first_chunk()? else { return None };
        rest = &rest[2..];
        match marker {
            // SOS: the pixels follow.
            0xda => return header,
            0x00 | 0x01 | 0xd0..=0xd9 => return None,
            _ => {
                let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
                let content = rest.get(2..length)?;
                rest = rest.get(length..)?;
                // SOF0 to SOF15 without DHT, JPG and DAC; lossless, hierarchical and arithmetic ones are rare and not shown.
                match marker {
                    0xc0..=0xc2 if header.is_none() => header = Some(jpeg_header(content)?),
                    0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return None,
                    _ => {}
                }
            }
        }
    }
}

fn jpeg_header(content: &[u8]) -> Option<Header> {
    let &[8, a, b, c, d, 1 | 3 | 4, ..] = content else { return None };
    let (height, width) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some(Header { format: Format::Jpeg, width: width.into(), height: height.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32).to_be_bytes()[..], name, content, &[0; 4]].concat()
    }

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
        [PNG_SIGNATURE.to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", &[1; 9]), chunk(b"IEND", &[])]
            .concat()
    }

    fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
        let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
        let frame = [&[0xff, 0xc0, 0, 17, 8][..], &size, &[3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1]].concat();
        let comment = [0xff, 0xff, 0xfe, 0, 5, b'h', b'i', 0];
        [&[0xff, 0xd8][..], &comment, &frame, &[0xff, 0xda, 0, 2, 1, 2, 3, 0xff, 0xd9]].concat()
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(
            Header::of(&png_of(640, 480)),
            Ok(Header { format: Format::Png, width: 640, height: 480 })
        );
        assert_eq!(Header::of(&jpeg_of(30, 7)), Ok(Header { format: Format::Jpeg, width: 30, height: 7 }));
    }

    #[test]
    fn too_many_pixels_are_refused() {
        for (width, height) in [(u32::MAX, u32::MAX), (20_001, 1), (5_001, 5_001), (0, 5), (5, 0)] {
            assert!(Header::of(&png_of(width, height)).is_err(), "{width}×{height}");
        }
        assert!(Header::of(&png_of(5_000, 5_000)).is_ok());
        assert!(Header::of(&jpeg_of(65_535, 65_535)).unwrap_err().contains("too many"));
    }

    #[test]
    fn a_file_that_was_cut_off_or_has_more_at_its_end_is_refused() {
        for whole in [png_of(640, 480), jpeg_of(640, 480)] {
            for length in 0..whole.len() {
                assert!(Header::of(&whole[..length]).is_err(), "{length}");
            }
            assert!(Header::of(&[&whole[..], b"<script>"].concat()).is_err());
        }
    }

    #[test]
    fn a_second_header_and_impossible_ones_are_refused() {
        let second = [
            PNG_SIGNATURE.to_vec(),
            chunk(b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0]),
            chunk(b"IHDR", &[0, 0, 9, 1, 0, 0, 9, 1, 8, 6, 0, 0, 0]),
            chunk(b"IDAT", &[]),
            chunk(b"IEND", &[]),
        ]
        .concat();
        assert!(Header::of(&second).is_err());
        // A palette with 16 bits, an unknown compression.
        for end in [[16, 3, 0, 0, 0], [8, 6, 1, 0, 0], [8, 6, 0, 0, 2]] {
            let header = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &end].concat();
            let file =
                [PNG_SIGNATURE.to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", &[]), chunk(b"IEND", &[])];
            assert!(Header::of(&file.concat()).is_err(), "{end:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3, at in any::<u16>()) {
            let mut file = match kind {
                0 => png_of(20, 20),
                1 => jpeg_of(20, 20),
                _ => Vec::new(),
            };
            let at = usize::from(at) % (file.len() + 1);
            file.splice(at..(at + bytes.len()).min(file.len()), bytes);
            if let Ok(Header { width, height, .. }) = Header::of(&file) {
                prop_assert!(u64::from(width) * u64::from(height) <= MAX_PIXELS && width > 0 && height > 0);
            }
        }
    }
}
