//! Pictures by the graphics protocol of kitty.
//!
//! In tmux, which does not know the protocol, the file passes through to the outer terminal, and the place of the picture
//! is made of text that tmux does know: placeholder characters whose colour is the picture's id and whose combining marks
//! are the row. So it scrolls and disappears with the text around it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest piece of base64 that one sequence carries.
const PIECE: usize = 4096;
const PLACEHOLDER: char = '\u{10eeee}';
/// The combining marks that stand for the rows from 0 on (kitty's `rowcolumn-diacritics.txt`).
const ROWS: [char; 40] = [
    '\u{305}', '\u{30d}', '\u{30e}', '\u{310}', '\u{312}', '\u{33d}', '\u{33e}', '\u{33f}', '\u{346}',
    '\u{34a}', '\u{34b}', '\u{34c}', '\u{350}', '\u{351}', '\u{352}', '\u{357}', '\u{35b}', '\u{363}',
    '\u{364}', '\u{365}', '\u{366}', '\u{367}', '\u{368}', '\u{369}', '\u{36a}', '\u{36b}', '\u{36c}',
    '\u{36d}', '\u{36e}', '\u{36f}', '\u{483}', '\u{484}', '\u{485}', '\u{486}', '\u{487}', '\u{592}',
    '\u{593}', '\u{594}', '\u{595}', '\u{597}',
];

/// Draws a PNG file over that many columns and rows.
pub fn draw(png: &[u8], cells: (u16, u16), tmux: bool) -> String {
    match tmux {
        true => placed(png, cells, next_id()),
        false => {
            // Without the number of rows, the terminal keeps the picture's shape.
            let first = format!("a=T,f=100,t=d,q=2,c={}", cells.0);
            pieces(png, &first).concat()
        }
    }
}

/// Ids of 24 bits that differ from those of other processes most of the time: the colour of the placeholders says them.
fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let _ =
        NEXT.compare_exchange(0, fastrand::u32(0x1_0000..0xff_0000), Ordering::Relaxed, Ordering::Relaxed);
    NEXT.fetch_add(1, Ordering::Relaxed) & 0xff_ffff
}

fn placed(png: &[u8], (columns, rows): (u16, u16), id: u32) -> String {
    let rows = usize::from(rows).min(ROWS.len());
    let first = format!("a=T,U=1,f=100,t=d,q=2,i={id},c={columns},r={rows}");
    let mut text: String = pieces(png, &first).iter().map(|piece| through_tmux(piece)).collect();
    let [_, red, green, blue] = id.to_be_bytes();
    for (row, mark) in ROWS[..rows].iter().enumerate() {
        let line_feed = if row > 0 { "\n" } else { "" };
        // The first cell says its row and column; those after it continue.
        let _ = write!(text, "{line_feed}\x1b[38;2;{red};{green};{blue}m{PLACEHOLDER}{mark}{}", ROWS[0]);
        text.extend(std::iter::repeat_n(PLACEHOLDER, usize::from(columns).saturating_sub(1)));
        text.push_str("\x1b[39m");
    }
    text
}

/// A sequence that tmux passes on to the terminal around it, if its option `allow-passthrough` is set.
pub fn through_tmux(sequence: &str) -> String {
    format!("\x1bPtmux;{}\x1b\\", sequence.replace('\x1b', "\x1b\x1b"))
}

/// The sequences that transmit a file; `first` has the keys of the first one.
fn pieces(png: &[u8], first: &str) -> Vec<String> {
    let data = STANDARD.encode(png);
    let count = data.len().div_ceil(PIECE).max(1);
    let piece = |index: usize| {
        let part = &data[index * PIECE..data.len().min((index + 1) * PIECE)];
        let more = u8::from(index + 1 < count);
        let keys = if index == 0 { format!("{first},m={more}") } else { format!("m={more}") };
        format!("\x1b_G{keys};{part}\x1b\\")
    };
    (0..count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_one_sequence() {
        let text = draw(b"\x89PNG", (64, 24), false);
        assert_eq!(text, "\x1b_Ga=T,f=100,t=d,q=2,c=64,m=0;iVBORw==\x1b\\");
    }

    #[test]
    fn a_large_file_is_cut_into_pieces() {
        let file: Vec<u8> = (0..8_000).map(|n| n as u8).collect();
        let text = draw(&file, (1, 1), false);
        let sequences: Vec<&str> = text.split_terminator("\x1b\\").collect();
        assert_eq!(sequences.len(), 3);
        let parts: Vec<(&str, &str)> = sequences.iter().map(|part| part.split_once(';').unwrap()).collect();
        let keys: Vec<&str> = parts.iter().map(|(keys, _)| *keys).collect();
        assert_eq!(keys, ["\x1b_Ga=T,f=100,t=d,q=2,c=1,m=1", "\x1b_Gm=1", "\x1b_Gm=0"]);
        assert!(parts[..2].iter().all(|(_, data)| data.len() == PIECE));
        let data: String = parts.iter().map(|(_, data)| *data).collect();
        assert_eq!(STANDARD.decode(data).unwrap(), file);
    }

    #[test]
    fn in_tmux_the_file_passes_through_and_text_keeps_its_place() {
        let text = placed(b"\x89PNG", (3, 2), 0x01_02_03);
        assert_eq!(
            text,
            "\x1bPtmux;\x1b\x1b_Ga=T,U=1,f=100,t=d,q=2,i=66051,c=3,r=2,m=0;iVBORw==\x1b\x1b\\\x1b\\\
             \x1b[38;2;1;2;3m\u{10eeee}\u{305}\u{305}\u{10eeee}\u{10eeee}\x1b[39m\n\
             \x1b[38;2;1;2;3m\u{10eeee}\u{30d}\u{305}\u{10eeee}\u{10eeee}\x1b[39m"
        );
    }
}
