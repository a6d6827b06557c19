//! A session's workspace against the real guest: copied in, changed, reviewed, taken back, applied.

use agent_base::error::Kind;
use agent_base::hash::Hash;
use agent_sandbox::{FileWrite, Node as Write};
use agent_testing::guest::Guest;
use agent_testing::machine;
use agent_testing::tree::{self, Entry, Tree, any_tree};
use agent_workspace::manifest::Node;
use agent_workspace::{ChangeSet, Mode, Options, Workspace, risks};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

/// A host tree, its session, and a guest that stands for the sandbox.
struct Session {
    host: TempDir,
    home: TempDir,
    guest: Guest,
    workspace: Workspace,
}

impl Session {
    async fn start(host: TempDir) -> Self {
        Self::with(host, Options::new(machine())).await
    }

    async fn with(host: TempDir, options: Options) -> Self {
        let home = tempfile::tempdir().unwrap();
        let guest = Guest::start().await;
        let workspace =
            Workspace::open(host.path(), &home.path().join("sessions/s1"), options).await.unwrap();
        workspace.copy_in(&guest.sandbox, &mut |_, _| {}).await.unwrap();
        Self { host, home, guest, workspace }
    }

    /// Runs shell text inside, then takes the checkpoint that follows a turn.
    async fn turn(&self, text: &str) {
        let ran = self.guest.sh(text).await;
        assert_eq!(ran.finished().outcome, agent_sandbox::Outcome::Exited(0), "{text}: {:?}", ran);
        self.workspace.checkpoint(&self.guest.sandbox, 1).await.unwrap();
    }

    async fn changes(&self) -> ChangeSet {
        self.workspace.changes(&self.guest.sandbox).await.unwrap()
    }

    async fn changed(&self) -> Vec<String> {
        self.changes().await.changes.keys().map(ToString::to_string).collect()
    }

    async fn apply(&self) -> agent_base::Result<()> {
        self.workspace.apply(&self.changes().await, Some(&self.guest.sandbox)).await.map(drop)
    }

    fn host(&self, name: &str) -> std::path::PathBuf {
        self.host.path().join(name)
    }

    fn inside(&self) -> std::path::PathBuf {
        self.guest.path("")
    }
}

fn host(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn git(directory: &Path, arguments: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.current_dir(directory).args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(arguments);
    let output = git.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[tokio::test]
async fn the_copy_is_exact_except_for_excluded_files() {
    let directory = host(&[
        ("src/main.rs", "fn main() {}"),
        (".env", "KEY=1"),
        (".env.example", "KEY="),
        ("deploy/id_rsa", "secret"),
        ("deploy/key", "-----BEGIN OPENSSH PRIVATE KEY-----\nx"),
        (".npmrc", "//registry.npmjs.org/:_authToken=abc\n"),
        ("sub/.npmrc", "registry=https://example.com\n"),
        (".gitignore", "target/\n*.log\n"),
        ("target/debug/x", "built"),
        ("a.log", "log"),
    ]);
    fs::set_permissions(directory.path().join("src/main.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/main.rs", directory.path().join("link")).unwrap();
    fs::write(directory.path().join(std::ffi::OsString::from("rejected\n\u{1b}name")), "rejected").unwrap();
    let session = Session::start(directory).await;
    let mut expected = tree::read(session.host.path(), None);
    expected.retain(|path, _| {
        let out = [".env", "deploy/id_rsa", "deploy/key", ".npmrc", "target", "a.log"];
        !out.iter().any(|name| path.is_within(name.as_bytes()))
    });
    assert_eq!(tree::read(&session.inside(), None), expected);
    let mtime = |path: &Path| path.symlink_metadata().unwrap().modified().unwrap();
    assert_eq!(mtime(&session.inside().join("src/main.rs")), mtime(&session.host("src/main.rs")));
    insta::assert_snapshot!(session.workspace.notices().join("\n"), @"Workspace: left out: .env (secret), .npmrc (secret), deploy/id_rsa (secret), deploy/key (secret); --include copies files all the same; what git ignores is not copied without --include: target, a.log.");
    assert_eq!(session.changed().await, [""; 0]);
}

#[tokio::test]
async fn git_works_inside_and_nothing_of_it_is_applied() {
    let directory = host(&[
        ("a.txt", "a\n"),
        (".gitignore", "*.gen\n"),
        ("kept.gen", "tracked although ignored\n"),
        ("other.gen", "x"),
    ]);
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["add", "-f", "a.txt", "kept.gen", ".gitignore"]);
    git(directory.path(), &["commit", "-qm", "first"]);
    git(directory.path(), &["remote", "add", "origin", "https://user:token@example.com/x.git"]);
    let session = Session::start(directory).await;
    assert_eq!(session.guest.sh("git status --porcelain").await.text(), "");
    assert_eq!(session.guest.sh("git remote get-url origin").await.text(), "https://example.com/x.git\n");
    let hooks = "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil";
    session.turn(&format!("{hooks}; echo b > b.txt; git config --unset core.fsmonitor; git -c user.name=b -c user.email=b@b add . && echo c > c.gen")).await;
    assert_eq!(session.changed().await, ["b.txt"]);
    let config = fs::read_to_string(session.host(".git/config")).unwrap();
    session.apply().await.unwrap();
    assert_eq!(fs::read_to_string(session.host("b.txt")).unwrap(), "b\n");
    assert!(!session.host(".git/hooks/pre-commit").exists());
    assert_eq!(fs::read_to_string(session.host(".git/config")).unwrap(), config);
    assert_eq!(session.changed().await, [""; 0]);
}

/// Keys of git-crypt and git-annex, and copies that editors made of git's configuration, were copied.
#[tokio::test]
async fn of_a_git_directory_only_what_git_needs_is_there() {
    let directory = host(&[("a.txt", "a\n"), ("lib/b.txt", "b\n")]);
    git(&directory.path().join("lib"), &["init", "-q"]);
    git(&directory.path().join("lib"), &["add", "."]);
    git(&directory.path().join("lib"), &["commit", "-qm", "first"]);
    git(directory.path(), &["init", "-q"]);
    git(
        directory.path(),
        &["-c", "protocol.file.allow=always", "submodule", "add", "-q", "./lib", "deep/sub"],
    );
    git(directory.path(), &["add", "a.txt"]);
    git(directory.path(), &["commit", "-qm", "first"]);
    fs::write(directory.path().join("a.txt"), "stashed\n").unwrap();
    git(directory.path(), &["stash", "-q"]);
    git(directory.path(), &["notes", "add", "-m", "a note"]);
    git(directory.path(), &["worktree", "add", "-q", "tree"]);
    git(directory.path(), &["branch", "config"]);
    let git_dirs = [".git", ".git/modules/deep/sub", ".git/worktrees/tree", "lib/.git"];
    let secrets =
        ["git-crypt/keys/default", "annex/creds/1", "config~", "config.bak", ".config.swp", "credentials"];
    for secret in git_dirs.iter().flat_map(|git_dir| secrets.map(|name| format!("{git_dir}/{name}"))) {
        let path = directory.path().join(&secret);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "SECRET").unwrap();
    }
    let log = directory.path().join(".git/logs/HEAD");
    let text =
        fs::read_to_string(&log).unwrap().replacen("commit (initial)", "clone: from https://u:SECRET@h/x", 1);
    fs::write(&log, text).unwrap();
    let look = "git status --short; git submodule status; git log --format=%s config; git notes show; git stash list --format=%gd; \
                git -C tree log --format=%s; git -C deep/sub log --format=%s; git worktree list | wc -l; git fsck 2>&1";
    let host_says =
        std::process::Command::new("sh").args(["-c", look]).current_dir(directory.path()).output().unwrap();
    let session = Session::start(directory).await;
    let found = session.guest.sh("grep -rl SECRET . .git; find . -name git-crypt -o -name creds").await;
    assert_eq!(found.text(), "");
    assert_eq!(session.guest.sh("grep -c https://h/x .git/logs/HEAD").await.text(), "1\n");
    assert_eq!(session.guest.sh(look).await.text(), String::from_utf8_lossy(&host_says.stdout));
    let notices = session.workspace.notices().join("\n");
    let listed = "what git does not need of .git is not copied without --include: .git/.config.swp, .git/annex/creds, ";
    assert!(notices.contains(listed), "{notices}");
    // What is added later stays unknown inside too.
    fs::create_dir(session.host(".git/other")).unwrap();
    fs::write(session.host(".git/other/token"), "SECRET").unwrap();
    fs::write(session.host(".git/HEAD~"), "SECRET").unwrap();
    session.workspace.refresh(&session.guest.sandbox).await.unwrap();
    assert_eq!(session.guest.sh("ls -d .git/other .git/HEAD~ 2>/dev/null").await.text(), "");
    // Named by the user, it is there.
    let mut options = Options::new(machine());
    options.select.include = vec![".git/git-crypt/".into()];
    let session = Session::with(session.host, options).await;
    assert_eq!(session.guest.sh("cat .git/git-crypt/keys/default; ls .git/annex").await.text(), "SECRET");
}

/// They were excluded without a notice.
#[tokio::test]
async fn files_that_are_nested_too_deeply_are_reported_and_kept() {
    let deepest = vec!["d"; 128].join("/");
    let below = format!("{deepest}/file");
    let session = Session::start(host(&[("a.txt", "a"), (&below, "deep"), ("e/file", "e")])).await;
    assert_eq!(
        session.workspace.notices(),
        [format!("Workspace: left out: {deepest} (nested too deeply); --include copies files all the same.")]
    );
    assert_eq!(session.guest.sh(&format!("ls {deepest}")).await.text(), "");
    session.turn("rm -r d e").await;
    session.apply().await.unwrap();
    assert!(session.host(&below).exists() && !session.host("e").exists());
}

/// Left out, they would look deleted to git inside.
#[tokio::test]
async fn secrets_that_git_tracks_are_copied_and_named_and_the_history_can_be_excluded() {
    let start = async |exclude: &[&str]| {
        let directory = host(&[("a.txt", "a"), (".env", "KEY=secret"), ("deploy/.env", "KEY=other")]);
        git(directory.path(), &["init", "-q"]);
        git(directory.path(), &["add", "a.txt", ".env"]);
        git(directory.path(), &["commit", "-qm", "first"]);
        let mut options = Options::new(machine());
        options.select.exclude = exclude.iter().map(ToString::to_string).collect();
        Session::with(directory, options).await
    };
    let session = start(&[]).await;
    insta::assert_snapshot!(session.workspace.notices().join("\n"), @r"
    Workspace: left out: deploy/.env (secret); --include copies files all the same; copied although it looks secret, because git tracks it: .env.
    ");
    assert_eq!(session.guest.sh("git status --porcelain").await.text(), "");
    assert_eq!(session.guest.sh("git show HEAD:.env").await.text(), "KEY=secret");
    let session = start(&[".git"]).await;
    insta::assert_snapshot!(session.workspace.notices().join("\n"), @"Workspace: left out: deploy/.env (secret); --include copies files all the same; copied although it looks secret, because git tracks it: .env.");
    assert!(!session.inside().join(".git").exists());
    session.turn("mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit").await;
    assert_eq!(session.changed().await, [""; 0]);
}

/// Of either object format, which git learns from a configuration that it is not shown.
#[tokio::test]
async fn tracked_files_are_copied_although_they_are_ignored() {
    for format in ["sha1", "sha256"] {
        let directory = host(&[
            ("a", "a"),
            ("deep/er/kept.gen", "kept"),
            ("deep/other.gen", "x"),
            (".gitignore", "*.gen\n"),
        ]);
        git(directory.path(), &["init", "-q", "--object-format", format]);
        git(directory.path(), &["add", "-f", "a", "deep/er/kept.gen"]);
        let session = Session::start(directory).await;
        let names: Vec<_> = tree::read(&session.inside(), None).keys().map(ToString::to_string).collect();
        assert_eq!(names, [".gitignore", "a", "deep", "deep/er", "deep/er/kept.gen"], "{format}");
    }
}

/// A repository with two commits, a staged change, settings of the user's, and a linked work tree beside it.
fn repository_with_a_linked_tree() -> TempDir {
    let directory = host(&[("repo/a", "a"), ("repo/sub/b", "b"), ("repo/.gitignore", "*.log\n/sub/x\n")]);
    let repository = directory.path().join("repo");
    git(&repository, &["init", "-q", "-b", "main"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-qm", "first"]);
    git(&repository, &["commit", "-q", "--allow-empty", "-m", "second"]);
    git(&repository, &["config", "user.name", "Somebody"]);
    git(&repository, &["config", "remote.origin.url", "https://name:token@example.com/x"]);
    git(&repository, &["config", "core.sshCommand", "never"]);
    git(&repository, &["worktree", "add", "-q", "../linked"]);
    fs::write(repository.join("sub/b"), "staged").unwrap();
    git(&repository, &["add", "sub/b"]);
    directory
}

/// A session on a directory without a repository of its own.
async fn start_without_repository(root: &Path) -> (TempDir, Guest, Workspace) {
    let home = tempfile::tempdir().unwrap();
    let guest = Guest::start().await;
    let workspace =
        Workspace::open(root, &home.path().join("sessions/s1"), Options::new(machine())).await.unwrap();
    assert_eq!(workspace.notices().join("\n"), "");
    workspace.copy_in(&guest.sandbox, &mut |_, _| {}).await.unwrap();
    assert!(workspace.changes(&guest.sandbox).await.unwrap().is_empty());
    (home, guest, workspace)
}

/// git found hooks of the work tree through symlinks of its own directory, and changes of them were not named.
#[tokio::test]
async fn hooks_that_git_reaches_through_symlinks_are_named() {
    for make in [
        "rm -r .git/hooks; ln -s ../my/h .git/hooks",
        "rm -r .git/hooks; mkdir -p my/h; ln -s ../my/h .git/hooks",
        "mkdir -p .git/hooks; ln -s ../../my/h/pre-commit .git/hooks/pre-commit",
        "mkdir my; ln -s h my/link; git config core.hooksPath my/link",
        "ln -s \"$PWD\" .git/outer; git config core.hooksPath \"$PWD/.git/outer/my/h\"",
    ] {
        let directory = host(&[("a", "a\n")]);
        git(directory.path(), &["init", "-q"]);
        let made = std::process::Command::new("sh").args(["-c", make]).current_dir(directory.path()).status();
        assert!(made.unwrap().success(), "{make}");
        let session = Session::start(directory).await;
        session.turn("mkdir -p my/h; echo x > my/h/pre-commit; echo x > my/other").await;
        let summary = risks::summary(&session.changes().await).unwrap_or_default();
        assert!(summary.contains("my/h/pre-commit") && summary.contains("(git hook)"), "{make}: {summary}");
        assert!(!summary.contains("my/other"), "{make}: {summary}");
    }
}

/// Links that git ignores were in no list, and only the repository of the top was asked.
#[tokio::test]
async fn what_links_that_git_ignores_and_inner_repositories_make_of_a_file_is_named() {
    let directory =
        host(&[("env.sh", "a\n"), (".gitignore", ".envrc\n.vscode\n"), ("lib/hk/pre-commit", "a\n")]);
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["init", "-q", "lib"]);
    git(&directory.path().join("lib"), &["config", "core.hooksPath", "hk"]);
    std::os::unix::fs::symlink("env.sh", directory.path().join(".envrc")).unwrap();
    std::os::unix::fs::symlink(directory.path().join("ed"), directory.path().join(".vscode")).unwrap();
    let session = Session::start(directory).await;
    session
        .turn("mkdir ed; for path in env.sh ed/tasks.json lib/hk/pre-commit; do echo new > $path; done")
        .await;
    let summary = risks::summary(&session.changes().await).unwrap_or_default();
    for named in [
        "env.sh as .envrc (shell)",
        "ed/tasks.json as .vscode/tasks.json (editor)",
        "lib/hk/pre-commit (git hook)",
    ] {
        assert!(summary.contains(named), "{named}: {summary}");
    }
}

const LOOK: &str = "git status --short --branch; git log --format=%s; git fsck --strict 2>&1; \
                grep -c 'example.com\\|never' .git/config; git config user.name";

/// Where git's answer was "not a git repository".
#[tokio::test]
async fn git_works_in_linked_work_trees() {
    let directory = repository_with_a_linked_tree();
    let repository = directory.path().join("repo");
    let (home, guest, workspace) = start_without_repository(&directory.path().join("linked")).await;
    assert_eq!(guest.sh(LOOK).await.text(), "## linked\nsecond\nfirst\n0\nSomebody\n");
    assert_eq!(
        guest.sh("git diff main --stat; git branch --format='%(refname:short)'").await.text(),
        "linked\nmain\n"
    );
    // What was committed inside is there again in a fresh sandbox.
    let commit = "echo c > c; git add c; git -c user.email=a@b commit -qm third; git log --format=%s";
    assert_eq!(guest.sh(commit).await.text(), "third\nsecond\nfirst\n");
    workspace.checkpoint(&guest.sandbox, 1).await.unwrap();
    assert_eq!(workspace.refresh(&guest.sandbox).await.unwrap(), Default::default());
    let changes = workspace.changes(&guest.sandbox).await.unwrap();
    assert_eq!(changes.changes.keys().map(ToString::to_string).collect::<Vec<_>>(), ["c"]);
    git(&repository, &["commit", "-q", "--allow-empty", "-m", "elsewhere"]);
    let resumed = Workspace::load(&home.path().join("sessions/s1"), machine()).await.unwrap().unwrap();
    let fresh = Guest::start().await;
    resumed.reopen(false).await.unwrap();
    resumed.restore_into(&fresh.sandbox, &mut |_, _| {}).await.unwrap();
    let seen = fresh.sh("git log --format=%s; git status --short; git fsck --strict 2>&1").await;
    assert_eq!(seen.text(), "third\nsecond\nfirst\n");
}

#[tokio::test]
async fn git_works_in_subdirectories_of_a_repository() {
    let directory = repository_with_a_linked_tree();
    let index = directory.path().join("repo/.git/index");
    let before = fs::read(&index).unwrap();
    let (_home, guest, workspace) = start_without_repository(&directory.path().join("repo/sub")).await;
    let text = guest.sh(LOOK).await.text();
    assert_eq!(text, "## main\nM  b\nsecond\n0\nSomebody\n");
    let ignored = guest.sh("touch y.log x; git status --short; git diff --cached").await.text();
    assert!(
        ignored.starts_with("M  b\n?? x\n") && ignored.ends_with("+staged\n\\ No newline at end of file\n"),
        "{ignored}"
    );
    assert_eq!(
        guest
            .sh("git show --stat --format=%b HEAD")
            .await
            .text()
            .lines()
            .next()
            .map(|line| { line.starts_with("(only sub of ") }),
        Some(true)
    );
    assert!(workspace.notices().is_empty());
    assert_eq!(fs::read(index).unwrap(), before);
}

#[tokio::test]
async fn git_works_in_submodules() {
    let directory = host(&[("lib/b", "b"), ("super/a", "a")]);
    for name in ["lib", "super"] {
        let repository = directory.path().join(name);
        git(&repository, &["init", "-q", "-b", "main"]);
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-qm", name]);
    }
    let above = directory.path().join("super");
    git(&above, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../lib", "vendor/a b"]);
    let (_home, guest, _workspace) = start_without_repository(&above.join("vendor/a b")).await;
    let text =
        guest.sh("git status --short --branch; git log --format=%s; git fsck --strict 2>&1").await.text();
    assert_eq!(text, "## main\nlib\n");
}

/// Inside, the path of the other repository's objects is not there, and git did not work.
#[tokio::test]
async fn a_clone_that_borrows_objects_gets_its_own_once_that_is_allowed() {
    let directory = host(&[("mirror/a", "a"), ("far/b", "b")]);
    let path = |name: &str| directory.path().join(name);
    for name in ["far", "mirror"] {
        git(&path(name), &["init", "-q", "-b", "main"]);
        git(&path(name), &["add", "."]);
        git(&path(name), &["commit", "-qm", name]);
    }
    let far = format!("{}\n", path("far/.git/objects").display());
    fs::write(path("mirror/.git/objects/info/alternates"), far).unwrap();
    git(directory.path(), &["clone", "-q", "--shared", "mirror", "clone"]);
    let root = path("clone");
    let open = async |session: &str, stores: &[&str], mode: Mode| {
        let object_stores = stores.iter().map(|name| path(name)).collect();
        let options = Options { object_stores, mode, can_overlay: true, ..Options::new(machine()) };
        Workspace::open(&root, &path("home/sessions").join(session), options).await.unwrap()
    };
    for (session, stores) in [("none", &[] as &[&str]), ("one", &["mirror"]), ("other", &["far"])] {
        let notices = open(session, stores, Mode::Copy).await.notices().join("\n");
        assert!(
            notices.contains("its repository takes objects from ") && notices.contains("git_object_stores"),
            "{notices}"
        );
    }
    let workspace = open("all", &["mirror", "far/.git"], Mode::Copy).await;
    assert_eq!(workspace.notices().join("\n"), "");
    let guest = Guest::start().await;
    workspace.copy_in(&guest.sandbox, &mut |_, _| {}).await.unwrap();
    let look = "git status --short --branch; git log --format=%s; git fsck --strict 2>&1; cat .git/objects/info/alternates 2>&1";
    let commit =
        "echo c > c; git add c; git -c user.name=a -c user.email=a@b commit -qm third; git log --format=%s";
    let text = guest.sh(look).await.text();
    assert_eq!(text, "## main\nmirror\ncat: .git/objects/info/alternates: No such file or directory\n");
    assert_eq!(guest.sh(commit).await.text(), "third\nmirror\n");
    workspace.checkpoint(&guest.sandbox, 1).await.unwrap();
    assert_eq!(workspace.changes(&guest.sandbox).await.unwrap().changes.len(), 1);
    // A fresh sandbox gets the same one.
    let resumed = Workspace::load(&path("home/sessions/all"), machine()).await.unwrap().unwrap();
    let fresh = Guest::start().await;
    resumed.reopen(false).await.unwrap();
    resumed.restore_into(&fresh.sandbox, &mut |_, _| {}).await.unwrap();
    assert_eq!(fresh.sh("git log --format=%s; git status --short").await.text(), "third\nmirror\n");
}

/// A file in the workspace may name any repository: that of somebody else is not copied.
#[tokio::test]
async fn a_repository_that_does_not_name_the_workspace_stays_outside() {
    let directory = host(&[("secret/a", "a"), ("work/b", "b")]);
    git(&directory.path().join("secret"), &["init", "-q"]);
    git(&directory.path().join("secret"), &["add", "."]);
    git(&directory.path().join("secret"), &["commit", "-qm", "secret"]);
    let root = directory.path().join("work");
    let link = format!("gitdir: {}\n", directory.path().join("secret/.git").display());
    fs::write(root.join(".git"), link).unwrap();
    let session = directory.path().join("sessions/s");
    let workspace = Workspace::open(&root, &session, Options::new(machine())).await.unwrap();
    let notices = workspace.notices().join("\n");
    assert!(
        notices.ends_with("work/.git leads to a repository that does not name this work tree."),
        "{notices}"
    );
}

#[tokio::test]
async fn a_gitignore_that_is_not_a_file_has_no_rules() {
    let directory = host(&[
        ("a", "a"),
        ("fifo/a", "a"),
        ("endless/a", "a"),
        ("ruled/a", "a"),
        ("ruled/.gitignore", "a\n"),
        ("linked/a", "a"),
    ]);
    let path = |name: &str| directory.path().join(name);
    let fifo = std::process::Command::new("mkfifo").arg(path("fifo/.gitignore")).status().unwrap();
    assert!(fifo.success());
    symlink("/dev/zero", path("endless/.gitignore")).unwrap();
    symlink("/dev/zero", path(".gitignore")).unwrap();
    // Like git, which reads no rules through a symlink.
    symlink("../ruled/.gitignore", path("linked/.gitignore")).unwrap();
    let session = Session::start(directory).await;
    let files: Vec<_> =
        tree::read(&session.inside(), None).into_keys().map(|path| path.to_string()).collect();
    assert_eq!(
        files,
        [
            ".gitignore",
            "a",
            "endless",
            "endless/.gitignore",
            "endless/a",
            "fifo",
            "fifo/a",
            "linked",
            "linked/.gitignore",
            "linked/a",
            "ruled",
            "ruled/.gitignore"
        ]
    );
}

/// Hundreds of megabytes of rules took minutes, and gigabytes of memory.
#[tokio::test]
async fn too_many_rules_are_not_used_with_a_notice() {
    let rules: String = (0..15_000).map(|n| format!("a{n}?[bc]*\n")).collect();
    let long = format!("[{}]\n", "b".repeat(900_000));
    let files =
        [("1/.gitignore", &rules), ("2/.gitignore", &rules), ("3/.gitignore", &long), ("1/a7xb", &long)];
    let session = Session::start(host(&files.map(|(name, text)| (name, text.as_str())))).await;
    insta::assert_snapshot!(session.workspace.notices().join("\n"), @"Workspace: what git ignores is not copied without --include: 1/a7xb; there are more than 20000 ignore rules, and the rest is not used.");
    // The sandbox's own are bounded in the same way.
    session.turn("for d in $(seq 40); do mkdir $d.d; cp 1/.gitignore $d.d; done; echo new > new").await;
    assert!(session.changed().await.contains(&"new".to_owned()));
}

#[tokio::test]
async fn turns_are_undone_and_redone() {
    let session = Session::start(host(&[("a", "1\n"), ("dir/b", "1\n")])).await;
    let base = tree::read(&session.inside(), None);
    session.turn("echo 2 > a; chmod 755 dir/b").await;
    let first = tree::read(&session.inside(), None);
    session
        .turn("rm -r dir; mkdir a.d; ln -s a dir; echo x > new; mkdir -p deep/er; echo y > deep/er/y")
        .await;
    let second = tree::read(&session.inside(), None);
    session.turn("true").await;
    assert_eq!(session.workspace.checkpoints().await.0.len(), 3, "a turn that changed nothing makes none");

    let sandbox = &session.guest.sandbox;
    session.workspace.undo(sandbox, 1).await.unwrap();
    assert_eq!(tree::read(&session.inside(), None), first);
    session.workspace.undo(sandbox, 1).await.unwrap();
    assert_eq!(tree::read(&session.inside(), None), base);
    assert_eq!(session.workspace.undo(sandbox, 1).await.unwrap_err().to_string(), "there is nothing to undo");
    session.workspace.redo(sandbox, 2).await.unwrap();
    assert_eq!(tree::read(&session.inside(), None), second);
    session.workspace.undo(sandbox, 1).await.unwrap();
    session.turn("echo 3 > a").await;
    assert_eq!(session.workspace.redo(sandbox, 1).await.unwrap_err().kind(), Kind::Usage);
}

#[tokio::test]
async fn what_git_status_writes_is_not_a_checkpoint() {
    // `git status` refreshes .git/index, and /undo took that back instead of the edit before it.
    let host = host(&[("a", "1\n")]);
    git(host.path(), &["init", "-q"]);
    git(host.path(), &["add", "a"]);
    git(host.path(), &["commit", "-qm", "first"]);
    let session = Session::start(host).await;
    let count = async || session.workspace.checkpoints().await.0.len();
    session.turn("echo 2 > a").await;
    session.turn("touch -d 2020-01-01 a; git status >/dev/null; printf x >> .git/index").await;
    assert_eq!(count().await, 2);
    session.workspace.undo(&session.guest.sandbox, 1).await.unwrap();
    assert_eq!(fs::read_to_string(session.inside().join("a")).unwrap(), "1\n");

    // What else there is of git's own is one: a commit is taken back with its prompt.
    session.turn("echo y > .git/refs/heads/index").await;
    assert_eq!(count().await, 2);
    session.turn("echo 3 > a; printf x >> .git/index").await;
    assert_eq!(count().await, 3);
}

#[tokio::test]
async fn an_apply_is_undone_and_a_second_one_has_only_what_is_new() {
    let session = Session::start(host(&[("a", "1\n"), ("b", "1\n")])).await;
    let before = tree::read(session.host.path(), None);
    session.turn("echo 2 > a; rm b; echo 1 > c").await;
    session.apply().await.unwrap();
    assert_eq!(tree::read(session.host.path(), None), tree::read(&session.inside(), None));
    session.turn("echo 3 > a").await;
    assert_eq!(session.changed().await, ["a"]);
    session.apply().await.unwrap();
    session.workspace.undo_apply().await.unwrap();
    assert_eq!(fs::read_to_string(session.host("a")).unwrap(), "2\n");
    session.workspace.undo_apply().await.unwrap();
    assert_eq!(tree::read(session.host.path(), None), before);
    assert_eq!(session.changed().await, ["a", "b", "c"]);
    assert_eq!(session.workspace.undo_apply().await.unwrap_err().kind(), Kind::Usage);
}

#[tokio::test]
async fn another_process_continues_where_the_first_stopped() {
    let session = Session::start(host(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n")])).await;
    session.turn("echo 2 > a; rm b; echo new > d").await;
    let left = tree::read(&session.inside(), None);
    let again = Workspace::load(&session.home.path().join("sessions/s1"), machine()).await.unwrap().unwrap();
    assert_eq!(again.recorded_changes().await.unwrap(), session.changes().await);

    again.rejoin(&session.guest.sandbox).await.unwrap();
    assert!(again.checkpoint(&session.guest.sandbox, 1).await.unwrap().is_none());

    fs::write(session.host("c"), "the host's newer one\n").unwrap();
    fs::write(session.host("a"), "the host's newer one\n").unwrap();
    let fresh = Guest::start().await;
    again.reopen(false).await.unwrap();
    again.restore_into(&fresh.sandbox, &mut |_, _| {}).await.unwrap();
    let mut expected = left;
    expected.extend(
        tree::read(session.host.path(), None).into_iter().filter(|(path, _)| path.as_bytes() == b"c"),
    );
    assert_eq!(tree::read(&fresh.path(""), None), expected);
    let changes = again.changes(&fresh.sandbox).await.unwrap();
    assert_eq!(changes.changes.len(), 3);
    let error = again.apply(&changes, None).await.unwrap_err();
    assert!(error.to_string().contains("a: it changed on the host"), "{error}");
}

/// What a job of the sandbox did to a file that an apply had merged on the host alone was dropped, and the user's line with it.
#[tokio::test]
async fn what_the_sandbox_has_otherwise_than_an_apply_merged_it_is_a_conflict() {
    let lines = (1..10).map(|n| format!("line {n}\n")).collect::<String>();
    for job in ["sed -i 's/line 1$/other/' f", "rm f", "rm f; mkdir f", "mkdir o; mv d o; ln -s o/d d"] {
        let session = Session::start(host(&[("f", &lines), ("d/f", &lines)])).await;
        session.turn("sed -i 's/line 9/own/' f d/f").await;
        for name in ["f", "d/f"] {
            fs::write(session.host(name), lines.replacen("line 1", "users", 1)).unwrap();
        }
        let changes = session.changes().await;
        session.workspace.apply(&changes, None).await.unwrap();
        session.guest.sh(job).await;
        let directory = session.home.path().join("sessions/s1");
        let again = Workspace::load(&directory, machine()).await.unwrap().unwrap();
        again.rejoin(&session.guest.sandbox).await.unwrap();
        let refreshed = again.refresh(&session.guest.sandbox).await.unwrap();
        let (name, other) = if job.starts_with("mkdir o") { ("d/f", "f") } else { ("f", "d/f") };
        let conflicts: Vec<String> = refreshed.conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(conflicts, [name], "{job}");
        let inside = fs::read_to_string(session.guest.path(other)).unwrap();
        assert!(inside.starts_with("users\n") && inside.ends_with("own\n"), "{job}: {inside}");
        let changes = again.changes(&session.guest.sandbox).await.unwrap();
        let error = again.apply(&changes, None).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{job}: {error}");
    }
}

#[tokio::test]
async fn a_workspace_as_it_began_has_what_is_kept_of_it() {
    let session = Session::start(host(&[("edited", "1\n"), ("gone", "1\n"), ("kept", "kept\n")])).await;
    let began = tree::read(&session.inside(), None);
    session.turn("echo 2 > edited; rm gone; echo 1 > added").await;
    session.apply().await.unwrap();
    fs::write(session.host("later"), "the host's own\n").unwrap();
    let again = async |name: &str| {
        let sessions = session.home.path().join("sessions");
        let workspace = Workspace::as_it_began(&sessions.join("s1"), &sessions.join(name), machine())
            .await
            .unwrap()
            .unwrap();
        let fresh = Guest::start().await;
        workspace.reopen(false).await.unwrap();
        let report = workspace.restore_into(&fresh.sandbox, &mut |_, _| {}).await.unwrap();
        assert!(workspace.changes(&fresh.sandbox).await.unwrap().is_empty());
        (tree::read(&fresh.path(""), None), report.lost)
    };
    assert_eq!(again("s2").await, (began.clone(), 0));
    // What the session never changed is kept nowhere (but where it was read again because it was too new to be sure of).
    session.workspace.store().retain(|hash| hash != Hash::of(b"kept\n")).unwrap();
    fs::write(session.host("kept"), "the host's newer one\n").unwrap();
    let (tree, lost) = again("s3").await;
    assert_eq!((tree.len(), lost), (began.len(), 1));
    let differing: Vec<_> = tree.iter().filter(|(path, node)| began.get(*path) != Some(*node)).collect();
    assert_eq!(differing.len(), 1, "{differing:?}");
}

#[tokio::test]
async fn a_merge_reaches_the_sandbox_too() {
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n{last}\n");
    let session = Session::start(host(&[("f", &lines("1", "8"))])).await;
    session.turn("sed -i s/8/eight/ f").await;
    fs::write(session.host("f"), lines("one", "8")).unwrap();
    let changes = session.changes().await;
    let applied = session.workspace.apply(&changes, Some(&session.guest.sandbox)).await.unwrap();
    assert_eq!(applied.merged.len(), 1);
    assert_eq!(fs::read_to_string(session.host("f")).unwrap(), lines("one", "eight"));
    assert_eq!(fs::read_to_string(session.inside().join("f")).unwrap(), lines("one", "eight"));
    assert_eq!(session.changed().await, [""; 0]);
}

#[tokio::test]
async fn a_merge_keeps_the_hunks_that_were_refused_in_the_sandbox() {
    let lines =
        |first: &str, fifth: &str, last: &str| format!("{first}\n2\n3\n4\n{fifth}\n6\n7\n8\n{last}\n");
    let session = Session::start(host(&[("f", &lines("1", "5", "9"))])).await;
    session.turn("sed -i 's/5/five/; s/9/nine/' f").await;
    fs::write(session.host("f"), lines("one", "5", "9")).unwrap();
    let mut changes = session.changes().await;
    let chosen = lines("1", "five", "9");
    let hash = session.workspace.store().put(chosen.as_bytes()).unwrap();
    let change = changes.changes.values_mut().next().unwrap();
    change.after = Some(Node::File { hash, size: chosen.len() as u64, mode: 0o644 });
    let applied = session.workspace.apply(&changes, Some(&session.guest.sandbox)).await.unwrap();
    assert_eq!(applied.merged.len(), 1);
    assert_eq!(fs::read_to_string(session.host("f")).unwrap(), lines("one", "five", "9"));
    let inside = || fs::read_to_string(session.inside().join("f")).unwrap();
    assert_eq!(inside(), lines("one", "five", "nine"));
    assert_eq!(session.changed().await, ["f"]);
    let rest = session.changes().await;
    session.workspace.apply(&rest, Some(&session.guest.sandbox)).await.unwrap();
    assert_eq!(fs::read_to_string(session.host("f")).unwrap(), lines("one", "five", "nine"));
}

#[tokio::test]
async fn when_the_space_is_used_up_the_oldest_states_are_removed() {
    let options = Options { max_kept: Some(1 << 20), ..Options::new(machine()) };
    let session = Session::with(host(&[("a", "first\n")]), options).await;
    let blobs = session.home.path().join("sessions/s1/workspace/blobs");
    let kept = || -> u64 {
        let files =
            fs::read_dir(&blobs).unwrap().flatten().flat_map(|part| fs::read_dir(part.path()).unwrap());
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    let mut forgotten = 0;
    for turn in 0..8 {
        session.guest.sh(&format!("head -c 300000 /dev/urandom > big; echo {turn} > a")).await;
        let made = session.workspace.checkpoint(&session.guest.sandbox, 1).await.unwrap().unwrap();
        forgotten += made.forgotten;
        assert!(kept() <= 1 << 20, "{} bytes after turn {turn}", kept());
    }
    let left = session.workspace.checkpoints().await.0;
    assert_eq!(left.len() + forgotten, 9);
    assert!((3..=4).contains(&left.len()), "{left:?}");
    assert_eq!(left[0].id, "0");
    let gaps: Vec<bool> = left.iter().map(|checkpoint| checkpoint.after_gap).collect();
    assert!(gaps[1] && gaps.iter().filter(|gap| **gap).count() == 1, "{gaps:?}");
    // What is left can be gone back to, the first state included.
    let steps = u32::try_from(left.len() - 1).unwrap();
    session.workspace.undo(&session.guest.sandbox, steps).await.unwrap();
    assert_eq!(fs::read_to_string(session.inside().join("a")).unwrap(), "first\n");
    assert!(!session.inside().join("big").exists());
    session.workspace.redo(&session.guest.sandbox, steps).await.unwrap();
    assert_eq!(fs::read_to_string(session.inside().join("a")).unwrap(), "7\n");

    // One state alone that is too much is an error with a way out.
    session.guest.sh("head -c 1200000 /dev/urandom > big").await;
    let error = session.workspace.checkpoint(&session.guest.sandbox, 1).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
    assert!(error.hint_text().unwrap().contains("sessions prune"), "{error}");
}

#[tokio::test]
async fn rejected_entries_are_listed_and_never_applied() {
    let host = host(&[("a", "1\n"), (".env", "KEY=1")]);
    std::os::unix::fs::symlink(".git", host.path().join("own")).unwrap();
    let session = Session::start(host).await;
    let make = "rm a; mkfifo a; ln -s /etc/passwd out; ln -s ../../x up; ln -s own/config through; ln -s .git/config direct; \
                echo stolen > .env; echo x > fine";
    session.turn(make).await;
    let changes = session.changes().await;
    assert_eq!(changes.changes.keys().map(ToString::to_string).collect::<Vec<_>>(), ["fine"]);
    let refused: String =
        changes.refused.iter().map(|refused| format!("{}: {}\n", refused.name, refused.reason)).collect();
    insta::assert_snapshot!(refused, @r"
    a: a device, FIFO or socket
    .env: it is excluded (secret)
    direct: a symlink that leads into git's own directory
    out: a symlink that leads out of the workspace
    up: a symlink that leads out of the workspace
    through: a symlink that leads into git's own directory
    ");
    session.apply().await.unwrap();
    assert_eq!(fs::read_to_string(session.host(".env")).unwrap(), "KEY=1");
    assert_eq!(fs::read_to_string(session.host("a")).unwrap(), "1\n");
}

#[tokio::test]
async fn a_write_that_hides_its_times_is_seen() {
    let session = Session::start(host(&[("a", "1\n")])).await;
    session.turn("touch -r a /tmp/ref.$$; echo 2 > a; touch -r /tmp/ref.$$ a; rm /tmp/ref.$$").await;
    assert_eq!(session.changed().await, ["a"]);
}

#[tokio::test]
async fn some_directories_cannot_be_a_workspace() {
    let open = async |path: &str| {
        let home = tempfile::tempdir().unwrap();
        Workspace::open(Path::new(path), home.path(), Options::new(machine()))
            .await
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(open("/").await, "the whole machine cannot be the workspace");
    assert_eq!(open("/etc/passwd").await, "/etc/passwd is not a directory");
    assert!(open("/does/not/exist").await.contains("cannot be the workspace"));
}

#[tokio::test]
async fn include_and_exclude_have_the_last_word() {
    let directory = host(&[
        (".gitignore", "node_modules/\n"),
        ("node_modules/m/x.js", "m"),
        (".env", "K=1"),
        ("docs/a", "a"),
        (".git/config", ""),
        ("b", "b"),
    ]);
    let mut options = Options::new(machine());
    options.select.include = vec!["node_modules/".into(), ".env".into()];
    options.select.exclude = vec!["/docs".into(), ".git".into()];
    let session = Session::with(directory, options).await;
    let names: Vec<_> = tree::read(&session.inside(), None).keys().map(ToString::to_string).collect();
    assert_eq!(names, [".env", ".gitignore", "b", "node_modules", "node_modules/m", "node_modules/m/x.js"]);
    assert!(!session.inside().join(".git").exists());
    session
        .turn("mkdir docs; echo evil > docs/a; echo 2 > node_modules/m/x.js; echo new > node_modules/new")
        .await;
    assert_eq!(session.changed().await, ["node_modules/m/x.js", "node_modules/new"]);
}

/// The `.gitignore` of each ignored directory appeared as a new file once anything was included.
#[tokio::test]
async fn with_an_include_the_gitignore_of_an_ignored_directory_is_not_a_new_file() {
    let mut options = Options::new(machine());
    options.select.include = vec![".env".into()];
    let session = Session::with(host(&[(".gitignore", "cache/\n"), ("b", "b")]), options).await;
    session.turn("mkdir -p cache/deep; echo '*' > cache/.gitignore; echo '*' > cache/deep/.gitignore").await;
    session.turn("mkdir own; echo '*' > own/.gitignore; echo x > own/x").await;
    assert_eq!(session.changed().await, ["own"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_edit_comes_out_exactly_and_is_undone_exactly(before in any_tree(), after in any_tree()) {
        let directory = tempfile::tempdir().unwrap();
        tree::write(directory.path(), &before);
        runtime().block_on(async {
            let session = Session::start(directory).await;
            let former = tree::read(&session.inside(), None);
            replace(&session.inside(), &after);
            let wanted = tree::read(&session.inside(), None);
            session.workspace.checkpoint(&session.guest.sandbox, 1).await.unwrap();
            if wanted != former {
                session.workspace.undo(&session.guest.sandbox, 1).await.unwrap();
                assert_eq!(tree::read(&session.inside(), None), former);
                session.workspace.redo(&session.guest.sandbox, 1).await.unwrap();
                assert_eq!(tree::read(&session.inside(), None), wanted);
            }
            session.apply().await.unwrap();
            assert_eq!(tree::read(session.host.path(), None), wanted);
            if !session.workspace.changes(&session.guest.sandbox).await.unwrap().is_empty() {
                panic!("something is left to apply");
            }
            if wanted != former {
                session.workspace.undo_apply().await.unwrap();
                assert_eq!(tree::read(session.host.path(), None), former);
            }
        });
    }
}

/// The mode of the directory was compared with that of the file which had taken its place.
#[tokio::test]
async fn a_file_that_took_a_directorys_place_gives_it_back() {
    let session = Session::start(host(&[("d/a", "1\n")])).await;
    session.turn("rm -r d; echo file > d; chmod 600 d").await;
    session.apply().await.unwrap();
    assert_eq!(fs::read_to_string(session.host.path().join("d")).unwrap(), "file\n");
    session.workspace.undo_apply().await.unwrap();
    assert_eq!(fs::read_to_string(session.host.path().join("d/a")).unwrap(), "1\n");
}

fn replace(root: &Path, tree: &Tree) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
    tree::write(root, tree);
}

/// A tool's writes are changes like any other.
#[tokio::test]
async fn what_a_tool_writes_is_seen() {
    let session = Session::start(host(&[("a", "1\n")])).await;
    let write = FileWrite {
        path: "a".into(),
        node: Write::Regular(b"2\n".to_vec()),
        mode: None,
        mtime_ns: None,
        follow: true,
    };
    session.guest.sandbox.write_files(vec![write]).await.unwrap();
    assert_eq!(session.changed().await, ["a"]);
    let _ = Entry::Directory;
}

/// The names of what followed the host, and of what is in conflict.
async fn refreshed(session: &Session) -> (Vec<String>, Vec<String>) {
    let refreshed = session.workspace.refresh(&session.guest.sandbox).await.unwrap();
    let names =
        |paths: &[agent_workspace::tree_path::TreePath]| paths.iter().map(ToString::to_string).collect();
    assert_eq!(refreshed.merged, []);
    (names(&refreshed.followed), names(&refreshed.conflicts))
}

fn inside(session: &Session, name: &str) -> Option<String> {
    fs::read_to_string(session.guest.path(name)).ok()
}

/// The sandbox kept its own version, and only an apply with an option merged them.
#[tokio::test]
async fn an_edit_in_other_lines_than_the_sandboxes_is_merged_there_before_the_next_prompt() {
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n{last}\n");
    let session = Session::start(host(&[("f", &lines("1", "8")), ("same", "1\n")])).await;
    session.turn("sed -i s/8/eight/ f; echo inside > same").await;
    for first in ["one", "uno"] {
        fs::write(session.host("f"), lines(first, "8")).unwrap();
        let seen = session.workspace.refresh(&session.guest.sandbox).await.unwrap();
        assert_eq!(seen.merged.iter().map(ToString::to_string).collect::<Vec<_>>(), ["f"]);
        assert_eq!((seen.followed, seen.conflicts), (Vec::new(), Vec::new()));
        assert_eq!(inside(&session, "f"), Some(lines(first, "eight")));
        assert_eq!(refreshed(&session).await, NOTHING, "told once");
    }
    // The user's own edit is not shown to them as a change of the session.
    let mut shown = Vec::new();
    let changes = session.changes().await.select(&["f".into()]).unwrap();
    agent_workspace::diff::write_text(&mut shown, &changes, session.workspace.store(), false).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("-8\n+eight\n") && !shown.contains("-1\n"), "{shown}");
    // The same lines are a conflict, and nothing of either is lost.
    fs::write(session.host("f"), lines("uno", "acht")).unwrap();
    assert_eq!(refreshed(&session).await, (Vec::new(), owned(&["f"])));
    assert_eq!(inside(&session, "f"), Some(lines("uno", "eight")));
    assert_eq!(session.apply().await.unwrap_err().exit_code().code(), 7);
    assert_eq!(fs::read_to_string(session.host("f")).unwrap(), lines("uno", "acht"));
    // What the user has taken over by hand is not a change any more.
    fs::write(session.host("f"), lines("uno", "eight")).unwrap();
    refreshed(&session).await;
    assert_eq!(session.changed().await, ["same"]);
}

/// An undo to before the edit was merged brought the session's version back without it, and the diff showed it as reverted.
#[tokio::test]
async fn an_undo_to_before_an_edit_of_the_users_keeps_the_edit() {
    let lines = |first: &str, middle: &str, last: &str| format!("{first}\n2\n3\n{middle}\n5\n6\n7\n{last}\n");
    let session = Session::start(host(&[("f", &lines("1", "4", "8"))])).await;
    let sandbox = &session.guest.sandbox;
    session.turn("sed -i s/8/eight/ f").await;
    session.turn("sed -i s/4/four/ f").await;
    fs::write(session.host("f"), lines("one", "4", "8")).unwrap();
    session.workspace.refresh(sandbox).await.unwrap();
    assert_eq!(inside(&session, "f"), Some(lines("one", "four", "eight")));
    session.workspace.undo(sandbox, 2).await.unwrap();
    assert_eq!(inside(&session, "f"), Some(lines("one", "4", "eight")));
    session.workspace.undo(sandbox, 1).await.unwrap();
    assert_eq!(inside(&session, "f"), Some(lines("one", "4", "8")));
    assert_eq!(session.changed().await, [""; 0]);
    // Followed while nothing of the session's was in the file.
    fs::write(session.host("f"), lines("uno", "4", "8")).unwrap();
    session.workspace.refresh(sandbox).await.unwrap();
    session.workspace.redo(sandbox, 1).await.unwrap();
    assert_eq!(inside(&session, "f"), Some(lines("uno", "4", "eight")));
    session.apply().await.unwrap();
    assert_eq!(fs::read_to_string(session.host("f")).unwrap(), lines("uno", "4", "eight"));
}

const NOTHING: (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());

#[tokio::test]
async fn edits_are_followed_again_and_again_in_new_moved_and_linked_files() {
    let outside = TempDir::new().unwrap();
    let tree = host(&[("a.txt", "a"), ("old/b.txt", "b")]);
    let session = Session::start(tree).await;
    let followed = async |names: &[&str]| {
        let (followed, conflicts) = refreshed(&session).await;
        assert_eq!((followed, conflicts), (names.iter().map(ToString::to_string).collect(), Vec::new()));
    };
    // On another file system there is no such link.
    let is_linked = fs::hard_link(session.host("a.txt"), outside.path().join("link")).is_ok();
    followed(&[]).await;
    fs::create_dir_all(session.host("new/deep")).unwrap();
    fs::write(session.host("new/deep/c.txt"), "1").unwrap();
    followed(&["new/deep/c.txt"]).await;
    for text in ["2", "3"] {
        fs::write(session.host("new/deep/c.txt"), text).unwrap();
        followed(&["new/deep/c.txt"]).await;
        followed(&[]).await;
    }
    fs::rename(session.host("new"), session.host("moved")).unwrap();
    followed(&["moved/deep/c.txt", "new/deep/c.txt"]).await;
    fs::write(session.host("moved/deep/c.txt"), "4").unwrap();
    fs::remove_dir_all(session.host("old")).unwrap();
    fs::create_dir(session.host("old")).unwrap();
    fs::write(session.host("old/b.txt"), "another").unwrap();
    followed(&["moved/deep/c.txt", "old/b.txt"]).await;
    if is_linked {
        fs::write(outside.path().join("link"), "through the link").unwrap();
        followed(&["a.txt"]).await;
        assert_eq!(inside(&session, "a.txt").as_deref(), Some("through the link"));
    }
    assert_eq!(inside(&session, "moved/deep/c.txt").as_deref(), Some("4"));
    assert_eq!(session.changed().await, [""; 0]);
}

/// They were invisible inside, and blocked an apply with a conflict.
#[tokio::test]
async fn edits_on_the_host_arrive_in_what_the_sandbox_has_not_changed() {
    let files = [("a.txt", "a"), ("b.txt", "b"), ("c.txt", "c"), ("src/d.txt", "d"), ("gone/e.txt", "e")];
    let session = Session::start(host(&files)).await;
    assert_eq!(refreshed(&session).await, NOTHING);
    session.turn("echo inside > b.txt; echo same > c.txt; echo new > n.txt").await;
    fs::write(session.host("a.txt"), "host").unwrap();
    fs::write(session.host("b.txt"), "host").unwrap();
    fs::write(session.host("c.txt"), "same\n").unwrap();
    fs::create_dir_all(session.host("src/deep/er")).unwrap();
    fs::write(session.host("src/deep/er/new.txt"), "new").unwrap();
    symlink("a.txt", session.host("src/link")).unwrap();
    fs::write(session.host(".env"), "TOKEN=1").unwrap();
    fs::remove_dir_all(session.host("gone")).unwrap();
    let (followed, conflicts) = refreshed(&session).await;
    assert_eq!(followed, ["a.txt", "c.txt", "gone/e.txt", "src/deep/er/new.txt", "src/link"]);
    assert_eq!(conflicts, ["b.txt"]);
    assert_eq!(inside(&session, "a.txt").as_deref(), Some("host"));
    assert_eq!(inside(&session, "src/deep/er/new.txt").as_deref(), Some("new"));
    assert_eq!(fs::read_link(session.guest.path("src/link")).unwrap(), Path::new("a.txt"));
    assert_eq!(inside(&session, "b.txt").as_deref(), Some("inside\n"));
    assert!(!session.guest.path("gone").exists() && inside(&session, ".env").is_none());
    // Told once, and nothing of it is a change of the session.
    assert_eq!(refreshed(&session).await, NOTHING);
    assert_eq!(session.changed().await, ["b.txt", "n.txt"]);
    // What followed the host can be changed and applied.
    session.turn("echo more >> a.txt; rm b.txt").await;
    session.workspace.undo(&session.guest.sandbox, 1).await.unwrap();
    assert_eq!(inside(&session, "a.txt").as_deref(), Some("host"));
    session.turn("echo more >> a.txt").await;
    let changes = session.changes().await.select(&["a.txt".into(), "n.txt".into()]).unwrap();
    session.workspace.apply(&changes, Some(&session.guest.sandbox)).await.unwrap();
    assert_eq!(fs::read_to_string(session.host("a.txt")).unwrap(), "hostmore\n");
    assert_eq!(refreshed(&session).await, NOTHING, "an apply is not the user's edit");
    // Applied and edited again on the host: the sandbox has not changed it since.
    fs::write(session.host("n.txt"), "edited").unwrap();
    assert_eq!(refreshed(&session).await, (vec!["n.txt".to_owned()], Vec::new()));
    assert_eq!(inside(&session, "n.txt").as_deref(), Some("edited"));
    assert_eq!(session.changed().await, ["b.txt"]);
}

#[tokio::test]
async fn what_git_records_on_the_host_arrives_unless_the_sandbox_committed() {
    let directory = host(&[("a.txt", "a"), (".gitignore", "built/\n")]);
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["add", "-A"]);
    git(directory.path(), &["commit", "-qm", "one"]);
    let session = Session::start(directory).await;
    session.turn("git status").await;
    fs::write(session.host("a.txt"), "b").unwrap();
    git(session.host.path(), &["commit", "-qam", "two"]);
    fs::create_dir(session.host("built")).unwrap();
    fs::write(session.host("built/x"), "ignored").unwrap();
    assert_eq!(refreshed(&session).await, (vec!["a.txt".to_owned()], Vec::new()));
    let log = session.guest.sh("git log --format=%s; git status --short; ls").await;
    assert_eq!(log.text(), "two\none\na.txt\n");
    session
        .turn("echo c > c.txt; git add c.txt; git -c user.name=a -c user.email=a@b commit -qm three")
        .await;
    fs::write(session.host("a.txt"), "d").unwrap();
    git(session.host.path(), &["commit", "-qam", "four"]);
    assert_eq!(refreshed(&session).await, (vec!["a.txt".to_owned()], Vec::new()));
    let log = session.guest.sh("git log --format=%s; git fsck --strict").await;
    assert_eq!(log.text(), "three\ntwo\none\n");
}

#[tokio::test]
async fn a_new_rule_in_gitignore_holds_for_files_that_appear_later() {
    let session = Session::start(host(&[("a.txt", "a"), (".gitignore", "x\n")])).await;
    fs::write(session.host(".gitignore"), "x\n*.log\n").unwrap();
    fs::write(session.host("b.log"), "log").unwrap();
    fs::write(session.host("b.txt"), "b").unwrap();
    let (followed, _) = refreshed(&session).await;
    assert_eq!(followed, [".gitignore", "b.txt"]);
    assert!(inside(&session, "b.log").is_none());
}

/// The whole sandbox was listed: half a second before the prompt in a tree of 50,000 files.
#[tokio::test]
async fn an_edit_on_the_host_is_followed_by_looking_at_that_file_alone() {
    let directory = TempDir::new().unwrap();
    for number in 0..3000 {
        let path = directory.path().join(format!("part-{}/file-{number}.txt", number % 30));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("file {number}\n")).unwrap();
    }
    git(directory.path(), &["init", "-q"]);
    let home = tempfile::tempdir().unwrap();
    // Near, and counted.
    let (guest, traffic) = Guest::start_counted().await;
    let (options, at) = (Options::new(machine()), home.path().join("sessions/s1"));
    let workspace = Workspace::open(directory.path(), &at, options).await.unwrap();
    workspace.copy_in(&guest.sandbox, &mut |_, _| {}).await.unwrap();
    let session = Session { host: directory, home, guest, workspace };
    traffic.take_bytes();
    session.turn("echo inside > part-3/file-3.txt").await;
    let everything = traffic.take_bytes();
    let edits = async |edit: &dyn Fn(), followed: &[&str], conflicts: &[&str]| {
        edit();
        traffic.take_bytes();
        let found = refreshed(&session).await;
        let bytes = traffic.take_bytes();
        assert_eq!((found.0, found.1), (owned(followed), owned(conflicts)));
        assert!(bytes * 10 < everything, "{bytes} of {everything}");
    };
    let write = |name: &str, text: &str| fs::write(session.host(name), text).unwrap();
    edits(&|| write("part-1/file-1.txt", "host"), &["part-1/file-1.txt"], &[]).await;
    edits(&|| write("part-2/new.txt", "new"), &["part-2/new.txt"], &[]).await;
    // As an editor's `git status` does.
    edits(&|| git(session.host.path(), &["add", "part-5/file-5.txt"]), &[], &[]).await;
    edits(&|| write("part-3/file-3.txt", "host"), &[], &["part-3/file-3.txt"]).await;
    edits(&|| fs::remove_file(session.host("part-4/file-4.txt")).unwrap(), &["part-4/file-4.txt"], &[]).await;
    // What is a link inside leads to another file.
    session.turn("mv part-6 moved; ln -s moved part-6").await;
    edits(&|| write("part-6/file-6.txt", "host"), &[], &["part-6/file-6.txt"]).await;
    assert_eq!(inside(&session, "part-1/file-1.txt").as_deref(), Some("host"));
    assert_eq!(inside(&session, "part-2/new.txt").as_deref(), Some("new"));
    assert_eq!(inside(&session, "moved/file-6.txt").as_deref(), Some("file 6\n"));
    assert_eq!(session.guest.sh("git diff --cached --name-only").await.text(), "part-5/file-5.txt\n");
    session.workspace.undo(&session.guest.sandbox, 1).await.unwrap();
    assert_eq!(inside(&session, "part-6/file-36.txt").as_deref(), Some("file 36\n"));
    assert_eq!(session.changed().await, ["part-3/file-3.txt"]);
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
