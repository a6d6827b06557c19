//! Pictures for iTerm2, and for the terminals that took over its sequence: WezTerm, mintty, Rio.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Draws a PNG file that many columns wide.
pub fn draw(png: &[u8], columns: u16) -> String {
    let size = png.len();
    let data = STANDARD.encode(png);
    format!("\x1b]1337;File=inline=1;size={size};width={columns};preserveAspectRatio=1:{data}\x07")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_one_sequence() {
        assert_eq!(
            draw(b"\x89PNG", 64),
            "\x1b]1337;File=inline=1;size=4;width=64;preserveAspectRatio=1:iVBORw==\x07"
        );
    }
}
