//! Images as endpoints take them: within the bounds of the strictest one.

use agent_picture::{Header, decode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

/// Pixels of the longest side, and bytes, that Anthropic takes: 5 MiB in base64.
const MAX_SIDE: u32 = 8_000;
const MAX_BYTES: usize = 3840 << 10;
/// The time limit for decoding.
const DECODE_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of times that an image is made smaller until it has few enough bytes.
const MAX_ATTEMPTS: u32 = 5;

/// `url`, a `data:` URL, or one with the image scaled down.
///
/// # Errors
/// Why it cannot be sent.
pub fn fitted(url: String) -> Result<String, String> {
    let Some((head, data)) = url.split_once(";base64,") else { return Ok(url) };
    let is_short = data.len() / 4 * 3 <= MAX_BYTES;
    let Ok(bytes) = STANDARD.decode(data) else { return Ok(url) };
    let header = match Header::of(&bytes) {
        Ok(header) => header,
        // Another format, which is not decoded here.
        Err(_) if is_short => return Ok(url),
        Err(why) => {
            let kind = head.strip_prefix("data:").unwrap_or(head);
            return Err(format!("an image ({kind}, {} bytes) is too large, and {why}", bytes.len()));
        }
    };
    let longest = header.width.max(header.height);
    if is_short && longest <= MAX_SIDE {
        return Ok(url);
    }
    let mut side = longest.min(MAX_SIDE);
    for _ in 0..MAX_ATTEMPTS {
        let unscaled = |why: String| format!("an image cannot be scaled down: {why}");
        let pixels = decode(bytes.clone(), (side, side), DECODE_TIMEOUT).map_err(unscaled)?;
        let png = pixels.to_png().map_err(|error| unscaled(error.to_string()))?;
        if png.len() <= MAX_BYTES {
            return Ok(format!("data:image/png;base64,{}", STANDARD.encode(png)));
        }
        side = side * 2 / 3;
    }
    Err(format!("an image of {} bytes cannot be made small enough", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_picture::Pixels;

    fn url(width: u32, height: u32, colour: impl Fn(u32) -> u8) -> String {
        let rgb = (0..width * height * 3).map(colour).collect();
        let png = Pixels { width, height, rgb }.to_png().unwrap();
        format!("data:image/png;base64,{}", STANDARD.encode(png))
    }

    fn header(url: &str) -> (Header, usize) {
        let bytes = STANDARD.decode(url.split_once(";base64,").unwrap().1).unwrap();
        (Header::of(&bytes).unwrap(), bytes.len())
    }

    #[test]
    fn an_image_with_too_many_pixels_in_a_row_is_scaled_down() {
        let (header, _) = header(&fitted(url(8_100, 300, |_| 7)).unwrap());
        assert_eq!((header.width, header.height), (8_000, 296));
    }

    #[test]
    fn an_image_with_too_many_bytes_is_scaled_down() {
        // Noise, which no compression makes smaller.
        let noise =
            |at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (at.wrapping_mul(40_503) >> 7) as u8;
        let large = url(1_300, 1_100, noise);
        assert!(header(&large).1 > MAX_BYTES);
        let (header, bytes) = header(&fitted(large).unwrap());
        assert!(bytes <= MAX_BYTES && header.width > 500, "{header:?}, {bytes} bytes");
    }

    #[test]
    fn what_fits_is_sent_as_it_is_and_what_cannot_be_decoded_is_refused_by_name() {
        let small = url(10, 10, |_| 7);
        assert_eq!(fitted(small.clone()), Ok(small));
        for other in
            ["data:image/webp;base64,UklGRg==", "https://example.com/a.png", "data:image/png;base64,%"]
        {
            assert_eq!(fitted(other.to_owned()), Ok(other.to_owned()));
        }
        let large = format!("data:image/webp;base64,{}", STANDARD.encode(vec![b'x'; MAX_BYTES + 1]));
        assert!(fitted(large).unwrap_err().contains("image/webp"));
    }
}
