//! The format of git's configuration: its reader is `git_parse_source` in git's config.c. A comment ends with its line, whatever is at its
//! end; `\\` is a backslash, also at the end of a line; quotes begin and end anywhere in a value.

use std::borrow::Cow;
use std::iter::Peekable;
use std::slice::Iter;

/// `[section "subsection"]` with its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// In small letters, as are the names of settings.
    pub(super) name: Vec<u8>,
    pub(super) subsection: Option<Vec<u8>>,
    pub(super) settings: Vec<Setting>,
}

/// `name = value`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: Vec<u8>,
    /// `None` where there is a name alone, which is "true".
    pub(super) value: Option<Vec<u8>>,
}

/// A configuration as git reads it.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Those that have settings.
    pub(super) sections: Vec<Section>,
    pub(super) has_comments: bool,
    /// Set if git reads no further than to the last of the settings.
    pub(super) is_invalid: bool,
}

impl Config {
    pub(super) fn read(config: &[u8]) -> Self {
        let mut read = Self::default();
        let config = config.strip_prefix(b"\xef\xbb\xbf").unwrap_or(config);
        let mut reader = ConfigReader { bytes: config.iter().peekable(), has_comments: false };
        read.is_invalid = reader.read(&mut read.sections).is_none();
        read.sections.retain(|section| !section.settings.is_empty());
        read.has_comments = reader.has_comments;
        read
    }
}

pub(super) struct ConfigReader<'a> {
    bytes: Peekable<Iter<'a, u8>>,
    has_comments: bool,
}

/// The names of git's functions are in the comments; `None` is its "bad config line".
impl ConfigReader<'_> {
    /// `get_next_char`: a line feed for each end of a line; `None` at the end.
    fn next(&mut self) -> Option<u8> {
        match *self.bytes.next()? {
            b'\r' => Some(self.bytes.next_if(|next| **next == b'\n').copied().unwrap_or(b'\r')),
            byte => Some(byte),
        }
    }

    /// `git_parse_source`
    fn read(&mut self, sections: &mut Vec<Section>) -> Option<()> {
        sections.push(Section::default());
        while let Some(byte) = self.next() {
            match byte {
                _ if is_space(byte) => {}
                b'#' | b';' => self.skip_comment(),
                b'[' => {
                    let (name, subsection) = self.header()?;
                    sections.push(Section { name, subsection, settings: Vec::new() });
                }
                _ if byte.is_ascii_alphabetic() => {
                    let (name, value) = self.setting(byte)?;
                    sections.last_mut()?.settings.push(Setting { name, value });
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn skip_comment(&mut self) {
        self.has_comments = true;
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    /// `get_base_var`: the section, and the subsection where there is one, which begins at the first dot in the old way to write it.
    fn header(&mut self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut name = Vec::new();
        loop {
            match self.next()? {
                b']' => break,
                byte if is_space(byte) => return self.subsection(name, byte),
                byte if is_of_key(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
        Some(divided(&name, None))
    }

    /// `get_extended_base_var`
    fn subsection(&mut self, name: Vec<u8>, space: u8) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut byte = space;
        while is_space(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.next()?;
        }
        let mut subsection = Vec::new();
        if byte != b'"' {
            return None;
        }
        loop {
            match self.next()? {
                b'\n' => return None,
                b'"' => break,
                b'\\' => subsection.push(self.next().filter(|byte| *byte != b'\n')?),
                byte => subsection.push(byte),
            }
        }
        (self.next()? == b']').then(|| divided(&name, Some(&subsection)))
    }

    /// `get_value`
    fn setting(&mut self, first: u8) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut name = vec![first.to_ascii_lowercase()];
        let mut byte = self.next();
        while let Some(next) = byte.filter(|next| is_of_key(*next)) {
            name.push(next.to_ascii_lowercase());
            byte = self.next();
        }
        while let Some(b' ' | b'\t') = byte {
            byte = self.next();
        }
        match byte {
            None | Some(b'\n') => Some((name, None)),
            Some(b'=') => Some((name, Some(self.value()?))),
            Some(_) => None,
        }
    }

    /// `parse_value`
    fn value(&mut self) -> Option<Vec<u8>> {
        let (mut value, mut spaces, mut is_quoted) = (Vec::new(), Vec::new(), false);
        loop {
            let byte = match self.next() {
                None | Some(b'\n') => return (!is_quoted).then_some(value),
                Some(byte) => byte,
            };
            match byte {
                _ if is_space(byte) && !is_quoted => {
                    // What is before the value does not belong to it.
                    if !value.is_empty() {
                        spaces.push(byte);
                    }
                    continue;
                }
                b';' | b'#' if !is_quoted => {
                    self.skip_comment();
                    return Some(value);
                }
                _ => value.append(&mut spaces),
            }
            match byte {
                b'\\' => match self.next() {
                    None | Some(b'\n') => {}
                    Some(b't') => value.push(b'\t'),
                    Some(b'b') => value.push(8),
                    Some(b'n') => value.push(b'\n'),
                    Some(escaped @ (b'\\' | b'"')) => value.push(escaped),
                    Some(_) => return None,
                },
                b'"' => is_quoted = !is_quoted,
                _ => value.push(byte),
            }
        }
    }
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// A section and its subsection: what is behind the first dot, to git, however it is written.
fn divided(name: &[u8], subsection: Option<&[u8]>) -> (Vec<u8>, Option<Vec<u8>>) {
    let whole = match subsection {
        Some(subsection) => Cow::Owned([name, b".", subsection].concat()),
        None => Cow::Borrowed(name),
    };
    let mut parts = whole.splitn(2, |byte| *byte == b'.');
    (parts.next().unwrap_or_default().to_owned(), parts.next().map(<[u8]>::to_owned))
}

/// A configuration with these settings, as git writes them.
pub(super) fn written(sections: &[Section]) -> Vec<u8> {
    let mut text = Vec::new();
    for Section { name, subsection, settings } in sections {
        text.push(b'[');
        text.extend_from_slice(name);
        if let Some(subsection) = subsection {
            text.extend_from_slice(b" \"");
            text.extend(subsection.iter().flat_map(|byte| match byte {
                b'"' | b'\\' => vec![b'\\', *byte],
                _ => vec![*byte],
            }));
            text.push(b'"');
        }
        text.extend_from_slice(b"]\n");
        for Setting { name, value } in settings {
            text.push(b'\t');
            text.extend_from_slice(name);
            if let Some(value) = value {
                text.extend_from_slice(b" = ");
                write_value(value, &mut text);
            }
            text.push(b'\n');
        }
    }
    text
}

fn write_value(value: &[u8], text: &mut Vec<u8>) {
    let is_quoted = value.iter().any(|byte| matches!(byte, b';' | b'#' | b'\r'))
        || value.first().into_iter().chain(value.last()).any(|byte| is_space(*byte));
    let quote: &[u8] = if is_quoted { b"\"" } else { b"" };
    text.extend_from_slice(quote);
    for byte in value {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            8 => text.extend_from_slice(b"\\b"),
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            _ => text.push(*byte),
        }
    }
    text.extend_from_slice(quote);
}
