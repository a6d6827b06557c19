//! Pixels as sixels, the graphics of DEC's terminals: six rows at a time, one colour after the other.

use super::Pixels;
use std::fmt::Write;

/// Colour registers that are used: as many as terminals have that show pictures at all.
const COLOURS: usize = 256;
/// Bits that are kept of each of red, green and blue where colours are counted.
const BITS: u32 = 5;
/// Rows of a band.
const BAND: u32 = 6;
/// A repeated sixel is written with its number from this length on.
const MIN_REPEAT: usize = 4;

/// The whole sequence, from its introducer to its terminator.
pub fn encode(pixels: &Pixels) -> String {
    let palette = Palette::of(pixels);
    let mut text = format!("\x1bP0;1;0q\"1;1;{};{}", pixels.width, pixels.height);
    for (register, colour) in palette.colours.iter().enumerate() {
        let [red, green, blue] = colour.map(|value| (u16::from(value) * 100 + 127) / 255);
        let _ = write!(text, "#{register};2;{red};{green};{blue}");
    }
    for top in (0..pixels.height).step_by(BAND as usize) {
        if top > 0 {
            text.push('-');
        }
        band(&mut text, pixels, &palette, top);
    }
    text.push_str("\x1b\\");
    text
}

/// Six rows: for each colour in them, the columns from left to right.
fn band(text: &mut String, pixels: &Pixels, palette: &Palette, top: u32) {
    let width = pixels.width as usize;
    let mut rows: Vec<Option<Vec<u8>>> = vec![None; palette.colours.len()];
    for x in 0..pixels.width {
        for bit in 0..BAND.min(pixels.height - top) {
            let register = palette.register(pixels.at(x, top + bit));
            let row = rows[register].get_or_insert_with(|| vec![0; width]);
            row[x as usize] |= 1 << bit;
        }
    }
    let mut is_first = true;
    for (register, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        // Back to the left edge, over what is there already.
        text.push_str(if is_first { "" } else { "$" });
        is_first = false;
        let _ = write!(text, "#{register}");
        let end = row.iter().rposition(|bits| *bits != 0).map_or(0, |last| last + 1);
        for run in row[..end].chunk_by(|a, b| a == b) {
            let sixel = char::from(b'?' + run[0]);
            match run.len() {
                length @ MIN_REPEAT.. => drop(write!(text, "!{length}{sixel}")),
                length => text.extend(std::iter::repeat_n(sixel, length)),
            }
        }
    }
}

/// At most [`COLOURS`] colours, and which of them stands for each colour of the image.
struct Palette {
    colours: Vec<[u8; 3]>,
    /// The register of each colour of [`BITS`] bits a channel.
    registers: Vec<u8>,
}

/// Colours of [`BITS`] bits a channel that occur, with the sum and number of their pixels.
#[derive(Clone, Copy)]
struct Bin {
    index: usize,
    sum: [u64; 3],
    count: u64,
}

impl Palette {
    /// Splits the colours in two at the median of the channel that varies most, until there are enough groups.
    fn of(pixels: &Pixels) -> Self {
        let mut bins = vec![([0_u64; 3], 0_u64); 1 << (3 * BITS)];
        for colour in pixels.rgb.as_chunks::<3>().0 {
            let (sum, count) = &mut bins[bin(*colour)];
            sum.iter_mut().zip(colour).for_each(|(sum, value)| *sum += u64::from(*value));
            *count += 1;
        }
        let used = bins.into_iter().enumerate().filter(|(_, (_, count))| *count > 0);
        let mut groups =
            vec![used.map(|(index, (sum, count))| Bin { index, sum, count }).collect::<Vec<_>>()];
        while groups.len() < COLOURS {
            let widest = groups.iter().enumerate().max_by_key(|(_, group)| spread(group).1);
            let Some((at, _)) = widest.filter(|(_, group)| group.len() > 1) else { break };
            let mut group = groups.swap_remove(at);
            let channel = spread(&group).0;
            group.sort_by_key(|bin| (part(bin.index, channel), bin.index));
            let half = group.iter().map(|bin| bin.count).sum::<u64>() / 2;
            let mut passed = 0;
            let middle = group.iter().position(|bin| {
                passed += bin.count;
                passed > half
            });
            let upper = group.split_off(middle.unwrap_or(1).clamp(1, group.len() - 1));
            groups.extend([group, upper]);
        }
        let mut registers = vec![0; 1 << (3 * BITS)];
        let mut colours = Vec::with_capacity(groups.len());
        for (register, group) in groups.iter().enumerate() {
            let count = group.iter().map(|bin| bin.count).sum::<u64>().max(1);
            let average = |channel: usize| {
                let sum: u64 = group.iter().map(|bin| bin.sum[channel]).sum();
                (sum / count) as u8
            };
            colours.push([average(0), average(1), average(2)]);
            group.iter().for_each(|bin| registers[bin.index] = register as u8);
        }
        Self { colours, registers }
    }

    fn register(&self, colour: [u8; 3]) -> usize {
        usize::from(self.registers[bin(colour)])
    }
}

fn bin(colour: [u8; 3]) -> usize {
    colour.iter().fold(0, |index, value| index << BITS | usize::from(value >> (8 - BITS)))
}

/// A channel of a bin's colour.
fn part(index: usize, channel: usize) -> usize {
    index >> (BITS as usize * (2 - channel)) & ((1 << BITS) - 1)
}

/// The channel in which the group's colours differ most, and by how much; 0 for a single colour.
fn spread(group: &[Bin]) -> (usize, usize) {
    let range = |channel: usize| {
        let parts = || group.iter().map(|bin| part(bin.index, channel));
        parts().max().unwrap_or(0) - parts().min().unwrap_or(0)
    };
    (0..3).map(|channel| (channel, range(channel))).max_by_key(|(_, range)| *range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_image_is_encoded_byte_for_byte() {
        // Two columns: red and blue above, seven rows, so that there are two bands.
        let mut rgb = Vec::new();
        for row in 0..7 {
            rgb.extend(if row < 6 { [255, 0, 0] } else { [0, 0, 255] });
            rgb.extend([0, 0, 255]);
        }
        let text = encode(&Pixels { width: 2, height: 7, rgb });
        assert_eq!(text, "\x1bP0;1;0q\"1;1;2;7#0;2;100;0;0#1;2;0;0;100#0~$#1?~-#1@@\x1b\\");
    }

    #[test]
    fn runs_are_counted() {
        let text = encode(&Pixels { width: 300, height: 1, rgb: vec![0; 900] });
        assert_eq!(text, "\x1bP0;1;0q\"1;1;300;1#0;2;0;0;0#0!300@\x1b\\");
    }
}
