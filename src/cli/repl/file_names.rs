//! The files of the workspace that `@` offers, found beside the prompt.

use crate::cli::ui::file_names::FileNames;
use crate::lock::Lock;
use crate::sanitise::is_dangerous;
use ignore::WalkBuilder;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Files and directories that are looked at.
const MAX_ENTRIES: usize = 200_000;
/// The time limit for one look.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The age of the names from which on they are looked up again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// The time for which a key waits for the first names: a small workspace's are there by then.
const FIRST_WAIT: Duration = Duration::from_millis(25);

/// The files of a workspace that git does not ignore.
pub struct WorkspaceFiles(Arc<Shared>);

struct Shared {
    root: PathBuf,
    /// The directory in which commands start, relative to the root: names are relative to it.
    directory: PathBuf,
    state: Lock<State>,
    found: Condvar,
}

#[derive(Default)]
struct State {
    names: Arc<Vec<String>>,
    is_looking: bool,
    looked: Option<Instant>,
}

impl WorkspaceFiles {
    /// Those below `root`, as names relative to its `directory`. Nothing is looked at before they are asked for.
    pub fn new(root: &Path, directory: &Path) -> Self {
        let (root, directory) = (root.to_owned(), directory.to_owned());
        Self(Arc::new(Shared { root, directory, state: Lock::new(State::default()), found: Condvar::new() }))
    }
}

impl FileNames for WorkspaceFiles {
    fn known(&self) -> Arc<Vec<String>> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        let is_fresh = state.looked.is_some_and(|looked| looked.elapsed() < MAX_AGE);
        if !state.is_looking && !is_fresh {
            state.is_looking = true;
            let looking = Arc::clone(shared);
            std::thread::spawn(move || looking.look());
        }
        if state.looked.is_none() {
            let waited = shared.found.wait_timeout(state, FIRST_WAIT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Arc::clone(&state.names)
    }
}

impl Shared {
    fn look(&self) {
        let names = Arc::new(names(&self.root, &self.directory));
        let mut state = self.state.lock();
        *state = State { names, is_looking: false, looked: Some(Instant::now()) };
        self.found.notify_all();
    }
}

/// The names, those first that were changed last.
fn names(root: &Path, directory: &Path) -> Vec<String> {
    let until = Instant::now() + MAX_TIME;
    let is_repository = |name: &std::ffi::OsStr| name == ".git";
    // Files of this machine's user: no program of the repository is run to find out what it ignores.
    let walk = WalkBuilder::new(root)
        .hidden(false)
        .require_git(false)
        .filter_entry(move |entry| !is_repository(entry.file_name()))
        .build();
    let mut found: Vec<(SystemTime, String)> = Vec::new();
    for entry in walk.take(MAX_ENTRIES).take_while(|_| Instant::now() < until).flatten() {
        let Ok(path) = entry.path().strip_prefix(root) else { continue };
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        let Some(name) = name(path, directory, is_directory) else { continue };
        let changed = entry.metadata().ok().and_then(|metadata| metadata.modified().ok());
        // A directory is as old as can be: its files are what is meant.
        let changed = changed.filter(|_| !is_directory).unwrap_or(SystemTime::UNIX_EPOCH);
        found.push((changed, name));
    }
    found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    found.into_iter().map(|(_, name)| name).collect()
}

/// `path` as it is named in `directory`; both are relative to the root.
fn name(path: &Path, directory: &Path, is_directory: bool) -> Option<String> {
    let mut common =
        path.components().zip(directory.components()).take_while(|(one, other)| one == other).count();
    // The directory itself has no name in it.
    if is_directory && common == path.components().count() {
        return None;
    }
    if directory.components().all(|part| part == Component::CurDir) {
        common = 0;
    }
    let up = directory.components().filter(|part| *part != Component::CurDir).count().saturating_sub(common);
    let mut name: PathBuf = std::iter::repeat_n(Component::ParentDir, up).collect();
    name.extend(path.components().skip(common));
    let name = name.to_str().filter(|name| !name.is_empty() && !name.contains(is_dangerous))?;
    Some(if is_directory { format!("{name}/") } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_where_commands_start() {
        let of = |path: &str, directory: &str| name(Path::new(path), Path::new(directory), false);
        assert_eq!(of("a/b.rs", "").as_deref(), Some("a/b.rs"));
        assert_eq!(of("a/b.rs", "a").as_deref(), Some("b.rs"));
        assert_eq!(of("c/d.rs", "a/b").as_deref(), Some("../../c/d.rs"));
        assert_eq!(of("a\nb", ""), None);
        assert_eq!(name(Path::new("a"), Path::new("a/b"), true), None);
    }

    #[test]
    fn what_git_ignores_is_not_offered_and_what_was_changed_last_comes_first() {
        let made = tempfile::tempdir().unwrap();
        let write = |name: &str, age: u64| {
            let path = made.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = std::fs::File::create(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        std::fs::write(made.path().join(".gitignore"), "target\n").unwrap();
        write("old.rs", 1000);
        write("src/new.rs", 10);
        write("target/built", 1);
        write(".git/config", 1);
        let names = names(made.path(), Path::new(""));
        assert_eq!(names, [".gitignore", "src/new.rs", "old.rs", "src/"]);
    }
}
