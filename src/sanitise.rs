//! Removes from text everything that controls a terminal, except colours.
//!
//! Escape sequences in printed text can set the title and the clipboard, type answers into the shell, or link text to
//! other places. So all text from the model, a tool or the sandbox is sanitised before it is printed. Kept are
//! printable text, line feeds, tabs and (on request) SGR colour sequences. Removed are all other control characters and escape sequences
//! (ECMA-48 CSI, OSC, DCS, APC, PM, SOS, in
//! their 7-bit and 8-bit forms) and the characters that reorder text (Unicode bidirectional embeddings,
//! overrides and isolates, CVE-2021-42574).

use crate::utf8_stream::Utf8Stream;
use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The longest SGR sequence that is let through, in bytes. Real ones stay below 40.
const MAX_SEQUENCE: usize = 64;
/// The longest string sequence (OSC, DCS, …) that is swallowed, in characters. What follows is shown as text,
/// so that an unterminated sequence cannot hide the rest of an output.
const MAX_STRING: usize = 4096;

/// Sanitises a stream of text that arrives in pieces, cut anywhere. Its buffer is bounded.
#[derive(Debug, Clone)]
pub struct Sanitiser {
    colours: bool,
    returns: Returns,
    state: State,
    sequence: String,
    coloured: bool,
    decoder: Utf8Stream,
}

/// What becomes of a carriage return that no line feed follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returns {
    BecomeLineFeeds,
    Stay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After a carriage return: a line feed makes it a line end.
    Return,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte: a charset selection and its like, one more byte.
    EscapeIntermediate,
    /// Within a CSI sequence; its parameters are in `sequence` unless it is `overlong`.
    Csi {
        overlong: bool,
    },
    /// Within an OSC, DCS, APC, PM or SOS string; so many characters of it are swallowed.
    String(usize),
    /// After ESC within such a string: a backslash ends it.
    StringEscape,
}

impl Sanitiser {
    /// Lets colours through where `colours` says so. A lone carriage return becomes a line feed.
    pub fn new(colours: bool) -> Self {
        Self {
            colours,
            returns: Returns::BecomeLineFeeds,
            state: State::Text,
            sequence: String::new(),
            coloured: false,
            decoder: Utf8Stream::default(),
        }
    }

    /// No colours, and a lone carriage return stays, for a caller that draws lines over themselves.
    /// Such text must not go to a terminal as it is.
    pub fn keeping_returns() -> Self {
        Self { returns: Returns::Stay, ..Self::new(false) }
    }

    /// Appends what is harmless in `text` to `clean`.
    pub fn push(&mut self, text: &str, clean: &mut String) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.state == State::Text {
                let plain = rest.bytes().position(is_suspicious).unwrap_or(rest.len());
                clean.push_str(&rest[..plain]);
                rest = &rest[plain..];
            }
            let mut characters = rest.chars();
            if let Some(character) = characters.next() {
                self.step(character, clean);
            }
            rest = characters.as_str();
        }
    }

    /// The same for bytes: invalid UTF-8 is shown as `\u{fffd}`, and a character may be cut by a piece's end.
    pub fn push_bytes(&mut self, bytes: &[u8], clean: &mut String) {
        let text = self.decoder.push(bytes);
        self.push(&text, clean);
    }

    /// Ends the stream: what is held back is dropped, and colours that are still on are switched off.
    pub fn finish(&mut self, clean: &mut String) {
        if self.state == State::Return {
            clean.push(self.lone_return());
        }
        let rest = self.decoder.finish();
        self.push(rest, clean);
        if self.coloured {
            clean.push_str("\x1b[0m");
        }
        self.coloured = false;
        self.state = State::Text;
    }

    fn lone_return(&self) -> char {
        match self.returns {
            Returns::BecomeLineFeeds => '\n',
            Returns::Stay => '\r',
        }
    }

    fn step(&mut self, character: char, clean: &mut String) {
        match self.state {
            State::Text => self.text(character, clean),
            State::Return => {
                self.state = State::Text;
                if character != '\n' {
                    clean.push(self.lone_return());
                }
                self.text(character, clean);
            }
            State::Escape => self.escape(character, clean),
            State::EscapeIntermediate => match character {
                ' '..='/' => {}
                '0'..='~' => self.state = State::Text,
                _ => self.abandon(character, clean),
            },
            State::Csi { overlong } => self.csi(character, overlong, clean),
            State::String(length) => self.string(character, length, clean),
            State::StringEscape => {
                self.state = State::Text;
                if character != '\\' {
                    self.escape(character, clean);
                }
            }
        }
    }

    fn text(&mut self, character: char, clean: &mut String) {
        match character {
            '\n' | '\t' => clean.push(character),
            '\r' => self.state = State::Return,
            '\x1b' => self.state = State::Escape,
            '\u{9b}' => self.begin_csi(),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.state = State::String(0),
            character if is_dangerous(character) => {}
            character => clean.push(character),
        }
    }

    fn escape(&mut self, character: char, clean: &mut String) {
        match character {
            '[' => self.begin_csi(),
            ']' | 'P' | 'X' | '^' | '_' => self.state = State::String(0),
            ' '..='/' => self.state = State::EscapeIntermediate,
            '0'..='~' => self.state = State::Text,
            _ => self.abandon(character, clean),
        }
    }

    fn begin_csi(&mut self) {
        self.sequence.clear();
        self.state = State::Csi { overlong: false };
    }

    fn csi(&mut self, character: char, overlong: bool, clean: &mut String) {
        match character {
            ' '..='?' if overlong || self.sequence.len() >= MAX_SEQUENCE => {
                self.state = State::Csi { overlong: true };
            }
            ' '..='?' => self.sequence.push(character),
            '@'..='~' => {
                self.state = State::Text;
                if character == 'm' && !overlong && self.colours && is_visible_sgr(&self.sequence) {
                    self.coloured = !matches!(self.sequence.as_str(), "" | "0");
                    clean.extend(["\x1b[", &self.sequence, "m"]);
                }
            }
            _ => self.abandon(character, clean),
        }
    }

    fn string(&mut self, character: char, length: usize, clean: &mut String) {
        match character {
            '\x07' | '\u{9c}' => self.state = State::Text,
            '\x1b' => self.state = State::StringEscape,
            '\n' | '\r' | '\x18' | '\x1a' => self.abandon(character, clean),
            _ if length >= MAX_STRING => self.abandon(character, clean),
            _ => self.state = State::String(length + 1),
        }
    }

    /// The sequence was none, or is over: `character` is text again.
    fn abandon(&mut self, character: char, clean: &mut String) {
        self.state = State::Text;
        self.text(character, clean);
    }
}

/// Whether a byte may begin something that needs a look: controls, and the first bytes in UTF-8 of the
/// 8-bit controls (C2), the Arabic letter mark (D8) and the bidirectional controls (E2).
fn is_suspicious(byte: u8) -> bool {
    byte < b' ' || matches!(byte, 0x7f | 0xc2 | 0xd8 | 0xe2)
}

/// A control character, or one that reorders text: a bidirectional embedding, override or isolate, or the
/// Arabic letter mark.
pub fn is_dangerous(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// Whether an SGR sequence only colours and decorates: numbers alone, and none that hides text (8, conceal).
/// `?`, `>` and `=` make other commands of it (xterm's `CSI > 4 m` changes what keys send).
fn is_visible_sgr(parameters: &str) -> bool {
    if !parameters.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':')) {
        return false;
    }
    let mut numbers = parameters.split(';');
    while let Some(number) = numbers.next() {
        match number {
            "38" | "48" | "58" => match numbers.next() {
                Some("2") => drop(numbers.nth(2)),
                _ => drop(numbers.next()),
            },
            _ if number.trim_start_matches('0') == "8" => return false,
            _ => {}
        }
    }
    true
}

/// `text` without any colour, control or reordering; several lines stay several lines.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| is_suspicious(byte) && !matches!(byte, b'\n' | b'\t')) {
        return Cow::Borrowed(text);
    }
    let mut sanitiser = Sanitiser::new(false);
    let mut clean = String::with_capacity(text.len());
    sanitiser.push(text, &mut clean);
    sanitiser.finish(&mut clean);
    Cow::Owned(clean)
}

/// `text` on one line of at most `columns` columns: line ends become `⏎`, what is too long ends in `…`.
pub fn one_line(text: &str, columns: usize) -> String {
    // Only a prefix can be shown; the rest need not be looked at. Four times leaves room for what is dropped.
    let prefix: String = text.chars().take(columns.saturating_mul(4).saturating_add(16)).collect();
    let clean = plain(prefix.trim_end());
    let joined = clean.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ⏎ ");
    truncate(&joined.replace('\t', " "), columns)
}

/// `text` cut to `columns`, with an ellipsis where something was cut off.
pub fn truncate(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_string();
    }
    let mut cut = String::new();
    let mut used = 0;
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        cut.push(character);
    }
    cut.push('…');
    cut
}
