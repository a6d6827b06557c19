//! Zip archives: reading what a visitor uploads, within bounds, and writing what they take away.

use agent_base::error::{Error, Result};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::Read;

const END: &[u8] = b"PK\x05\x06";
const CENTRAL: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// The end record may be followed by a comment.
const MAX_COMMENT: usize = 1 << 16;
/// Names in it are UTF-8.
const UTF8_NAMES: u16 = 1 << 11;
/// 1 January 1980: nobody needs the time.
const DATE: u16 = 0x21;
const FILE_TYPE: u32 = 0o170_000;
const PLAIN_FILE: u32 = 0o100_000;

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveEntry<'a> {
    /// Its path as it stands there.
    pub name: &'a [u8],
    /// Set if it is a file; directories end in a slash and are not listed.
    pub is_file: bool,
    /// Set if its owner may execute it.
    pub is_executable: bool,
    method: u16,
    crc: u32,
    packed: &'a [u8],
}

fn damaged() -> Error {
    Error::usage("the zip archive cannot be read")
        .hint("make it again, without encryption and smaller than 4 GiB")
}

/// A part of the archive.
fn part(bytes: &[u8], at: usize, length: usize) -> Result<&[u8]> {
    at.checked_add(length).and_then(|end| bytes.get(at..end)).ok_or_else(damaged)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<usize> {
    let bytes: [u8; 2] = part(bytes, at, 2)?.try_into().map_err(|_| damaged())?;
    Ok(u16::from_le_bytes(bytes).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let bytes: [u8; 4] = part(bytes, at, 4)?.try_into().map_err(|_| damaged())?;
    Ok(u32::from_le_bytes(bytes))
}

/// The entries of `archive` but its directories: at most `max`.
///
/// # Errors
/// It is damaged, or has more.
pub fn entries(archive: &[u8], max: usize) -> Result<Vec<ArchiveEntry<'_>>> {
    let from = archive.len().saturating_sub(MAX_COMMENT + 22);
    let end = archive[from..].windows(END.len()).rposition(|bytes| bytes == END).ok_or_else(damaged)? + from;
    let count = u16_at(archive, end + 10)?;
    let mut at = u32_at(archive, end + 16)? as usize;
    if count > max {
        return Err(Error::usage(format!("the archive has more than {max} entries")));
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let header = part(archive, at, 46)?;
        let (name, extra, comment) = (u16_at(header, 28)?, u16_at(header, 30)?, u16_at(header, 32)?);
        let is_encrypted = u16_at(header, 8)? & 1 == 1;
        if !header.starts_with(CENTRAL) || is_encrypted {
            return Err(damaged());
        }
        let packed = u32_at(header, 20)? as usize;
        let local = u32_at(header, 42)? as usize;
        let (name, next) = (part(archive, at + 46, name)?, at + 46 + name + extra + comment);
        let mode = u32_at(header, 38)? >> 16;
        let file_type = mode & FILE_TYPE;
        if !part(archive, local, 30)?.starts_with(LOCAL) {
            return Err(damaged());
        }
        let content = local + 30 + u16_at(archive, local + 26)? + u16_at(archive, local + 28)?;
        if !name.ends_with(b"/") {
            entries.push(ArchiveEntry {
                name,
                is_file: file_type == 0 || file_type == PLAIN_FILE,
                is_executable: mode & 0o100 != 0,
                method: u16_at(header, 10)? as u16,
                crc: u32_at(header, 16)?,
                packed: part(archive, content, packed)?,
            });
        }
        at = next;
    }
    Ok(entries)
}

impl ArchiveEntry<'_> {
    /// Its content, at most `max` bytes.
    ///
    /// # Errors
    /// It is damaged, or has more.
    pub fn content(&self, max: u64) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let limit = max.saturating_add(1);
        match self.method {
            0 => self.packed.take(limit).read_to_end(&mut content),
            8 => DeflateDecoder::new(self.packed).take(limit).read_to_end(&mut content),
            _ => return Err(damaged()),
        }
        .map_err(|_| damaged())?;
        if content.len() as u64 > max {
            return Err(Error::usage(format!("the archive holds more than {} MiB", max >> 20)));
        }
        let mut crc = Crc::new();
        crc.update(&content);
        if crc.sum() == self.crc { Ok(content) } else { Err(damaged()) }
    }
}

/// An archive that is being written; its contents are stored as they are.
#[derive(Default)]
pub struct ArchiveWriter {
    bytes: Vec<u8>,
    central: Vec<u8>,
    count: u16,
}

impl ArchiveWriter {
    /// Adds a file.
    ///
    /// # Errors
    /// There are too many, or they are too large for the format.
    pub fn add(&mut self, name: &[u8], mode: u32, content: &[u8]) -> Result<()> {
        let too_large =
            || Error::usage("the files are too many for a zip archive").hint("download the patch");
        let (offset, size) = (u32::try_from(self.bytes.len()), u32::try_from(content.len()));
        let (Ok(offset), Ok(size), Ok(length)) = (offset, size, u16::try_from(name.len())) else {
            return Err(too_large());
        };
        self.count = self.count.checked_add(1).ok_or_else(too_large)?;
        let mut crc = Crc::new();
        crc.update(content);
        let mut common = Vec::new();
        for field in [20, UTF8_NAMES, 0, 0, DATE] {
            common.extend(field.to_le_bytes());
        }
        for field in [crc.sum(), size, size] {
            common.extend(field.to_le_bytes());
        }
        common.extend(length.to_le_bytes());
        common.extend([0, 0]);
        for part in [LOCAL, &common, name, content] {
            self.bytes.extend_from_slice(part);
        }
        // Made by Unix, so that the mode counts.
        self.central.extend([CENTRAL, &[20, 3], &common, &[0; 6]].concat());
        self.central.extend(((PLAIN_FILE | (mode & 0o777)) << 16).to_le_bytes());
        self.central.extend(offset.to_le_bytes());
        self.central.extend(name);
        Ok(())
    }

    /// The archive.
    ///
    /// # Errors
    /// It is too large for the format.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        let too_large =
            |_| Error::usage("the files are too large for a zip archive").hint("download the patch");
        let start = u32::try_from(self.bytes.len()).map_err(too_large)?;
        let size = u32::try_from(self.central.len()).map_err(too_large)?;
        self.bytes.append(&mut self.central);
        self.bytes.extend([END, &[0; 4]].concat());
        self.bytes.extend([self.count.to_le_bytes(), self.count.to_le_bytes()].concat());
        self.bytes.extend([size.to_le_bytes(), start.to_le_bytes()].concat());
        self.bytes.extend([0, 0]);
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn archive() -> Vec<u8> {
        let mut writer = ArchiveWriter::default();
        writer.add(b"a.txt", 0o644, b"one").expect("room");
        writer.add(b"b/c.sh", 0o755, &b"two ".repeat(100)).expect("room");
        writer.finish().expect("an archive")
    }

    #[test]
    fn what_is_written_is_read_again() {
        let archive = archive();
        let entries = entries(&archive, 10).expect("readable");
        let read: Vec<_> =
            entries.iter().map(|entry| (entry.name, entry.content(1000).expect("its content"))).collect();
        assert_eq!(read, [(&b"a.txt"[..], b"one".to_vec()), (&b"b/c.sh"[..], b"two ".repeat(100))]);
        assert!(entries.iter().all(|entry| entry.is_file));
        assert!(entries[1].content(399).is_err() && super::entries(&archive, 1).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at in 0usize..300, byte: u8) {
            let mut changed = archive();
            let at = at % changed.len();
            changed[at] = byte;
            for archive in [bytes, changed] {
                for entry in entries(&archive, 10).unwrap_or_default() {
                    let _ = entry.content(1000);
                }
            }
        }
    }
}
