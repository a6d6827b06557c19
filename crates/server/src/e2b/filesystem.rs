//! `filesystem.Filesystem`: files and directories by path.

use super::connect::{self, Code, Codec, Failure, IncomingMessages, Wire};
use super::hosted::Hosted;
use super::metadata::{self, Metadata};
use super::watch::{Watch, Watching};
use agent_base::error::{Error, Kind};
use agent_envd::messages::Empty;
use agent_envd::messages::filesystem::{
    EntryInfo, EntryResponse, FileType, ListDirRequest, ListDirResponse, MoveRequest, PathRequest, Timestamp,
    WatchRequest, Watcher, WatcherEvents,
};
use agent_sandbox::{Command, Entry, EntryKind, FileWrite, Node, Outcome, Output, Program, WORKSPACE};
use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The most entries of one listing.
const MAX_ENTRIES: u64 = 100_000;
/// Links that are followed from one to the next, and how many at a time.
const MAX_LINKS: usize = 16;
const LINKS_AT_A_TIME: usize = 32;
/// The time limit for a move or removal.
const WORK_TIMEOUT: Duration = Duration::from_secs(600);
/// The most bytes that are kept of what a failed program printed.
const MAX_MESSAGE: usize = 1000;

/// Answers a call of the service.
pub async fn call(hosted: &Arc<Hosted>, method: &str, codec: Codec, body: Body) -> Response {
    match method {
        "Stat" => {
            let stat = async |request: PathRequest| entry(hosted, &request.path).await;
            unary(codec, body, stat).await
        }
        "ListDir" => unary(codec, body, async |request| list(hosted, request).await).await,
        "MakeDir" => unary(codec, body, async |request| make_dir(hosted, request).await).await,
        "Move" => unary(codec, body, async |request| rename(hosted, request).await).await,
        "Remove" => unary(codec, body, async |request| remove(hosted, request).await).await,
        "WatchDir" => {
            let watch = async {
                let request: WatchRequest = IncomingMessages::new(codec, body).only().await?;
                Watching::begin(hosted, &request).await
            };
            connect::stream(codec, watch.await)
        }
        "CreateWatcher" => {
            let create = async |request: WatchRequest| {
                let watch = Watch::begin(hosted, &request).await?;
                Ok(Watcher { watcher_id: hosted.watches.add(watch)? })
            };
            unary(codec, body, create).await
        }
        "GetWatcherEvents" => {
            let get = async |request: Watcher| {
                let watch = hosted.watches.find(&request.watcher_id)?;
                let events = watch.lock().await.events(hosted).await?;
                Ok(WatcherEvents { events })
            };
            unary(codec, body, get).await
        }
        "RemoveWatcher" => {
            let remove = async |request: Watcher| {
                hosted.watches.remove(&request.watcher_id);
                Ok(Empty {})
            };
            unary(codec, body, remove).await
        }
        _ => {
            connect::unary::<Empty>(codec, Err(Failure::new(Code::Unimplemented, "there is no such method")))
        }
    }
}

async fn unary<Q: Wire, A: Wire>(
    codec: Codec,
    body: Body,
    work: impl AsyncFnOnce(Q) -> Result<A, Failure>,
) -> Response {
    let result = async { work(connect::read_unary(codec, body).await?).await };
    connect::unary(codec, result.await)
}

async fn entry(hosted: &Hosted, path: &str) -> Result<EntryResponse, Failure> {
    let path = hosted.paths.resolve(path);
    let entry = hosted.sandbox.stat(&path).await.map_err(|error| failure(&error))?;
    let mut info = followed(hosted, &path, &entry).await;
    info.metadata = metadata::of(hosted, &[path]).await?.pop().unwrap_or_default();
    Ok(EntryResponse { entry: Some(info) })
}

/// An entry, which has the type of what it leads to if it is a link: a client that lists programs does not leave out `/bin`. One
/// that leads nowhere has none.
async fn followed(hosted: &Hosted, path: &Path, entry: &Entry) -> EntryInfo {
    let mut info = info(hosted, path, entry);
    let EntryKind::Symlink(target) = &entry.kind else { return info };
    let (mut link, mut target) = (path.to_owned(), target.clone());
    info.kind = FileType::Unspecified as i32;
    for _ in 0..MAX_LINKS {
        link = clean(&link.parent().unwrap_or(Path::new("/")).join(&target));
        match hosted.sandbox.stat(&link).await {
            Ok(Entry { kind: EntryKind::Symlink(next), .. }) => target = next,
            Ok(found) => {
                let found = self::info(hosted, &link, &found);
                (info.kind, info.mode, info.symlink_target) = (found.kind, found.mode, Some(found.path));
                break;
            }
            Err(_) => break,
        }
    }
    info
}

/// A path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

async fn list(hosted: &Hosted, request: ListDirRequest) -> Result<ListDirResponse, Failure> {
    let root = hosted.paths.resolve(&request.path);
    let listed = hosted.sandbox.list_dir(&root, request.depth, MAX_ENTRIES).await;
    let mut entries = listed.map_err(|error| match error.known_errno() {
        Some(libc::ENOTDIR) => Failure::new(Code::InvalidArgument, "path is not a directory"),
        _ => failure(&error),
    })?;
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let paths: Vec<PathBuf> = entries.iter().map(|entry| root.join(&entry.path)).collect();
    let metadata = metadata::of(hosted, &paths).await?;
    let infos = entries.into_iter().zip(metadata).map(async |(entry, metadata)| {
        let path = root.join(&entry.path);
        EntryInfo { metadata, ..followed(hosted, &path, &entry).await }
    });
    Ok(ListDirResponse { entries: stream::iter(infos).buffered(LINKS_AT_A_TIME).collect().await })
}

async fn make_dir(hosted: &Hosted, request: PathRequest) -> Result<EntryResponse, Failure> {
    let path = hosted.paths.resolve(&request.path);
    match hosted.sandbox.stat(&path).await {
        Ok(entry) if entry.kind == EntryKind::Directory => {
            return Err(Failure::new(Code::AlreadyExists, "the directory exists already"));
        }
        Ok(_) => return Err(Failure::new(Code::InvalidArgument, "the path exists and is not a directory")),
        Err(error) if error.known_errno() == Some(libc::ENOENT) => {}
        Err(error) => return Err(failure(&error)),
    }
    let node = Node::Directory;
    let write = FileWrite { path, node, mode: Some(0o755), mtime_ns: None, follow: true };
    write_one(hosted, write).await?;
    entry(hosted, &request.path).await
}

/// Writes a file or directory.
///
/// # Errors
/// The path, or the sandbox, is at fault.
pub async fn write_one(hosted: &Hosted, write: FileWrite) -> Result<(), Failure> {
    let results = hosted.sandbox.write_files(vec![write]).await.map_err(|error| failure(&error))?;
    results.into_iter().collect::<Result<(), Error>>().map_err(|error| failure(&error))
}

async fn rename(hosted: &Hosted, request: MoveRequest) -> Result<EntryResponse, Failure> {
    const SCRIPT: &str = r#"mkdir -p -- "$(dirname -- "$2")" && mv -f -T -- "$1" "$2""#;
    let (source, destination) =
        (hosted.paths.resolve(&request.source), hosted.paths.resolve(&request.destination));
    hosted.sandbox.stat(&source).await.map_err(|error| failure(&error))?;
    let script = ["/bin/sh", "-c", SCRIPT, "sh"].map(Into::into);
    run(hosted, script.into_iter().chain([source.into(), destination.into()]).collect()).await?;
    entry(hosted, &request.destination).await
}

async fn remove(hosted: &Hosted, request: PathRequest) -> Result<Empty, Failure> {
    let path = hosted.paths.resolve(&request.path);
    let argv = ["rm", "-rf", "--"].map(Into::into);
    run(hosted, argv.into_iter().chain([path.into()]).collect()).await.map(|()| Empty {})
}

/// Runs a program that has to succeed.
async fn run(hosted: &Hosted, argv: Vec<std::ffi::OsString>) -> Result<(), Failure> {
    let command = Command {
        program: Program::Argv(argv),
        cwd: Some("/".into()),
        env: Vec::new(),
        timeout: Some(WORK_TIMEOUT),
        live_bytes: MAX_MESSAGE as u64,
        stdin: false,
    };
    let mut printed = Vec::new();
    let mut keep = |output: Output<'_>| {
        if let Output::Data(_, bytes) = output {
            let room = MAX_MESSAGE.saturating_sub(printed.len());
            printed.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    };
    let finished = hosted.sandbox.run(command, &mut keep).await.map_err(|error| failure(&error))?;
    match finished.outcome {
        Outcome::Exited(0) => Ok(()),
        Outcome::Lost => Err(Failure::new(Code::Unavailable, "the connection to the sandbox ended")),
        _ => Err(Failure::new(Code::Internal, String::from_utf8_lossy(&printed).trim().to_owned())),
    }
}

/// A failed request to the sandbox as a failed call.
pub fn failure(error: &Error) -> Failure {
    let code = match (error.kind(), error.known_errno()) {
        (Kind::Sandbox, _) => Code::Unavailable,
        (_, Some(libc::ENOENT)) => Code::NotFound,
        (_, Some(libc::EACCES | libc::EPERM | libc::EROFS)) => Code::PermissionDenied,
        (_, Some(libc::ENOTDIR | libc::EISDIR | libc::EINVAL | libc::ENAMETOOLONG | libc::ELOOP)) => {
            Code::InvalidArgument
        }
        (_, Some(libc::ENOSPC | libc::EDQUOT)) => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    Failure::new(code, error.to_string())
}

/// An entry of the sandbox as clients see it.
pub fn info(hosted: &Hosted, path: &Path, entry: &Entry) -> EntryInfo {
    let (kind, letter, symlink_target) = match &entry.kind {
        EntryKind::File => (FileType::File, '-', None),
        EntryKind::Directory => (FileType::Directory, 'd', None),
        EntryKind::Symlink(target) => (FileType::Symlink, 'L', Some(target.to_string_lossy().into_owned())),
        EntryKind::Other => (FileType::Unspecified, '?', None),
    };
    let shown = hosted.paths.shown(path);
    let is_own = [super::paths::CLIENT_HOME, WORKSPACE, "/tmp"].iter().any(|own| shown.starts_with(own));
    let owner = if is_own { "user" } else { "root" };
    EntryInfo {
        name: shown.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        kind: kind as i32,
        path: shown.to_string_lossy().into_owned(),
        size: i64::try_from(entry.size).unwrap_or(i64::MAX),
        mode: entry.mode & 0o777,
        permissions: permissions(letter, entry.mode),
        owner: owner.into(),
        group: owner.into(),
        modified_time: Some(Timestamp {
            seconds: entry.mtime_ns.div_euclid(1_000_000_000),
            nanos: entry.mtime_ns.rem_euclid(1_000_000_000) as i32,
        }),
        symlink_target,
        metadata: Metadata::new(),
    }
}

/// As `ls -l` shows a mode.
fn permissions(letter: char, mode: u32) -> String {
    let bit = |index: u32| match mode & (0o400 >> index) {
        0 => '-',
        _ => ['r', 'w', 'x'][index as usize % 3],
    };
    std::iter::once(letter).chain((0..9).map(bit)).collect()
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn permissions_are_shown_as_ls_does() {
        assert_eq!(permissions('-', 0o644), "-rw-r--r--");
        assert_eq!(permissions('d', 0o751), "drwxr-x--x");
    }
}
