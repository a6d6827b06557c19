//! Copies files into the sandbox: the whole selection at the start, and single files when a state is restored.

use crate::base::Base;
use crate::git_directory;
use crate::host_dir::HostDir;
use crate::manifest::Node;
use crate::selection::{LeftOut, Stamp};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use agent_sandbox::{FileWrite, Node as Write, Sandbox};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// A batch is sent when it holds this many bytes…
const BATCH_BYTES: usize = 4 << 20;
/// …or this many files.
const BATCH_FILES: usize = 500;
/// Batches that are under way at once.
const IN_FLIGHT: usize = 2;
/// Largest git configuration that is looked through, in bytes.
pub const MAX_CONFIG: u64 = 1 << 20;
/// Bytes of a file of git's that is looked through for credentials.
const MAX_REWRITTEN: u64 = 64 << 20;

/// Called while files are copied: bytes done, bytes in all.
pub type OnCopied<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// The counts of what was copied in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Files and symlinks.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Files that should have had a former content which is not kept, and so have the host's.
    pub lost: u64,
}

impl CopyReport {
    /// Adds what was copied into another directory.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lost += other.lost;
    }
}

/// A batch on its way, and what was learned about each file while it was read.
#[derive(Default)]
struct Batch {
    writes: Vec<FileWrite>,
    read: Vec<(TreePath, ReadOutcome)>,
    bytes: usize,
}

/// The result of reading one file.
enum ReadOutcome {
    Content { hash: Hash, size: u64, stamp: Stamp },
    Gone,
    Unreadable,
}

/// Copies everything in `base` from the host into the sandbox's empty workspace. Two batches are under way while the next is
/// read; memory is bounded by four batches and the largest file. What the files held is noted in `base`.
pub async fn copy_in(
    root: &Path,
    base: &mut Base,
    store: &Store,
    sandbox: &Sandbox,
    on_copied: OnCopied<'_>,
) -> Result<CopyReport> {
    write_all(sandbox, directories(base.nodes.iter(), |mode| mode | 0o700)).await?;
    let nodes = base.nodes.iter().map(|(path, node)| (path.clone(), node.clone())).collect();
    let report = copy_nodes(root, base, nodes, store, sandbox, on_copied).await?;
    let closed = directories(base.nodes.iter(), |mode| mode)
        .into_iter()
        .filter(|write| write.mode.is_some_and(|mode| mode & 0o700 != 0o700));
    write_all(sandbox, closed.collect()).await?;
    Ok(report)
}

/// Copies single paths of `base` as the host has them now.
pub async fn copy_again(
    root: &Path,
    base: &mut Base,
    store: &Store,
    sandbox: &Sandbox,
    paths: Vec<TreePath>,
) -> Result<()> {
    let node = |path: TreePath| base.nodes.get(&path).cloned().map(|node| (path, node));
    let nodes: Vec<(TreePath, Node)> = paths.into_iter().filter_map(node).collect();
    write_all(sandbox, directories(nodes.iter().map(|(path, node)| (path, node)), |mode| mode | 0o700))
        .await?;
    copy_nodes(root, base, nodes, store, sandbox, &mut |_, _| {}).await.map(drop)
}

/// Copies files and symlinks; directories are there already.
async fn copy_nodes(
    root: &Path,
    base: &mut Base,
    nodes: Vec<(TreePath, Node)>,
    store: &Store,
    sandbox: &Sandbox,
    on_copied: OnCopied<'_>,
) -> Result<CopyReport> {
    let total: u64 = base.stamps.values().map(|stamp| stamp.size).sum();
    let mut report = CopyReport::default();
    let (sender, mut receiver) = mpsc::channel(1);
    let (root, store) = (root.to_owned(), store.clone());
    let reader = tokio::task::spawn_blocking(move || read_batches(&root, &store, nodes, &sender));
    let mut written = stream::poll_fn(move |context| receiver.poll_recv(context))
        .map(|Batch { writes, read, .. }| async move {
            let files = writes.len() as u64;
            write_all(sandbox, writes).await.map(|()| (files, read))
        })
        .buffered(IN_FLIGHT);
    while let Some((files, read)) = written.try_next().await? {
        report.files += files;
        for (path, read) in read {
            report.bytes += note(base, path, read);
        }
        on_copied(report.bytes, total);
    }
    reader.await.map_err(|error| Error::unexpected("reading the workspace failed").caused_by(error))??;
    Ok(report)
}

fn directories<'n>(
    nodes: impl Iterator<Item = (&'n TreePath, &'n Node)>,
    mode: impl Fn(u32) -> u32,
) -> Vec<FileWrite> {
    let directories = nodes.filter_map(|(path, node)| match node {
        Node::Directory { mode: bits } => Some((path, *bits)),
        _ => None,
    });
    directories
        .map(|(path, bits)| FileWrite {
            path: inside(path),
            node: Write::Directory,
            mode: Some(mode(bits)),
            mtime_ns: None,
            follow: false,
        })
        .collect()
}

/// Notes what a file held; bytes of it.
fn note(base: &mut Base, path: TreePath, read: ReadOutcome) -> u64 {
    match read {
        ReadOutcome::Content { hash, size, stamp } => {
            base.set_content(&path, hash, size);
            base.stamps.insert(path, stamp);
            return size;
        }
        ReadOutcome::Unreadable => {
            base.left_out.insert(path.clone(), LeftOut::Unreadable);
        }
        ReadOutcome::Gone => {}
    }
    base.stamps.remove(&path);
    base.nodes.remove(&path);
    0
}

fn read_batches(
    root: &Path,
    store: &Store,
    nodes: Vec<(TreePath, Node)>,
    sender: &mpsc::Sender<Batch>,
) -> Result<()> {
    let host = HostDir::open(root)?;
    let mut batch = Batch::default();
    for (path, node) in nodes {
        match node {
            Node::Directory { .. } => continue,
            Node::Symlink { target } => batch.writes.push(FileWrite {
                path: inside(&path),
                node: Write::Symlink(OsStr::from_bytes(&target.0).into()),
                mode: None,
                mtime_ns: None,
                follow: false,
            }),
            Node::File { mode, .. } => read_one(root, &host, store, path, mode, &mut batch)?,
        }
        if batch.bytes >= BATCH_BYTES || batch.writes.len() >= BATCH_FILES {
            // The other side is gone only after an error of its own.
            if sender.blocking_send(std::mem::take(&mut batch)).is_err() {
                return Ok(());
            }
        }
    }
    let _ = sender.blocking_send(batch);
    Ok(())
}

fn read_one(
    root: &Path,
    host: &HostDir,
    store: &Store,
    path: TreePath,
    mode: u32,
    batch: &mut Batch,
) -> Result<()> {
    let content = host.open_file(&path).and_then(|mut file: File| {
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok((content, Stamp::from(&rustix::fs::fstat(&file)?)))
    });
    let read = match content {
        Ok((content, stamp)) => {
            let content = sandbox_content(root, &path, content, store)?;
            let (hash, size) = (Hash::of(&content), content.len() as u64);
            batch.bytes += content.len();
            batch.writes.push(FileWrite {
                path: inside(&path),
                node: Write::Regular(content),
                mode: Some(mode),
                mtime_ns: Some(stamp.mtime_ns),
                follow: false,
            });
            ReadOutcome::Content { hash, size, stamp }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => ReadOutcome::Gone,
        Err(_) => ReadOutcome::Unreadable,
    };
    batch.read.push((path, read));
    Ok(())
}

/// The content as the sandbox gets it. A rewritten one is kept, for the host's file is not the base then.
fn sandbox_content(root: &Path, path: &TreePath, content: Vec<u8>, store: &Store) -> Result<Vec<u8>> {
    match git_directory::rewritten(root, path, &content) {
        Some(clean) => {
            store.put(&clean)?;
            Ok(clean)
        }
        None => Ok(content),
    }
}

/// Returns the path inside of a path of the tree: relative to the guest's workspace.
pub fn inside(path: &TreePath) -> PathBuf {
    path.as_path().to_owned()
}

/// Writes a batch; the first file that fails is the error.
pub async fn write_all(sandbox: &Sandbox, writes: Vec<FileWrite>) -> Result<()> {
    if writes.is_empty() {
        return Ok(());
    }
    sandbox.write_files(writes).await?.into_iter().collect()
}

/// [`write_below`] the workspace.
pub async fn write_nodes(sandbox: &Sandbox, store: &Store, nodes: Vec<(TreePath, Node)>) -> Result<()> {
    write_below(sandbox, store, Path::new(""), nodes).await
}

/// Writes single paths below `root` as `nodes` describes them, contents from the store. Bounded memory: a file at a time
/// beyond a batch.
pub async fn write_below(
    sandbox: &Sandbox,
    store: &Store,
    root: &Path,
    nodes: Vec<(TreePath, Node)>,
) -> Result<()> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for (path, node) in nodes {
        let (write, mode) = match node {
            Node::Directory { mode } => (Write::Directory, Some(mode)),
            Node::Symlink { target } => (Write::Symlink(OsStr::from_bytes(&target.0).into()), None),
            Node::File { hash, mode, size } => {
                let store = store.clone();
                let read = move || -> Result<Vec<u8>> {
                    let mut content = Vec::new();
                    store.open_blob(hash)?.read_to_end(&mut content)?;
                    Ok(content)
                };
                let task = tokio::task::spawn_blocking(read).await;
                let content =
                    task.map_err(|error| Error::unexpected("reading the store failed").caused_by(error))??;
                bytes += size;
                (Write::Regular(content), Some(mode))
            }
        };
        let path = root.join(inside(&path));
        batch.push(FileWrite { path, node: write, mode, mtime_ns: None, follow: false });
        if bytes >= BATCH_BYTES as u64 || batch.len() >= BATCH_FILES {
            write_all(sandbox, std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
    }
    write_all(sandbox, batch).await
}

/// Looks whether an overlay shows the tree and takes writes: an engine elsewhere mounts another machine's directory, and
/// one with user namespaces of its own shows the files as another user's.
pub async fn check_overlay(sandbox: &Sandbox, base: &Base) -> Result<()> {
    let failed = |error: Error| Error::sandbox("the overlay of the workspace does not work").caused_by(error);
    if let Some(path) = base.stamps.keys().next() {
        sandbox.stat(&inside(path)).await.map_err(failed)?;
    }
    let probe = PathBuf::from(format!(".agent-{:016x}.tmp", fastrand::u64(..)));
    let write = FileWrite {
        path: probe.clone(),
        node: Write::Regular(Vec::new()),
        mode: None,
        mtime_ns: None,
        follow: false,
    };
    write_all(sandbox, vec![write]).await.map_err(failed)?;
    sandbox.remove_files(vec![probe]).await?.into_iter().collect::<Result<()>>().map_err(failed)
}

/// Removes directories that are empty or hold only directories that go too: the deepest first.
pub async fn remove_directories(sandbox: &Sandbox, directories: Vec<PathBuf>) -> Result<Vec<Result<()>>> {
    let mut by_depth: BTreeMap<usize, Vec<PathBuf>> = BTreeMap::new();
    for path in directories {
        by_depth.entry(path.components().count()).or_default().push(path);
    }
    let mut results = Vec::new();
    for level in by_depth.into_values().rev() {
        results.extend(sandbox.remove_files(level).await?);
    }
    Ok(results)
}

/// Returns whether an error of the sandbox says that nothing is at a path, or that an overlay does not show what is there.
pub fn says_absent(error: &Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::STALE]
        .iter()
        .any(|errno| error.known_errno() == Some(errno.raw_os_error()))
}

/// Returns whether the sandbox has nothing at `path`, as far as it can be looked at there.
pub async fn is_absent(sandbox: &Sandbox, path: &TreePath) -> bool {
    sandbox.stat(&inside(path)).await.is_err_and(|error| says_absent(&error))
}

/// Writes git's files without their credentials over those of the layer underneath.
pub async fn clean_git_files(root: &Path, base: &mut Base, store: &Store, sandbox: &Sandbox) -> Result<()> {
    let host = HostDir::open(root)?;
    let is_file = |node: &Node| matches!(node, Node::File { .. });
    let files =
        base.nodes.iter().filter(|(path, node)| git_directory::is_rewritten(root, path) && is_file(node));
    let mut batch = Batch::default();
    for (path, node) in files {
        let mut content = Vec::new();
        // One that cannot be read by the caller cannot be read by the sandbox, which runs as the same user.
        let Ok(file) = host.open_file(path) else { continue };
        file.take(MAX_REWRITTEN + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_REWRITTEN {
            let why = format!("{path} is larger than {} MB and may hold credentials", MAX_REWRITTEN >> 20);
            return Err(Error::new(Kind::Limit, why).hint("leave it out with --exclude"));
        }
        if git_directory::rewritten(root, path, &content).is_some() {
            read_one(root, &host, store, path.clone(), node.mode().unwrap_or(0o644), &mut batch)?;
        }
    }
    write_all(sandbox, batch.writes).await?;
    for (path, read) in batch.read {
        note(base, path, read);
    }
    Ok(())
}
