//! The names of what a sandbox has written over its workspace, so that nobody needs to look at all files to find it.
//!
//! The layer says only where something may differ from the directory underneath; what is there, the sandbox says. The sandbox may be
//! hostile and still be writing: every step goes from an open directory to a name in it that is not followed, and what is
//! listed is bounded.

use super::copy::{ELSEWHERE, OPAQUE, REDIRECT, open};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How deep directories may lie within each other: one is open for each.
const MAX_DEPTH: usize = 200;

/// Something that a sandbox has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Set if nothing of the directory underneath can be seen below it: a file, a deletion, a directory that was made anew.
    pub covers: bool,
}

/// Lists at most `most` entries of a layer, a directory before what is in it. Directories that `is_skipped` are named and not looked
/// into. `None` where the layer does not say all: it has more entries, or a directory stands for another one underneath.
///
/// # Errors
/// Part of it cannot be read.
pub fn written(
    upper: &Path,
    most: usize,
    is_skipped: &mut dyn FnMut(&Path) -> bool,
) -> io::Result<Option<Vec<Written>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::open(upper, flags, Mode::empty())?;
    let mut look = Look { most, is_skipped, found: Vec::new() };
    Ok(look.directory(&top, Path::new(""), MAX_DEPTH)?.then_some(look.found))
}

struct Look<'a> {
    most: usize,
    is_skipped: &'a mut dyn FnMut(&Path) -> bool,
    found: Vec<Written>,
}

impl Look<'_> {
    /// `false` where the layer does not say all.
    fn directory(&mut self, open_directory: &OwnedFd, path: &Path, depth: usize) -> io::Result<bool> {
        for entry in Dir::read_from(open_directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.found.len() >= self.most || depth == 0 {
                return Ok(false);
            }
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            let below = match entry.file_type() {
                FileType::Directory | FileType::Unknown => open_below(open_directory, name)?,
                _ => None,
            };
            let Some(below) = below else {
                self.found.push(Written { path, covers: true });
                continue;
            };
            if has(&below, &[REDIRECT])? || has(&below, &ELSEWHERE)? {
                return Ok(false);
            }
            self.found.push(Written { path: path.clone(), covers: has(&below, &OPAQUE)? });
            if !(self.is_skipped)(&path) && !self.directory(&below, &path, depth - 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Opens a directory; `None` where it has become something else, or nothing.
fn open_below(directory: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    match open(directory, name, OFlags::DIRECTORY) {
        Err(error)
            if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) =>
        {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Returns whether a directory has one of these attributes.
fn has(directory: &OwnedFd, attributes: &[&CStr]) -> io::Result<bool> {
    for attribute in attributes {
        match rustix::fs::fgetxattr(directory, *attribute, &mut [0_u8; 0]) {
            Ok(_) => return Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn names(upper: &Path, most: usize) -> Option<Vec<(String, bool)>> {
        let mut found = written(upper, most, &mut |path| path.ends_with("target")).unwrap()?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Some(found.into_iter().map(|found| (found.path.display().to_string(), found.covers)).collect())
    }

    #[test]
    fn a_layer_names_what_was_written_within_its_bound() {
        let upper = tempfile::tempdir().unwrap();
        fs::create_dir_all(upper.path().join("a/target/deep")).unwrap();
        fs::write(upper.path().join("a/file"), "1").unwrap();
        symlink("/etc", upper.path().join("link")).unwrap();
        let all = [("a", false), ("a/file", true), ("a/target", false), ("link", true)];
        let all = all.map(|(name, covers)| (name.to_owned(), covers)).to_vec();
        assert_eq!(names(upper.path(), 4), Some(all));
        assert_eq!(names(upper.path(), 3), None);
    }
}
