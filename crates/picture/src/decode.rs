//! Decoding within bounds: pixels by the header, memory by reading row by row, time by a deadline.

use super::pixels::{Pixels, Shrink, fit};
use super::{Format, Header};
use std::io::Cursor;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The most pixels of what cannot be read row by row: JPEG, and PNG with interlacing.
const MAX_WHOLE: u64 = 8_000_000;
/// Passes over a progressive JPEG; encoders make about ten.
const MAX_SCANS: usize = 20;
/// The memory that the PNG decoder may take beside the rows, in bytes.
const PNG_MEMORY: usize = 64 << 20;

/// The image in `bytes`, made small enough for `bounds` (width and height in pixels), on white where it is transparent.
///
/// Decoding runs on a thread of its own. One that is not done within `time` is left behind: what it still reads is
/// bounded by the size of the image.
pub fn decode(bytes: Vec<u8>, bounds: (u32, u32), time: Duration) -> Result<Pixels, String> {
    let header = Header::of(&bytes)?;
    let deadline = Instant::now() + time;
    let (sender, receiver) = mpsc::sync_channel(1);
    let work = move || {
        let decoded = match header.format {
            Format::Png => png(&bytes, header, bounds, deadline),
            Format::Jpeg => jpeg(&bytes, header, bounds),
        };
        let _ = sender.send(decoded);
    };
    std::thread::Builder::new().name("picture".to_owned()).spawn(work).map_err(|error| error.to_string())?;
    match receiver.recv_timeout(time) {
        Ok(decoded) => decoded,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(SLOW.to_owned()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("its decoder failed".to_owned()),
    }
}

const SLOW: &str = "decoding it takes too long";

fn png(bytes: &[u8], header: Header, bounds: (u32, u32), deadline: Instant) -> Result<Pixels, String> {
    let damaged = |error: png::DecodingError| format!("it is damaged: {error}");
    let limits = png::Limits { bytes: PNG_MEMORY };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let size = (header.width, header.height);
    if (reader.info().width, reader.info().height) != size || reader.info().frame_control.is_some() {
        return Err("it is animated".to_owned());
    }
    let samples = reader.output_color_type().0.samples();
    let mut shrink = Shrink::new(size, fit(size, bounds));
    let mut push = |y: u32, row: &[u8]| shrink.push(y, row.chunks_exact(samples).map(on_white));
    if reader.info().interlaced {
        refuse_whole(header)?;
        let mut all = vec![0; reader.output_buffer_size().ok_or("it is too large")?];
        let line = reader.next_frame(&mut all).map_err(damaged)?.line_size;
        (0..).zip(all.chunks_exact(line.max(1))).for_each(|(y, row)| push(y, row));
        return Ok(shrink.finish());
    }
    for y in 0..size.1 {
        let row = reader.next_row().map_err(damaged)?.ok_or("it is damaged: rows are missing")?;
        push(y, row.data());
        if Instant::now() > deadline {
            return Err(SLOW.to_owned());
        }
    }
    Ok(shrink.finish())
}

fn jpeg(bytes: &[u8], header: Header, bounds: (u32, u32)) -> Result<Pixels, String> {
    refuse_whole(header)?;
    let damaged = |error: &dyn std::fmt::Debug| format!("it is damaged: {error:?}");
    let options = DecoderOptions::new_safe()
        .set_strict_mode(true)
        .set_max_width(header.width as usize)
        .set_max_height(header.height as usize)
        .jpeg_set_max_scans(MAX_SCANS)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let rgb = decoder.decode().map_err(|error| damaged(&error))?;
    let size = (header.width, header.height);
    let line = size.0 as usize * 3;
    if decoder.dimensions() != Some((size.0 as usize, size.1 as usize)) || rgb.len() != line * size.1 as usize
    {
        return Err(damaged(&"its size differs from its header"));
    }
    let mut shrink = Shrink::new(size, fit(size, bounds));
    for (y, row) in (0..).zip(rgb.chunks_exact(line)) {
        shrink.push(y, row.chunks_exact(3).map(on_white));
    }
    Ok(shrink.finish())
}

fn refuse_whole(header: Header) -> Result<(), String> {
    let Header { width, height, .. } = header;
    match u64::from(width) * u64::from(height) > MAX_WHOLE {
        true => Err(format!("{width}×{height} pixels are too many for an image of its kind")),
        false => Ok(()),
    }
}

/// The colour of a pixel of one to four samples, laid on white.
fn on_white(samples: &[u8]) -> [u8; 3] {
    let over = |value: u8, alpha: u8| {
        let (value, alpha) = (u16::from(value), u16::from(alpha));
        ((value * alpha + 255 * (255 - alpha)) / 255) as u8
    };
    match *samples {
        [grey] => [grey; 3],
        [grey, alpha] => [over(grey, alpha); 3],
        [red, green, blue] => [red, green, blue],
        [red, green, blue, alpha] => [over(red, alpha), over(green, alpha), over(blue, alpha)],
        _ => [255; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIME: Duration = Duration::from_secs(60);

    fn gradient(width: u32, height: u32) -> Pixels {
        let rgb = (0..height).flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 128])).collect();
        Pixels { width, height, rgb }
    }

    fn encoded(colour: png::ColorType, width: u32, height: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    #[test]
    fn pixels_survive_being_encoded_and_decoded() {
        let pixels = gradient(70, 50);
        assert_eq!(decode(pixels.to_png().unwrap(), (100, 100), TIME), Ok(pixels.clone()));
        let small = decode(pixels.to_png().unwrap(), (35, 100), TIME).unwrap();
        assert_eq!((small.width, small.height), (35, 25));
        assert_eq!(small.at(10, 5), [20, 10, 128]);
    }

    #[test]
    fn transparent_pixels_are_white() {
        let bytes = encoded(png::ColorType::Rgba, 2, 1, &[9, 9, 9, 0, 9, 8, 7, 255]);
        assert_eq!(decode(bytes, (9, 9), TIME).unwrap().rgb, [255, 255, 255, 9, 8, 7]);
        let bytes = encoded(png::ColorType::GrayscaleAlpha, 2, 1, &[0, 51, 4, 255]);
        assert_eq!(decode(bytes, (9, 9), TIME).unwrap().rgb, [204, 204, 204, 4, 4, 4]);
    }

    /// A file of 25 kB for 75 MB of pixels.
    #[test]
    fn a_bomb_takes_the_memory_of_its_result() {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5_000, 5_000);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::One);
        encoder.write_header().unwrap().write_image_data(&vec![0; 625 * 5_000]).unwrap();
        assert!(bytes.len() < 30_000, "{}", bytes.len());
        let pixels = decode(bytes, (50, 50), TIME).unwrap();
        assert_eq!((pixels.width, pixels.height, pixels.rgb[0]), (50, 50, 0));
    }

    #[test]
    fn a_file_whose_data_ends_early_or_is_not_deflate_is_damaged() {
        let whole = gradient(30, 30).to_png().unwrap();
        let at = whole.windows(4).position(|name| name == b"IDAT").unwrap();
        let mut broken = whole.clone();
        broken[at + 8] ^= 0xff;
        assert!(decode(broken, (9, 9), TIME).unwrap_err().starts_with("it is damaged"));
        // One pixel of data for 30 × 30.
        let small = gradient(1, 1).to_png().unwrap();
        let from = small.windows(4).position(|name| name == b"IDAT").unwrap() - 4;
        let few = [&whole[..at - 4], &small[from..]].concat();
        assert!(Header::of(&few).is_ok());
        assert!(decode(few, (9, 9), TIME).unwrap_err().starts_with("it is damaged"));
    }

    #[test]
    fn the_time_is_bounded() {
        let bytes = gradient(2_000, 2_000).to_png().unwrap();
        assert_eq!(decode(bytes, (2_000, 2_000), Duration::ZERO), Err(SLOW.to_owned()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_damaged_file_is_decoded_or_refused(at in any::<u16>(), flip in 1..=255_u8, cut in any::<bool>()) {
            let mut bytes = gradient(40, 40).to_png().unwrap();
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= flip;
            if cut {
                bytes.remove(at);
            }
            if let Ok(pixels) = decode(bytes, (20, 20), TIME) {
                prop_assert_eq!(pixels.rgb.len(), (pixels.width * pixels.height * 3) as usize);
                prop_assert!(pixels.width <= 20 && pixels.height <= 20);
            }
        }
    }
}
