//! Locks that hold between processes, also where the file system has none.
//!
//! `flock(2)` is what counts. Some file systems refuse it (NFS without its lock manager, some FUSE and cluster file systems): there a
//! marker beside the file stands for the lock. It names machine and process, so that one that is left by a process that was killed is
//! known and taken over. A marker of another machine counts until somebody removes it, because nobody here can know whether its process
//! still runs.

use crate::process_id::{ProcessId, this_host};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a marker that are read.
const MAX_MARKER: u64 = 200;
/// The time limit for waiting for a marker, and the pause between two looks.
const MAX_WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// A lock that this process holds, until it is dropped.
#[derive(Debug)]
pub struct FileLock(Held);

#[derive(Debug)]
enum Held {
    /// The kernel's. It is given back explicitly: closing is not enough, because a child that another thread forks at this moment keeps the
    /// lock until its exec.
    Kernel(File),
    Marker(PathBuf),
}

/// The outcome of trying to lock.
#[derive(Debug)]
pub enum Attempt {
    /// This process has the lock.
    Locked(FileLock),
    /// Another one has it.
    Taken,
    /// A process of another machine has it, or was killed there: the marker to remove in that case.
    TakenElsewhere(PathBuf),
}

impl FileLock {
    /// Tries to lock `file`, which lies at `path`.
    ///
    /// # Errors
    /// The file system refuses the lock and the marker.
    pub fn attempt(file: &File, path: &Path) -> io::Result<Attempt> {
        match file.try_lock() {
            Ok(()) => Ok(Attempt::Locked(Self(Held::Kernel(file.try_clone()?)))),
            Err(TryLockError::WouldBlock) => Ok(Attempt::Taken),
            Err(TryLockError::Error(error)) if is_without_locks(&error) => mark(&marker_of(path)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until `file`, which lies at `path`, can be locked.
    ///
    /// # Errors
    /// The file system refuses the lock and the marker, or a marker has not gone within ten seconds.
    pub fn wait(file: &File, path: &Path) -> io::Result<Self> {
        match file.lock() {
            Ok(()) => return Ok(Self(Held::Kernel(file.try_clone()?))),
            Err(error) if is_without_locks(&error) => {}
            Err(error) => return Err(error),
        }
        let begun = Instant::now();
        while begun.elapsed() < MAX_WAIT {
            if let Attempt::Locked(lock) = mark(&marker_of(path))? {
                return Ok(lock);
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::new(ErrorKind::TimedOut, format!("{} does not go", marker_of(path).display())))
    }

    /// Returns whether a process, this one or another, has the lock of the file at `path`.
    pub fn is_taken(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        match file.try_lock_shared() {
            Ok(()) => file.unlock().is_err(),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => {
                is_without_locks(&error) && read(&marker_of(path)).is_ok_and(|marker| marker.is_held())
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = match &self.0 {
            Held::Kernel(file) => file.unlock(),
            Held::Marker(path) => fs::remove_file(path),
        };
    }
}

/// Returns whether the error says that the file system has no locks, rather than that this one cannot be had.
fn is_without_locks(error: &io::Error) -> bool {
    [libc::ENOLCK, libc::EOPNOTSUPP, libc::ENOSYS].contains(&error.raw_os_error().unwrap_or(0))
}

fn marker_of(path: &Path) -> PathBuf {
    let mut marker = path.as_os_str().to_owned();
    marker.push(".lock");
    marker.into()
}

/// The text of a marker: `HOST PID START`.
#[derive(Debug, PartialEq, Eq)]
struct Marker(String);

impl Marker {
    fn own() -> Self {
        let process = ProcessId::this().map_or_else(|| std::process::id().to_string(), |id| id.to_string());
        Self(format!("{} {process}", this_host()))
    }

    /// Returns the process that it names, where that is one of this machine and user.
    fn process_here(&self) -> Option<ProcessId> {
        let (host, process) = self.0.trim().split_once(' ')?;
        (host == this_host()).then(|| process.parse().ok()).flatten()
    }

    fn is_held(&self) -> bool {
        self.process_here().is_none_or(ProcessId::is_alive)
    }
}

fn read(path: &Path) -> io::Result<Marker> {
    let bytes = crate::plain_file::read(path, MAX_MARKER, crate::plain_file::Links::Refuse)?;
    Ok(Marker(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Makes the marker, in the place of one whose process has ended.
fn mark(path: &Path) -> io::Result<Attempt> {
    let own = Marker::own();
    let prepared = prepared(path, &own)?;
    let made = (0..3).find_map(|_| match fs::hard_link(&prepared, path) {
        Ok(()) => Some(Ok(Attempt::Locked(FileLock(Held::Marker(path.to_owned()))))),
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Some(Err(error)),
        Err(_) => match read(path) {
            Ok(found) if found.process_here().is_none() => Some(Ok(Attempt::TakenElsewhere(path.to_owned()))),
            Ok(found) if found.is_held() => Some(Ok(Attempt::Taken)),
            Ok(_) => remove_left(path, &prepared).err().map(Err),
            // It was removed just now.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        },
    });
    let _ = fs::remove_file(prepared);
    // Others were quicker each time.
    made.unwrap_or(Ok(Attempt::Taken))
}

/// Writes the marker's text to a file of a name that nobody else uses: linked into place, it is never seen half written.
fn prepared(path: &Path, marker: &Marker) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}-{}", this_host(), std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let prepared = PathBuf::from(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&prepared)?;
    file.write_all(marker.0.as_bytes())?;
    Ok(prepared)
}

/// Removes a marker whose process has ended. One process at a time does that, so that none removes the marker that another has made in its
/// place: a second marker keeps the others away meanwhile.
fn remove_left(path: &Path, prepared: &Path) -> io::Result<()> {
    let mut guard = path.as_os_str().to_owned();
    guard.push(".takeover");
    let guard = PathBuf::from(guard);
    match fs::hard_link(prepared, &guard) {
        Ok(()) => {}
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {
            return match read(&guard) {
                Ok(other) if other.is_held() => Ok(()),
                _ => remove(&guard),
            };
        }
    }
    let removed = match read(path) {
        Ok(marker) if !marker.is_held() => remove(path),
        _ => Ok(()),
    };
    remove(&guard).and(removed)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(path: &Path) -> Attempt {
        mark(path).unwrap()
    }

    #[test]
    fn a_marker_is_one_process_at_a_time_and_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.lock");
        let Attempt::Locked(lock) = attempt(&path) else { panic!("nobody has it") };
        assert!(matches!(attempt(&path), Attempt::Taken));
        drop(lock);
        assert!(matches!(attempt(&path), Attempt::Locked(_)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_marker_of_a_process_that_was_killed_is_taken_over_and_one_of_another_machine_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.lock");
        fs::write(&path, format!("{} {} 1", this_host(), i32::MAX)).unwrap();
        assert!(matches!(attempt(&path), Attempt::Locked(_)));
        fs::write(&path, "elsewhere 1 1").unwrap();
        let Attempt::TakenElsewhere(marker) = attempt(&path) else { panic!("it is not known to have ended") };
        assert_eq!(marker, path);
        assert!(read(&path).unwrap().is_held());
    }

    #[test]
    fn of_many_at_once_one_gets_a_marker_that_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.lock");
        for _ in 0..50 {
            fs::write(&path, format!("{} {} 1", this_host(), i32::MAX)).unwrap();
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    std::thread::spawn({
                        let path = path.clone();
                        move || attempt(&path)
                    })
                })
                .collect();
            let attempts: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let locked = attempts.iter().filter(|attempt| matches!(attempt, Attempt::Locked(_))).count();
            assert_eq!(locked, 1, "{attempts:?}");
        }
    }
}
