//! Changes go to the host exactly, and come back exactly.

use agent_base::error::Kind;
use agent_base::hash::Hash;
use agent_testing::tree::{self, Entry, Tree, any_tree};
use agent_workspace::apply::Plan;
use agent_workspace::changes::{ChangeSet, Exclusions};
use agent_workspace::entries::Rejected;
use agent_workspace::host_dir::HostDir;
use agent_workspace::manifest::{self, Delta, Manifest, Node, Target};
use agent_workspace::selection::LeftOut;
use agent_workspace::store::Store;
use agent_workspace::tree_path::TreePath;
use agent_workspace::{diff, git_patch};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A host tree, the tree that a sandbox made of it, and the store between them.
struct Fixture {
    host: TempDir,
    sandbox: TempDir,
    directory: TempDir,
    store: Store,
}

impl Fixture {
    fn new(before: &Tree, after: &Tree) -> Self {
        let (host, sandbox, directory) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tree::write(host.path(), before);
        tree::write(sandbox.path(), after);
        Self { host, sandbox, store: Store::open(directory.path()).unwrap(), directory }
    }

    fn changes(&self) -> ChangeSet {
        let base = tree::read(self.host.path(), Some(&self.store));
        let delta = manifest::delta(&base, &tree::read(self.sandbox.path(), Some(&self.store)));
        review(&base, &delta, &BTreeMap::new())
    }

    fn apply(&self, changes: &ChangeSet, merge: bool) -> agent_base::Result<ChangeSet> {
        let host = HostDir::open(self.host.path()).unwrap();
        let plan = Plan::check(&host, changes, &self.store, merge.then(Default::default).as_ref())?;
        plan.write(&host, &self.store).map_err(|failed| failed.error)?;
        Ok(plan.record())
    }
}

fn review(base: &Manifest, delta: &Delta, left_out: &BTreeMap<TreePath, LeftOut>) -> ChangeSet {
    let exclusions = Exclusions {
        left_out,
        rejected: &Rejected::default(),
        ignored: &Default::default(),
        in_place: false,
    };
    ChangeSet::review(base, delta, &Delta::new(), &exclusions).unwrap()
}

fn file(content: &str) -> Entry {
    Entry::File(content.as_bytes().to_vec(), 0o644)
}

fn tree_of<const N: usize>(files: [(&str, Entry); N]) -> Tree {
    files.into_iter().map(|(path, want)| (path.as_bytes().to_vec(), want)).collect()
}

fn path(name: &str) -> TreePath {
    TreePath::new(name.as_bytes()).unwrap()
}

/// The owning group, which the list had kept from it, could read and write what came back.
#[test]
fn an_undone_deletion_is_for_nobody_whom_the_access_control_list_kept_from_it() {
    let before = Tree::from([(b"f".to_vec(), Entry::File(b"secret".to_vec(), 0o640))]);
    let fixture = Fixture::new(&before, &Tree::new());
    let file = fixture.host.path().join("f");
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 6, 1234), (4, 0, u32::MAX), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)]
    {
        list.extend([&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&file, "system.posix_acl_access", &list, flags).is_err() {
        agent_testing::skip::left_out("the temporary directory has no access control lists");
        return;
    }
    let mode = || fs::metadata(&file).map(|metadata| metadata.mode() & 0o777).ok();
    assert_eq!(mode(), Some(0o660));
    let record = fixture.apply(&fixture.changes(), false).unwrap();
    assert_eq!(mode(), None);
    let host = HostDir::open(fixture.host.path()).unwrap();
    let plan = Plan::check(&host, &record.reversed(), &fixture.store, None).unwrap().restoring();
    plan.write(&host, &fixture.store).unwrap();
    assert_eq!(mode(), Some(0o600));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn apply_gives_the_sandboxes_tree_and_undo_the_former_one(before in any_tree(), after in any_tree()) {
        let fixture = Fixture::new(&before, &after);
        let former = tree::read(fixture.host.path(), None);
        let record = fixture.apply(&fixture.changes(), false).unwrap();
        prop_assert_eq!(tree::read(fixture.host.path(), None), tree::read(fixture.sandbox.path(), None));
        fixture.apply(&record.reversed(), false).unwrap();
        prop_assert_eq!(tree::read(fixture.host.path(), None), former);
    }

    #[test]
    fn git_apply_of_the_patch_gives_the_same(mut before in any_tree(), after in any_tree()) {
        // git knows no empty directories, and so cannot put a file in the place of one.
        before.retain(|_, want| *want != Entry::Directory);
        let fixture = Fixture::new(&before, &after);
        let mut patch = Vec::new();
        git_patch::write(&mut patch, &fixture.changes(), &fixture.store, &mut git_patch::refuse).unwrap();
        if !patch.is_empty() {
            git_apply(fixture.host.path(), &patch);
        }
        prop_assert_eq!(in_gits_eyes(fixture.host.path()), in_gits_eyes(fixture.sandbox.path()));
    }

    #[test]
    fn the_diff_for_users_holds_nothing_that_a_terminal_obeys(before in any_tree(), after in any_tree()) {
        let fixture = Fixture::new(&before, &after);
        let mut shown = Vec::new();
        let changes = fixture.changes();
        diff::write_text(&mut shown, &changes, &fixture.store, false).unwrap();
        diff::write_stat(&mut shown, &changes, &fixture.store).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{:?}", shown);
    }

    #[test]
    fn what_the_host_changed_meanwhile_is_never_overwritten(before in any_tree(), after in any_tree(), pick in any::<prop::sample::Index>()) {
        let fixture = Fixture::new(&before, &after);
        let changes = fixture.changes();
        let files: Vec<_> = changes.changes.iter().filter(|(_, c)| matches!(c.before, Some(Node::File { .. }))).map(|(p, _)| p.clone()).collect();
        prop_assume!(!files.is_empty());
        let touched = &files[pick.index(files.len())];
        fs::write(fixture.host.path().join(touched.as_path()), "the user's own words").unwrap();
        let now = tree::read(fixture.host.path(), None);
        let error = fixture.apply(&changes, false).unwrap_err();
        prop_assert_eq!(error.kind(), Kind::Conflict);
        prop_assert!(error.to_string().contains(&touched.to_string()));
        prop_assert_eq!(tree::read(fixture.host.path(), None), now);
    }

    #[test]
    fn no_bytes_make_a_path_that_leads_out(bytes in prop::collection::vec(prop::sample::select(b"./\0a\\~".to_vec()), 0..12)) {
        if let Ok(path) = TreePath::new(&bytes) {
            let plain = path.as_path().components().all(|c| matches!(c, std::path::Component::Normal(_)));
            prop_assert!(plain && path.as_bytes() == bytes);
            prop_assert_eq!(serde_json::from_str::<TreePath>(&serde_json::to_string(&path).unwrap()).unwrap(), path);
        }
    }
}

fn git_apply(directory: &Path, patch: &[u8]) {
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn", "-"])
        .current_dir(directory)
        .env("GIT_CEILING_DIRECTORIES", "/tmp");
    let mut child = git.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(patch).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", String::from_utf8_lossy(patch));
}

/// git knows no directories, and of permission bits only the executable one.
fn in_gits_eyes(root: &Path) -> Vec<(TreePath, Node)> {
    let tree = tree::read(root, None).into_iter().filter(|(_, node)| !node.is_directory());
    let plain = |node: Node| node.mode().map_or(node.clone(), |mode| node.with_mode(mode & 0o100));
    tree.map(|(path, node)| (path, plain(node))).collect()
}

#[test]
fn what_is_too_large_for_a_patch_is_left_out_whole_and_named() {
    // One such file made the patch of all others impossible.
    let fixture = Fixture::new(
        &tree_of([("a", file("old\n")), ("link", Entry::Symlink(b"a".to_vec()))]),
        &tree_of([("a", file("new\n")), ("big", file("big\n")), ("link", file("no link\n"))]),
    );
    let mut changes = fixture.changes();
    for name in ["big", "link"] {
        if let Some(Some(Node::File { hash, .. })) =
            changes.changes.get_mut(&path(name)).map(|change| &mut change.after)
        {
            *hash = Hash::UNKNOWN;
        }
    }
    let (mut patch, mut left_out) = (Vec::new(), Vec::new());
    let mut on_left_out = |path: &TreePath| {
        left_out.push(path.to_string());
        Ok(())
    };
    git_patch::write(&mut patch, &changes, &fixture.store, &mut on_left_out).unwrap();
    assert_eq!(left_out, ["big", "link"]);
    let patch = String::from_utf8(patch).unwrap();
    assert!(patch.contains("+new\n") && !patch.contains("link"), "{patch}");
    let refused =
        git_patch::write(&mut Vec::new(), &changes, &fixture.store, &mut git_patch::refuse).unwrap_err();
    assert!(refused.to_string().contains("big cannot be part of a patch"), "{refused}");
}

#[test]
fn a_symlink_that_takes_a_directorys_place_leads_no_write_outside() {
    let fixture = Fixture::new(
        &tree_of([("dir/file", file("old\n"))]),
        &tree_of([("dir/file", file("new\n")), ("dir/more", file("x"))]),
    );
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "old\n").unwrap();
    let changes = fixture.changes();
    fs::remove_dir_all(fixture.host.path().join("dir")).unwrap();
    symlink(outside.path(), fixture.host.path().join("dir")).unwrap();
    assert_eq!(fixture.apply(&changes, true).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "old\n");
    assert!(!outside.path().join("more").exists());
}

#[test]
fn a_symlink_swapped_in_while_writing_leads_no_write_outside() {
    let after: Tree = (0..40).map(|i| (format!("dir/{i}").into_bytes(), file("new"))).collect();
    let outside = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let fixture = Fixture::new(&tree_of([("dir/keep", file("old"))]), &after);
        let changes = fixture.changes();
        let (dir, aside) = (fixture.host.path().join("dir"), fixture.host.path().join("aside"));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = fs::rename(&dir, &aside);
                    let _ = symlink(outside.path(), &dir);
                    let _ = fs::remove_file(&dir);
                    let _ = fs::rename(&aside, &dir);
                }
            });
            // Whether it succeeds depends on the race; where it writes must not.
            let _ = fixture.apply(&changes, false);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}

/// The new place of the user's own fixture was refused, and its removal from the former one was applied: it was nowhere.
#[test]
fn what_is_not_written_under_its_new_name_keeps_the_former_one() {
    let fixture = |at: &str| {
        let head = file("ref: refs/heads/x\n");
        let files = [
            ("HEAD", head),
            ("config", file("[core]\n")),
            ("objects/k", file("k\n")),
            ("refs/k", file("r\n")),
        ];
        files
            .into_iter()
            .map(|(name, entry)| (format!("{at}/{name}").into_bytes(), entry))
            .collect::<Vec<_>>()
    };
    let link = |target: &str| Entry::Symlink(target.as_bytes().to_vec());
    let refused = |before: Vec<(Vec<u8>, Entry)>, after: Vec<(Vec<u8>, Entry)>| {
        let fixture = Fixture::new(&before.into_iter().collect(), &after.into_iter().collect());
        let changes = fixture.changes().without_heads(&fixture.store).unwrap();
        fixture.apply(&changes, false).unwrap();
        let left = tree::read(fixture.host.path(), None);
        let told: String = changes.messages().map(|line| line + "\n").collect();
        (left.into_keys().map(|path| path.to_string()).collect::<Vec<_>>(), told)
    };
    let other = |name: &str| (name.as_bytes().to_vec(), file("other\n"));
    let (left, told) = refused(
        [fixture("t/fix"), vec![other("t/x")]].concat(),
        [fixture("s/fix2"), vec![other("s/x")]].concat(),
    );
    let whole = [
        "s",
        "s/x",
        "t",
        "t/fix",
        "t/fix/HEAD",
        "t/fix/config",
        "t/fix/objects",
        "t/fix/objects/k",
        "t/fix/refs",
        "t/fix/refs/k",
    ];
    assert_eq!(left, whole, "{told}");
    assert!(
        told.contains("t/fix is not applied: in the sandbox it is s/fix2, which is not applied\n"),
        "{told}"
    );
    let part = |at: &str| fixture(at).into_iter().take(3).collect::<Vec<_>>();
    let (left, told) = refused(part("fix"), part("fix2"));
    assert_eq!(left, ["fix", "fix/HEAD", "fix/config", "fix/objects", "fix/objects/k"], "{told}");
    let beside = |name: &str| vec![(name.as_bytes().to_vec(), file("a licence\n"))];
    let (left, told) =
        refused(beside("lib/LICENSE"), [fixture("new.git"), beside("new.git/LICENSE")].concat());
    assert_eq!(left, ["lib", "lib/LICENSE", "new.git"], "{told}");
    let (left, _) = refused(fixture("fix"), vec![other("x")]);
    assert_eq!(left, ["x"]);
    let (left, told) = refused(
        vec![(b"a/link".to_vec(), link("../x")), (b"a/file".to_vec(), file("text\n"))],
        vec![(b"link".to_vec(), link("../x")), (b"sub/GIT~1".to_vec(), file("text\n"))],
    );
    assert_eq!(left, ["a", "a/file", "a/link", "sub"], "{told}");
}

#[test]
fn a_flood_of_refused_entries_is_cut_short() {
    let link = || Some(Node::Symlink { target: Target("/etc/passwd".into()) });
    let mut delta: Delta = (0..3000).map(|n| (path(&format!("links/{n:04}")), link())).collect();
    delta.insert(path(&format!("{}x", "a-long-name-of-a-directory-somewhere/".repeat(40))), link());
    delta.insert(path(".env"), Some(Node::File { hash: Hash::of(b"evil"), size: 4, mode: 0o644 }));
    let set = review(&BTreeMap::new(), &delta, &BTreeMap::from([(path(".env"), LeftOut::Secret)]));
    assert_eq!(set.refused.len(), 3002);
    let told: Vec<String> = set.messages().collect();
    assert_eq!(told.len(), 22, "{told:#?}");
    assert!(told.iter().all(|line| line.chars().count() < 300), "{told:#?}");
    assert!(told.iter().any(|line| line.starts_with(".env is not applied")));
    assert!(told.iter().any(|line| line.starts_with("… and 2981 more: a symlink that leads out")));
}

#[test]
fn hostile_entries_are_refused_and_named() {
    let node = || Some(Node::File { hash: Hash::of(b"evil"), size: 4, mode: 0o6777 });
    let link = |target: &str| Some(Node::Symlink { target: Target(target.into()) });
    let delta = Delta::from([
        (path(".git/hooks/pre-commit"), node()),
        (path("sub/.git/config"), node()),
        (path("sub/.GIT/config"), node()),
        (path(".g\u{200c}it/config"), node()),
        (path("out"), link("/etc/passwd")),
        (path("up"), link("../x")),
        (path("a/fine"), link("../b")),
        (path("a/tricky"), link("dir/../../..")),
        (path("dist"), link(".git/hooks")),
        (path("a/settings"), link("../sub/.GiT /config")),
        (path("a/ignored"), link("../.gitignore")),
        (path(".env"), node()),
        (path("keys/id"), node()),
        (path("good"), node()),
    ]);
    let left_out = BTreeMap::from([(path(".env"), LeftOut::Secret), (path("keys"), LeftOut::Excluded)]);
    let set = review(&BTreeMap::new(), &delta, &left_out);
    let accepted: Vec<_> = set.changes.keys().map(ToString::to_string).collect();
    assert_eq!(accepted, ["a/fine", "a/ignored", "good"]);
    assert_eq!(set.changes[&path("good")].after.as_ref().unwrap().mode(), Some(0o755));
    insta::assert_snapshot!(
        set.refused.iter().map(|r| format!("{}: {}\n", r.name, r.reason)).collect::<String>(),
        @r#"
    .env: it is excluded (secret)
    .g\u{200c}it/config: the file system may take it for git's own directory
    a/settings: a symlink that leads into git's own directory
    a/tricky: a symlink that leads out of the workspace
    dist: a symlink that leads into git's own directory
    keys/id: it is excluded (excluded)
    out: a symlink that leads out of the workspace
    sub/.GIT/config: the file system may take it for git's own directory
    up: a symlink that leads out of the workspace
    "#
    );
}

#[test]
fn merge_takes_both_sides_and_writes_no_markers() {
    let base = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let fixture =
        Fixture::new(&tree_of([("f", file(base))]), &tree_of([("f", file(&base.replace('9', "nine")))]));
    let changes = fixture.changes();
    let host_file = fixture.host.path().join("f");
    fs::write(&host_file, base.replace('1', "one")).unwrap();
    assert_eq!(fixture.apply(&changes, false).unwrap_err().kind(), Kind::Conflict);
    fixture.apply(&changes, true).unwrap();
    assert_eq!(fs::read_to_string(&host_file).unwrap(), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");

    fs::write(&host_file, base.replace('9', "NEUN")).unwrap();
    let error = fixture.apply(&changes, true).unwrap_err();
    assert_eq!(error.exit_code().code(), 7);
    assert_eq!(fs::read_to_string(&host_file).unwrap(), base.replace('9', "NEUN"));
}

/// The record of the apply was dropped, and the first step back that failed ended the way back.
#[test]
fn what_an_apply_that_fails_leaves_because_the_way_back_fails_too_is_known() {
    let names = ["a", "b", "z"];
    let before = names.map(|name| (name, file(&format!("{name} of the host\n"))));
    let after = names.map(|name| (name, file(&format!("{name} of the sandbox\n"))));
    let fixture = Fixture::new(&tree_of(before), &tree_of(after));
    let changes = fixture.changes();
    let host = HostDir::open(fixture.host.path()).unwrap();
    let plan = Plan::check(&host, &changes, &fixture.store, None).unwrap();
    // The disk loses what `z` becomes, and what `a` was.
    fixture.store.save("any", &()).unwrap();
    let lose = |node: &Option<Node>| {
        let Some(Node::File { hash, .. }) = node else { panic!("a file") };
        let (directory, name) = (fixture.directory.path().join("blobs"), hash.to_string());
        fs::remove_file(directory.join(&name[..2]).join(&name[2..])).unwrap();
    };
    lose(&changes.changes[&path("z")].after);
    lose(&changes.changes[&path("a")].before);
    let failed = plan.write(&host, &fixture.store).unwrap_err();
    assert_eq!(failed.left.changes.keys().collect::<Vec<_>>(), [&path("a")]);
    let content = |name: &str| fs::read_to_string(fixture.host.path().join(name)).unwrap();
    assert_eq!(names.map(content), ["a of the sandbox\n", "b of the host\n", "z of the host\n"]);
}

/// It said that there is a conflict, and neither why nor where.
#[test]
fn a_merge_that_fails_says_why_and_in_which_lines() {
    let base: String = (1..=40).map(|line| format!("{line}\n")).collect();
    let inside = base.replace("10\n", "ten\n").replace("20\n21\n", "").replace("30\n", "thirty\n30.5\n");
    let before = tree_of([("f", file(&base)), ("gone", file("1\n")), ("blob", file("1\n"))]);
    let after = tree_of([("f", file(&inside)), ("gone", file("2\n")), ("blob", file("2\0"))]);
    let fixture = Fixture::new(&before, &after);
    let changes = fixture.changes();
    let outside = format!("0\n{base}").replace("10\n", "zehn\n").replace("21\n", "21!\n").replace("30\n", "");
    let write = |name: &str, content: &str| fs::write(fixture.host.path().join(name), content).unwrap();
    write("f", &outside);
    write("blob", "3\n");
    fs::remove_file(fixture.host.path().join("gone")).unwrap();
    let error = fixture.apply(&changes, true).unwrap_err();
    assert_eq!(error.exit_code().code(), 7);
    insta::assert_snapshot!(error, @r"
    nothing was written, because 3 files conflict
      blob: it changed on the host since the session took it, and binary content cannot be merged
      f: it changed on the host since the session took it, and both sides changed the same lines: line 11 (line 10 in the sandbox), line 22 (after line 19 in the sandbox), after line 30 (lines 28-29 in the sandbox)
      gone: it was deleted on the host, and only a file that both sides began with and still have can be merged
    ");
    assert_eq!(fs::read_to_string(fixture.host.path().join("f")).unwrap(), outside);
    // Where nobody asked for a merge, it is not a reason.
    assert!(!fixture.apply(&changes, false).unwrap_err().to_string().contains("merged"));
}

#[test]
fn a_conflict_keeps_every_other_file_unwritten_unless_it_is_named() {
    let fixture = Fixture::new(
        &tree_of([("a", file("a")), ("dir/b", file("b")), ("dir/c", file("c"))]),
        &tree_of([("a", file("A")), ("dir/b", file("B"))]),
    );
    let changes = fixture.changes();
    fs::write(fixture.host.path().join("a"), "mine").unwrap();
    insta::assert_snapshot!(fixture.apply(&changes, false).unwrap_err(), @r#"
    nothing was written, because a file conflicts
      a: it changed on the host since the session took it
    "#);
    assert_eq!(fs::read_to_string(fixture.host.path().join("dir/b")).unwrap(), "b");
    fixture.apply(&changes.select(&["./dir".into()]).unwrap(), false).unwrap();
    assert_eq!(fs::read_to_string(fixture.host.path().join("dir/b")).unwrap(), "B");
    assert!(!fixture.host.path().join("dir/c").exists());
    assert_eq!(changes.select(&["nothing".into()]).unwrap_err().kind(), Kind::Usage);
}

/// A file that was made 0600 on the host after the session took it was written as 0755, and a directory that appeared there got the mode
/// of the sandbox's.
#[test]
fn nobody_may_do_more_with_a_file_than_the_user_has_left_them_meanwhile() {
    let (script, data) = (Entry::File(b"new".to_vec(), 0o755), Entry::File(b"data".to_vec(), 0o666));
    let fixture = Fixture::new(
        &tree_of([
            ("tool", file("old")),
            ("same", file("old")),
            ("data", file("data")),
            ("open/x", file("x")),
        ]),
        &tree_of([
            ("tool", script.clone()),
            ("same", script),
            ("data", data),
            ("open/x", file("y")),
            ("made/x", file("x")),
        ]),
    );
    fs::set_permissions(fixture.sandbox.path().join("open"), Permissions::from_mode(0o777)).unwrap();
    let changes = fixture.changes();
    let host = |name: &str| fixture.host.path().join(name);
    let mode = |name: &str| fs::metadata(host(name)).unwrap().mode() & 0o777;
    fs::create_dir(host("made")).unwrap();
    for (name, mode) in [("tool", 0o600), ("data", 0o640), ("open", 0o750), ("made", 0o700)] {
        fs::set_permissions(host(name), Permissions::from_mode(mode)).unwrap();
    }
    fixture.apply(&changes, true).unwrap();
    for (name, expected) in
        [("tool", 0o700), ("same", 0o755), ("data", 0o640), ("open", 0o750), ("made", 0o700)]
    {
        assert_eq!(mode(name), expected, "{name}: {:o}", mode(name));
    }
    assert_eq!(fs::read_to_string(host("tool")).unwrap(), "new");
}

/// One file that changed on the host while others were being written left these as they were written.
#[test]
fn what_was_written_is_taken_back_where_another_file_changed_meanwhile() {
    let names = ["a", "b", "z"];
    let fixture = Fixture::new(
        &tree_of(names.map(|name| (name, file("old")))),
        &tree_of(names.map(|name| (name, file("new")))),
    );
    let host = HostDir::open(fixture.host.path()).unwrap();
    let plan = Plan::check(&host, &fixture.changes(), &fixture.store, None).unwrap();
    fs::write(fixture.host.path().join("z"), "mine").unwrap();
    assert_eq!(plan.write(&host, &fixture.store).unwrap_err().error.kind(), Kind::Conflict);
    for (name, content) in [("a", "old"), ("b", "old"), ("z", "mine")] {
        assert_eq!(fs::read_to_string(fixture.host.path().join(name)).unwrap(), content, "{name}");
    }
}

/// Replacing one of them moves the change time of the others, which looked as if somebody had written to them.
#[test]
fn names_of_the_same_file_are_written_one_by_one() {
    let names = ["a", "b", "dir/c"];
    let fixture = Fixture::new(
        &tree_of(names.map(|name| (name, file("old\n")))),
        &tree_of([("a", file("new a\n")), ("dir/c", file("new c\n"))]),
    );
    let host = |name: &str| fixture.host.path().join(name);
    for name in &names[1..] {
        fs::remove_file(host(name)).unwrap();
        fs::hard_link(host("a"), host(name)).unwrap();
    }
    let record = fixture.apply(&fixture.changes(), false).unwrap();
    assert_eq!(fs::read_to_string(host("a")).unwrap(), "new a\n");
    assert_eq!(fs::read_to_string(host("dir/c")).unwrap(), "new c\n");
    assert!(!host("b").exists());
    fixture.apply(&record.reversed(), false).unwrap();
    assert!(names.iter().all(|name| fs::read_to_string(host(name)).unwrap() == "old\n"));
}

/// The bug: what root wrote into somebody else's tree was root's.
#[test]
fn what_is_new_belongs_to_whose_tree_it_is() {
    // SAFETY: only reads the process's credentials.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let fixture = Fixture::new(
        &tree_of([("mine", file("old\n"))]),
        &tree_of([
            ("mine", file("new\n")),
            ("new", file("new\n")),
            ("dir/deep/new", file("new\n")),
            ("link", Entry::Symlink(b"new".to_vec())),
        ]),
    );
    chown(fixture.host.path(), Some(12_345), Some(12_346)).unwrap();
    fixture.apply(&fixture.changes(), false).unwrap();
    let owner = |name: &str| {
        let metadata = fixture.host.path().join(name).symlink_metadata().unwrap();
        (metadata.uid(), metadata.gid())
    };
    for name in ["new", "dir", "dir/deep", "dir/deep/new", "link"] {
        assert_eq!(owner(name), (12_345, 12_346), "{name}");
    }
    assert_eq!(owner("mine"), (0, 0), "what was there keeps its owner");
}

/// A file that became a symlink was an edit of one line in lists and editors.
#[test]
fn what_becomes_something_else_is_said() {
    let link = |target: &str| Entry::Symlink(target.as_bytes().to_vec());
    let fixture = Fixture::new(
        &tree_of([("Makefile", file("all:\n")), ("link", link("old")), ("d", Entry::Directory)]),
        &tree_of([("Makefile", link("docs/notes.txt")), ("link", link("new\u{202e}")), ("d", file("x\n"))]),
    );
    let changes = fixture.changes();
    let mut stat = Vec::new();
    diff::write_stat(&mut stat, &changes, &fixture.store).unwrap();
    let words: Vec<String> =
        changes.changes.iter().map(|(path, change)| diff::in_words(path, change)).collect();
    insta::assert_snapshot!(format!("{}\n{}", words.join("\n"), String::from_utf8(stat).unwrap()), @r"
    modified Makefile (file → symlink) → docs/notes.txt
    modified d (directory → file)
    modified link → new\u{202e}
         +1      -1  Makefile (file → symlink)
         +1      -0  d (directory → file)
         +1      -1  link (symlink)
    3 files changed, 3 lines added, 2 removed
    ");
}

/// A script with many blank lines behind its first one was too large to show, and nothing named where to see it.
#[test]
fn what_is_too_large_to_show_is_said_to_be_in_the_patch() {
    let large = format!("echo first\n{}", "\n".repeat(diff::MAX_SHOWN as usize));
    let fixture = Fixture::new(&Tree::new(), &tree_of([("build.sh", file(&large))]));
    let changes = fixture.changes();
    let mut shown = Vec::new();
    diff::write_text(&mut shown, &changes, &fixture.store, false).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert_eq!(shown, "new file build.sh\n  (too large to show: `agent diff --patch` has it)\n");
    let mut patch = Vec::new();
    git_patch::write(&mut patch, &changes, &fixture.store, &mut git_patch::refuse).unwrap();
    assert!(patch.windows(12).any(|part| part == b"+echo first\n"));
}

fn shown(changes: &ChangeSet, store: &Store) -> String {
    let mut shown = Vec::new();
    diff::write_text(&mut shown, changes, store, false).unwrap();
    String::from_utf8(shown).unwrap()
}

/// Data of a format: it is binary to a review.
fn png() -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n".as_slice(), &[0, 0x80, 0xff, 1].repeat(3_000)].concat()
}

/// A program that became a script, and a large file or one that is not known any more, hid what takes its place.
#[test]
fn each_side_is_shown_where_it_can_be() {
    let large = "# \n".repeat(diff::MAX_SHOWN as usize / 3 + 1);
    let fixture = Fixture::new(
        &tree_of([
            ("Makefile", file(&large)),
            ("gone.png", Entry::File(png(), 0o644)),
            ("grown", file("small\n")),
            ("tool.png", Entry::File(png(), 0o644)),
            ("unknown", file("former\n")),
        ]),
        &tree_of([
            ("Makefile", file("all:\n\ttouch x\n")),
            ("grown", file(&large)),
            ("tool.png", file("#!/bin/sh\ntouch x\n")),
            ("unknown", file("new\n")),
        ]),
    );
    let mut changes = fixture.changes();
    if let Some(Some(Node::File { hash, .. })) =
        changes.changes.get_mut(&path("unknown")).map(|change| &mut change.before)
    {
        *hash = Hash::UNKNOWN;
    }
    insta::assert_snapshot!(shown(&changes, &fixture.store), @r"
    modified Makefile
      (the former content is too large to show: `agent diff --patch` has it)
    @@ -0,0 +1,2 @@
    +all:
    +	touch x
    deleted gone.png
      (binary, 12008 → 0 bytes)
    modified grown
      (too large to show: `agent diff --patch` has it)
    modified tool.png
      (the former content is binary, 12008 bytes)
    @@ -0,0 +1,2 @@
    +#!/bin/sh
    +touch x
    modified unknown
      (the former content is not known any more)
    @@ -0,0 +1 @@
    +new
    ");
    let mut stat = Vec::new();
    diff::write_stat(&mut stat, &changes, &fixture.store).unwrap();
    insta::assert_snapshot!(String::from_utf8(stat).unwrap(), @r"
         +2      -0  Makefile
          -       -  gone.png (deleted)
          -       -  grown (modified)
         +2      -0  tool.png
         +1      -0  unknown
    5 files changed, 5 lines added, 0 removed
    ");
}

/// Lines that agents and shells read as bytes were Chinese to the user, with a remark about the encoding alone.
#[test]
fn what_a_mark_hides_from_who_does_not_know_it_is_said() {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let hidden = [utf16("\u{feff}notes\n"), b"\nrun sh \n ".to_vec()].concat();
    let honest = utf16("\u{feff}größer\n");
    let fixture = Fixture::new(
        &Tree::new(),
        &tree_of([("a.txt", Entry::File(hidden, 0o644)), ("b.txt", Entry::File(honest, 0o644))]),
    );
    let shown = shown(&fixture.changes(), &fixture.store);
    let remark = "  (UTF-16LE with a byte order mark, shown as UTF-8";
    let reads = "; a program that does not know the encoding reads letters line feeds in its characters";
    assert!(shown.starts_with(&format!("new file a.txt\n{remark}{reads})\n")), "{shown}");
    assert!(shown.contains(&format!("new file b.txt\n{remark})\n")), "{shown}");
}

/// A change of bytes that the encoding does not have, or has twice, was a change without a line: behind a byte order mark, in an encoding that
/// the other side has, in halves of pairs, and where two lines of bytes are one of text.
#[test]
fn no_encoding_leaves_a_change_of_bytes_without_a_line() {
    let marked = |byte: u8| [&b"\xef\xbb\xbfall:\n\techo "[..], &[byte], b"\n"].concat();
    let half =
        |byte: u8| [&b"\xff\xfe"[..], &[b'a', 0, b'\n', 0, byte, 0xd8, b'\n', 0, b'b', 0, b'\n', 0]].concat();
    let japanese = |bytes: &[u8]| {
        [&b"// \x90\xdd\x92\xe8\x83t\x83@\x83C\x83\x8b\x82\xa9\x82\xe7\nx "[..], bytes, b"\nend\n"].concat()
    };
    let twice = |first: &[u8], last: &[u8]| [japanese(first), last.to_vec()].concat();
    for (name, before, after, removed, added) in [
        ("Makefile", marked(0x80), marked(0x81), "-\techo \\x80\n", "+\techo \\x81\n"),
        ("w.txt", half(0), half(1), "-\\u{0}\\u{0}\\xd8", "+\\u{0}\\u{1}\\xd8"),
        ("a.c", japanese(b"\xfd\xfe"), japanese(b"\xfe\xfd"), "-x \\xfd\\xfe\n", "+x \\xfe\\xfd\n"),
        ("a.c", japanese(b"1"), japanese(b"\xfd\xfe"), "-x 1\n", "+x \\xfd\\xfe\n"),
        ("a.c", japanese(b"\x87\x90"), japanese(b"\x81\xe0"), "-x \\x87\\x90\n", "+x \\x81\\xe0\n"),
        ("a.c", twice(b"\x87\x90", b"1\n"), twice(b"\x81\xe0", b"2\n"), "-x \\x87\\x90\n", "+x \\x81\\xe0\n"),
        ("a.txt", b"\xef\xbb\xbfa\n".to_vec(), b"a\n".to_vec(), "-\\u{feff}a\n", "+a\n"),
    ] {
        let files = |bytes: &[u8]| tree_of([(name, Entry::File(bytes.to_vec(), 0o644))]);
        let fixture = Fixture::new(&files(&before), &files(&after));
        let changes = fixture.changes();
        let shown = shown(&changes, &fixture.store);
        assert!(shown.contains(removed) && shown.contains(added), "{shown}");
        let change = &changes.changes[&path(name)];
        let lines = diff::lines(&changes, &path(name), change, &fixture.store).unwrap();
        assert!(lines.is_some_and(|(plus, minus)| plus > 0 && minus > 0), "{name}: {lines:?}");
    }
}

/// No command showed a file of which neither the former content was known nor the new one small.
#[test]
fn what_no_patch_can_have_is_shown_at_any_size_that_one_would_have() {
    let large = format!("echo first\n{}", "\n".repeat(diff::MAX_SHOWN as usize));
    let fixture = Fixture::new(&tree_of([("a.sh", file("old\n"))]), &tree_of([("a.sh", file(&large))]));
    let mut changes = fixture.changes();
    assert!(shown(&changes, &fixture.store).contains("(too large to show: `agent diff --patch` has it)\n"));
    if let Some(Some(Node::File { hash, .. })) =
        changes.changes.get_mut(&path("a.sh")).map(|change| &mut change.before)
    {
        *hash = Hash::UNKNOWN;
    }
    let shown = shown(&changes, &fixture.store);
    let start =
        "modified a.sh\n  (the former content is not known any more)\n@@ -0,0 +1,8388609 @@\n+echo first\n";
    assert!(shown.starts_with(start), "{}", &shown[..200]);
}

/// A picture that nobody had looked at became a hook, and the review had no line of it.
#[test]
fn a_renamed_file_that_is_executed_or_obeyed_from_now_on_is_shown_as_a_whole() {
    let script = "echo 1\necho 2\n";
    let fixture = Fixture::new(
        &tree_of([
            ("a/pic.png", Entry::File(png(), 0o644)),
            ("a/other.png", Entry::File([png(), b"x".to_vec()].concat(), 0o644)),
            ("a/text", file("an instruction\n")),
            ("a/script", file(script)),
            ("a/same", file("the same\n")),
            ("a/notes.txt", file("def test(): pass\n")),
        ]),
        &tree_of([
            (".husky/pre-commit", Entry::File(png(), 0o755)),
            ("b/other", Entry::File([png(), b"x".to_vec()].concat(), 0o644)),
            ("b/AGENTS.md", file("an instruction\n")),
            ("b/script", Entry::File(script.as_bytes().to_vec(), 0o755)),
            ("b/same", file("the same\n")),
            ("b/test_a.py", file("def test(): pass\n")),
        ]),
    );
    let shown = shown(&fixture.changes(), &fixture.store);
    let lines = shown.lines().map(|line| line.chars().take(75).collect::<String>() + "\n");
    insta::assert_snapshot!(lines.collect::<String>(), @r"
    new directory .husky
    renamed a/pic.png → .husky/pre-commit (100 % the same, mode 644 → 755)
    @@ -0,0 +1,3 @@
    +\x89PNG␍
    +\u{1a}
    +\u{0}\x80\xff\u{1}\u{0}\x80\xff\u{1}\u{0}\x80\xff\u{1}\u{0}\x80\xff\u{1}\u
    \ No newline at end of file
    deleted directory a
    new directory b
    renamed a/text → b/AGENTS.md (100 % the same)
    @@ -0,0 +1 @@
    +an instruction
    renamed a/other.png → b/other (100 % the same)
    @@ -0,0 +1,3 @@
    +\x89PNG␍
    +\u{1a}
    +\u{0}\x80\xff\u{1}\u{0}\x80\xff\u{1}\u{0}\x80\xff\u{1}\u{0}\x80\xff\u{1}\u
    \ No newline at end of file
    renamed a/same → b/same (100 % the same)
    renamed a/script → b/script (100 % the same, mode 644 → 755)
    @@ -0,0 +1,2 @@
    +echo 1
    +echo 2
    renamed a/notes.txt → b/test_a.py (100 % the same)
    @@ -0,0 +1 @@
    +def test(): pass
    ");
}

/// What did nothing in `contrib/.husky`, `docs` or a directory outside of a workspace was run elsewhere, and the review had no line of it.
#[test]
fn a_control_file_that_moves_is_shown_as_a_whole() {
    let renames = [
        ("contrib/.husky/pre-commit", ".husky/pre-commit", true),
        ("docs/Makefile", "Makefile", true),
        ("GNUmakefile", "sub/GNUmakefile", true),
        (".vscode/old.json", ".vscode/tasks.json", true),
        ("one/build.rs", "lib/build.rs", true),
        ("apps/off/package.json", "apps/on/package.json", true),
        ("apps/off/a.js", "apps/on/a.js", false),
        ("docs/guide.md", "guide.md", false),
    ];
    let content = |from: &str| file(&format!("first {from}\nlast {from}\n"));
    let before = renames.iter().map(|(from, _, _)| (from.as_bytes().to_vec(), content(from))).collect();
    let after = renames.iter().map(|(from, to, _)| (to.as_bytes().to_vec(), content(from))).collect();
    let fixture = Fixture::new(&before, &after);
    let shown = shown(&fixture.changes(), &fixture.store);
    for (from, to, is_whole) in renames {
        assert!(shown.contains(&format!("renamed {from} → {to} (100 % the same)\n")), "{shown}");
        let lines = format!("+first {from}\n+last {from}\n");
        assert_eq!(shown.contains(&lines), is_whole, "{from} → {to}: {shown}");
    }
}

#[test]
fn the_diff_reads_well() {
    let fixture = Fixture::new(
        &tree_of([
            ("src/main.rs", file("fn main() {\n    old();\n}\n")),
            ("gone.txt", file("bye\n")),
            ("run.sh", file("#!/bin/sh\n")),
            ("logo.png", Entry::File(png(), 0o644)),
        ]),
        &tree_of([
            ("src/main.rs", file("fn main() {\n    new();\x1b]0;title\x07\n}")),
            ("new\u{202e}.txt", file("hi\n")),
            ("run.sh", Entry::File(b"#!/bin/sh\n".to_vec(), 0o755)),
            ("logo.png", Entry::File([png(), vec![2]].concat(), 0o644)),
            ("link", Entry::Symlink(b"src/main.rs".to_vec())),
        ]),
    );
    let changes = fixture.changes();
    let mut shown = Vec::new();
    diff::write_text(&mut shown, &changes, &fixture.store, false).unwrap();
    shown.push(b'\n');
    diff::write_stat(&mut shown, &changes, &fixture.store).unwrap();
    insta::assert_snapshot!(String::from_utf8(shown).unwrap(), @r#"
    deleted gone.txt
    @@ -1 +0,0 @@
    -bye
    new symlink link
    @@ -0,0 +1 @@
    +src/main.rs
    \ No newline at end of file
    modified logo.png
      (binary, 12008 → 12009 bytes)
    new file new\u{202e}.txt
    @@ -0,0 +1 @@
    +hi
    modified run.sh (mode 644 → 755)
    modified src/main.rs
    @@ -1,3 +1,3 @@
     fn main() {
    -    old();
    -}
    +    new();\u{1b}]0;title\u{7}
    +}
    \ No newline at end of file

         +0      -1  gone.txt (deleted)
         +1      -0  link (new symlink)
          -       -  logo.png (modified)
         +1      -0  new\u{202e}.txt (new file)
         +0      -0  run.sh (mode 644 → 755)
         +2      -2  src/main.rs
    6 files changed, 4 lines added, 3 removed
    "#);
}
