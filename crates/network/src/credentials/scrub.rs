//! Searching what comes back from a host for the real value, in the forms in which servers repeat it.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;

/// The characters that are not encoded in URLs: by RFC 3986, in forms, in JavaScript's components, and in paths.
const KEPT_IN_URLS: [&AsciiSet; 5] = [
    NON_ALPHANUMERIC,
    &UNRESERVED,
    &UNRESERVED.add(b'~').remove(b'*'),
    &COMPONENT,
    &COMPONENT.remove(b'/').remove(b':').remove(b'@').remove(b'=').remove(b'+').remove(b'$').remove(b'&'),
];
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const COMPONENT: AsciiSet = UNRESERVED.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');

/// A form of the value, and what takes its place: as long as it, so that no length changes.
#[derive(Clone)]
struct Needle {
    finder: memmem::Finder<'static>,
    replacement: Vec<u8>,
    /// It was added as it is.
    is_plain: bool,
}

/// The forms of values that are searched for.
#[derive(Clone, Default)]
pub(super) struct Needles(Vec<Needle>);

impl Needles {
    /// Adds a value as it is.
    pub fn add_plain(&mut self, value: &str, placeholder: &str) {
        let finder = memmem::Finder::new(value.as_bytes()).into_owned();
        let replacement = placeholder.bytes().cycle().take(value.len()).collect();
        self.0.push(Needle { finder, replacement, is_plain: true });
    }

    /// Removes a value that was added as it is.
    pub fn remove_plain(&mut self, value: &str) {
        self.0.retain(|needle| !needle.is_plain || needle.finder.needle() != value.as_bytes());
    }

    /// Adds the forms of a value: itself, in URLs, in hexadecimal digits, in JSON, and in base64 wherever it begins there.
    pub fn add(&mut self, value: &str, placeholder: &str) {
        let mut add = |form: Vec<u8>, replacement: &[u8]| {
            if self.0.iter().all(|known| known.finder.needle() != form) {
                let replacement = replacement.iter().copied().cycle().take(form.len()).collect();
                let finder = memmem::Finder::new(&form).into_owned();
                self.0.push(Needle { finder, replacement, is_plain: false });
            }
        };
        add(value.as_bytes().to_vec(), placeholder.as_bytes());
        for form in forms(value) {
            add(form.into_bytes(), placeholder.as_bytes());
        }
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            for before in 0..3 {
                add(
                    inner_base64(engine, value, before),
                    inner_base64(engine, placeholder, before).as_slice(),
                );
            }
        }
    }

    /// Replaces what is complete in `bytes`.
    pub fn replace(&self, bytes: &mut [u8]) {
        for needle in &self.0 {
            let mut from = 0;
            while let Some(found) = needle.finder.find(&bytes[from..]) {
                let at = from + found;
                bytes[at..at + needle.replacement.len()].copy_from_slice(&needle.replacement);
                from = at + needle.replacement.len();
            }
        }
    }

    /// Returns the number of bytes at the end of `bytes` that may be the beginning of something.
    fn begun(&self, bytes: &[u8]) -> usize {
        let longest = self.0.iter().map(|needle| needle.finder.needle().len()).max().unwrap_or(0);
        let from = bytes.len().saturating_sub(longest.saturating_sub(1));
        let is_begin = |at: &usize| {
            let rest = &bytes[*at..];
            self.0.iter().any(|needle| {
                let needle = needle.finder.needle();
                needle.first() == rest.first() && needle.starts_with(rest)
            })
        };
        (from..bytes.len()).find(is_begin).map_or(0, |at| bytes.len() - at)
    }
}

/// Returns the forms in which URLs, JSON and HTML write a value, as far as they differ from it.
fn forms(value: &str) -> Vec<String> {
    let wholly: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let in_urls = KEPT_IN_URLS.iter().map(|kept| utf8_percent_encode(value, kept).to_string());
    let mut all: Vec<String> = in_urls.chain([wholly]).collect();
    // Hexadecimal digits may be in lower case.
    all.extend(all.iter().map(|form| lower_digits(form)).collect::<Vec<_>>());
    let digits: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    all.extend([digits.to_uppercase(), digits]);
    let escaped = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    all.push(escaped.replace('"', "&quot;").replace('\'', "&#39;"));
    let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
    all.extend([quoted.replace('/', "\\/"), quoted]);
    all
}

/// The base64 of `value` after so many other bytes, without the characters that what is beside it decides.
fn inner_base64(engine: &base64::engine::GeneralPurpose, value: &str, before: usize) -> Vec<u8> {
    let encoded = engine.encode([&vec![0; before][..], value.as_bytes()].concat()).into_bytes();
    let from = [0, 2, 3][before];
    let whole = (before + value.len()) * 8 / 6;
    encoded[from..whole].to_vec()
}

fn lower_digits(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        text += &format!("%{}{rest}", digits.to_lowercase());
    }
    text
}

/// A stream that is searched. What cannot be the beginning of the value passes at once.
pub(super) struct Scrubber {
    needles: Arc<Needles>,
    held: Vec<u8>,
}

impl Scrubber {
    pub fn new(needles: Arc<Needles>) -> Self {
        Self { needles, held: Vec::new() }
    }

    /// Takes more bytes, and returns what can be passed on.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.needles.replace(&mut self.held);
        let kept = self.held.split_off(self.held.len() - self.needles.begun(&self.held));
        std::mem::replace(&mut self.held, kept)
    }

    /// The rest, at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALUE: &str = "s3_r3t/va+lue=";
    const PLACEHOLDER: &str = "ABCDEFGHIJKLMN";

    fn scrubber() -> Scrubber {
        let mut needles = Needles::default();
        needles.add(VALUE, PLACEHOLDER);
        Scrubber::new(Arc::new(needles))
    }

    #[test]
    fn every_form_is_found_and_no_length_changes() {
        let engine = base64::engine::general_purpose::STANDARD;
        let basic = |user: &str| engine.encode(format!("{user}:{VALUE}"));
        for text in [
            VALUE.to_owned(),
            "s3%5Fr3t%2Fva%2Blue%3D".to_owned(),
            "s3_r3t%2Fva%2Blue%3D".to_owned(),
            "s3_r3t\\/va+lue=".to_owned(),
            "s3_r3t/va+lue=".bytes().map(|byte| format!("{byte:02x}")).collect(),
            "s3_r3t%2fva%2blue%3d".to_owned(),
            engine.encode(VALUE),
            basic("a"),
            basic("ab"),
            basic("abc"),
        ] {
            let mut scrubber = scrubber();
            let whole = format!("before {text} after");
            let mut out = scrubber.push(whole.as_bytes());
            out.extend(scrubber.finish());
            assert_eq!(out.len(), whole.len());
            let out = String::from_utf8(out).unwrap();
            assert!(!out.contains(&text) && out.starts_with("before ") && out.ends_with(" after"), "{out}");
            let encoded = out.trim_start_matches("before ").trim_end_matches(" after");
            let decoded = engine.decode(encoded).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&decoded).contains("_r3t/va+l"), "{out}");
        }
    }

    #[test]
    fn what_is_not_its_beginning_is_not_held_back() {
        let mut scrubber = scrubber();
        assert_eq!(scrubber.push(b"data: hello\n\n"), b"data: hello\n\n");
        assert_eq!(scrubber.push(b"x s3_r3"), b"x ");
        assert_eq!(scrubber.push(b"!"), b"s3_r3!");
    }

    proptest! {
        #[test]
        fn it_is_found_however_the_stream_is_cut(cuts in proptest::collection::vec(1usize..9, 1..40)) {
            let text = format!("x{VALUE}s3{VALUE}{VALUE}s3_r3t/va+lue");
            let (mut scrubber, mut out, mut rest) = (scrubber(), Vec::new(), text.as_bytes());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                out.extend(scrubber.push(now));
                rest = later;
            }
            out.extend(scrubber.finish());
            let wanted = format!("x{PLACEHOLDER}s3{PLACEHOLDER}{PLACEHOLDER}s3_r3t/va+lue");
            prop_assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}
