//! The encoding of a text file: found out by its content, decoded for readers, and kept by each change.
//!
//! What cannot be decoded is never lost: a change is made in the bytes, and leaves those as they are that it is not about.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Decoder, DecoderResult, EncoderResult, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Bytes that a guess looks at, from a little before the first one that is not ASCII.
const MAX_GUESSED: usize = 256 << 10;
/// Characters that an error names.
const MAX_NAMED: usize = 10;
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The encoding of a file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    form: Form,
    has_bom: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Utf8,
    Utf16 { is_big_endian: bool },
    Legacy(&'static encoding_rs::Encoding),
}

/// The reason why text is not written in an encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The encoding does not have these characters.
    Characters(Encoding, Vec<char>),
    /// The place is within or beside bytes that cannot be decoded, so that it is not known in the bytes.
    Place(Encoding),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Characters(encoding, characters) => {
                let names: Vec<String> =
                    characters.iter().map(|&c| format!("{c} (U+{:04X})", u32::from(c))).collect();
                write!(f, "the file is {encoding}, which has no {}", names.join(", "))
            }
            Self::Place(encoding) => {
                write!(f, "the place is beside bytes that cannot be decoded as {encoding}")
            }
        }
    }
}

impl Encoding {
    /// UTF-8 without a byte order mark.
    pub const UTF_8: Self = Self { form: Form::Utf8, has_bom: false };

    /// The encoding that a settings file names: a `charset` of `.editorconfig`, a `working-tree-encoding` of `.gitattributes`.
    pub fn named(label: &str) -> Option<Self> {
        let label = label.trim().to_ascii_lowercase();
        let (name, says_bom) = match label.strip_suffix("-bom") {
            Some(name) => (name, true),
            None => (label.as_str(), false),
        };
        let (form, has_bom) = match name {
            "utf-16" => (Form::Utf16 { is_big_endian: false }, true),
            "latin1" => (Form::Legacy(encoding_rs::WINDOWS_1252), false),
            name => match encoding_rs::Encoding::for_label_no_replacement(name.as_bytes())? {
                encoding if encoding == UTF_8 => (Form::Utf8, says_bom),
                encoding if encoding == UTF_16LE => (Form::Utf16 { is_big_endian: false }, says_bom),
                encoding if encoding == UTF_16BE => (Form::Utf16 { is_big_endian: true }, says_bom),
                encoding => (Form::Legacy(encoding), false),
            },
        };
        Some(Self { form, has_bom })
    }

    /// The encoding of a file with this content. A byte order mark decides; then UTF-8 that is valid; then what a settings
    /// file says; then the frequency of characters. Anything else is UTF-8 with bytes that cannot be decoded.
    pub fn of(bytes: &[u8], declared: Option<Self>) -> Self {
        if bytes.starts_with(&BOM) {
            return Self { form: Form::Utf8, has_bom: true };
        }
        let utf16 = |is_big_endian, has_bom| Self { form: Form::Utf16 { is_big_endian }, has_bom };
        let marked = [(b"\xff\xfe", false), (b"\xfe\xff", true)];
        if let Some((_, is_big_endian)) = marked.iter().find(|(mark, _)| bytes.starts_with(*mark)) {
            let encoding = utf16(*is_big_endian, true);
            return if encoding.decode(bytes).contains('\0') { Self::UTF_8 } else { encoding };
        }
        if bytes.contains(&0) {
            return match utf16_without_mark(bytes) {
                Some(is_big_endian) => utf16(is_big_endian, false),
                None => Self::UTF_8,
            };
        }
        let is_ascii = bytes.is_ascii();
        match declared {
            Some(declared) if bytes.is_empty() => return declared,
            Some(Self { form: Form::Legacy(encoding), .. })
                if is_ascii || std::str::from_utf8(bytes).is_err() =>
            {
                return Self { form: Form::Legacy(encoding), has_bom: false };
            }
            _ => {}
        }
        if is_ascii && bytes.contains(&0x1b) {
            let japanese = Self { form: Form::Legacy(ISO_2022_JP), has_bom: false };
            let text = japanese.decode(bytes);
            return if !text.is_ascii() && is_text(&text) { japanese } else { Self::UTF_8 };
        }
        if std::str::from_utf8(bytes).is_ok() || is_mostly_utf8(bytes) {
            return Self::UTF_8;
        }
        guess(bytes).unwrap_or(Self::UTF_8)
    }

    /// Returns whether it is UTF-8 without a byte order mark.
    pub fn is_plain(self) -> bool {
        self == Self::UTF_8
    }

    /// Returns whether it is UTF-8, with a byte order mark or without.
    pub fn is_utf8(self) -> bool {
        self.form == Form::Utf8
    }

    /// Returns whether a character has two bytes at least.
    pub fn is_wide(self) -> bool {
        matches!(self.form, Form::Utf16 { .. })
    }

    /// Returns whether whole words of ASCII are other characters in it: each of their bytes may be one that stands for itself elsewhere.
    pub fn hides_words(self) -> bool {
        self.is_wide() || matches!(self.form, Form::Legacy(encoding) if encoding == ISO_2022_JP)
    }

    /// The text of a file with this content, without its byte order mark. What cannot be decoded is U+FFFD.
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        self.decode_line(bytes.strip_prefix(self.mark()).unwrap_or(bytes))
    }

    /// The text of one of its [lines](Self::lines).
    pub fn decode_line(self, bytes: &[u8]) -> Cow<'_, str> {
        match self.form {
            Form::Utf8 => String::from_utf8_lossy(bytes),
            Form::Utf16 { is_big_endian } => {
                utf16_characters(bytes, is_big_endian).map(|(character, _)| character).collect()
            }
            Form::Legacy(encoding) => encoding.decode_without_bom_handling(bytes).0,
        }
    }

    /// Returns whether all of `bytes` can be decoded.
    pub fn decodes(self, bytes: &[u8]) -> bool {
        let bytes = bytes.strip_prefix(self.mark()).unwrap_or(bytes);
        match self.form {
            Form::Utf8 => std::str::from_utf8(bytes).is_ok(),
            Form::Utf16 { is_big_endian } => {
                let units = bytes.chunks_exact(2).map(|pair| unit(pair, is_big_endian));
                bytes.len().is_multiple_of(2) && char::decode_utf16(units).all(|character| character.is_ok())
            }
            Form::Legacy(encoding) => !encoding.decode_without_bom_handling(bytes).1,
        }
    }

    /// The bytes of `text`, without a byte order mark.
    ///
    /// # Errors
    /// Characters that the encoding does not have.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, Refusal> {
        match self.form {
            Form::Utf8 => Ok(text.as_bytes().to_vec()),
            Form::Utf16 { is_big_endian } => Ok(text
                .encode_utf16()
                .flat_map(|unit| if is_big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect()),
            Form::Legacy(encoding) => match encoded(encoding, text) {
                Some(bytes) if encoding.decode_without_bom_handling(&bytes).0 == text => Ok(bytes),
                _ => Err(Refusal::Characters(self, missing_in(encoding, text))),
            },
        }
    }

    /// The byte order mark of its files.
    pub fn mark(self) -> &'static [u8] {
        match self.form {
            _ if !self.has_bom => b"",
            Form::Utf8 => &BOM,
            Form::Utf16 { is_big_endian: true } => b"\xfe\xff",
            Form::Utf16 { is_big_endian: false } => b"\xff\xfe",
            Form::Legacy(_) => b"",
        }
    }

    /// The lines of `bytes` with their ends, without the byte order mark.
    pub fn lines(self, bytes: &[u8]) -> Vec<&[u8]> {
        let bytes = bytes.strip_prefix(self.mark()).unwrap_or(bytes);
        let Form::Utf16 { is_big_endian } = self.form else {
            // In none of the encodings a line feed is a part of another character.
            return bytes.split_inclusive(|&byte| byte == b'\n').collect();
        };
        let (mut lines, mut from) = (Vec::new(), 0);
        for (at, pair) in bytes.chunks_exact(2).enumerate() {
            if unit(pair, is_big_endian) == u16::from(b'\n') {
                lines.push(&bytes[from..2 * at + 2]);
                from = 2 * at + 2;
            }
        }
        lines.extend((from < bytes.len()).then(|| &bytes[from..]));
        lines
    }

    /// Returns the position in `bytes` where the character begins that is at `text` in what they are decoded to; `None`
    /// for a place in a character.
    fn position(self, bytes: &[u8], text: usize) -> Option<usize> {
        match self.form {
            Form::Utf8 => Some(text),
            Form::Utf16 { is_big_endian } => {
                let (mut at, mut decoded) = (0, 0);
                for (character, length) in utf16_characters(bytes, is_big_endian) {
                    if decoded >= text {
                        break;
                    }
                    (at, decoded) = (at + length, decoded + character.len_utf8());
                }
                (decoded == text).then_some(at)
            }
            Form::Legacy(encoding) => {
                legacy_position(encoding.new_decoder_without_bom_handling(), bytes, text)
            }
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            Form::Utf8 => "UTF-8",
            Form::Utf16 { is_big_endian: true } => "UTF-16BE",
            Form::Utf16 { is_big_endian: false } => "UTF-16LE",
            Form::Legacy(encoding) => encoding.name(),
        })?;
        f.write_str(if self.has_bom { " with a byte order mark" } else { "" })
    }
}

/// A file's content: the text that is looked at, and the bytes that a change keeps.
pub struct TextFile {
    encoding: Encoding,
    bytes: Vec<u8>,
    decoded: Option<String>,
}

impl TextFile {
    /// The file with this content, in the encoding that [`Encoding::of`] finds.
    pub fn new(bytes: Vec<u8>, declared: Option<Encoding>) -> Self {
        let encoding = Encoding::of(&bytes, declared);
        let decoded = (encoding.form != Form::Utf8).then(|| encoding.decode(&bytes).into_owned());
        Self { encoding, bytes, decoded }
    }

    /// Its encoding.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, without it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Its text in UTF-8. Of a UTF-8 file it has the bytes that cannot be decoded too; of others they are U+FFFD.
    pub fn text(&self) -> &[u8] {
        match &self.decoded {
            Some(text) => text.as_bytes(),
            None => &self.bytes[self.encoding.mark().len()..],
        }
    }

    /// Tells a file that holds NULs in its text, which is binary.
    pub fn is_binary(&self) -> bool {
        self.text().contains(&0)
    }

    /// Its bytes with `new` in place of a range of the text.
    ///
    /// # Errors
    /// Characters that the encoding does not have, or a place that is not known in the bytes.
    pub fn replaced(&self, range: Range<usize>, new: &str) -> Result<Vec<u8>, Refusal> {
        let (mark, body) = self.bytes.split_at(self.encoding.mark().len());
        let place = || Refusal::Place(self.encoding);
        let start = self.encoding.position(body, range.start).ok_or_else(place)?;
        let end = self.encoding.position(body, range.end).ok_or_else(place)?;
        let new_bytes = self.encoding.encode(new)?;
        let made = [mark, &body[..start], &new_bytes, &body[end..]].concat();
        // An encoding with states may read on otherwise.
        if let Some(text) = &self.decoded {
            let expected = [&text[..range.start], new, &text[range.end..]].concat();
            if self.encoding.decode(&made) != expected {
                return Err(place());
            }
        }
        Ok(made)
    }
}

fn unit(pair: &[u8], is_big_endian: bool) -> u16 {
    let pair = [pair[0], pair[1]];
    if is_big_endian { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
}

/// The characters of UTF-16, each with its length in bytes. A half of a pair and an odd byte at the end are U+FFFD.
fn utf16_characters(bytes: &[u8], is_big_endian: bool) -> impl Iterator<Item = (char, usize)> {
    let units = bytes.chunks_exact(2).map(move |pair| unit(pair, is_big_endian));
    let characters = char::decode_utf16(units).map(|character| match character {
        Ok(character) => (character, 2 * character.len_utf16()),
        Err(_) => (char::REPLACEMENT_CHARACTER, 2),
    });
    characters.chain((!bytes.len().is_multiple_of(2)).then_some((char::REPLACEMENT_CHARACTER, 1)))
}

/// Returns whether bytes with NULs are UTF-16 without a byte order mark, and which: text of which at least a third is ASCII.
fn utf16_without_mark(bytes: &[u8]) -> Option<bool> {
    let zeros = |first: usize| bytes.iter().skip(first).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    let is_big_endian = even > odd;
    let is_likely = bytes.len().is_multiple_of(2) && even.min(odd) == 0 && even.max(odd) * 6 >= bytes.len();
    let encoding = Encoding { form: Form::Utf16 { is_big_endian }, has_bom: false };
    (is_likely && encoding.decodes(bytes) && is_text(&encoding.decode(bytes))).then_some(is_big_endian)
}

/// Returns whether text has no characters that only a wrong encoding brings.
fn is_text(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b'))
        && !text.contains(char::REPLACEMENT_CHARACTER)
}

/// Returns whether invalid UTF-8 is damaged UTF-8 rather than something else: most of what is not ASCII is valid.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    valid > invalid
}

/// The encoding that the frequency of characters speaks for.
fn guess(bytes: &[u8]) -> Option<Encoding> {
    let first = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or_default();
    let from = first.saturating_sub(MAX_GUESSED / 8);
    let sample = &bytes[from..bytes.len().min(from + MAX_GUESSED)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, true);
    let encoding = detector.guess(None, Utf8Detection::Deny);
    let (text, has_errors) = encoding.decode_without_bom_handling(bytes);
    let found = Encoding { form: Form::Legacy(encoding), has_bom: false };
    (!has_errors && is_text(&text)).then_some(found)
}

fn encoded(encoding: &'static encoding_rs::Encoding, text: &str) -> Option<Vec<u8>> {
    let mut encoder = encoding.new_encoder();
    let most = encoder.max_buffer_length_from_utf8_without_replacement(text.len())?;
    let mut bytes = Vec::with_capacity(most);
    match encoder.encode_from_utf8_to_vec_without_replacement(text, &mut bytes, true) {
        (EncoderResult::InputEmpty, _) => Some(bytes),
        _ => None,
    }
}

/// The first characters of `text` that the encoding does not have, or has in the place of another one.
fn missing_in(encoding: &'static encoding_rs::Encoding, text: &str) -> Vec<char> {
    let mut missing = Vec::new();
    for character in text.chars().filter(|c| !c.is_ascii()) {
        let mut buffer = [0; 4];
        let one: &str = character.encode_utf8(&mut buffer);
        let has =
            encoded(encoding, one).is_some_and(|bytes| encoding.decode_without_bom_handling(&bytes).0 == one);
        if !has && !missing.contains(&character) {
            missing.push(character);
        }
        if missing.len() == MAX_NAMED {
            break;
        }
    }
    missing
}

/// Returns the number of bytes that are decoded to the first `text` bytes of UTF-8: a byte at a time, because a decoder
/// does not say.
fn legacy_position(mut decoder: Decoder, bytes: &[u8], text: usize) -> Option<usize> {
    let (mut decoded, mut buffer) = (0, [0; 32]);
    for (at, byte) in bytes.iter().enumerate() {
        if decoded == text {
            return Some(at);
        }
        let (mut read, mut written) = (0, 0);
        loop {
            let rest = &[*byte][read..];
            let (result, taken, made) =
                decoder.decode_to_utf8_without_replacement(rest, &mut buffer[written..], false);
            (read, written) = (read + taken, written + made);
            match result {
                DecoderResult::Malformed(..) => written += '\u{fffd}'.len_utf8(),
                DecoderResult::InputEmpty | DecoderResult::OutputFull => break,
            }
        }
        decoded += written;
        // The byte that shows that those before it are malformed is a character of its own.
        if decoded > text {
            return (byte.is_ascii() && decoded - text == 1).then_some(at);
        }
    }
    // What ends within a character is one that cannot be decoded.
    (decoded == text || text == decoded + '\u{fffd}'.len_utf8()).then_some(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_legacy(label: &str, text: &str) -> Vec<u8> {
        Encoding::named(label).unwrap().encode(text).unwrap()
    }

    #[test]
    fn an_encoding_is_found_by_the_content() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        for (bytes, name) in [
            (b"plain\n".to_vec(), "UTF-8"),
            ("größer".as_bytes().to_vec(), "UTF-8"),
            ("größer und größer und grö".as_bytes().iter().copied().chain([0xff]).collect(), "UTF-8"),
            (in_legacy("shift_jis", "// 設定ファイル\nconst int x = 1;\n"), "Shift_JIS"),
            (in_legacy("gbk", "// 这是一个配置文件，请不要修改\nint x = 1;\n"), "GBK"),
            (in_legacy("euc-kr", "// 설정 파일입니다\nint x = 1;\n"), "EUC-KR"),
            (in_legacy("latin1", "// Größe des Fensters\nint x = 1;\n"), "windows-1252"),
            (in_legacy("windows-1251", "// Настройки программы\nint x = 1;\n"), "windows-1251"),
            (in_legacy("iso-2022-jp", "設定\nx\n"), "ISO-2022-JP"),
            ("\u{feff}a\n".as_bytes().to_vec(), "UTF-8 with a byte order mark"),
            (utf16("\u{feff}a\n"), "UTF-16LE with a byte order mark"),
            (utf16("int x = 1;\n"), "UTF-16LE"),
            (b"\x7fELF\0\0\x01\xff".to_vec(), "UTF-8"),
        ] {
            assert_eq!(Encoding::of(&bytes, None).to_string(), name, "{bytes:?}");
        }
        let latin = Encoding::named("latin1");
        assert_eq!(
            Encoding::of(b"x", latin).to_string(),
            "windows-1252",
            "what is only ASCII is as declared"
        );
        assert_eq!(
            Encoding::of("ö".as_bytes(), latin),
            Encoding::UTF_8,
            "the content outranks a declaration"
        );
        assert_eq!(Encoding::named("utf-16le-bom").unwrap().mark(), b"\xff\xfe");
        assert_eq!(Encoding::named("utf-9"), None);
    }

    #[test]
    fn a_replacement_keeps_every_other_byte() {
        let declared = Encoding::named("shift_jis");
        // A duplicate of NEC's that would be encoded otherwise, and a byte that is none.
        let bytes =
            [b"\x87\x90 ", in_legacy("shift_jis", "設定 x = 1;").as_slice(), b"\xfd\xfe end\n"].concat();
        let file = TextFile::new(bytes.clone(), declared);
        let text = std::str::from_utf8(file.text()).unwrap();
        let at = text.find("x = 1").unwrap();
        let made = file.replaced(at..at + 5, "表 = 2").unwrap();
        let inner = in_legacy("shift_jis", "設定 表 = 2;");
        assert_eq!(made, [b"\x87\x90 ", inner.as_slice(), b"\xfd\xfe end\n"].concat());
        let refusal = file.replaced(at..at + 1, "😀\u{a5}").unwrap_err();
        assert_eq!(refusal.to_string(), "the file is Shift_JIS, which has no 😀 (U+1F600), ¥ (U+00A5)");
        for (bytes, old, new) in [
            ("\u{feff}a\r\nbö\r\n".as_bytes().to_vec(), "bö", "c"),
            (
                [
                    b"\xfe\xff".as_slice(),
                    &"a😀b".encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>(),
                ]
                .concat(),
                "b",
                "ü",
            ),
        ] {
            let file = TextFile::new(bytes, None);
            let text = String::from_utf8(file.text().to_vec()).unwrap();
            let at = text.find(old).unwrap();
            let made = TextFile::new(file.replaced(at..at + old.len(), new).unwrap(), None);
            assert_eq!(made.encoding(), file.encoding());
            assert_eq!(String::from_utf8_lossy(made.text()), text.replace(old, new));
        }
    }

    proptest::proptest! {
        #[test]
        fn decoding_never_fails_and_places_are_found(bytes in proptest::collection::vec(0u8.., 0..60), label in 0usize..5) {
            let labels = ["shift_jis", "gbk", "euc-kr", "big5", "utf-16le"];
            let encoding = Encoding::named(labels[label]).unwrap();
            let text = encoding.decode(&bytes).into_owned();
            for (at, _) in text.char_indices() {
                if let Some(place) = encoding.position(&bytes, at) {
                    proptest::prop_assert!(place <= bytes.len());
                }
            }
            proptest::prop_assert_eq!(encoding.position(&bytes, text.len()), Some(bytes.len()));
            proptest::prop_assert_eq!(encoding.lines(&bytes).concat(), bytes);
        }
    }
}
