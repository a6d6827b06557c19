//! The kernel of a virtual machine: its version, and its uncompressed form, which boots sooner (Linux's boot protocol,
//! `Documentation/arch/x86/boot.rst`).

use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of the header that are looked at.
const HEADER: usize = 0x1000;
/// The most that a kernel may take, packed or not.
const MAX_KERNEL: u64 = 256 << 20;
/// The most characters of a version.
const MAX_VERSION: usize = 100;
/// The first bytes of LZ4's legacy frames, and the size of the blocks in them.
const LZ4_LEGACY: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];
const LZ4_BLOCK: usize = 8 << 20;

/// The version that a kernel says it is.
///
/// # Errors
/// It cannot be read, or is not a kernel for x86.
pub fn version(kernel: &Path) -> Result<String> {
    let header = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // The version may lie anywhere in the part for the real mode, 32 KiB at most.
        File::open(kernel)?.take(0x9000).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = header().map_err(|error| {
        Error::config(format!("the kernel {} cannot be read", kernel.display())).caused_by(error)
    })?;
    version_of(&bytes).ok_or_else(|| {
        Error::config(format!("{} is not a kernel that QEMU boots", kernel.display()))
            .hint("a vmlinuz (bzImage) for x86 is")
    })
}

fn version_of(bytes: &[u8]) -> Option<String> {
    if bytes.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = usize::from(u16::from_le_bytes(bytes.get(0x20e..0x210)?.try_into().ok()?));
    let text = bytes.get(offset + 0x200..)?;
    let end = text.iter().position(|byte| *byte == b' ' || *byte == 0)?;
    let version = std::str::from_utf8(&text[..end]).ok()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-+~".contains(c);
    let is_name = !version.is_empty() && !version.starts_with('.') && version.chars().all(fits);
    (is_name && version.len() <= MAX_VERSION).then(|| version.to_owned())
}

/// A copy of the kernel in `cache` that QEMU can read: uncompressed where that is known how.
///
/// # Errors
/// It cannot be read or written.
pub fn ready(kernel: &Path, cache: &Path) -> Result<PathBuf> {
    let failed = |error: io::Error| {
        Error::sandbox(format!("the kernel {} cannot be made ready", kernel.display())).caused_by(error)
    };
    let metadata = fs::metadata(kernel).map_err(failed)?;
    let id = Hash::of(format!("{kernel:?} {} {}", metadata.size(), metadata.mtime_nsec() + metadata.mtime()))
        .short(8);
    let target = cache.join(format!("kernel-{id}"));
    if target.is_file() {
        return Ok(target);
    }
    let mut bytes = Vec::new();
    File::open(kernel).and_then(|file| file.take(MAX_KERNEL).read_to_end(&mut bytes)).map_err(failed)?;
    let unpacked = payload(&bytes).and_then(unpack).unwrap_or(bytes);
    super::images::write_whole(&target, &unpacked).map_err(failed)?;
    Ok(target)
}

/// The compressed kernel within a bzImage, without the size that follows it.
fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    if bytes.len() < HEADER {
        return None;
    }
    let sectors = match bytes[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + word(0x248)?;
    bytes.get(start..start.checked_add(word(0x24c)?)?)?.split_last_chunk::<4>().map(|(payload, _)| payload)
}

fn unpack(payload: &[u8]) -> Option<Vec<u8>> {
    let mut rest = payload.strip_prefix(&LZ4_LEGACY)?;
    let mut unpacked = Vec::new();
    let mut block = vec![0; LZ4_BLOCK];
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let packed = after.get(..u32::from_le_bytes(*length) as usize)?;
        let length = lz4_flex::block::decompress_into(packed, &mut block).ok()?;
        unpacked.extend_from_slice(&block[..length]);
        if unpacked.len() as u64 > MAX_KERNEL {
            return None;
        }
        rest = &after[packed.len()..];
    }
    unpacked.starts_with(b"\x7fELF").then_some(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(version: &str, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 0x2000];
        bytes[0x1f1] = 7;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x0200_u16.to_le_bytes());
        bytes[0x400..0x400 + version.len()].copy_from_slice(version.as_bytes());
        bytes[0x248..0x24c].copy_from_slice(&0x1000_u32.to_le_bytes());
        bytes[0x24c..0x250].copy_from_slice(&(payload.len() as u32 + 4).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        bytes
    }

    #[test]
    fn the_version_is_a_name_and_no_path() {
        assert_eq!(
            version_of(&image("6.1.0-1-cloud-amd64 (a@b)", b"")),
            Some("6.1.0-1-cloud-amd64".to_owned())
        );
        assert_eq!(version_of(&image("../../etc", b"")), None);
        assert_eq!(version_of(b"#!/bin/sh"), None);
    }

    #[test]
    fn a_kernel_is_unpacked_and_what_is_damaged_is_not() {
        let kernel = [b"\x7fELF".as_slice(), &[9; 50_000]].concat();
        let packed = lz4_flex::block::compress(&kernel);
        let block = [(packed.len() as u32).to_le_bytes().as_slice(), &packed].concat();
        let whole = image("6", &[LZ4_LEGACY.as_slice(), &block].concat());
        assert_eq!(payload(&whole).and_then(unpack), Some(kernel));
        let other = image("6", b"\xfd7zXZ\0");
        assert_eq!(payload(&other).and_then(unpack), None);
        let damaged = image("6", &[LZ4_LEGACY.as_slice(), &u32::MAX.to_le_bytes(), b"x"].concat());
        assert_eq!(payload(&damaged).and_then(unpack), None);
    }
}
