//! Pictures of half blocks: each cell shows two pixels, one as the colour of the character and one as its background.

use crate::picture::Pixels;
use std::fmt::Write;

/// The lines of the picture, without the last line feed.
pub fn draw(pixels: &Pixels) -> String {
    let mut text = String::new();
    for top in (0..pixels.height).step_by(2) {
        if top > 0 {
            text.push('\n');
        }
        let mut last = None;
        for x in 0..pixels.width {
            let upper = pixels.at(x, top);
            let lower = (top + 1 < pixels.height).then(|| pixels.at(x, top + 1));
            if last != Some((upper, lower)) {
                let [red, green, blue] = upper;
                let _ = write!(text, "\x1b[38;2;{red};{green};{blue};");
                let _ = match lower {
                    Some([red, green, blue]) => write!(text, "48;2;{red};{green};{blue}m"),
                    None => write!(text, "49m"),
                };
                last = Some((upper, lower));
            }
            text.push('▀');
        }
        text.push_str("\x1b[0m");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_of_pixels_make_one_line() {
        let rgb = [[1, 2, 3], [1, 2, 3], [4, 5, 6], [4, 5, 6], [7, 8, 9], [7, 8, 9]].concat();
        assert_eq!(
            draw(&Pixels { width: 2, height: 3, rgb }),
            "\x1b[38;2;1;2;3;48;2;4;5;6m▀▀\x1b[0m\n\x1b[38;2;7;8;9;49m▀▀\x1b[0m"
        );
    }
}
