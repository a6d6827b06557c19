//! Read-only images of this machine's directories: erofs, made once for each state of a directory and kept in the cache.
//!
//! Whether a directory is in the same state is judged by the lists of this machine's package manager and by what is in the
//! directories that programs are installed to, which takes some milliseconds. What no package manager changed, deeper within a
//! package, is seen after the next change elsewhere.

use super::host::MKFS_EROFS;
use super::tool;
use agent_base::error::{Error, Result};
use agent_base::file_lock::{Attempt, FileLock};
use agent_base::hash::Hash;
use agent_sandbox::OnProgress;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Directories that are looked at, from the outermost on, and entries in them.
const LOOKED_AT: usize = 200;
const MAX_ENTRIES: usize = 50_000;
/// The directories in which programs and libraries are put, below the directory and below one another.
const INSTALLED_TO: [&str; 14] = [
    "bin",
    "sbin",
    "lib",
    "lib64",
    "libexec",
    "include",
    "share",
    "local",
    "site-packages",
    "dist-packages",
    "node_modules",
    "rustlib",
    "x86_64-linux-gnu",
    "aarch64-linux-gnu",
];
/// The files that package managers write with every change: dpkg, rpm, pacman, apk.
const PACKAGE_LISTS: [&str; 5] = [
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/pacman/local",
    "/lib/apk/db/installed",
];
/// The most paths that an image leaves out because this user cannot read them.
const MAX_UNREADABLE: usize = 1000;
/// The interval of looks whether another process has made an image.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// The time limit for a machine that starts to open its images, also on a busy host.
const OPENED_WITHIN: Duration = Duration::from_secs(600);

/// Makes the images of `directories` that are missing in `cache`, and returns the paths of all, in the same order.
///
/// # Errors
/// One cannot be made.
pub async fn ready(
    directories: &[PathBuf],
    cache: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for directory in directories {
        let name = name(directory);
        let image = cache.join(&name.whole);
        if !image.is_file() {
            let _lock = lock(cache, on_progress).await?;
            if !image.is_file() {
                on_progress(&format!("making an image of {}, once", directory.display()), 0, 0);
                make(directory, &image, &[]).await?;
                remove_former(cache, &name);
            }
        }
        note_use(&image);
        images.push(image);
    }
    Ok(images)
}

/// Notes that a machine is about to open `image`.
pub fn note_use(image: &Path) {
    // One whose date cannot be changed is at worst made again.
    let _ = File::open(image).and_then(|file| file.set_modified(SystemTime::now()));
}

/// The name of an image: that of the directory, and its state.
struct Name {
    prefix: String,
    whole: String,
}

fn name(directory: &Path) -> Name {
    let prefix = format!("image-{}-", Hash::of(format!("{directory:?}")).short(8));
    Name { whole: format!("{prefix}{}.erofs", state(directory).short(8)), prefix }
}

/// A hash of the state of a directory.
fn state(directory: &Path) -> Hash {
    let mut seen = String::new();
    for list in PACKAGE_LISTS {
        seen += &described(Path::new(list));
    }
    let mut waiting = VecDeque::from([directory.to_owned()]);
    let (mut directories, mut entries) = (0, 0);
    while let Some(next) = waiting.pop_front().filter(|_| directories < LOOKED_AT && entries < MAX_ENTRIES) {
        let Ok(found) = fs::read_dir(&next) else { continue };
        let mut found: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
        found.sort();
        directories += 1;
        entries += found.len();
        seen.extend(found.iter().map(|path| described(path)));
        waiting.extend(INSTALLED_TO.iter().map(|name| next.join(name)));
        waiting.extend(libraries_of_python(&next));
    }
    Hash::of(seen)
}

/// A line about a file, the name of a directory, and nothing of what else comes and goes.
fn described(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => format!("{path:?}\n"),
        Ok(metadata) if metadata.is_file() || metadata.is_symlink() => {
            let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
            format!("{path:?} {} {} {seconds}.{nanoseconds}\n", metadata.ino(), metadata.size())
        }
        _ => String::new(),
    }
}

/// `lib/python3.11` and the like, below `lib`.
fn libraries_of_python(directory: &Path) -> Vec<PathBuf> {
    if directory.file_name().is_none_or(|name| name != "lib") {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_python = |name: &OsString| name.as_encoded_bytes().starts_with(b"python");
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| is_python(&entry.file_name())).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Makes an image of a directory.
///
/// # Errors
/// It cannot be made.
pub async fn make(directory: &Path, image: &Path, options: &[&str]) -> Result<()> {
    let new = image.with_extension("new");
    let mut arguments: Vec<OsString> = ["--quiet", "-x-1", "--preserve-mtime"].map(OsString::from).into();
    arguments.extend(options.iter().map(OsString::from));
    arguments.extend(unreadable(directory).into_iter().map(|path| {
        let mut option = OsString::from("--exclude-path=");
        option.push(path);
        option
    }));
    arguments.extend([new.clone().into_os_string(), directory.into()]);
    let made = async {
        tool::run(MKFS_EROFS, arguments).await?;
        fs::rename(&new, image)
            .map_err(|error| Error::sandbox("the image cannot be put in its place").caused_by(error))
    };
    made.await.map_err(|error| {
        // What is left of it is written again next time.
        let _ = fs::remove_file(&new);
        Error::sandbox(format!("no image of {} can be made: {error}", directory.display())).hint(format!(
            "it takes as much space in {} as the directory",
            image.parent().unwrap_or(image).display()
        ))
    })
}

/// Returns the paths that this user cannot read, relative to `directory`. Root reads everything.
fn unreadable(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // SAFETY: only reads the process's credentials.
    if unsafe { libc::geteuid() } == 0 {
        return found;
    }
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&next) else {
            found.extend(next.strip_prefix(directory).map(Path::to_owned));
            continue;
        };
        for entry in entries.flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            match kind {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() && File::open(&path).is_err() => {
                    found.extend(path.strip_prefix(directory).map(Path::to_owned));
                }
                _ => {}
            }
        }
        if found.len() >= MAX_UNREADABLE {
            break;
        }
    }
    found
}

/// Removes images of an earlier state, but for those that a machine may be about to open. Machines that run have them open and keep them.
fn remove_former(cache: &Path, name: &Name) {
    let is_being_opened = |entry: &fs::DirEntry| {
        let used = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        used.and_then(|used| used.elapsed().ok()).is_none_or(|since| since < OPENED_WITHIN)
    };
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let file = file.to_string_lossy();
        if file.starts_with(&name.prefix) && *file != name.whole && !is_being_opened(&entry) {
            // One that cannot be removed now is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes all but the newest files whose names begin with `prefix`, each with the one that belongs to it. With an extension, they have that.
pub fn remove_older(
    cache: &Path,
    prefix: &str,
    extension: &str,
    kept: usize,
    other: impl Fn(&Path) -> PathBuf,
) {
    let mut found: Vec<(SystemTime, PathBuf)> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()))
        .filter(|entry| entry.path().extension().unwrap_or_default() == extension)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    for (_, path) in found.iter().rev().skip(kept) {
        // One that cannot be removed now is in nobody's way.
        let _ = fs::remove_file(path).and_then(|()| fs::remove_file(other(path)));
    }
}

/// Waits until no other process makes something in the cache.
pub async fn lock(cache: &Path, on_progress: OnProgress<'_>) -> Result<FileLock> {
    let path = cache.join("lock");
    let failed =
        |error: io::Error| Error::sandbox(format!("{} cannot be locked", path.display())).caused_by(error);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let mut is_told = false;
    loop {
        match FileLock::attempt(&file, &path).map_err(failed)? {
            Attempt::Locked(lock) => return Ok(lock),
            Attempt::Taken => {}
            Attempt::TakenElsewhere(marker) => {
                let what = format!("{} is locked by another machine", path.display());
                return Err(
                    Error::sandbox(what).hint(format!("remove {} if no agent runs there", marker.display()))
                );
            }
        }
        if !is_told {
            on_progress("waiting for another agent to make the image", 0, 0);
            is_told = true;
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

/// Writes a file that is there as a whole or not at all, and that every user may read.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o644).open(&new)?;
        file.write_all(content)?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        // It is the rest of a failure that is reported.
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_changes_with_what_is_in_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("lib/python3/site-packages");
        fs::create_dir_all(&below).unwrap();
        let before = state(directory.path());
        assert_eq!(state(directory.path()), before);
        fs::write(below.join("new.py"), "").unwrap();
        assert_ne!(state(directory.path()), before);
    }

    #[test]
    fn images_of_other_directories_stay() {
        let cache = tempfile::tempdir().unwrap();
        let (mine, other) = (name(Path::new("/usr")), name(Path::new("/opt")));
        let (old, in_use) = (format!("{}old.erofs", mine.prefix), format!("{}in-use.erofs", mine.prefix));
        for file in [&mine.whole, &old, &in_use, &other.whole] {
            let file = File::create(cache.path().join(file)).unwrap();
            file.set_modified(SystemTime::now() - 2 * OPENED_WITHIN).unwrap();
        }
        // A bug: it was removed while another machine was about to open it.
        note_use(&cache.path().join(&in_use));
        remove_former(cache.path(), &mine);
        let mut left: Vec<_> =
            fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let mut expected = [&mine.whole, &in_use, &other.whole].map(OsString::from);
        expected.sort();
        assert_eq!(left, expected);
    }
}
