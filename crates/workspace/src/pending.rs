//! Contents that are written but not yet flushed to disk. They are flushed together when the next record is saved: hundreds
//! of files take hardly more time than one.

use agent_base::hash::Hash;
use agent_base::lock::Lock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Files that are flushed side by side. More wait for the same writes of the disk's journal.
const SIDE_BY_SIDE: usize = 16;

/// Contents by hash, each still under a temporary name. What is left at the end is removed: no record refers to it.
#[derive(Debug, Default)]
pub struct Pending {
    files: Lock<BTreeMap<Hash, PathBuf>>,
    /// Held during a flush, so that two of them do not take the same files.
    flushing: Lock<()>,
}

impl Pending {
    /// Adds a content that lies at `temporary`. One that is there already stays, and the new file goes.
    pub fn add(&self, hash: Hash, temporary: PathBuf) -> io::Result<()> {
        match self.files.lock().entry(hash) {
            std::collections::btree_map::Entry::Occupied(_) => fs::remove_file(temporary),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(temporary);
                Ok(())
            }
        }
    }

    /// Returns the path of a content while it is pending.
    pub fn get(&self, hash: Hash) -> Option<PathBuf> {
        self.files.lock().get(&hash).cloned()
    }

    /// Puts every content on the disk for good, under the name that `place` gives it. Blocking.
    pub fn flush(&self, place: impl Fn(Hash) -> PathBuf + Sync) -> io::Result<()> {
        let _flushing = self.flushing.lock();
        let files: Vec<(Hash, PathBuf)> =
            self.files.lock().iter().map(|(hash, path)| (*hash, path.clone())).collect();
        side_by_side(&files, |(hash, temporary)| settle(temporary, &place(*hash)))?;
        let directories: BTreeSet<PathBuf> = files
            .iter()
            .flat_map(|(hash, _)| {
                place(*hash).ancestors().skip(1).take(2).map(Path::to_owned).collect::<Vec<_>>()
            })
            .collect();
        side_by_side(&Vec::from_iter(directories), |directory| File::open(directory)?.sync_all())?;
        let mut pending = self.files.lock();
        files.iter().for_each(|(hash, _)| drop(pending.remove(hash)));
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for path in self.files.lock().values() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Flushes a content before it gets its name: a file with the right name always has the right content.
fn settle(temporary: &Path, place: &Path) -> io::Result<()> {
    match File::open(temporary) {
        Ok(file) => file.sync_all()?,
        // An earlier flush came this far and failed later.
        Err(error) if error.kind() == io::ErrorKind::NotFound && place.is_file() => return Ok(()),
        Err(error) => return Err(error),
    }
    if let Some(directory) = place.parent() {
        super::store::private_dir(directory)?;
    }
    fs::rename(temporary, place)
}

fn side_by_side<T: Sync>(items: &[T], act: impl Fn(&T) -> io::Result<()> + Sync) -> io::Result<()> {
    let part = items.len().div_ceil(SIDE_BY_SIDE).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            items.chunks(part).map(|part| scope.spawn(|| part.iter().try_for_each(&act))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
            worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))
        };
        // All are awaited, even if the first fails.
        workers.into_iter().map(join).fold(Ok(()), Result::and)
    })
}
