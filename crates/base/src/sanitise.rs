//! Removes from text everything that controls a terminal, except colours.
//!
//! Escape sequences in printed text can set the title and the clipboard, type answers into the shell, or link text to
//! other places. So all text from the model, a tool or the sandbox is sanitised before it is printed. Printable text, line
//! feeds, tabs and (on request) SGR colour sequences are kept. All other control characters and escape sequences
//! (ECMA-48 CSI, OSC, DCS, APC, PM, SOS, in their 7-bit and 8-bit forms) are removed, and so are the characters that
//! reorder text (Unicode bidirectional embeddings, overrides and isolates, CVE-2021-42574) and those that nobody sees and no
//! writing needs (tags, fillers, noncharacters: what is copied from a terminal would take them along).
//!
//! The parser is not a terminal emulator's (the `vte` crate): those know 7-bit sequences only, and let an unterminated
//! string hide everything that follows.

use crate::utf8_stream::Utf8Stream;
use crate::visible::is_unreadable;
use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The longest SGR sequence that is kept, in bytes. Real ones stay below 40.
const MAX_SEQUENCE: usize = 64;
/// The longest string sequence (OSC, DCS, …) that is removed, in characters. What follows is shown as text, so that an
/// unterminated sequence cannot hide the rest of an output.
const MAX_STRING: usize = 4096;

/// Sanitises a stream of text that arrives in pieces, cut anywhere. Its buffer is bounded.
#[derive(Debug, Clone)]
pub struct Sanitiser {
    colours: bool,
    lone_return: LoneReturn,
    reader: Reader,
    state: State,
    sequence: String,
    coloured: bool,
    decoder: Utf8Stream,
}

/// The treatment of a carriage return without a line feed after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoneReturn {
    ToLineFeed,
    Keep,
}

/// For whom the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Terminal,
    /// Controls are shown, so that nothing that they part is joined; backspaces and reordering characters stay.
    Model,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After a carriage return, which is dropped before a line feed.
    Return,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte, as in a charset selection: the final byte follows.
    EscapeIntermediate,
    /// Within a CSI sequence; its parameters are in `sequence` unless it is `overlong`.
    Csi {
        overlong: bool,
    },
    /// Within an OSC, DCS, APC, PM or SOS string, of which this many characters have been removed.
    String(usize),
    /// After ESC within such a string: a backslash ends it.
    StringEscape,
}

impl Sanitiser {
    /// Keeps colours if `colours` is set. A lone carriage return becomes a line feed.
    pub fn new(colours: bool) -> Self {
        Self {
            colours,
            lone_return: LoneReturn::ToLineFeed,
            reader: Reader::Terminal,
            state: State::Text,
            sequence: String::new(),
            coloured: false,
            decoder: Utf8Stream::default(),
        }
    }

    /// Removes colours but keeps lone carriage returns, for a caller that handles overwritten lines itself. The text must
    /// not be written to a terminal as it is.
    pub fn keeping_returns() -> Self {
        Self { lone_return: LoneReturn::Keep, ..Self::new(false) }
    }

    /// For a text that a model reads: sequences are removed, other controls are shown as their pictures (`␀`), and lone
    /// carriage returns and backspaces are kept for a caller that handles what they overwrite.
    pub fn for_model() -> Self {
        Self { lone_return: LoneReturn::Keep, reader: Reader::Model, ..Self::new(false) }
    }

    /// Appends the harmless part of `text` to `clean`.
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

    /// [`Sanitiser::push`] for bytes: invalid UTF-8 becomes U+FFFD, and a piece may end within a character.
    pub fn push_bytes(&mut self, bytes: &[u8], clean: &mut String) {
        let text = self.decoder.push(bytes);
        self.push(&text, clean);
    }

    /// Ends the stream: drops an incomplete sequence and switches colours off.
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
        match self.lone_return {
            LoneReturn::ToLineFeed => '\n',
            LoneReturn::Keep => '\r',
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
            '\x07' | '\x0e' | '\x0f' => {}
            '\x08' if self.reader == Reader::Model => clean.push(character),
            character if self.reader == Reader::Model => clean.push(visible(character)),
            character if is_dangerous(character) || is_unreadable(character) => {}
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

    /// Ends a malformed or overlong sequence: `character` is text.
    fn abandon(&mut self, character: char, clean: &mut String) {
        self.state = State::Text;
        self.text(character, clean);
    }
}

/// Returns whether a byte may begin something to remove: a control, or the first byte in UTF-8 of a character that is removed.
fn is_suspicious(byte: u8) -> bool {
    byte < b' ' || matches!(byte, 0x7f | 0xc2 | 0xd8 | 0xe1..=0xe3 | 0xef..)
}

/// A control character, or one that reorders text: a bidirectional embedding, override or isolate, or the
/// Arabic letter mark.
pub fn is_dangerous(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// A control character's picture; other characters as they are.
fn visible(character: char) -> char {
    match character {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        other => other,
    }
}

/// `text` with a picture for each control character that is not white space: some endpoints refuse them.
pub fn with_visible_controls(text: &str) -> Cow<'_, str> {
    let is_shown =
        |character: char| character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\x0c');
    if !text.contains(is_shown) {
        return Cow::Borrowed(text);
    }
    let show = |character| if is_shown(character) { visible(character) } else { character };
    Cow::Owned(text.chars().map(show).collect())
}

/// Returns whether an SGR sequence only sets colours and attributes: numbers, but not the one that hides text (8, conceal).
/// With `?`, `>` or `=` it is another command (xterm's `CSI > 4 m` changes what keys send).
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

/// `text` without colours, controls and reordering; line ends are kept.
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

/// `text` on one line of at most `columns` columns: line ends become `⏎`, and longer text ends in `…`.
pub fn one_line(text: &str, columns: usize) -> String {
    // The result only depends on a prefix. Four times the columns leaves some for characters that are removed.
    let prefix: String = text.chars().take(columns.saturating_mul(4).saturating_add(16)).collect();
    let clean = plain(prefix.trim_end());
    let joined = clean.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ⏎ ");
    truncate(&joined.replace('\t', " "), columns)
}

/// `text` cut to `columns`, with an ellipsis at the end if it was longer.
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
