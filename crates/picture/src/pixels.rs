//! Decoded pixels, and making them fewer while they are read.

use agent_base::error::{Error, Result};

/// An image without transparency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    /// Red, green and blue of each pixel, row by row.
    pub rgb: Vec<u8>,
}

impl Pixels {
    /// The colour of a pixel; white beyond the edges.
    #[cfg(test)]
    pub fn at(&self, x: u32, y: u32) -> [u8; 3] {
        let index = (y as usize * self.width as usize + x as usize) * 3;
        let inside = x < self.width && y < self.height;
        let colour = self.rgb.get(index..index + 3).filter(|_| inside);
        colour.map_or([255; 3], |colour| [colour[0], colour[1], colour[2]])
    }

    /// These pixels as a PNG file of our own making: nothing of the original file but its colours is in it.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&self.rgb));
        match written {
            Ok(()) => Ok(bytes),
            Err(error) => Err(Error::unexpected("the image could not be encoded").caused_by(error)),
        }
    }
}

/// The largest size of the same shape that fits into `bounds`, and is not larger than the image itself.
pub(super) fn fit((width, height): (u32, u32), bounds: (u32, u32)) -> (u32, u32) {
    let scaled = |side: u32, (of, to): (u32, u32)| {
        let side = u64::from(side) * u64::from(to) / u64::from(of.max(1));
        u32::try_from(side).unwrap_or(u32::MAX).max(1)
    };
    let (max_width, max_height) = (bounds.0.max(1), bounds.1.max(1));
    let (mut size, mut scale) = ((width, height), None);
    if size.0 > max_width {
        scale = Some((width, max_width));
        size = (max_width, scaled(height, (width, max_width)));
    }
    if size.1 > max_height {
        scale = Some((height, max_height));
        size = (scaled(width, (height, max_height)), max_height);
    }
    match scale {
        Some(_) => (size.0.min(max_width), size.1.min(max_height)),
        None => size,
    }
}

/// Takes the rows of an image from top to bottom and keeps the averages of what falls onto one pixel of the result.
pub(super) struct Shrink {
    from_height: u32,
    size: (u32, u32),
    /// For each pixel of a row, the column of the result that it falls onto.
    columns: Vec<u32>,
    /// Sums and number of pixels of the row of the result that is being made.
    sums: Vec<([u64; 3], u64)>,
    row: u32,
    rgb: Vec<u8>,
}

impl Shrink {
    pub(super) fn new((width, height): (u32, u32), size: (u32, u32)) -> Self {
        let column = |x: u32| (u64::from(x) * u64::from(size.0) / u64::from(width)) as u32;
        Self {
            from_height: height,
            size,
            columns: (0..width).map(column).collect(),
            sums: vec![Default::default(); size.0 as usize],
            row: 0,
            rgb: Vec::with_capacity(size.0 as usize * size.1 as usize * 3),
        }
    }

    /// Adds row `y`.
    pub(super) fn push(&mut self, y: u32, row: impl Iterator<Item = [u8; 3]>) {
        let target = (u64::from(y) * u64::from(self.size.1) / u64::from(self.from_height.max(1))) as u32;
        if target != self.row {
            self.end_row();
            self.row = target;
        }
        for (column, colour) in self.columns.iter().zip(row) {
            let (sum, count) = &mut self.sums[*column as usize];
            for (sum, value) in sum.iter_mut().zip(colour) {
                *sum += u64::from(value);
            }
            *count += 1;
        }
    }

    pub(super) fn finish(mut self) -> Pixels {
        self.end_row();
        let (width, height) = self.size;
        self.rgb.resize(width as usize * height as usize * 3, 255);
        Pixels { width, height, rgb: self.rgb }
    }

    fn end_row(&mut self) {
        for (sum, count) in &mut self.sums {
            let average = |sum: &u64| (*sum / (*count).max(1)) as u8;
            self.rgb.extend(sum.iter().map(average));
            (*sum, *count) = Default::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_image_is_made_smaller_and_never_larger() {
        for (size, bounds, fits) in [
            ((640, 480), (1000, 1000), (640, 480)),
            ((640, 480), (320, 1000), (320, 240)),
            ((640, 480), (1000, 240), (320, 240)),
            ((20_000, 1), (100, 100), (100, 1)),
            ((1, 20_000), (100, 100), (1, 100)),
            ((5, 5), (0, 0), (1, 1)),
        ] {
            assert_eq!(fit(size, bounds), fits, "{size:?} in {bounds:?}");
        }
    }

    #[test]
    fn what_falls_onto_one_pixel_is_averaged() {
        let mut shrink = Shrink::new((4, 2), (2, 1));
        shrink.push(0, [[0; 3], [100; 3], [10; 3], [10; 3]].into_iter());
        shrink.push(1, [[0; 3], [100; 3], [20; 3], [20; 3]].into_iter());
        assert_eq!(shrink.finish().rgb, [50, 50, 50, 15, 15, 15]);
    }

    proptest! {
        #[test]
        fn every_size_is_within_its_bounds(w in 1..20_000_u32, h in 1..20_000_u32, bw in 0..3_000_u32, bh in 0..3_000_u32) {
            let (width, height) = fit((w, h), (bw, bh));
            prop_assert!((1..=bw.max(1)).contains(&width) && (1..=bh.max(1)).contains(&height));
            prop_assert!(width <= w && height <= h);
        }

        #[test]
        fn a_shrunk_image_has_all_of_its_pixels(w in 1..60_u32, h in 1..60_u32, bw in 1..60_u32, bh in 1..60_u32, missing in 0..3_u32) {
            let size = fit((w, h), (bw, bh));
            let mut shrink = Shrink::new((w, h), size);
            for y in 0..h.saturating_sub(missing) {
                shrink.push(y, (0..w).map(|_| [7, 8, 9]));
            }
            let pixels = shrink.finish();
            prop_assert_eq!(pixels.rgb.len(), (size.0 * size.1 * 3) as usize);
            prop_assert_eq!(pixels.at(size.0, 0), [255; 3]);
        }
    }
}
