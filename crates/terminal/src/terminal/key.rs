//! Keys, decoded from the bytes that a terminal sends for them.
//!
//! Known are what VT and xterm terminals send, kitty's `CSI … u` and xterm's `CSI 27 ; … ~`, in which Shift+Enter differs
//! from Enter, and marked pastes. Answers of the terminal to a question that nobody waits for any more are not keys.

use agent_base::sanitise::is_dangerous;

/// The longest paste that is kept, in bytes. What follows is dropped.
const MAX_PASTE: usize = 8 << 20;
/// A longer sequence is not a key.
const MAX_SEQUENCE: usize = 64;
/// The longest answer of the terminal, in bytes.
const MAX_ANSWER: usize = 4096;
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Tab,
    Backspace,
    Delete,
    Escape,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    /// Text that was pasted, with line feeds, without control characters.
    Paste(String),
    /// Something else.
    Other,
}

/// A key, and what is held down with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Press {
    pub key: Key,
    pub ctrl: bool,
    pub alt: bool,
    pub shift: bool,
}

impl Press {
    pub fn of(key: Key) -> Self {
        Self { key, ctrl: false, alt: false, shift: false }
    }

    pub fn ctrl(character: char) -> Self {
        Self { ctrl: true, ..Self::of(Key::Char(character)) }
    }

    fn alt(self) -> Self {
        Self { alt: true, ..self }
    }

    /// Adds the modifiers of a number, as a terminal reports them: 1 and the sum of 1 for Shift, 2 for Alt, 4 for Ctrl, 8 for Super, 16 for
    /// Hyper. What is above are locks, which the key has been subject to already.
    fn with(self, modifiers: u32) -> Self {
        let bits = modifiers.saturating_sub(1);
        let press = Self { shift: bits & 1 != 0, alt: bits & 2 != 0, ctrl: bits & 4 != 0, ..self };
        match press.key {
            // A command of the window system that reached the wrong program is not text.
            Key::Char(_) if bits & 24 != 0 => Self::of(Key::Other),
            Key::Char(letter) if press.shift && !press.alt && !press.ctrl && letter.is_ascii_lowercase() => {
                Self { key: Key::Char(letter.to_ascii_uppercase()), ..press }
            }
            // With Caps Lock, xterm reports the letter as it would be typed.
            Key::Char(letter) if press.ctrl && !press.shift && letter.is_ascii_uppercase() => {
                Self { key: Key::Char(letter.to_ascii_lowercase()), ..press }
            }
            _ => press,
        }
    }

    /// Puts the key of the basic layout (`base`, where the terminal reports it) in place of another alphabet's: with Ctrl or Alt a
    /// key is a command, and is the same in each layout.
    fn in_basic_layout(self, base: Option<u32>) -> Self {
        match (&self.key, base.and_then(char::from_u32)) {
            (Key::Char(letter), Some(base))
                if (self.ctrl || self.alt) && !letter.is_ascii() && base.is_ascii_graphic() =>
            {
                Self { key: Key::Char(base), ..self }
            }
            _ => self,
        }
    }
}

/// Decodes bytes that arrive in pieces, cut anywhere.
#[derive(Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    /// The paste under way: its length is bounded, so it is taken out of `bytes` as it comes.
    paste: Option<Vec<u8>>,
    /// The terminal has marked a paste, and will mark the next.
    marks_pastes: bool,
    /// A paste without marks, which is the next key.
    unmarked: Option<Press>,
}

/// The first bytes of the input, by what they are, with their number.
enum Taken {
    Press(Press, usize),
    Paste(usize),
    /// Not a key: one that is released, or an answer of the terminal.
    Nothing(usize),
    More,
}

impl Keys {
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), paste: None, marks_pastes: false, unmarked: None }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns whether bytes that have arrived at once are a paste of several lines from a terminal that does not mark pastes: nobody
    /// types text behind Enter that fast. Whole lines alone are commands that a script types.
    pub fn is_unmarked_paste(&self, bytes: &[u8]) -> bool {
        let is_text = |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\r' | b'\n' | b'\t');
        let is_idle = self.bytes.is_empty() && self.paste.is_none() && !self.marks_pastes;
        is_idle && bytes.contains(&b'\r') && !bytes.ends_with(b"\r") && bytes.iter().all(is_text)
    }

    /// Adds bytes as a paste, or as more of it. A character at the end that is not complete waits for its rest.
    pub fn push_paste(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let length = match std::str::from_utf8(&self.bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.bytes.len(),
        };
        let whole: Vec<u8> = self.bytes.drain(..length).collect();
        self.unmarked = Some(pasted(&whole));
    }

    /// Returns whether the next key may be complete, as an escape is, or the beginning of another.
    pub fn is_ambiguous(&self) -> bool {
        self.paste.is_none() && self.bytes.first() == Some(&0x1b)
    }

    /// Returns whether a key's sequence has begun, so that what is missing cannot be another key.
    pub fn is_within_sequence(&self) -> bool {
        self.is_ambiguous() && self.bytes.len() > 1
    }

    /// Returns whether the end of a paste has not arrived.
    pub fn is_pasting(&self) -> bool {
        self.paste.is_some()
    }

    /// Ends the paste whose end has not arrived: its text, if there is any.
    pub fn break_paste(&mut self) -> Option<Press> {
        let mut paste = self.paste.take()?;
        let mut rest = std::mem::take(&mut self.bytes);
        let begun = (1..PASTE_END.len()).rev().find(|length| rest.ends_with(&PASTE_END[..*length]));
        rest.truncate(rest.len() - begun.unwrap_or(0));
        rest.truncate(MAX_PASTE.saturating_sub(paste.len()));
        paste.extend(rest);
        (!paste.is_empty()).then(|| pasted(&paste))
    }

    /// The next key; `None` where bytes are missing.
    pub fn next_press(&mut self) -> Option<Press> {
        if let Some(paste) = self.unmarked.take() {
            return Some(paste);
        }
        loop {
            if self.paste.is_some() {
                return self.end_paste();
            }
            match take(&self.bytes) {
                Taken::Press(press, length) => {
                    self.bytes.drain(..length);
                    return Some(press);
                }
                Taken::Paste(length) => {
                    self.bytes.drain(..length);
                    self.paste = Some(Vec::new());
                    self.marks_pastes = true;
                }
                Taken::Nothing(length) => drop(self.bytes.drain(..length)),
                Taken::More if self.bytes.len() > longest(&self.bytes) => {
                    self.bytes.clear();
                    return Some(Press::of(Key::Other));
                }
                Taken::More => return None,
            }
        }
    }

    /// The key that the bytes are if no more of them come.
    pub fn next_as_it_is(&mut self) -> Option<Press> {
        let bytes = std::mem::take(&mut self.bytes);
        match bytes.as_slice() {
            [] => None,
            [0x1b] => Some(Press::of(Key::Escape)),
            [0x1b, byte @ (b'[' | b'O' | b']' | b'P' | b'_')] => {
                Some(Press::of(Key::Char(char::from(*byte))).alt())
            }
            _ => Some(Press::of(Key::Other)),
        }
    }

    fn end_paste(&mut self) -> Option<Press> {
        let paste = self.paste.get_or_insert_default();
        let end = self.bytes.windows(PASTE_END.len()).position(|window| window == PASTE_END);
        // The end may have arrived in part.
        let length = end.unwrap_or_else(|| self.bytes.len().saturating_sub(PASTE_END.len() - 1));
        let room = MAX_PASTE.saturating_sub(paste.len()).min(length);
        paste.extend_from_slice(&self.bytes[..room]);
        self.bytes.drain(..end.map_or(length, |end| end + PASTE_END.len()));
        end?;
        Some(pasted(&self.paste.take()?))
    }
}

fn pasted(bytes: &[u8]) -> Press {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
    let is_text = |character: &char| matches!(character, '\n' | '\t') || !is_dangerous(*character);
    Press::of(Key::Paste(text.chars().filter(is_text).collect()))
}

/// Returns whether the bytes are Ctrl-C and nothing else.
pub fn is_control_c(bytes: &[u8]) -> bool {
    matches!(take(bytes), Taken::Press(press, length) if length == bytes.len() && press == Press::ctrl('c'))
}

/// Returns whether bytes that came behind an escape, and late, are the rest of a key's sequence and not what was typed after Escape.
pub fn is_rest_of_sequence(bytes: &[u8]) -> bool {
    let sequence = [b"\x1b", bytes].concat();
    bytes.len() > 1
        && matches!(bytes[0], b'[' | b'O')
        && matches!(take(&sequence), Taken::Press(Press { key, .. }, length) if key != Key::Other && length == sequence.len())
}

fn take(bytes: &[u8]) -> Taken {
    let press = |key, length| Taken::Press(Press::of(key), length);
    match bytes {
        [] | [0x1b] => Taken::More,
        [0x1b, b'[', rest @ ..] => control_sequence(rest),
        [0x1b, b'O'] => Taken::More,
        [0x1b, b'O', last, ..] => press(cursor_key(*last).unwrap_or(Key::Other), 3),
        [0x1b, b']' | b'P' | b'_', rest @ ..] if is_answer(bytes[1], rest) != Some(false) => answer(bytes),
        // Two escapes are two keys, also where they arrive together.
        [0x1b, 0x1b, ..] => press(Key::Escape, 1),
        [0x1b, rest @ ..] => match take(rest) {
            Taken::Press(press, length) => Taken::Press(press.alt(), length + 1),
            Taken::Nothing(length) => Taken::Nothing(length + 1),
            other => other,
        },
        [b'\r', ..] => press(Key::Enter, 1),
        [b'\t', ..] => press(Key::Tab, 1),
        [0x7f | 0x08, ..] => press(Key::Backspace, 1),
        [0, ..] => Taken::Press(Press::ctrl(' '), 1),
        [byte @ 1..=26, ..] => Taken::Press(Press::ctrl(char::from(byte + b'a' - 1)), 1),
        [byte @ 28..=31, ..] => Taken::Press(Press::ctrl(char::from(byte + 64)), 1),
        _ => character(bytes),
    }
}

/// Returns whether a string of the terminal that `introducer` begins is an answer to a question (colours, its name, what it can do,
/// pictures), and not Alt with that key and other keys behind it; `None` where that is not known yet.
fn is_answer(introducer: u8, rest: &[u8]) -> Option<bool> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let begins = |wanted: &[u8]| match rest.len() < wanted.len() {
        true if wanted.starts_with(rest) => None,
        true => Some(false),
        false => Some(rest.starts_with(wanted)),
    };
    match (introducer, rest.get(digits)) {
        (b']', None) | (b'P', None) => None,
        (b']', Some(next)) => Some(digits > 0 && *next == b';'),
        (b'P', Some(b'$' | b'+')) => Some(digits > 0),
        (b'P', Some(_)) => begins(b">|"),
        _ => begins(b"G"),
    }
}

/// The number of bytes for which what has begun may wait for its end.
fn longest(bytes: &[u8]) -> usize {
    match bytes {
        [0x1b, b']' | b'P' | b'_', ..] => MAX_ANSWER,
        _ => MAX_SEQUENCE,
    }
}

/// Passes over an answer, up to the string terminator or a bell.
fn answer(bytes: &[u8]) -> Taken {
    let Some(end) = bytes[2..].iter().position(|byte| matches!(byte, 0x07 | 0x1b)).map(|end| end + 2) else {
        return Taken::More;
    };
    match bytes[end..] {
        [0x07, ..] => Taken::Nothing(end + 1),
        [_, b'\\', ..] => Taken::Nothing(end + 2),
        [_] => Taken::More,
        // Broken off by another key.
        _ => Taken::Nothing(end),
    }
}

fn character(bytes: &[u8]) -> Taken {
    let length = match bytes[0] {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Taken::Press(Press::of(Key::Other), 1),
    };
    let Some(bytes) = bytes.get(..length) else { return Taken::More };
    match std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()) {
        Some(character) if !is_dangerous(character) => Taken::Press(Press::of(Key::Char(character)), length),
        Some(_) => Taken::Press(Press::of(Key::Other), length),
        None => Taken::Press(Press::of(Key::Other), 1),
    }
}

/// Returns what follows `ESC [`.
fn control_sequence(rest: &[u8]) -> Taken {
    // The Linux console's function keys.
    if let [b'[', others @ ..] = rest {
        return match others {
            [] => Taken::More,
            _ => Taken::Press(Press::of(Key::Other), 4),
        };
    }
    // The mouse, which another program has left switched on: in xterm's first form three bytes follow.
    if let [b'M', report @ ..] = rest {
        return if report.len() < 3 { Taken::More } else { Taken::Nothing(6) };
    }
    let Some(end) = rest.iter().position(|byte| !(0x20..0x40).contains(byte)) else { return Taken::More };
    let (last, length) = (rest[end], end + 3);
    let parameters = String::from_utf8_lossy(&rest[..end]);
    if !(0x40..0x7f).contains(&last) {
        // Broken off by another key.
        return Taken::Press(Press::of(Key::Other), end + 2);
    }
    let first = |number: &str| number.split(':').next().and_then(|number| number.parse::<u32>().ok());
    // Kitty adds the kind of event to the modifiers: pressed, repeated, released.
    let event = parameters.split(';').nth(1).and_then(|modifiers| modifiers.split(':').nth(1));
    if event == Some("3") && last != b'm' {
        return Taken::Nothing(length);
    }
    let mut numbers = parameters.split(';').map(|number| first(number).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let press = match (last, next()) {
        (b'~', 200) => return Taken::Paste(length),
        (b'~', 27) => {
            let modifiers = next();
            by_code(next()).with(modifiers)
        }
        (b'~', number) => Press::of(numbered_key(number)).with(next()),
        (b'u', code) if parameters.starts_with(|first: char| first.is_ascii_digit()) => {
            let base = parameters.split(';').next().and_then(|codes| codes.split(':').nth(2));
            by_code(code).with(next()).in_basic_layout(base.and_then(|base| base.parse().ok()))
        }
        (b'Z', _) => Press { shift: true, ..Press::of(Key::Tab) },
        (b'M' | b'm', _) => return Taken::Nothing(length),
        (last, _) => Press::of(cursor_key(last).unwrap_or(Key::Other)).with(next()),
    };
    Taken::Press(press, length)
}

fn cursor_key(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' => Key::Enter,
        _ => return None,
    })
}

fn numbered_key(number: u32) -> Key {
    match number {
        1 | 7 => Key::Home,
        3 => Key::Delete,
        4 | 8 => Key::End,
        5 => Key::PageUp,
        6 => Key::PageDown,
        _ => Key::Other,
    }
}

/// The key of the number pad that kitty gives this code.
fn number_pad_key(code: u32) -> Key {
    match code {
        57399..=57408 => char::from_digit(code - 57399, 10).map_or(Key::Other, Key::Char),
        57409 => Key::Char('.'),
        57410 => Key::Char('/'),
        57411 => Key::Char('*'),
        57412 => Key::Char('-'),
        57413 => Key::Char('+'),
        57414 => Key::Enter,
        57415 => Key::Char('='),
        57416 => Key::Char(','),
        57417 => Key::Left,
        57418 => Key::Right,
        57419 => Key::Up,
        57420 => Key::Down,
        57421 => Key::PageUp,
        57422 => Key::PageDown,
        57423 => Key::Home,
        57424 => Key::End,
        57426 => Key::Delete,
        _ => Key::Other,
    }
}

/// The key of a Unicode code.
fn by_code(code: u32) -> Press {
    Press::of(match code {
        9 => Key::Tab,
        13 => Key::Enter,
        27 => Key::Escape,
        8 | 127 => Key::Backspace,
        57399..=57426 => number_pad_key(code),
        code => match char::from_u32(code) {
            Some(character) if !is_dangerous(character) && !('\u{e000}'..'\u{f900}').contains(&character) => {
                Key::Char(character)
            }
            _ => Key::Other,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Press> {
        let mut keys = Keys::default();
        keys.push(bytes);
        let mut all: Vec<Press> = std::iter::from_fn(|| keys.next_press()).collect();
        all.extend(keys.next_as_it_is());
        all
    }

    #[test]
    fn a_new_line_is_told_from_the_end_of_the_input() {
        let shift_enter = Press { shift: true, ..Press::of(Key::Enter) };
        assert_eq!(keys(b"\r"), [Press::of(Key::Enter)]);
        assert_eq!(keys(b"\n"), [Press::ctrl('j')]);
        assert_eq!(keys(b"\x1b\r"), [Press::of(Key::Enter).alt()]);
        for terminal in [&b"\x1b[13;2u"[..], b"\x1b[27;2;13~"] {
            assert_eq!(keys(terminal), std::slice::from_ref(&shift_enter));
        }
    }

    #[test]
    fn keys_are_decoded_in_every_form_and_cut_anywhere() {
        let typed = "a\u{e4}\x03\x1bb\x1b[A\x1b[1;5D\x1bOH\x1b[3~\x1b[99;5u\x1b[27;5;99~\x7f\x1b[Z";
        let expected = [
            Press::of(Key::Char('a')),
            Press::of(Key::Char('ä')),
            Press::ctrl('c'),
            Press::of(Key::Char('b')).alt(),
            Press::of(Key::Up),
            Press { ctrl: true, ..Press::of(Key::Left) },
            Press::of(Key::Home),
            Press::of(Key::Delete),
            Press::ctrl('c'),
            Press::ctrl('c'),
            Press::of(Key::Backspace),
            Press { shift: true, ..Press::of(Key::Tab) },
        ];
        assert_eq!(keys(typed.as_bytes()), expected);
        let mut decoder = Keys::default();
        let mut pieces = Vec::new();
        for byte in typed.bytes() {
            decoder.push(&[byte]);
            pieces.extend(std::iter::from_fn(|| decoder.next_press()));
        }
        assert_eq!(pieces, expected);
    }

    #[test]
    fn an_escape_alone_is_a_key_once_nothing_follows() {
        let mut decoder = Keys::default();
        decoder.push(b"\x1b");
        assert_eq!(decoder.next_press(), None);
        assert!(decoder.is_ambiguous());
        assert_eq!(decoder.next_as_it_is(), Some(Press::of(Key::Escape)));
        assert_eq!(keys(b"\x1b\x1b"), [Press::of(Key::Escape), Press::of(Key::Escape)]);
    }

    #[test]
    fn a_paste_is_text_whatever_is_in_it() {
        let pasted = |text: &str| Press::of(Key::Paste(text.to_owned()));
        assert_eq!(keys(b"\x1b[200~a\r\nb\rc\x1b]0;t\x07\x03\x1b[201~x")[0], pasted("a\nb\nc]0;t"));
        let mut decoder = Keys::default();
        let mut all = Vec::new();
        for byte in b"\x1b[200~one\x1b[31mtwo\x1b[201~" {
            decoder.push(&[*byte]);
            all.extend(decoder.next_press());
        }
        assert_eq!(all, [pasted("one[31mtwo")]);
        decoder.push(b"\x1b[200~");
        for _ in 0..10 {
            decoder.push(&vec![b'x'; 1 << 20]);
            assert_eq!(decoder.next_press(), None);
        }
        decoder.push(b"\x1b[201~");
        let Some(Press { key: Key::Paste(text), .. }) = decoder.next_press() else { panic!("a paste") };
        assert_eq!(text.len(), MAX_PASTE);
    }

    /// The keys of kitty's number pad were dropped.
    #[test]
    fn the_number_pad_is_what_is_written_on_it_in_kittys_form() {
        let digits: Vec<Press> = "0123456789./*-+".chars().map(|key| Press::of(Key::Char(key))).collect();
        let others =
            [Key::Left, Key::Right, Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Home, Key::End];
        for form in ["", ";1:1", ";129", ";129:1", ";129:2", ";1:2", ";65"] {
            let typed = |code: u32| keys(format!("\x1b[{code}{form}u").as_bytes());
            for (code, expected) in (57399..).zip(&digits) {
                assert_eq!(typed(code), std::slice::from_ref(expected), "{code}{form}");
            }
            for (code, expected) in (57417..).zip(&others) {
                assert_eq!(typed(code), [Press::of(expected.clone())], "{code}{form}");
            }
            assert_eq!(typed(57414), [Press::of(Key::Enter)]);
            assert_eq!(typed(57415), [Press::of(Key::Char('='))]);
            assert_eq!(typed(57416), [Press::of(Key::Char(','))]);
            assert_eq!(typed(57426), [Press::of(Key::Delete)]);
        }
    }

    #[test]
    fn a_released_key_is_nothing_and_an_unknown_one_takes_no_text_with_it() {
        let typed = b"a\x1b[57404;1:3u\x1b[1;1:3A\x1b[3;1:3~\x1b[27;1:3ub";
        assert_eq!(keys(typed), [Press::of(Key::Char('a')), Press::of(Key::Char('b'))]);
        for code in [57344, 57425, 57427, 57428, 57441, 57454, 63743] {
            let expected = [Press::of(Key::Char('a')), Press::of(Key::Other), Press::of(Key::Char('b'))];
            assert_eq!(keys(format!("a\x1b[{code};129ub").as_bytes()), expected);
        }
        assert_eq!(keys(b"\x1b[97;2u"), [Press { shift: true, ..Press::of(Key::Char('A')) }]);
        assert_eq!(keys(b"\x1b[99;9u"), [Press::of(Key::Other)]);
    }

    /// Ctrl-C of a Cyrillic keyboard was a letter, and nothing could be interrupted.
    #[test]
    fn a_command_is_the_same_in_every_layout_of_the_keyboard() {
        for control_c in ["1089::99;5", "1089:1057:99;5:1", "1089::99;133", "99;69", "99;133:2"] {
            let bytes = format!("\x1b[{control_c}u");
            assert_eq!(keys(bytes.as_bytes()), [Press::ctrl('c')], "{control_c}");
            assert!(is_control_c(bytes.as_bytes()), "{control_c}");
        }
        assert_eq!(keys(b"\x1b[27;5;67~"), [Press::ctrl('c')], "with Caps Lock");
        assert_eq!(keys(b"\x1b[1080::98;3u"), [Press::of(Key::Char('b')).alt()]);
        // Text is what the layout has, and a layout of Latin letters is the user's own.
        assert_eq!(keys(b"\x1b[1089::99u"), [Press::of(Key::Char('с'))]);
        assert_eq!(keys(b"\x1b[97::113;5u"), [Press::ctrl('a')]);
        assert!(!is_control_c(b"\x03x") && !is_control_c(b"c") && !is_control_c(b""));
    }

    /// A paste without an end took all keys for ever.
    #[test]
    fn a_paste_that_is_broken_off_is_the_text_that_came() {
        for (end, expected) in [("", "hello more\n"), ("\x1b", "hello more\n"), ("\x1b[201", "hello more\n")]
        {
            let mut decoder = Keys::default();
            decoder.push(b"\x1b[200~hello");
            assert_eq!(decoder.next_press(), None);
            decoder.push(format!(" more\r{end}").as_bytes());
            assert_eq!(decoder.next_press(), None);
            assert!(decoder.is_pasting() && !decoder.is_ambiguous());
            assert_eq!(decoder.break_paste(), Some(Press::of(Key::Paste(expected.to_owned()))), "{end:?}");
            decoder.push(b"x\x1b[201~");
            assert_eq!(decoder.next_press(), Some(Press::of(Key::Char('x'))));
            assert_eq!(decoder.next_press(), Some(Press::of(Key::Other)), "its end, which comes too late");
        }
    }

    #[test]
    fn the_rest_of_a_sequence_is_told_from_text_behind_an_escape() {
        for rest in [&b"[A"[..], b"OB", b"[1;5D", b"[3~", b"[57399u"] {
            assert!(is_rest_of_sequence(rest), "{rest:?}");
        }
        for text in [&b"["[..], b"O", b"[a", b"Ok", b"[A[", b"ab", b"[1", b""] {
            assert!(!is_rest_of_sequence(text), "{text:?}");
        }
    }

    /// The answer about the background that another program had asked for was typed into the prompt.
    #[test]
    fn an_answer_of_the_terminal_is_not_typed() {
        for answer in [
            "\x1b]11;rgb:0c0c/0c0c/0c0c\x1b\\",
            "\x1b]10;rgb:ffff/ffff/ffff\x07",
            "\x1b]4;1;rgb:cdcd/0000/0000\x07",
            "\x1bP>|tmux 3.5a\x1b\\",
            "\x1bP1+r524742=38\x1b\\",
            "\x1bP1$r0m\x1b\\",
            "\x1b_Gi=31;OK\x1b\\",
        ] {
            let typed = format!("a{answer}b");
            assert_eq!(keys(typed.as_bytes()), [Press::of(Key::Char('a')), Press::of(Key::Char('b'))]);
            let mut decoder = Keys::default();
            let mut pieces = Vec::new();
            for byte in typed.bytes() {
                decoder.push(&[byte]);
                pieces.extend(std::iter::from_fn(|| decoder.next_press()));
            }
            assert_eq!(pieces.len(), 2, "{answer:?}: {pieces:?}");
        }
        let long = format!("\x1b]52;c;{}\x07b", "x".repeat(1000));
        assert_eq!(keys(long.as_bytes()), [Press::of(Key::Char('b'))]);
        let alt = |character| Press::of(Key::Char(character)).alt();
        assert_eq!(keys(b"\x1b]"), [alt(']')]);
        assert_eq!(keys(b"\x1b]x"), [alt(']'), Press::of(Key::Char('x'))]);
        assert_eq!(keys(b"\x1b_a"), [alt('_'), Press::of(Key::Char('a'))]);
        assert_eq!(keys(b"\x1bPx"), [alt('P'), Press::of(Key::Char('x'))]);
    }

    #[test]
    fn several_lines_at_once_are_a_paste_also_without_marks() {
        let is_paste = |bytes: &[u8]| Keys::default().is_unmarked_paste(bytes);
        for paste in [&b"one\rtwo"[..], b"if x:\r\ty\r}"] {
            assert!(is_paste(paste), "{paste:?}");
        }
        for typed in [&b"one\r"[..], b"one\rtwo\r", b"a\rb\rc\r", b"one", b"\x1b[A\rx", b"a\x03\rb", b""] {
            assert!(!is_paste(typed), "{typed:?}");
        }
        let mut decoder = Keys::default();
        decoder.push_paste(b"one\rtwo");
        assert_eq!(decoder.next_press(), Some(Press::of(Key::Paste("one\ntwo".to_owned()))));
        let paste = |text: &str| Some(Press::of(Key::Paste(text.to_owned())));
        for (bytes, text) in [(&b"one\rtw\xc3"[..], "one\ntw"), (b"\xb6\rthree\r", "ö\nthree\n")] {
            decoder.push_paste(bytes);
            assert_eq!(decoder.next_press(), paste(text), "cut within a character");
        }
        decoder.push(b"\x1b[200~x\x1b[201~");
        decoder.next_press();
        assert!(!decoder.is_unmarked_paste(b"one\rtwo"), "this terminal marks them");
    }

    /// Mouse reports of a terminal in which a program has died were Enter.
    #[test]
    fn the_mouse_types_nothing() {
        for report in ["\x1b[<0;10;10M", "\x1b[<0;10;10m", "\x1b[M !!", "\x1b[32;10;10M", "\x1b[<64;1;200M"] {
            let typed = format!("a{report}b");
            assert_eq!(
                keys(typed.as_bytes()),
                [Press::of(Key::Char('a')), Press::of(Key::Char('b'))],
                "{report:?}"
            );
        }
        assert_eq!(keys(b"\x1bOM"), [Press::of(Key::Enter)], "the number pad's");
    }

    #[test]
    fn what_is_no_key_is_dropped() {
        for answer in [&b"\x1b[?62;22c"[..], b"\x1b[12;40R", b"\x1b[?1u", b"\x1b[[A", b"\xff", b"\x1b[I"] {
            assert_eq!(keys(answer).iter().filter(|press| press.key != Key::Other).count(), 0, "{answer:?}");
        }
    }
}
