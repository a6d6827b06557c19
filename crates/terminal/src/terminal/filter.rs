//! The sequences that a program of the sandbox may send to the user's terminal while it has it for itself.
//!
//! An editor or a pager needs sequences that [`agent_base::sanitise`] removes: they move the cursor, erase, scroll, set modes.
//! What passes here is a list of those, each of which the terminal forgets or which is undone when the program ends.
//! Everything else is removed: the clipboard and the title (OSC), pictures, answers with text of the program's choice and
//! what a multiplexer passes through (DCS, APC, PM, SOS, `ESC k`), the window (`CSI t`), the printer (`CSI i`), copies and
//! checksums of the screen, the 8-bit forms of all of these, and characters that reorder text.
//!
//! Three questions pass, whose answers are numbers: what kind of terminal it is, where the cursor is, and whether a mode
//! is set. Programs wait for these.

use agent_base::sanitise::is_dangerous;
use agent_base::utf8_stream::Utf8Stream;
use std::collections::BTreeSet;

/// The longest control sequence that passes, in bytes.
const MAX_SEQUENCE: usize = 256;
/// The most digits of a parameter.
const MAX_DIGITS: usize = 5;
/// The private modes that a program may set (`CSI ? … h`): keys, wrapping, the cursor, the mouse, the alternate screen,
/// marked pastes, drawing at once.
const MODES: [u16; 26] = [
    1, 5, 6, 7, 8, 12, 25, 45, 47, 66, 69, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1048,
    1049, 2004, 2026, 2027,
];
/// The modes that are set where nobody has changed them: wrapping, the repetition of keys, the cursor.
const SET_BY_DEFAULT: [u16; 3] = [7, 8, 25];
/// The modes of the alternate screen.
const ALTERNATE_SCREEN: [u16; 3] = [47, 1047, 1049];

/// Filters the output of one program, which arrives in pieces, cut anywhere. Its buffers are bounded.
#[derive(Default)]
pub struct Filter {
    decoder: Utf8Stream,
    state: FilterState,
    sequence: String,
    /// Sequences that put the terminal back as it was, one for each thing that the program has changed.
    undo: BTreeSet<String>,
    in_alternate_screen: bool,
    /// A carriage return was the last character.
    returned: bool,
    /// Text was written after the last line feed.
    is_mid_line: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    #[default]
    Text,
    Escape,
    /// After ESC and this intermediate byte.
    Intermediate(char),
    /// Within a CSI sequence, whose parameters are in `sequence` unless it is `overlong`.
    Csi {
        overlong: bool,
    },
    /// Within a string that is removed, up to its end, as in a terminal.
    String,
    StringEscape,
}

/// The output of the filter.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Filtered {
    /// For the terminal.
    pub screen: String,
    /// Text alone, without what the program drew on the alternate screen.
    pub text: String,
}

impl Filter {
    /// Filters the next piece.
    pub fn push(&mut self, bytes: &[u8]) -> Filtered {
        let mut out = Filtered::default();
        for character in self.decoder.push(bytes).chars() {
            self.step(character, &mut out);
        }
        out
    }

    /// Returns what undoes the program's changes of the terminal, and ends its last line.
    pub fn pause(&mut self) -> String {
        let mut end: String = self.undo.iter().map(String::as_str).collect();
        if std::mem::take(&mut self.is_mid_line) {
            end.push_str("\r\n");
        }
        end
    }

    /// Returns what makes the modes again that [`Filter::pause`] has undone. A program that draws restores the rest itself.
    pub fn begin_again(&self) -> String {
        let opposite = |undo: &String| match (undo.strip_prefix("\x1b[?")?, undo.chars().next_back()?) {
            (mode, 'h') => Some(format!("\x1b[?{}l", mode.trim_end_matches('h'))),
            (mode, 'l') => Some(format!("\x1b[?{}h", mode.trim_end_matches('l'))),
            _ => None,
        };
        self.undo.iter().filter_map(opposite).collect()
    }

    /// Returns whether the program draws on the whole screen.
    pub fn is_drawing(&self) -> bool {
        self.in_alternate_screen
    }

    fn step(&mut self, character: char, out: &mut Filtered) {
        match self.state {
            FilterState::Text => self.text(character, out),
            FilterState::Escape => self.escape(character, out),
            FilterState::Intermediate(intermediate) => self.selection(intermediate, character, out),
            FilterState::Csi { overlong } => self.csi(character, overlong, out),
            FilterState::String => match character {
                '\x07' | '\u{9c}' | '\x18' | '\x1a' => self.state = FilterState::Text,
                '\x1b' => self.state = FilterState::StringEscape,
                _ => {}
            },
            FilterState::StringEscape => {
                self.state = FilterState::Text;
                if character != '\\' {
                    self.escape(character, out);
                }
            }
        }
    }

    fn text(&mut self, character: char, out: &mut Filtered) {
        match character {
            '\x1b' => return self.state = FilterState::Escape,
            '\u{9b}' => return self.begin_csi(),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => return self.state = FilterState::String,
            // Shifts to the other set of characters, and back.
            '\x0e' => drop(self.undo.insert("\x0f".to_owned())),
            '\x0f' => drop(self.undo.remove("\x0f")),
            '\x07' | '\x08' | '\t' | '\n' | '\x0b' | '\x0c' | '\r' => {}
            character if is_dangerous(character) => return,
            _ => {}
        }
        out.screen.push(character);
        match character {
            '\n' => self.is_mid_line = false,
            character => self.is_mid_line |= !character.is_control(),
        }
        if !self.in_alternate_screen {
            self.copy(character, &mut out.text);
        }
    }

    /// Adds a character to the text: a carriage return stays where it overwrites a line.
    fn copy(&mut self, character: char, text: &mut String) {
        let returned = std::mem::replace(&mut self.returned, character == '\r');
        match character {
            '\r' => {}
            '\n' => text.push('\n'),
            '\t' => text.push('\t'),
            character if character.is_control() => self.returned = returned,
            character => {
                if returned {
                    text.push('\r');
                }
                text.push(character);
            }
        }
    }

    fn escape(&mut self, character: char, out: &mut Filtered) {
        self.state = FilterState::Text;
        match character {
            '[' => self.begin_csi(),
            // `k` begins the title of a window in screen and tmux.
            ']' | 'P' | 'X' | '^' | '_' | 'k' => self.state = FilterState::String,
            '(' | ')' | '*' | '+' | '#' => self.state = FilterState::Intermediate(character),
            ' '..='/' => self.state = FilterState::Intermediate('\0'),
            '7' | '8' | 'D' | 'E' | 'H' | 'M' | 'c' => out.screen.extend(['\x1b', character]),
            '=' => {
                self.undo.insert("\x1b>".to_owned());
                out.screen.push_str("\x1b=");
            }
            '>' => {
                self.undo.remove("\x1b>");
                out.screen.push_str("\x1b>");
            }
            '\x1b' => self.state = FilterState::Escape,
            '0'..='~' => {}
            _ => self.text(character, out),
        }
    }

    /// The last character of a sequence with an intermediate one: a set of characters, or `ESC # 8`.
    fn selection(&mut self, intermediate: char, character: char, out: &mut Filtered) {
        match character {
            ' '..='/' => return self.state = FilterState::Intermediate('\0'),
            '0'..='~' if intermediate != '\0' => {
                out.screen.extend(['\x1b', intermediate, character]);
                if intermediate != '#' {
                    let standard = format!("\x1b{intermediate}B");
                    match character {
                        'B' => self.undo.remove(&standard),
                        _ => self.undo.insert(standard),
                    };
                }
            }
            '0'..='~' => {}
            _ => {
                self.state = FilterState::Text;
                return self.text(character, out);
            }
        }
        self.state = FilterState::Text;
    }

    fn begin_csi(&mut self) {
        self.sequence.clear();
        self.state = FilterState::Csi { overlong: false };
    }

    fn csi(&mut self, character: char, overlong: bool, out: &mut Filtered) {
        match character {
            ' '..='?' if overlong || self.sequence.len() >= MAX_SEQUENCE => {
                self.state = FilterState::Csi { overlong: true };
            }
            ' '..='?' => self.sequence.push(character),
            '@'..='~' => {
                self.state = FilterState::Text;
                let sequence = std::mem::take(&mut self.sequence);
                if !overlong && let Some(passed) = self.control(&sequence, character) {
                    out.screen.push_str(&passed);
                }
            }
            '\x18' | '\x1a' => self.state = FilterState::Text,
            '\x1b' => self.state = FilterState::Escape,
            // A terminal obeys these within a sequence; the sequence goes on.
            '\x08' | '\t' | '\n' | '\r' => out.screen.push(character),
            character if character.is_control() => {}
            _ => {
                self.state = FilterState::Text;
                self.text(character, out);
            }
        }
    }

    /// The control sequence if it may pass, or the part of it that may.
    fn control(&mut self, sequence: &str, last: char) -> Option<String> {
        let prefix = sequence.chars().next().filter(|first| matches!(first, '<'..='?'));
        let rest = &sequence[prefix.map_or(0, char::len_utf8)..];
        let parameters = rest.trim_end_matches(|c: char| matches!(c, ' '..='/'));
        let intermediate = &rest[parameters.len()..];
        let is_number =
            |text: &str| text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        if !parameters.split([';', ':']).all(is_number) {
            return None;
        }
        let whole = format!("\x1b[{sequence}{last}");
        match (prefix, intermediate, last) {
            (
                None,
                "",
                '@'..='M' | 'P' | 'S' | 'X' | 'Z' | '`' | 'a' | 'b' | 'd'..='g' | 'j' | 'k' | 's' | 'u',
            ) => {}
            // With five parameters it is another command.
            (None, "", 'T') if !parameters.contains(';') => {}
            (Some('?'), "", 'J' | 'K') | (None, "!", 'p') => {}
            (None, "", 'm') => self.remember(matches!(parameters, "" | "0"), "\x1b[0m"),
            (None, "", 'r') => self.remember(parameters.is_empty(), "\x1b7\x1b[r\x1b8"),
            (None, "", 'h' | 'l') if parameters == "4" => self.remember(last == 'l', "\x1b[4l"),
            (None, " ", 'q') => self.remember(matches!(parameters, "" | "0"), "\x1b[0 q"),
            (Some('?'), "", 'h' | 'l') => return self.modes(parameters, last == 'h'),
            // What keys send: xterm's and kitty's settings.
            (Some('>'), "", 'm') if parameters.starts_with('4') => {
                self.remember(parameters == "4", "\x1b[>4m")
            }
            (Some('>'), "", 'u') => self.remember(false, "\x1b[<9u"),
            (Some('='), "", 'u') => self.remember(parameters == "0", "\x1b[=0u"),
            (Some('<' | '?'), "", 'u') => {}
            // Questions whose answers are numbers.
            (None | Some('>'), "", 'c') if matches!(parameters, "" | "0") => {}
            (None, "", 'n') if matches!(parameters, "5" | "6") => {}
            (Some('?'), "", 'n') if parameters == "6" => {}
            (None | Some('?'), "$", 'p') => {}
            _ => return None,
        }
        Some(whole)
    }

    /// The modes of the list among those that are set or reset.
    fn modes(&mut self, parameters: &str, set: bool) -> Option<String> {
        let known = |text: &str| text.parse().ok().filter(|mode| MODES.contains(mode));
        let modes: Vec<u16> = parameters.split(';').filter_map(known).collect();
        for mode in &modes {
            let is_default = set == SET_BY_DEFAULT.contains(mode);
            // 1048 saves the cursor, which needs no undoing.
            if *mode != 1048 {
                self.remember(is_default, &format!("\x1b[?{mode}{}", if set { 'l' } else { 'h' }));
                self.undo.remove(&format!("\x1b[?{mode}{}", if set { 'h' } else { 'l' }));
            }
            if ALTERNATE_SCREEN.contains(mode) {
                self.in_alternate_screen = set;
                self.is_mid_line &= set;
            }
        }
        let words: Vec<String> = modes.iter().map(u16::to_string).collect();
        (!words.is_empty()).then(|| format!("\x1b[?{}{}", words.join(";"), if set { 'h' } else { 'l' }))
    }

    /// Notes what undoes a change, or that it is undone.
    fn remember(&mut self, is_undone: bool, undo: &str) {
        match is_undone {
            true => self.undo.remove(undo),
            false => self.undo.insert(undo.to_owned()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(text: &str) -> String {
        Filter::default().push(text.as_bytes()).screen
    }

    #[test]
    fn what_an_editor_draws_passes_whole_and_cut_anywhere() {
        let drawn = "\x1b[?1049h\x1b[22;24r\x1b[1;1H\x1b[38;2;1;2;3;48:5:7mä\x1b[0m\x1b[K\x1b[?25l\x1b[2 q\x1b(0qqq\x1b(B\
                     \x1b[>4;2m\x1b[>1u\x1b[6n\x1b[>c\x1b[?2026$p\x1b=\x1b7\x1b8\x1bM\x0e\x0f\x08\x1b[?1000;1006h";
        assert_eq!(screen(drawn), drawn);
        let mut filter = Filter::default();
        let pieces: String = drawn.as_bytes().iter().map(|byte| filter.push(&[*byte]).screen).collect();
        assert_eq!(pieces, drawn);
    }

    #[test]
    fn what_attacks_the_terminal_is_removed() {
        for attack in [
            "\x1b]52;c;Q0xJUA==\x07",
            "\x1b]0;title\x1b\\",
            "\x1b]8;;http://example\x1b\\",
            "\x1b]9;bell\x07",
            "\x1bktitle\x1b\\",
            "\x1bP$q\"p\x1b\\",
            "\x1bPtmux;\x1b\x1b]52;c;QQ==\x07\x1b\\",
            "\x1b_Gf=100;QVBD\x1b\\",
            "\x1b^pm\x1b\\",
            "\u{9d}0;title\u{9c}",
            "\u{9b}21t",
            "\x1b[21t",
            "\x1b[8;1;1t",
            "\x1b[>q",
            "\x1b[=c",
            "\x1b[5i",
            "\x1b[1;1;1;1;1*y",
            "\x1b[1;1;9;9;1;1;1;1$v",
            "\x1b[?3h",
            "\x1b[?80h",
            "\x1b[1;2;3;4;5T",
            "\x1b[999999999b",
            "\x1bZ",
            "\x1b%@",
            "\x1b F",
            "\x05",
            "\u{202e}",
            "\0",
        ] {
            assert_eq!(screen(&format!("a{attack}b")), "ab", "{attack:?}");
            let overlong = format!("\x1b[{}m", "1;".repeat(200));
            assert_eq!(screen(&overlong), "");
        }
        assert_eq!(screen("\x1b[?25;3l"), "\x1b[?25l", "of several modes those that are known");
        assert_eq!(screen("\x1b]0;t\x1b[31mred"), "\x1b[31mred", "an escape ends a string, as in a terminal");
        assert_eq!(screen("\x1b[1\x1b]0;t\x07m"), "m");
    }

    #[test]
    fn what_a_program_left_changed_is_undone() {
        let mut filter = Filter::default();
        filter.push(b"\x1b[?1049h\x1b[?25l\x1b[2;5r\x1b[31m\x1b=\x1b[?7l\x1b(0\x1b[>1u text");
        let end = filter.pause();
        for undone in [
            "\x1b[?1049l",
            "\x1b[?25h",
            "\x1b7\x1b[r\x1b8",
            "\x1b[0m",
            "\x1b>",
            "\x1b[?7h",
            "\x1b(B",
            "\x1b[<9u",
            "\r\n",
        ] {
            assert!(end.contains(undone), "{undone:?} in {end:?}");
        }
        assert_eq!(filter.begin_again(), "\x1b[?1049h\x1b[?25l\x1b[?7l");
        let mut filter = Filter::default();
        filter.push(b"\x1b[?1049h\x1b[?25l\x1b[31m\x1b[m\x1b[?25h\x1b[?1049l");
        assert_eq!(filter.pause(), "", "nothing is left to undo");
    }

    #[test]
    fn the_text_is_without_sequences_and_without_full_screens() {
        let mut filter = Filter::default();
        let text =
            filter.push(b"one\r\n10%\r20%\r\n\x1b[1mtwo\x1b[0m\x1b[?1049hdrawn\x1b[?1049lthree\n").text;
        assert_eq!(text, "one\n10%\r20%\ntwothree\n");
    }
}
