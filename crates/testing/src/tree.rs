//! Trees of files: random ones, and reading and writing them.

use agent_base::hash::Hash;
pub use agent_workspace::manifest::Manifest;
use agent_workspace::manifest::{Node, Target};
use agent_workspace::store::Store;
use agent_workspace::tree_path::TreePath;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// An entry that a test puts at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    File(Vec<u8>, u32),
    Symlink(Vec<u8>),
    Directory,
}

/// Paths with what is at each; parents are directories.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// Writes `tree` below `root`.
pub fn write(root: &Path, tree: &Tree) {
    for (path, entry) in tree {
        let path = root.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry {
            Entry::File(content, mode) => {
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Entry::Symlink(target) => symlink(std::ffi::OsStr::from_bytes(target), &path).unwrap(),
            Entry::Directory => fs::create_dir_all(&path).unwrap(),
        }
    }
}

/// Returns what is below `root`, without `.git`; contents go into `store` if there is one.
pub fn read(root: &Path, store: Option<&Store>) -> Manifest {
    let mut manifest = Manifest::new();
    read_into(root, root, store, &mut manifest);
    manifest
}

fn read_into(root: &Path, directory: &Path, store: Option<&Store>, manifest: &mut Manifest) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() == ".git" {
            continue;
        }
        let metadata = path.symlink_metadata().unwrap();
        let mode = metadata.permissions().mode() & 0o777;
        let node = if metadata.is_symlink() {
            Node::Symlink { target: Target(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_owned()) }
        } else if metadata.is_dir() {
            read_into(root, &path, store, manifest);
            Node::Directory { mode }
        } else {
            let content = fs::read(&path).unwrap();
            let hash = store.map_or_else(|| Hash::of(&content), |store| store.put(&content).unwrap());
            Node::File { hash, size: content.len() as u64, mode }
        };
        let relative = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
        manifest.insert(TreePath::new(relative).unwrap(), node);
    }
}

/// A random tree of up to a dozen paths with few names, so that two of them meet often: the same path is a file in
/// one and a directory in the other, contents share lines.
///
/// Symlinks dangle: `git apply` cannot replace a link to itself with a directory.
pub fn any_tree() -> impl Strategy<Value = Tree> {
    prop::collection::vec((any_path(), any_entry()), 0..12).prop_map(|entries| {
        let mut tree = Tree::new();
        for (path, entry) in entries {
            let below = |other: &[u8], of: &[u8]| other.starts_with(&[of, b"/"].concat());
            // A path cannot be a file and a directory.
            if !tree.keys().any(|other| below(other, &path) || below(&path, other) || *other == path) {
                tree.insert(path, entry);
            }
        }
        tree
    })
}

fn any_path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        8 => prop::sample::select(vec![&b"a"[..], b"b", b"c.rs", b"a-b", b"d"]).prop_map(<[u8]>::to_vec),
        1 => prop::sample::select(vec![
            &b"with space"[..], b"new\nline", b"\"quoted\"", b"back\\slash", b"tab\there", b"\xff\xfe", "ü".as_bytes(),
            b"-dash", b"%41", b"esc\x1b[31m", b"~", b"*"
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    prop::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'))
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let mode = prop::sample::select(vec![0o644, 0o755, 0o600]);
    prop_oneof![
        8 => (any_content(), mode).prop_map(|(content, mode)| Entry::File(content, mode)),
        1 => prop::sample::select(vec![&b"nowhere"[..], b"no/where"]).prop_map(|target| Entry::Symlink(target.to_vec())),
        1 => Just(Entry::Directory),
    ]
}

fn any_content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "fn main() {",
        "}",
        "",
        "    one",
        "    two",
        "\t3",
        "+plus",
        "-minus",
        "@@ x",
        "\\ No",
    ]);
    let text = (prop::collection::vec(line, 0..30), any::<bool>()).prop_map(|(lines, newline)| {
        let end = if newline && !lines.is_empty() { "\n" } else { "" };
        format!("{}{end}", lines.join("\n")).into_bytes()
    });
    prop_oneof![6 => text, 1 => prop::collection::vec(any::<u8>(), 0..300), 1 => Just(vec![0; 70_000])]
}
