//! Files of the sandbox that are written to the host without a review: downloads and artifacts.

use crate::error::{Error, Result};
use crate::visible::visible_name;
use crate::workspace::bare_repository::{self, repositories};
use crate::workspace::tree_path::TreePath;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Checks that what is written at `destination`, which is called `name`, would not be part of a repository, with what the host has there.
///
/// # Errors
/// It would; or the directory cannot be looked at.
pub fn check_destination(destination: &Path, name: &TreePath) -> Result<()> {
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize().map_err(|error| {
        Error::usage(format!("{} could not be written", visible_name(destination.as_os_str().as_bytes())))
            .caused_by(error)
    })?;
    let place = parent.join(name.as_path());
    let refused = |why: &str| {
        Error::usage(format!("{} {why}", visible_name(destination.as_os_str().as_bytes())))
            .hint("name another place for it")
    };
    let path = TreePath::new(place.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or_default())
        .map_err(|why| refused(&format!("cannot be written: {why}")))?;
    if path.is_git_internal() {
        return Err(refused("would be a file of git's own, whose settings run programs"));
    }
    // What cannot be looked at may be there.
    let is_there = |path: &TreePath| {
        let found = Path::new("/").join(path.as_path()).symlink_metadata();
        !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    match repositories([&path], is_there).is_empty() {
        true => Ok(()),
        false => Err(refused(&format!("is not written: {}", bare_repository::REASON))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A file beside what the host has made a repository, and one below `.git` was written.
    #[test]
    fn no_download_makes_a_repository_or_changes_one() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in
            ["r/objects", "r/refs", "bare/objects", "bare/refs", "bare/hooks", "w/.git/hooks", "plain"]
        {
            fs::create_dir_all(directory.path().join(path)).expect("a directory");
        }
        fs::write(directory.path().join("bare/HEAD"), "ref: refs/heads/main\n").expect("a file");
        std::os::unix::fs::symlink("w/.git/hooks", directory.path().join("link")).expect("a link");
        for (path, is_written) in [
            ("r/HEAD", false),
            ("r/config", true),
            ("bare/config", false),
            ("bare/hooks/post-checkout", false),
            ("w/.git/hooks/post-checkout", false),
            ("link/post-checkout", false),
            ("w/.git", false),
            ("plain/HEAD", true),
            ("plain/objects", true),
        ] {
            let destination = directory.path().join(path);
            let name = TreePath::new(destination.file_name().expect("a name").as_bytes()).expect("a name");
            assert_eq!(check_destination(&destination, &name).is_ok(), is_written, "{path}");
        }
    }
}
