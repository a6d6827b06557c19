//! Where programs are: the directories of a `PATH`, kept open from one search to the next.
//!
//! A name is looked up in an open directory, without the way there: that way begins at the root, which in a container may
//! be kept by a program (fuse-overlayfs) that is asked at every step of it, 17 us each time.

use crate::sys;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// Directories that are kept open; in more than these only a shell searches.
const DIRECTORIES: usize = 64;

/// A `PATH` and its directories.
#[derive(Default)]
pub struct SearchPath {
    path: OsString,
    directories: Vec<SearchedDirectory>,
}

struct SearchedDirectory {
    path: PathBuf,
    open: Option<File>,
}

impl SearchPath {
    /// The program `name` on `path` (the guest's own where there is none). A name with a slash is not looked for.
    pub fn find(&mut self, name: &[u8], path: Option<&OsStr>) -> Option<PathBuf> {
        if name.is_empty() || name.contains(&b'/') {
            return None;
        }
        let own = std::env::var_os("PATH").unwrap_or_default();
        let path = path.unwrap_or(&own);
        if self.path != path {
            let directories = std::env::split_paths(path).take(DIRECTORIES);
            self.directories = directories.map(|path| SearchedDirectory { path, open: None }).collect();
            self.path = path.to_owned();
        }
        let program = CString::new(name).ok()?;
        let found = self.directories.iter_mut().position(|directory| directory.has(&program))?;
        Some(self.directories[found].path.join(OsStr::from_bytes(name)))
    }
}

impl SearchedDirectory {
    fn has(&mut self, program: &CString) -> bool {
        // One that was removed, and perhaps made again, is another one.
        if self.open.as_ref().is_some_and(|open| open.metadata().is_ok_and(|now| now.nlink() == 0)) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = File::options().read(true).custom_flags(sys::O_PATH).open(&self.path).ok();
        }
        let Some(open) = &self.open else { return false };
        let path = self.path.join(OsStr::from_bytes(program.as_bytes()));
        sys::executable_in(open.as_raw_fd(), program) && fs::metadata(path).is_ok_and(|file| file.is_file())
    }
}
