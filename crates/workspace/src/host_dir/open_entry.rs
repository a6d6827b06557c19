//! A name in the host's tree whose content is replaced or removed: what is there at that moment has to be what was looked at.
//!
//! Between the look and the rename somebody may change the file: its content, its mode, its owner, or put something else in its place. So
//! the old and the new one change places, and what was there is looked at once more, now that nobody reaches it by its name. What is not as
//! it was goes back.

use super::{HostDir, Observed, identity, look_at};
use crate::attributes;
use crate::manifest::Node;
use crate::tree_path::TreePath;
use agent_base::hash::Hash;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;

/// The reason why a file is not written: the host has something else there than was looked at.
#[derive(Debug)]
pub struct Changed;

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it changed on the host while the changes were being written")
    }
}

impl std::error::Error for Changed {}

impl Changed {
    /// Returns whether this is why something was not written.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<Self>())
    }

    fn error() -> io::Error {
        io::Error::other(Self)
    }
}

/// A name, the open directory that it is in, and what is there.
pub(super) struct OpenEntry<'a> {
    host: &'a HostDir,
    path: &'a TreePath,
    pub(super) parent: OwnedFd,
    pub(super) found: Observed,
}

impl<'a> OpenEntry<'a> {
    /// The place of `path`, whatever is there.
    pub(super) fn of(host: &'a HostDir, path: &'a TreePath) -> io::Result<Self> {
        let parent = host.parent(path)?;
        let found = look_at(&parent, path.name(), false)?;
        Ok(Self { host, path, parent, found })
    }

    /// The place of `path`, where `former` still has to be. Unchanged metadata is enough. If only the change time differs, as after another
    /// name of the file was removed, the content decides.
    pub(super) fn holding(host: &'a HostDir, path: &'a TreePath, former: &Observed) -> io::Result<Self> {
        let held = || {
            let place = Self::of(host, path)?;
            let is_still = place.found.identity == former.identity
                || look_at(&place.parent, path.name(), true)?.node == former.node;
            if is_still { Ok(place) } else { Err(Changed::error()) }
        };
        held().map_err(|error| match error.kind() {
            // A FIFO is there, or a link in the place of a directory.
            io::ErrorKind::InvalidInput | io::ErrorKind::NotADirectory => Changed::error(),
            _ => error,
        })
    }

    /// Gives what was made under a temporary name this one. What had it is removed; `attributes` identifies those that it had.
    pub(super) fn fill(&self, temporary: &mut Temporary<'_>, attributes: Option<Hash>) -> io::Result<()> {
        let name = self.path.name();
        let flags = match &self.found.node {
            Some(Node::Directory { .. }) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(_) => RenameFlags::EXCHANGE,
            None => RenameFlags::NOREPLACE,
        };
        let made = temporary.identity()?;
        match rustix::fs::renameat_with(&self.parent, &temporary.name, &self.parent, name, flags) {
            Ok(()) if flags == RenameFlags::NOREPLACE => Ok(()),
            Ok(()) if self.held(temporary.name.as_bytes(), attributes) => Ok(()),
            Ok(()) => {
                let rename = |flags| {
                    rustix::fs::renameat_with(&self.parent, &temporary.name, &self.parent, name, flags)
                };
                let back = match rename(flags) {
                    // What was written has been removed meanwhile.
                    Err(Errno::NOENT) => rename(RenameFlags::NOREPLACE),
                    back => back,
                };
                // Never removed is what somebody else made.
                temporary.is_kept = back.is_err() || temporary.identity().ok() != Some(made);
                Err(Changed::error())
            }
            Err(Errno::EXIST | Errno::NOENT) => Err(Changed::error()),
            Err(error) if is_unsupported(error) => match self.held(name, attributes) {
                true => Ok(rustix::fs::renameat(&self.parent, &temporary.name, &self.parent, name)?),
                false => Err(Changed::error()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Writes `content` into the file that is there, which keeps all that it is but its content, and its mode where that is another one.
    pub(super) fn fill_in_place(&self, content: &mut File, mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.parent, self.path.name(), flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        if !self.held(self.path.name(), None) || Some(identity(&stat)) != self.found.identity {
            return Err(Changed::error());
        }
        content.seek(SeekFrom::Start(0))?;
        let length = io::copy(content, &mut file)?;
        file.set_len(length)?;
        if stat.st_mode & 0o777 != mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        file.sync_all()
    }

    /// Removes what is there, which is not a directory. A missing one is not an error.
    pub(super) fn clear(&self) -> io::Result<()> {
        let (name, mut aside) = (self.path.name(), Temporary::new(&self.parent));
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.parent, name, &self.parent, &aside.name, flags) {
            Ok(()) if self.held(aside.name.as_bytes(), None) => Ok(()),
            Ok(()) => {
                let back = rustix::fs::renameat_with(&self.parent, &aside.name, &self.parent, name, flags);
                aside.is_kept = back.is_err();
                Err(Changed::error())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(error) if is_unsupported(error) => match self.held(name, None) {
                true => Ok(rustix::fs::unlinkat(&self.parent, name, AtFlags::empty())?),
                false => Err(Changed::error()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether what has `name` now is what was found here, and the path still leads to the directory of both.
    fn held(&self, name: &[u8], attributes: Option<Hash>) -> bool {
        let is_reached = || {
            let (here, there) =
                (rustix::fs::fstat(&self.parent)?, rustix::fs::fstat(self.host.parent(self.path)?)?);
            Ok::<bool, io::Error>((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
        };
        look_at(&self.parent, name, false).is_ok_and(|now| now.is_as(&self.found))
            && attributes.is_none_or(|known| attributes::identify(&self.parent, name) == Ok(known))
            && is_reached().unwrap_or(false)
    }
}

/// Returns whether a file system cannot rename like this.
fn is_unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

/// A unique temporary name. What has it in the end is removed.
pub(super) struct Temporary<'a> {
    parent: &'a OwnedFd,
    pub(super) name: String,
    is_kept: bool,
}

impl<'a> Temporary<'a> {
    pub(super) fn new(parent: &'a OwnedFd) -> Self {
        Self { parent, name: format!(".agent-{:016x}.tmp", fastrand::u64(..)), is_kept: false }
    }

    pub(super) fn create(&self, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.parent, &self.name, flags, Mode::from_raw_mode(mode))?.into())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::statat(self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let identity = identity(&stat);
        Ok((identity.device, identity.inode))
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = rustix::fs::unlinkat(self.parent, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Target;
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use std::fs::{self, Permissions};
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
    use std::path::Path;

    /// The new content. What another program does while the file is being written happens when it is read.
    struct Meanwhile<F: FnOnce()>(Option<F>, &'static [u8]);

    impl<F: FnOnce()> Read for Meanwhile<F> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.take().into_iter().for_each(|act| act());
            self.1.read(buffer)
        }
    }

    fn meanwhile<F: FnOnce()>(act: F) -> Meanwhile<F> {
        Meanwhile(Some(act), b"new")
    }

    const NAME: &str = "dir/file";

    struct Tree {
        root: tempfile::TempDir,
        host: HostDir,
        path: TreePath,
        former: Observed,
    }

    /// A directory with a file in it, or none, that was looked at.
    fn tree(content: Option<&str>) -> Tree {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dir")).unwrap();
        if let Some(content) = content {
            fs::write(root.path().join(NAME), content).unwrap();
            fs::set_permissions(root.path().join(NAME), Permissions::from_mode(0o644)).unwrap();
        }
        let (host, path) = (HostDir::open(root.path()).unwrap(), TreePath::new(NAME.as_bytes()).unwrap());
        let former = host.observe(&path).unwrap();
        Tree { root, host, path, former }
    }

    impl Tree {
        fn file(&self) -> std::path::PathBuf {
            self.root.path().join(NAME)
        }

        /// Writes it while this happens.
        fn write(&self, act: impl FnOnce()) -> io::Result<()> {
            self.host.write_file(&self.path, &mut meanwhile(act), 0o755, &self.former)
        }

        fn look(&self) -> Observed {
            self.host.observe(&self.path).unwrap()
        }

        /// Nothing is left of an attempt.
        fn assert_tidy(&self) {
            for directory in [self.root.path().to_owned(), self.root.path().join("dir")] {
                let names = fs::read_dir(directory).into_iter().flatten().flatten();
                let left = names
                    .map(|entry| entry.file_name())
                    .find(|name| name.to_string_lossy().starts_with(".agent-"));
                assert_eq!(left, None);
            }
        }
    }

    /// A file that was made 0600 while a new one was being written in its place was 0755 afterwards, and so it was with whatever took its
    /// place.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of what may be done meanwhile")]
    fn what_changes_while_a_file_is_written_stays_as_it_is() {
        type Act = fn(&Path);
        type Check = fn(&Path) -> bool;
        let has_text = |file: &Path| fs::read_to_string(file).is_ok_and(|text| text == "mine");
        let cases: [(&str, Act, Check); 8] = [
            (
                "its mode",
                |file| fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap(),
                |file| fs::metadata(file).unwrap().mode() & 0o777 == 0o600,
            ),
            ("its content", |file| fs::write(file, "mine").unwrap(), has_text),
            (
                "another file",
                |file| {
                    fs::write(file.with_extension("new"), "mine").unwrap();
                    fs::rename(file.with_extension("new"), file).unwrap();
                },
                has_text,
            ),
            (
                "a link",
                |file| {
                    fs::remove_file(file).unwrap();
                    symlink("/etc/passwd", file).unwrap();
                },
                |file| fs::read_link(file).is_ok(),
            ),
            (
                "a directory",
                |file| {
                    fs::remove_file(file).unwrap();
                    fs::create_dir(file).unwrap();
                    fs::write(file.join("inner"), "mine").unwrap();
                },
                |file| fs::read_to_string(file.join("inner")).is_ok_and(|text| text == "mine"),
            ),
            (
                "a FIFO",
                |file| {
                    fs::remove_file(file).unwrap();
                    let (fifo, mode) = (rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600));
                    rustix::fs::mknodat(rustix::fs::CWD, file, fifo, mode, 0).unwrap();
                },
                is_fifo,
            ),
            ("nothing", |file| fs::remove_file(file).unwrap(), |file| !file.exists()),
            (
                "a link above it",
                |file| {
                    let above = file.parent().unwrap();
                    fs::rename(above, above.with_file_name("aside")).unwrap();
                    symlink("/tmp", above).unwrap();
                },
                |file| {
                    let aside = file.parent().unwrap().with_file_name("aside");
                    fs::read_to_string(aside.join("file")).is_ok_and(|text| text == "old")
                },
            ),
        ];
        for (what, act, is_kept) in cases {
            let tree = tree(Some("old"));
            let error = tree.write(|| act(&tree.file())).expect_err(what);
            assert!(Changed::is(&error), "{what}: {error}");
            assert!(is_kept(&tree.file()), "{what}");
            tree.assert_tidy();
        }
    }

    fn is_fifo(file: &Path) -> bool {
        fs::symlink_metadata(file).is_ok_and(|metadata| metadata.file_type().is_fifo())
    }

    #[test]
    fn what_appears_where_a_file_is_written_is_not_replaced() {
        for with_mode in [true, false] {
            let tree = tree(None);
            let mut content = meanwhile(|| fs::write(tree.file(), "mine").unwrap());
            let written = match with_mode {
                true => tree.host.write_file(&tree.path, &mut content, 0o600, &tree.former),
                false => tree.host.write_plain_file(&tree.path, &mut content, false, &tree.former),
            };
            assert!(Changed::is(&written.unwrap_err()));
            assert_eq!(fs::read_to_string(tree.file()).unwrap(), "mine");
            let target = Target("elsewhere".into());
            assert!(Changed::is(&tree.host.write_symlink(&tree.path, &target, &tree.former).unwrap_err()));
            tree.assert_tidy();
        }
    }

    #[test]
    fn the_owner_and_the_attributes_are_those_of_the_moment_or_nothing_is_written() {
        let attribute = |file: &Path, value: &str| {
            setxattr(file, "user.agent", value.as_bytes(), XattrFlags::empty()).is_ok()
        };
        let of_file = |file: &Path| {
            let mut value = [0; 16];
            getxattr(file, "user.agent", &mut value[..]).map(|length| value[..length].to_vec())
        };
        let tree = tree(Some("old"));
        if !attribute(&tree.file(), "one") {
            eprintln!("not tested: this file system has no attributes");
            return;
        }
        tree.write(|| {}).unwrap();
        assert_eq!(of_file(&tree.file()).unwrap(), b"one");
        // They are copied when the content is there.
        let mut content = meanwhile(|| assert!(attribute(&tree.file(), "two")));
        tree.host.write_file(&tree.path, &mut content, 0o644, &tree.look()).unwrap();
        assert_eq!(of_file(&tree.file()).unwrap(), b"two");
        let place = OpenEntry::of(&tree.host, &tree.path).unwrap();
        let mut temporary = Temporary::new(&place.parent);
        let known =
            attributes::copy(&place.parent, tree.path.name(), &temporary.create(0o600).unwrap()).unwrap();
        assert!(attribute(&tree.file(), "three"));
        assert!(Changed::is(&place.fill(&mut temporary, Some(known)).unwrap_err()));
        assert_eq!(of_file(&tree.file()).unwrap(), b"three");
        drop(temporary);
        if rustix::process::geteuid().is_root() {
            let former = tree.look();
            chown(tree.file(), Some(12_345), Some(12_346)).unwrap();
            tree.host.write_file(&tree.path, &mut meanwhile(|| {}), 0o644, &former).unwrap();
            let metadata = fs::metadata(tree.file()).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (12_345, 12_346));
            let former = tree.look();
            let mut content = meanwhile(|| chown(tree.file(), Some(54_321), None).unwrap());
            assert!(Changed::is(
                &tree.host.write_file(&tree.path, &mut content, 0o644, &former).unwrap_err()
            ));
            assert_eq!(fs::metadata(tree.file()).unwrap().uid(), 54_321);
        }
        tree.assert_tidy();
    }

    #[test]
    fn what_has_taken_the_place_of_a_file_is_not_removed() {
        let tree = tree(Some("old"));
        fs::remove_file(tree.file()).unwrap();
        fs::write(tree.file(), "mine").unwrap();
        assert!(Changed::is(&tree.host.remove_file(&tree.path, &tree.former).unwrap_err()));
        assert_eq!(fs::read_to_string(tree.file()).unwrap(), "mine");
        let place = OpenEntry::of(&tree.host, &tree.path).unwrap();
        fs::set_permissions(tree.file(), Permissions::from_mode(0o600)).unwrap();
        assert!(Changed::is(&place.clear().unwrap_err()));
        assert_eq!(fs::metadata(tree.file()).unwrap().mode() & 0o777, 0o600);
        let former = tree.host.observe(&tree.path).unwrap();
        tree.host.remove_file(&tree.path, &former).unwrap();
        assert!(!tree.file().exists());
        tree.assert_tidy();
    }

    /// A user may withdraw a directory from others while it is about to get other bits.
    #[test]
    fn a_directory_keeps_the_mode_that_it_has_got_meanwhile() {
        let tree = tree(None);
        let (dir, path) = (tree.root.path().join("dir"), TreePath::new(b"dir").unwrap());
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        let error = tree.host.set_directory_mode(&path, 0o775, Some(0o755)).unwrap_err();
        assert!(Changed::is(&error));
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        tree.host.set_directory_mode(&path, 0o750, Some(0o700)).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o750);
    }
}
