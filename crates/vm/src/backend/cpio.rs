//! Archives that the kernel unpacks as its initial file system: cpio in the format "newc" (initramfs buffer format,
//! `Documentation/driver-api/early-userspace/buffer-format.rst` of Linux).

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const SYMLINK: u32 = 0o120_777;
const FILE: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;

/// An archive that grows. Everything in it is root's.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<PathBuf>,
    last_inode: u32,
}

impl Archive {
    /// Adds a regular file, and the directories above it.
    pub fn file(&mut self, path: &Path, content: &[u8], is_executable: bool) {
        self.parents(path);
        self.entry(path, if is_executable { EXECUTABLE } else { FILE }, content);
    }

    /// Adds a symlink, and the directories above it.
    pub fn symlink(&mut self, path: &Path, target: &Path) {
        self.parents(path);
        self.entry(path, SYMLINK, target.as_os_str().as_bytes());
    }

    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &Path) {
        if path.parent().is_some() && self.directories.insert(path.to_owned()) {
            self.parents(path);
            self.entry(path, DIRECTORY, &[]);
        }
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        self.last_inode += 1;
        let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
        // Of each field eight digits: inode, mode, owner, group, links, time, size, two devices, the name's length, no checksum.
        let size = content.len() as u32;
        let links = 1;
        let fields = [self.last_inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file(Path::new("/a/b/one"), b"12345", true);
        archive.symlink(Path::new("/a/b/two"), Path::new("one"));
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).unwrap();
        assert!(
            at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/one\0") && at("a/b/one\0") < at("a/b/two\0")
        );
        assert_eq!(text.matches("070701").count(), 5);
        assert!(text.contains("000081ED") && text.ends_with("TRAILER!!!\0\0\0\0"), "{text}");
    }
}
