//! The workspace as an overlay, on every backend: the host's tree underneath, never written, and what is excluded hidden.

use agent::sandbox::{Backend, Sandbox, Spec};
use agent::workspace::{Mode, Options, Workspace};
use agent_testbed::backends::{BACKENDS, backend, output_of, spec};
use agent_testing::machine;
use agent_testing::tree;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use tempfile::TempDir;

/// A host tree that a sandbox has as an overlay.
struct Overlaid {
    root: TempDir,
    backend: Box<dyn Backend>,
    spec: Spec,
    sandbox: Sandbox,
    workspace: Workspace,
}

impl Overlaid {
    /// With these files; `None` where this machine has no such backend.
    async fn start(name: &str, files: &[(&str, &str)]) -> Option<Self> {
        let backend = backend(name).await?;
        let root = tempfile::tempdir().expect("a directory");
        for (name, content) in files {
            let path = root.path().join("tree").join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, content).expect("a file");
        }
        let options = Options {
            mode: Mode::Overlay,
            can_overlay: backend.capabilities().host_paths,
            ..Options::new(machine())
        };
        let session = root.path().join("data/sessions/s");
        let workspace =
            Workspace::open(&root.path().join("tree"), &session, options).await.expect("it opens");
        let spec = Spec { workspace: workspace.mount().await, ..spec() };
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        workspace.copy_in(&sandbox, &mut |_, _| {}).await.expect("the overlay works");
        Some(Self { root, backend, spec, sandbox, workspace })
    }

    fn host(&self, path: &str) -> PathBuf {
        self.root.path().join("tree").join(path)
    }

    async fn changed(&self) -> Vec<String> {
        let changes = self.workspace.changes(&self.sandbox).await.expect("a look");
        let word = |change: &agent::workspace::changes::Change| match (&change.before, &change.after) {
            (None, _) => "+",
            (_, None) => "-",
            _ => "~",
        };
        let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
        files.map(|(path, change)| format!("{}{path}", word(change))).collect()
    }

    async fn end(self) {
        self.sandbox.shutdown().await;
        self.backend.destroy(&self.spec.session).await.expect("the sandbox goes");
    }
}

const FILES: [(&str, &str); 8] = [
    ("a.txt", "a\n"),
    ("src/one.rs", "1\n"),
    ("src/deep/two.rs", "2\n"),
    (".gitignore", "built/\n"),
    ("built/big/x", "ignored"),
    (".env", "SECRET=1"),
    ("src/deep/.env", "SECRET=2"),
    ("src/id_rsa", "key"),
];

#[tokio::test]
async fn excluded_files_are_absent_from_the_start() {
    for name in BACKENDS {
        let Some(overlaid) = Overlaid::start(name, &FILES).await else { continue };
        let list = output_of(&overlaid.sandbox, "find . | sort; stat -c '%U %a' . src src/deep").await;
        insta::allow_duplicates! {
            insta::assert_snapshot!(list, @r"
            .
            ./.gitignore
            ./a.txt
            ./built
            ./built/big
            ./built/big/x
            ./src
            ./src/deep
            ./src/deep/two.rs
            ./src/one.rs
            agent 755
            agent 755
            agent 755
            ");
        }
        let mtime = fs::metadata(overlaid.host("src")).expect("src").modified().expect("a time");
        let seconds = mtime.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
        assert_eq!(output_of(&overlaid.sandbox, "stat -c %Y src").await, seconds.to_string());
        assert_eq!(overlaid.changed().await, [""; 0]);
        // A name that is free inside is not free on the host.
        output_of(&overlaid.sandbox, "echo mine > .env; echo new > built/x; echo b > b.txt").await;
        assert_eq!(overlaid.changed().await, ["+b.txt"]);
        let refused = overlaid.workspace.recorded_changes().await.expect("recorded").refused;
        assert_eq!(refused.iter().map(|refused| refused.name.as_str()).collect::<Vec<_>>(), [".env"]);
        assert_eq!(fs::read_to_string(overlaid.host(".env")).expect("the host's"), "SECRET=1");
        overlaid.end().await;
    }
}

#[tokio::test]
async fn a_local_overlay_that_is_not_kept_is_volatile() {
    let Some(overlaid) = Overlaid::start("local", &FILES).await else { return };
    let mount = output_of(&overlaid.sandbox, "grep ' /workspace ' /proc/self/mountinfo").await;
    // Since Linux 5.10; without it everything that any program has written to the file system is written out at the end.
    assert!(mount.contains("volatile"), "{mount}");
    overlaid.end().await;
}

#[tokio::test]
async fn every_kind_of_change_is_seen_applied_and_undone() {
    for name in BACKENDS {
        let Some(overlaid) = Overlaid::start(name, &FILES).await else { continue };
        let before = tree::read(&overlaid.host(""), None);
        let seen =
            "find . -path ./built -prune -o -type f -print | sort | xargs md5sum; find . -type d | sort";
        let at_first = output_of(&overlaid.sandbox, seen).await;
        for step in [
            // A directory that is renamed, one that is replaced by an empty one of the same name (opaque in the layer), a
            // file in a directory's place and the other way round, and a change of permission bits alone.
            "mv src/deep src/moved; echo 3 > src/moved/three.rs",
            "rm -r src; mkdir src; echo new > src/new.rs; chmod 755 a.txt",
            "rm -r src; echo file > src; rm a.txt; mkdir a.txt; echo in > a.txt/in",
        ] {
            output_of(&overlaid.sandbox, step).await;
            overlaid
                .workspace
                .checkpoint(&overlaid.sandbox, 1)
                .await
                .expect("a checkpoint")
                .expect("a change");
        }
        assert_eq!(
            overlaid.changed().await,
            ["~a.txt", "+a.txt/in", "~src", "-src/deep/two.rs", "-src/one.rs"]
        );
        overlaid.workspace.undo(&overlaid.sandbox, 1).await.expect("undone");
        assert_eq!(overlaid.changed().await, ["~a.txt", "-src/deep/two.rs", "+src/new.rs", "-src/one.rs"]);
        overlaid.workspace.undo(&overlaid.sandbox, 1).await.expect("undone");
        assert_eq!(
            overlaid.changed().await,
            ["-src/deep/two.rs", "+src/moved/three.rs", "+src/moved/two.rs"]
        );
        overlaid.workspace.undo(&overlaid.sandbox, 1).await.expect("undone");
        assert_eq!(output_of(&overlaid.sandbox, seen).await, at_first);
        assert_eq!(tree::read(&overlaid.host(""), None), before, "the host's tree is as it was");

        overlaid.workspace.redo(&overlaid.sandbox, 2).await.expect("redone");
        let changes = overlaid.workspace.changes(&overlaid.sandbox).await.expect("a look");
        let error = overlaid.workspace.apply(&changes, None).await.map(drop);
        // `src/deep` keeps the host's secret, and so stays.
        error.expect("applied");
        assert_eq!(fs::read_to_string(overlaid.host("src/new.rs")).expect("applied"), "new\n");
        assert_eq!(fs::metadata(overlaid.host("a.txt")).expect("a.txt").permissions().mode() & 0o777, 0o755);
        assert!(!overlaid.host("src/one.rs").exists() && !overlaid.host("src/deep/two.rs").exists());
        assert!(overlaid.host("src/deep/.env").exists() && overlaid.host("src/id_rsa").exists());
        assert_eq!(overlaid.changed().await, [""; 0]);
        overlaid.workspace.undo_apply().await.expect("taken back");
        assert_eq!(tree::read(&overlaid.host(""), None), before);
        overlaid.end().await;
    }
}

/// An undo of what is in such a directory failed.
#[tokio::test]
async fn changes_in_directories_that_the_session_closed_are_undone() {
    for name in BACKENDS {
        let Some(overlaid) = Overlaid::start(name, &FILES).await else { continue };
        let seen = "find src -printf '%p %m\n' | sort; cat src/one.rs src/deep/two.rs; true";
        let mut states = vec![output_of(&overlaid.sandbox, seen).await];
        for step in [
            "echo 2 > src/one.rs; echo new > src/new; echo 2 > src/deep/two.rs; chmod 555 src/deep src",
            "chmod 755 src; echo 3 > src/one.rs; rm src/new; chmod 555 src",
            "chmod 755 src src/deep; echo 4 > src/deep/two.rs; chmod 000 src/deep src",
        ] {
            output_of(&overlaid.sandbox, step).await;
            overlaid.workspace.checkpoint(&overlaid.sandbox, 1).await.expect("a checkpoint");
            states.push(output_of(&overlaid.sandbox, seen).await);
        }
        overlaid.workspace.open_closed(&overlaid.sandbox).await.expect("opened");
        overlaid.workspace.checkpoint(&overlaid.sandbox, 1).await.expect("a look").expect("a change");
        for state in states.iter().rev().skip(1) {
            overlaid.workspace.undo(&overlaid.sandbox, 1).await.expect("undone");
            assert_eq!(output_of(&overlaid.sandbox, seen).await, *state, "on {name}");
        }
        overlaid.end().await;
    }
}

/// Where secrets are made most. A new one in a subdirectory is seen, as `SECURITY.md` says.
#[tokio::test]
async fn a_secret_that_is_made_at_the_top_later_is_not_seen() {
    for name in BACKENDS {
        let Some(overlaid) = Overlaid::start(name, &[("a", "a"), ("sub/b", "b")]).await else { continue };
        for secret in [".env", ".env.local", "sub/.env"] {
            fs::write(overlaid.host(secret), "SECRET=1").expect("written");
        }
        assert_eq!(
            output_of(&overlaid.sandbox, "test ! -e .env; find . -type f | sort").await,
            "./a\n./sub/.env\n./sub/b"
        );
        output_of(&overlaid.sandbox, "echo mine > .env").await;
        assert_eq!(overlaid.changed().await, ["+.env"]);
        let changes = overlaid.workspace.changes(&overlaid.sandbox).await.expect("a look");
        overlaid.workspace.apply(&changes, None).await.expect_err("the host has one by now");
        overlaid.end().await;
    }
}

#[tokio::test]
async fn changes_of_the_host_underneath_are_not_changes_of_the_session() {
    for name in BACKENDS {
        let Some(overlaid) = Overlaid::start(name, &FILES).await else { continue };
        fs::write(overlaid.host("a.txt"), "the host's newer one\n").expect("written");
        fs::write(overlaid.host("src/host.rs"), "new on the host\n").expect("written");
        fs::remove_file(overlaid.host("src/deep/two.rs")).expect("removed");
        assert_eq!(overlaid.changed().await, [""; 0]);
        // What the sandbox changes on top of it is a change of the newer one, and applies.
        output_of(&overlaid.sandbox, "echo more >> a.txt; rm src/host.rs").await;
        assert_eq!(overlaid.changed().await, ["~a.txt", "-src/host.rs"]);
        // Now the host's is another once more: a conflict.
        fs::write(overlaid.host("a.txt"), "newer still\n").expect("written");
        let changes = overlaid.workspace.changes(&overlaid.sandbox).await.expect("a look");
        let error = overlaid.workspace.apply(&changes, None).await.expect_err("a conflict").to_string();
        assert!(error.contains("a.txt: it changed on the host"), "{error}");
        fs::write(overlaid.host("a.txt"), "the host's newer one\n").expect("written");
        overlaid.workspace.apply(&changes, None).await.expect("applied");
        let now = fs::read_to_string(overlaid.host("a.txt")).expect("a.txt");
        assert_eq!(now, "the host's newer one\nmore\n");
        assert!(!overlaid.host("src/host.rs").exists());
        overlaid.end().await;
    }
}

#[tokio::test]
async fn a_tree_with_files_of_another_user_is_copied_with_a_notice() {
    // SAFETY: only reads the process's credentials.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let host = tempfile::tempdir().expect("a directory");
    for number in 0..2001 {
        fs::write(host.path().join(format!("file-{number}")), "x").expect("a file");
    }
    let home = tempfile::tempdir().expect("a directory");
    let tree = host.path();
    let open = |session: &str, mode| {
        let session = home.path().join("sessions").join(session);
        let options = Options { mode, can_overlay: true, ..Options::new(machine()) };
        async move { Workspace::open(tree, &session, options).await }
    };
    assert!(open("s1", Mode::Auto).await.expect("it opens").notices().is_empty());
    chown(tree.join("file-7"), Some(12_345), None).expect("given away");
    let copied = open("s2", Mode::Auto).await.expect("it opens");
    insta::assert_snapshot!(copied.notices().join("\n"), @"The workspace is copied, because an overlay is not possible here: file-7 belongs to another user.");
    let error = open("s3", Mode::Overlay).await.err().expect("refused");
    insta::assert_snapshot!(error.to_string(), @"the workspace cannot be an overlay: file-7 belongs to another user");
}

#[tokio::test]
async fn edits_on_the_host_are_reported_and_a_new_secret_stays_out() {
    for name in BACKENDS {
        let Some(overlaid) = Overlaid::start(name, &FILES).await else { continue };
        let refresh = async || {
            let refreshed = overlaid.workspace.refresh(&overlaid.sandbox).await.expect("a look");
            let names = |paths: Vec<agent::workspace::tree_path::TreePath>| -> Vec<String> {
                paths.iter().map(ToString::to_string).collect()
            };
            (names(refreshed.followed), names(refreshed.conflicts))
        };
        assert_eq!(refresh().await, (Vec::new(), Vec::new()));
        output_of(&overlaid.sandbox, "echo inside > src/one.rs; echo back > a.txt; echo a > a.txt").await;
        overlaid.workspace.checkpoint(&overlaid.sandbox, 1).await.expect("a look");
        fs::write(overlaid.host("a.txt"), "host\n").expect("written");
        fs::write(overlaid.host("src/one.rs"), "host\n").expect("written");
        fs::write(overlaid.host("src/new.rs"), "host\n").expect("written");
        fs::write(overlaid.host("src/prod.env"), "TOKEN=1\n").expect("written");
        let (followed, conflicts) = refresh().await;
        assert_eq!(
            (followed, conflicts),
            (vec!["a.txt".into(), "src/new.rs".into()], vec!["src/one.rs".into()])
        );
        let seen = output_of(&overlaid.sandbox, "cat a.txt src/one.rs src/new.rs; ls src").await;
        assert_eq!(seen, "host\ninside\nhost\ndeep\nnew.rs\none.rs", "{name}");
        assert_eq!(refresh().await, (Vec::new(), Vec::new()));
        assert_eq!(overlaid.changed().await, ["~src/one.rs"]);
        overlaid.end().await;
    }
}
