//! An index of the directories that git ignores, kept from one start to the next, so that those that have not changed need not be listed
//! again: of each, the entries that may have to be withheld.
//!
//! What a sandbox gets to see depends on it. So a record counts only for the directory that was listed, as long as its change time is
//! what it was then: whatever changes the names in a directory sets that, and programs cannot set it otherwise. A directory that had
//! just changed when it was listed is not recorded, since it may change again within the same tick of the file system's clock.
//! What depends on a file's content is not kept: the file is named, and read each time.
//!
//! The index belongs to one program, by its file: another build may have other rules.

use crate::file_system;
use crate::selection::Stamp;
use crate::tree_path::TreePath;
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_base::paths::make_dir;
use agent_base::plain_file::{self, Links};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::process::geteuid;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes of the largest index: of about 200,000 directories.
const MAX_BYTES: usize = 32 << 20;
/// Workspaces whose index is kept.
const MAX_KEPT: usize = 32;
/// A directory that changed this shortly before is not recorded: some file systems count whole seconds.
const SETTLED: Duration = Duration::from_secs(2);
/// The beginning of the file; the hash of the rest follows.
const MAGIC: &[u8] = b"agent's index of ignored files 3\n";
/// The offset of the rest.
const BODY: usize = MAGIC.len() + 32;

/// An entry of a directory that may have to be withheld, or leads to some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory, with where its own record is.
    Directory(Option<RecordIndex>),
    /// A file whose name or content may make it a secret.
    Suspect,
    /// A device, FIFO or socket.
    Special,
}

/// The place of a record in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordIndex(u32);

/// A directory and what in it matters.
#[derive(Debug)]
pub struct Record<'a> {
    stamp: DirectoryStamp,
    /// Ignored directories above it: they decide what matters of its files.
    depth: u16,
    /// All of its entries.
    pub count: u32,
    /// Those that matter.
    pub entries: Vec<(Kind, &'a [u8])>,
}

/// The identity of a directory, and of the names in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryStamp {
    device: u64,
    stamp: Stamp,
}

impl From<&Stat> for DirectoryStamp {
    fn from(stat: &Stat) -> Self {
        Self { device: stat.st_dev, stamp: stat.into() }
    }
}

/// A directory as a look through the ignored ones found it.
#[derive(Debug)]
pub enum Seen {
    /// As its record says.
    Unchanged(RecordIndex),
    /// It was listed: the bytes of its record, but for the places of directories in it.
    Listed(Listed),
}

/// A directory that was listed.
#[derive(Debug)]
pub struct Listed {
    stamp: DirectoryStamp,
    depth: u16,
    count: u32,
    entries: Vec<(Kind, Box<[u8]>)>,
}

/// The index of one workspace.
pub struct Index {
    file: PathBuf,
    root: OwnedFd,
    device: u64,
    began_ns: i64,
    /// The program, the user and the workspace that it is of.
    key: Vec<u8>,
    /// The file's content; empty where there is none that counts.
    bytes: Vec<u8>,
    /// The directories that lie in no other ignored one.
    roots: HashMap<Box<[u8]>, RecordIndex>,
}

impl Index {
    /// The index for the workspace `root`. `None` where change times cannot be relied upon, or nothing can be kept. Blocking.
    pub fn open(root: &Path, machine: &Machine) -> Option<Self> {
        // The names in a directory of an overlay may come from one underneath, whose change time does not show.
        let kind = file_system::kind(root)?;
        if !file_system::LOCAL.contains(&kind) || kind == file_system::OVERLAYFS {
            return None;
        }
        let name = Hash::of(root.as_os_str().as_bytes()).short(16);
        let file = machine.cache_dir().ok()?.join("ignored").join(name);
        let open =
            rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let device = rustix::fs::fstat(&open).ok()?.st_dev;
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let key = key(root, &fs::metadata("/proc/self/exe").ok()?);
        let bytes = read(&file, &key).unwrap_or_default();
        let roots = roots(&bytes).unwrap_or_default();
        let began_ns = i64::try_from(began.as_nanos()).ok()?;
        Some(Self { file, root: open, device, began_ns, key, bytes, roots })
    }

    /// As if it had been opened so many seconds later.
    #[cfg(test)]
    pub fn beginning(self, seconds: i64) -> Self {
        Self { began_ns: self.began_ns + seconds * 1_000_000_000, ..self }
    }

    /// Returns the place of the record of an ignored directory that lies in no other.
    pub fn find(&self, directory: &TreePath) -> Option<RecordIndex> {
        self.roots.get(directory.as_bytes()).copied()
    }

    /// The record of a directory.
    pub fn record(&self, place: RecordIndex) -> Option<Record<'_>> {
        let mut reader = Reader { bytes: &self.bytes, at: place.0 as usize };
        let device = reader.u64()?;
        let (size, inode) = (reader.u64()?, reader.u64()?);
        let (mtime_ns, ctime_ns) = (reader.u64()?.cast_signed(), reader.u64()?.cast_signed());
        let stamp = DirectoryStamp { device, stamp: Stamp { size, mtime_ns, ctime_ns, inode } };
        let (depth, count, length) = (reader.u16()?, reader.u32()?, reader.u32()?);
        let mut entries = Vec::new();
        for _ in 0..length {
            let kind = match reader.u8()? {
                b'd' => Kind::Directory(match reader.u32()? {
                    0 => None,
                    // What lies in a directory is written before it.
                    below if below < place.0 => Some(RecordIndex(below)),
                    _ => return None,
                }),
                b'f' => Kind::Suspect,
                b's' => Kind::Special,
                _ => return None,
            };
            entries.push((kind, reader.name()?));
        }
        Some(Record { stamp, depth, count, entries })
    }

    /// Returns whether the directory `path`, below `depth` other ignored ones, is as `record` says.
    pub fn is_unchanged(&self, record: &Record<'_>, path: &TreePath, depth: u16) -> bool {
        let now = || rustix::fs::statat(&self.root, path.as_path(), AtFlags::SYMLINK_NOFOLLOW);
        record.depth == depth && now().is_ok_and(|now| DirectoryStamp::from(&now) == record.stamp)
    }

    /// Begins the record of a directory that is about to be listed; `None` where it may change without another change
    /// time.
    pub fn begin(&self, directory: impl AsFd, depth: u16) -> Option<Listed> {
        let stamp = DirectoryStamp::from(&rustix::fs::fstat(directory).ok()?);
        let settled = stamp.stamp.ctime_ns.checked_add(SETTLED.as_nanos() as i64)?;
        (stamp.device == self.device && settled < self.began_ns).then(|| Listed {
            stamp,
            depth,
            count: 0,
            entries: Vec::new(),
        })
    }

    /// Keeps what was seen of all directories below those of `ignored`, unless nothing is new. What cannot be kept is listed again.
    pub fn keep(&self, mut seen: Vec<(TreePath, Seen)>, ignored: &[TreePath]) {
        if !seen.iter().any(|(_, seen)| matches!(seen, Seen::Listed(_))) {
            return;
        }
        // A directory after what is in it.
        seen.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        let Some(bytes) = self.encode(&seen, ignored) else { return };
        let Some(directory) = self.file.parent() else { return };
        if make_dir(directory).is_ok() && plain_file::replace_private(&self.file, &bytes).is_ok() {
            remove_oldest(directory);
        }
    }

    /// `None` where it is more than is kept.
    fn encode(&self, seen: &[(TreePath, Seen)], ignored: &[TreePath]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; BODY];
        bytes.extend(&self.key);
        let mut places: HashMap<&[u8], RecordIndex> = HashMap::with_capacity(seen.len());
        for (path, seen) in seen {
            let place = RecordIndex(u32::try_from(bytes.len()).ok()?);
            let below = |name: &[u8]| places.get([path.as_bytes(), b"/", name].concat().as_slice()).copied();
            match seen {
                Seen::Unchanged(former) => self.record(*former)?.encode(&mut bytes, &below)?,
                Seen::Listed(listed) => listed.record().encode(&mut bytes, &below)?,
            }
            if bytes.len() > MAX_BYTES {
                return None;
            }
            places.insert(path.as_bytes(), place);
        }
        let roots = u32::try_from(bytes.len()).ok()?;
        let found: Vec<_> =
            ignored.iter().filter_map(|path| Some((path, places.get(path.as_bytes())?))).collect();
        bytes.extend(u32::try_from(found.len()).ok()?.to_le_bytes());
        for (path, place) in found {
            write_name(&mut bytes, path.as_bytes())?;
            bytes.extend(place.0.to_le_bytes());
        }
        bytes.extend(roots.to_le_bytes());
        let hash = Hash::of(&bytes[BODY..]);
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()..BODY].copy_from_slice(&hash.0);
        Some(bytes)
    }
}

impl Record<'_> {
    /// `below` says where the records of directories in it are.
    fn encode(&self, bytes: &mut Vec<u8>, below: &dyn Fn(&[u8]) -> Option<RecordIndex>) -> Option<()> {
        let DirectoryStamp { device, stamp: Stamp { size, mtime_ns, ctime_ns, inode } } = self.stamp;
        for number in [device, size, inode, mtime_ns.cast_unsigned(), ctime_ns.cast_unsigned()] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.depth.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(u32::try_from(self.entries.len()).ok()?.to_le_bytes());
        for (kind, name) in &self.entries {
            match kind {
                Kind::Directory(_) => {
                    bytes.push(b'd');
                    bytes.extend(below(name).map_or(0, |place| place.0).to_le_bytes());
                }
                Kind::Suspect => bytes.push(b'f'),
                Kind::Special => bytes.push(b's'),
            }
            write_name(bytes, name)?;
        }
        Some(())
    }
}

impl Listed {
    /// Adds an entry that matters.
    pub fn add(&mut self, kind: Kind, name: &[u8]) {
        self.entries.push((kind, name.into()));
    }

    /// Sets how many entries there are in all.
    pub fn counting(self, entries: usize) -> Self {
        Self { count: u32::try_from(entries).unwrap_or(u32::MAX), ..self }
    }

    fn record(&self) -> Record<'_> {
        let Self { stamp, depth, count, entries } = self;
        let entries = entries.iter().map(|(kind, name)| (*kind, &**name)).collect();
        Record { stamp: *stamp, depth: *depth, count: *count, entries }
    }
}

/// Names the program by its file, the user, and the workspace.
fn key(root: &Path, program: &Metadata) -> Vec<u8> {
    let numbers = [
        program.dev(),
        program.ino(),
        program.size(),
        program.mtime().cast_unsigned(),
        program.mtime_nsec().cast_unsigned(),
        program.ctime().cast_unsigned(),
        program.ctime_nsec().cast_unsigned(),
        geteuid().as_raw().into(),
    ];
    let mut key: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    key.extend(root.as_os_str().as_bytes());
    key.push(0);
    key
}

/// The content of a file that the user alone can write, for `key`.
fn read(path: &Path, key: &[u8]) -> io::Result<Vec<u8>> {
    let file = plain_file::open_at(CWD, path, Links::Refuse)?;
    let about = file.metadata()?;
    let mut bytes = Vec::new();
    if about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0 {
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    }
    let counts = |bytes: &[u8]| {
        let (header, body) = bytes.split_at_checked(BODY)?;
        let hash = header.strip_prefix(MAGIC)?;
        (body.starts_with(key) && hash == Hash::of(body).0).then_some(())
    };
    Ok(counts(&bytes).map(|()| bytes).unwrap_or_default())
}

/// The directories that lie in no other ignored one, as an index of these bytes names them at its end.
fn roots(bytes: &[u8]) -> Option<HashMap<Box<[u8]>, RecordIndex>> {
    let at = Reader { bytes, at: bytes.len().checked_sub(4)? }.u32()?;
    let mut reader = Reader { bytes, at: at as usize };
    (0..reader.u32()?).map(|_| Some((reader.name()?.into(), RecordIndex(reader.u32()?)))).collect()
}

/// Removes the indexes that were written first, where there are too many.
fn remove_oldest(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    files.sort();
    for (_, path) in &files[..files.len().saturating_sub(MAX_KEPT)] {
        let _ = fs::remove_file(path);
    }
}

/// A name of at most 64 KiB, as a path may have.
fn write_name(bytes: &mut Vec<u8>, name: &[u8]) -> Option<()> {
    bytes.extend(u16::try_from(name.len()).ok()?.to_le_bytes());
    bytes.extend(name);
    Some(())
}

/// Reads numbers and names.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.number().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.number().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.number().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}
