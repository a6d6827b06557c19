//! A file's new content in the form of the one that it replaces: its encoding, byte order mark, line ends and final line end.
//!
//! Lines that stay keep their bytes, whatever those are.

use agent_base::text_encoding::{Encoding, TextFile};
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// After this long the lines that stay are no longer looked for.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(1);

/// The text that is written.
pub struct Replacement {
    pub bytes: Vec<u8>,
    /// The difference from the text that was asked for, in words that stand behind a comma.
    pub note: String,
}

/// A line of either side, without its end.
struct Line<'a> {
    text: Cow<'a, str>,
    /// Its bytes in the file, of a line that is there.
    bytes: &'a [u8],
    end: &'static str,
}

/// `data` as the new content of `former`, which is empty where there is no file yet.
///
/// # Errors
/// Why it is not written, to stand after a colon.
pub fn replace(former: &TextFile, data: &str) -> Result<Replacement, String> {
    let encoding = former.encoding();
    let data = if encoding.mark().is_empty() { data } else { data.strip_prefix('\u{feff}').unwrap_or(data) };
    if former.is_binary() {
        return Ok(Replacement { bytes: data.as_bytes().to_vec(), note: String::new() });
    }
    let mut notes = Vec::new();
    if !encoding.is_plain() {
        notes.push(format!("in {encoding}"));
    }
    let data = with_final_end(former, data, &mut notes);
    let has_crlf = memchr::memmem::find(former.text(), b"\r\n").is_some();
    let takes_ends = has_crlf && !data.contains("\r\n") && data.contains('\n');
    let bytes = if encoding.is_plain() && !takes_ends && encoding.decodes(former.bytes()) {
        data.into_owned().into_bytes()
    } else {
        if takes_ends {
            notes.push("with its CRLF line ends".to_owned());
        }
        by_line(former, &data, has_crlf, takes_ends)?
    };
    let note = notes.iter().map(|note| format!(", {note}")).collect();
    Ok(Replacement { bytes, note })
}

/// `data` with a line end at its end where the file has one, and without where it has lines and none. Where that is all that
/// would change, it is what is asked for.
fn with_final_end<'d>(former: &TextFile, data: &'d str, notes: &mut Vec<String>) -> Cow<'d, str> {
    let text = former.text();
    let is_asked_for = || text.trim_ascii_end() == data.as_bytes().trim_ascii_end();
    match (text.ends_with(b"\n"), data.ends_with('\n')) {
        (true, false) if !data.is_empty() && !is_asked_for() => {
            notes.push("with its line end at the end".to_owned());
            Cow::Owned(format!("{data}\n"))
        }
        (false, true) if text.contains(&b'\n') && !is_asked_for() => {
            notes.push("without a line end at the end".to_owned());
            let data = data.strip_suffix('\n').unwrap_or(data);
            Cow::Borrowed(data.strip_suffix('\r').unwrap_or(data))
        }
        _ => Cow::Borrowed(data),
    }
}

fn by_line(former: &TextFile, data: &str, has_crlf: bool, takes_ends: bool) -> Result<Vec<u8>, String> {
    let encoding = former.encoding();
    let old = encoding.lines(former.bytes());
    let old: Vec<Line> = old.into_iter().map(|bytes| Line::there(encoding, bytes, has_crlf)).collect();
    let new: Vec<Line> = data.split_inclusive('\n').map(|text| Line::asked_for(text, has_crlf)).collect();
    let (old_texts, new_texts): (Vec<&str>, Vec<&str>) =
        (old.iter().map(|line| &*line.text).collect(), new.iter().map(|line| &*line.text).collect());
    let crlf = old.iter().filter(|line| line.end == "\r\n").count();
    let usual = if 2 * crlf >= old.len().saturating_sub(1) { "\r\n" } else { "\n" };
    let encode = |text: &str| encoding.encode(text).map_err(|refusal| refusal.to_string());
    let mut made = encoding.mark().to_vec();
    let deadline = Some(Instant::now() + COMPARE_TIMEOUT);
    for op in capture_diff_slices_deadline(Algorithm::Myers, &old_texts, &new_texts, deadline) {
        let (tag, old_range, new_range) = op.as_tag_tuple();
        let replaced = &old[old_range.clone()];
        for (at, line) in new[new_range].iter().enumerate() {
            let stays = (tag == DiffTag::Equal).then(|| &replaced[at]);
            match stays {
                Some(there) => made.extend_from_slice(there.bytes),
                None if line.text.contains('\u{fffd}') => {
                    refuse_loss(encoding, replaced, old_range.start)?;
                    made.extend(encode(&line.text)?);
                }
                None => made.extend(encode(&line.text)?),
            }
            let end = match (line.end, stays.map(|there| there.end)) {
                ("", _) => "",
                (_, Some(end @ ("\n" | "\r\n"))) if takes_ends => end,
                _ if takes_ends => usual,
                (end, _) => end,
            };
            made.extend(encode(end)?);
        }
    }
    Ok(made)
}

/// Refuses to put U+FFFD where the file has bytes that cannot be decoded: the text was read, and would lose them.
fn refuse_loss(encoding: Encoding, replaced: &[Line], first: usize) -> Result<(), String> {
    match replaced.iter().position(|line| !encoding.decodes(line.bytes)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "line {} has bytes that cannot be decoded as {encoding}, and would get U+FFFD in their place; change other lines with \
             edit_file, which keeps them",
            first + at + 1
        )),
    }
}

impl<'a> Line<'a> {
    fn there(encoding: Encoding, bytes: &'a [u8], has_crlf: bool) -> Self {
        let width = encoding.encode("\n").map_or(1, |end| end.len());
        let mut line = match encoding.decode_line(bytes) {
            Cow::Borrowed(text) => Self::asked_for(text, has_crlf),
            Cow::Owned(text) => {
                let Line { text: inner, end, .. } = Line::asked_for(&text, has_crlf);
                Self { text: Cow::Owned(inner.into_owned()), bytes, end }
            }
        };
        line.bytes = &bytes[..bytes.len() - line.end.len() * width];
        line
    }

    fn asked_for(text: &'a str, has_crlf: bool) -> Self {
        let (text, end) = match text.strip_suffix('\n') {
            None => (text, ""),
            Some(text) => match text.strip_suffix('\r').filter(|_| has_crlf) {
                Some(text) => (text, "\r\n"),
                None => (text, "\n"),
            },
        };
        Self { text: Cow::Borrowed(text), bytes: b"", end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(former: &[u8], data: &str) -> (Vec<u8>, String) {
        let made = replace(&TextFile::new(former.to_vec(), None), data).unwrap();
        (made.bytes, made.note)
    }

    #[test]
    fn a_whole_file_keeps_its_form() {
        let text = |bytes: &[u8], data| String::from_utf8(replaced(bytes, data).0).unwrap();
        assert_eq!(
            text("\u{feff}class P\r\n{\r\n}\r\n".as_bytes(), "class P\n{\n  int a;\n}"),
            "\u{feff}class P\r\n{\r\n  int a;\r\n}\r\n"
        );
        assert_eq!(
            text(b"a\r\nb\nc\r\n", "a\nx\nb\nc\n"),
            "a\r\nx\r\nb\nc\r\n",
            "each line keeps its own end"
        );
        assert_eq!(text(b"a\nb\n", "a\r\nc\r\n"), "a\r\nc\r\n", "what is asked for in so many words is made");
        assert_eq!(text(b"a\nb", "a\nc\n"), "a\nc");
        assert_eq!(text(b"a\nb", "a\nb\n"), "a\nb\n", "the line end alone is what is asked for");
        assert_eq!(text(b"a", "b\n"), "b\n", "one line has no style");
        assert_eq!(text(b"", "b"), "b");
        assert_eq!(replaced(b"a\r\n", "b\n").1, ", with its CRLF line ends");
    }

    #[test]
    fn bytes_that_cannot_be_decoded_are_kept_or_the_write_is_refused() {
        let former = "größe\nünd \u{1f600}\n"
            .as_bytes()
            .iter()
            .copied()
            .chain(*b"x \xff y\nlast\n")
            .collect::<Vec<u8>>();
        let (made, _) = replaced(&former, "größe\nünd \u{1f600}\nx \u{fffd} y\nnew\n");
        assert_eq!(made, [&former[..former.len() - 5], b"new\n"].concat());
        let why = replace(&TextFile::new(former, None), "x \u{fffd} z\n").err().unwrap();
        assert!(why.starts_with("line 3 has bytes that cannot be decoded as UTF-8"), "{why}");
    }

    #[test]
    fn a_legacy_encoding_is_kept_and_what_it_lacks_is_named() {
        let sjis = Encoding::named("shift_jis").unwrap();
        let former = sjis.encode("// 設定ファイル\nconst int x = 1;\n").unwrap();
        let (made, note) = replaced(&former, "// 設定ファイル\nconst int x = 2; // 変更\n");
        assert_eq!(made, sjis.encode("// 設定ファイル\nconst int x = 2; // 変更\n").unwrap());
        assert_eq!(note, ", in Shift_JIS");
        let why = replace(&TextFile::new(former, None), "// 😀\n").err().unwrap();
        assert_eq!(why, "the file is Shift_JIS, which has no 😀 (U+1F600)");
        let utf16 = Encoding::named("utf-16le-bom").unwrap();
        let bytes = |text: &str| [utf16.mark(), &utf16.encode(text).unwrap()].concat();
        assert_eq!(replaced(&bytes("a\r\nb\r\n"), "a\nc\n").0, bytes("a\r\nc\r\n"));
    }
}
