//! The LZ4 block format, for packed files on slow links: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.

/// The longest input of [`compress`], in bytes: every position fits the table, every distance an offset.
pub const MAX_INPUT: usize = 1 << 16;
const MIN_MATCH: usize = 4;
/// The format ends with this many literals…
const LAST_LITERALS: usize = 5;
/// …and the last match begins no later than this before the end.
const LAST_MATCH: usize = 12;
const HASH_BITS: u32 = 13;
/// Failed searches after which the step through the input grows by one.
const ACCELERATION: usize = 64;

/// Compresses at most [`MAX_INPUT`] bytes; `None` where they are more, or hardly shrink.
pub fn compress(input: &[u8]) -> Option<Vec<u8>> {
    if input.len() > MAX_INPUT {
        return None;
    }
    let worthwhile = input.len() - input.len() / 8;
    let mut table = [0_u16; 1 << HASH_BITS];
    let mut out = Vec::with_capacity(worthwhile);
    let (mut literals, mut position, mut failed) = (0, 1, 0);
    while position + LAST_MATCH <= input.len() {
        let word = word_at(input, position);
        // The table begins with 0, which is a position like any other.
        let entry = &mut table[(word.wrapping_mul(2_654_435_761) >> (32 - HASH_BITS)) as usize];
        let candidate = usize::from(std::mem::replace(entry, position as u16));
        if word_at(input, candidate) != word {
            position += 1 + failed / ACCELERATION;
            failed += 1;
            continue;
        }
        let (start, before) = (position + MIN_MATCH, candidate + MIN_MATCH);
        let more = common_prefix(&input[start..input.len() - LAST_LITERALS], &input[before..]);
        put_sequence(&mut out, &input[literals..position], Some((position - candidate, more)));
        position = start + more;
        (literals, failed) = (position, 0);
        if out.len() > worthwhile {
            return None;
        }
    }
    put_sequence(&mut out, &input[literals..], None);
    (out.len() <= worthwhile).then_some(out)
}

/// Decompresses to exactly `size` bytes, or not at all. Never takes more memory than that.
pub fn decompress(mut input: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(size);
    loop {
        let token = take_byte(&mut input)?;
        let literals = take_length(token >> 4, &mut input)?;
        let (literals, rest) = input.split_at_checked(literals)?;
        if literals.len() > size - out.len() {
            return None;
        }
        out.extend_from_slice(literals);
        if rest.is_empty() {
            return (out.len() == size).then_some(out);
        }
        input = rest;
        let offset = usize::from(u16::from_le_bytes([take_byte(&mut input)?, take_byte(&mut input)?]));
        let mut length = take_length(token & 15, &mut input)? + MIN_MATCH;
        if offset == 0 || offset > out.len() || length > size - out.len() {
            return None;
        }
        // A match may overlap what it produces: that repeats the last `offset` bytes.
        let start = out.len() - offset;
        while length > 0 {
            let step = length.min(out.len() - start);
            out.extend_from_within(start..start + step);
            length -= step;
        }
    }
}

fn word_at(input: &[u8], position: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&input[position..position + 4]);
    u32::from_le_bytes(word)
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

/// Appends literals and the match that follows them: its distance and its length beyond the least one.
fn put_sequence(out: &mut Vec<u8>, literals: &[u8], matched: Option<(usize, usize)>) {
    let nibble = |length: usize| length.min(15) as u8;
    out.push(nibble(literals.len()) << 4 | matched.map_or(0, |(_, more)| nibble(more)));
    put_length(out, literals.len());
    out.extend_from_slice(literals);
    if let Some((distance, more)) = matched {
        out.extend_from_slice(&(distance as u16).to_le_bytes());
        put_length(out, more);
    }
}

/// Writes what of a length does not fit its nibble.
fn put_length(out: &mut Vec<u8>, length: usize) {
    if let Some(mut left) = length.checked_sub(15) {
        while left >= 255 {
            out.push(255);
            left -= 255;
        }
        out.push(left as u8);
    }
}

fn take_length(nibble: u8, input: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(nibble);
    let mut continues = nibble == 15;
    while continues {
        let byte = take_byte(input)?;
        length += usize::from(byte);
        continues = byte == 255;
    }
    Some(length)
}

fn take_byte(input: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = input.split_first()?;
    *input = rest;
    Some(first)
}
