//! What a big tree costs: the start of a sandbox on it, and the checkpoints after that.
//!
//! `cargo bench --bench workspace`. Writes a tree of 50,000 files and 500 MB into the temporary directory first.

use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Sandbox, Spec};
use agent::workspace::{Mode, Options, Workspace};
use agent_testing::machine;
use divan::Bencher;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
    // What is static is never dropped.
    let _ = fs::remove_dir_all(ROOT.path());
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static ROOT: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));
static BIG: LazyLock<PathBuf> = LazyLock::new(|| tree("big", 50_000, 10_000));
static MIDDLING: LazyLock<PathBuf> = LazyLock::new(|| tree("middling", 10_000, 1_000));
static REPOSITORY: LazyLock<PathBuf> = LazyLock::new(repository);
static EMPTY: LazyLock<PathBuf> = LazyLock::new(|| tree("empty", 0, 0));

/// A tree of `files` files of `bytes` bytes, twenty to a directory, with something in each thousandth that is excluded.
fn tree(name: &str, files: usize, bytes: usize) -> PathBuf {
    let root = ROOT.path().join(name);
    fs::create_dir_all(&root).expect("the tree");
    fs::write(root.join(".gitignore"), "node_modules/\n").expect("the rules");
    for number in 0..files {
        let directory = root.join(format!("part-{}/directory-{}", number / 1_000, number / 20));
        if number % 20 == 0 {
            fs::create_dir_all(&directory).expect("a directory");
        }
        let mut content = format!("file {number}\n").into_bytes();
        content.resize(bytes, b'x');
        fs::write(directory.join(format!("file-{number}.txt")), content).expect("a file");
        if number % 1_000 == 0 {
            fs::create_dir_all(directory.join("node_modules/left")).expect("a directory");
            fs::write(directory.join("node_modules/left/pad.js"), "x").expect("a file");
            fs::write(directory.join(".env"), "KEY=1").expect("a secret");
        }
    }
    root
}

/// A repository of the shape of ansible 8.0.0: 36,861 files and 458 MB, three files to a directory, nine levels deep, and
/// all of it committed.
fn repository() -> PathBuf {
    const DIRECTORIES: usize = 12_287;
    let root = ROOT.path().join("repository");
    for number in 0..DIRECTORIES {
        let directory = root.join(format!(
            "collections/namespace-{}/collection-{}/tests/integration/targets/target-{number}/tasks/main",
            number / 1_000,
            number / 100
        ));
        fs::create_dir_all(&directory).expect("a directory");
        for (name, bytes) in [("main.yml", 2_000), ("plugin.py", 30_000), ("README.rst", 5_270)] {
            let mut content = format!("# {name} {number}\n").into_bytes();
            content.resize(bytes, b'x');
            fs::write(directory.join(name), content).expect("a file");
        }
    }
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"];
        let done =
            Command::new("git").args(identity).args(arguments).current_dir(&root).status().expect("git");
        assert!(done.success());
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "all"]);
    git(&["status", "--short"]);
    root
}

fn has_docker() -> bool {
    let asked = Command::new("docker").args(["version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// `agent exec -- true`, the whole binary: until the sandbox is ready, the command has run, and all is gone again.
#[divan::bench_group(sample_count = 5, sample_size = 1)]
mod start {
    use super::*;

    fn exec(bencher: Bencher, sandbox: &str, tree: &Path, mode: &str) {
        if sandbox == "docker" && !has_docker() {
            return;
        }
        let home = ROOT.path().join("home");
        bencher.bench_local(|| {
            let mut agent = Command::new(env!("CARGO_BIN_EXE_agent"));
            agent.args(["exec", "-q", "--sandbox", sandbox, "--workspace-mode", mode, "-C"]).arg(tree);
            let done = agent.args(["--", "true"]).env("AGENT_HOME", &home).stdin(Stdio::null()).output();
            let done = done.expect("it starts");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        });
    }

    #[divan::bench(args = ["local", "docker"])]
    fn empty(bencher: Bencher, sandbox: &str) {
        exec(bencher, sandbox, &EMPTY, "auto");
    }

    #[divan::bench(args = ["local", "docker"])]
    fn big(bencher: Bencher, sandbox: &str) {
        exec(bencher, sandbox, &BIG, "auto");
    }

    #[divan::bench(args = ["local", "docker"], sample_count = 2)]
    fn big_copied(bencher: Bencher, sandbox: &str) {
        exec(bencher, sandbox, &BIG, "copy");
    }

    /// At most twice what `git status` takes.
    #[divan::bench]
    fn repository(bencher: Bencher) {
        exec(bencher, "local", &REPOSITORY, "auto");
    }

    #[divan::bench]
    fn repository_git_status(bencher: Bencher) {
        let root = &*REPOSITORY;
        bencher.bench_local(|| {
            let done =
                Command::new("git").args(["status", "--short"]).current_dir(root).output().expect("git");
            assert!(done.status.success() && done.stdout.is_empty());
        });
    }

    /// The way that a user would go otherwise: into a running container of the same image, which is there already.
    #[divan::bench(sample_count = 2)]
    fn big_with_docker_cp(bencher: Bencher) {
        if !has_docker() {
            return;
        }
        let docker = |arguments: &[&str]| {
            let done = Command::new("docker").args(arguments).output().expect("the docker client");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        let images = docker(&["images", "-q", "localhost/agent-host"]);
        let image = images.lines().next().expect("the other benches have made the image").to_owned();
        let from = format!("{}/.", BIG.display());
        bencher.bench_local(|| {
            let name = format!("agent-bench-cp-{}", fastrand::u32(..));
            let entry = ["run", "-d", "-i", "--name", &name, "--network", "none", "-v", "/workspace"];
            docker(&[&entry[..], &["--entrypoint", "/.agent/guest", &image, "serve"]].concat());
            docker(&["cp", &from, &format!("{name}:/workspace")]);
            docker(&["rm", "-f", "-v", &name]);
        });
    }
}

/// A sandbox with a tree, which has been looked at once. Returns what they are to be closed with.
fn open(tree: &Path, mode: &str) -> (Workspace, Sandbox, String) {
    let mode = if mode == "copy" { Mode::Copy } else { Mode::Overlay };
    let session = format!("bench-{}", fastrand::u32(..));
    let (workspace, sandbox) = RUNTIME.block_on(async {
        let options = Options { mode, can_overlay: true, ..Options::new(machine()) };
        let directory = ROOT.path().join("sessions").join(&session);
        let workspace = Workspace::open(tree, &directory, options).await.expect("it opens");
        let spec = Spec {
            idle_ttl: Duration::from_secs(30),
            workspace: workspace.mount().await,
            ..Spec::new(&session)
        };
        let (channel, _) = Local::new(machine()).start(&spec, &|_, _, _| {}).await.expect("it starts");
        let sandbox = Sandbox::connect(channel).await.expect("it answers");
        workspace.copy_in(&sandbox, &mut |_, _| {}).await.expect("it is filled");
        // The first look reads what was written too shortly before it.
        workspace.checkpoint(&sandbox, 1).await.expect("a look");
        (workspace, sandbox)
    });
    (workspace, sandbox, session)
}

fn close(sandbox: &Sandbox, session: &str) {
    RUNTIME.block_on(async {
        sandbox.shutdown().await;
        Local::new(machine()).destroy(session).await.expect("it goes");
    });
}

/// A checkpoint where nothing changed, on 10,000 files.
#[divan::bench_group(sample_count = 30, sample_size = 1)]
mod checkpoint {
    use super::*;

    #[divan::bench(args = ["copy", "overlay"])]
    fn unchanged(bencher: Bencher, mode: &str) {
        let (workspace, sandbox, session) = open(&MIDDLING, mode);
        bencher.bench_local(|| {
            let made = RUNTIME.block_on(workspace.checkpoint(&sandbox, 1)).expect("a look");
            assert!(made.is_none());
        });
        close(&sandbox, &session);
    }
}

/// What the host's edits cost before a prompt, on 50,000 files. At most 50 ms.
#[divan::bench_group(sample_count = 30, sample_size = 1)]
mod refresh {
    use super::*;

    fn refreshed(bencher: Bencher, mode: &str, edit: impl Fn(usize) -> usize) {
        let (workspace, sandbox, session) = open(&BIG, mode);
        let look = || RUNTIME.block_on(workspace.refresh(&sandbox)).expect("a look").followed.len();
        // As while the user types the first prompt: everything is compared, and the tree is watched from then on.
        RUNTIME.block_on(workspace.prepare_refresh()).expect("a look");
        let mut count = 0;
        bencher.bench_local(|| {
            count += 1;
            let edited = edit(count);
            assert_eq!(look(), edited);
        });
        close(&sandbox, &session);
    }

    #[divan::bench(args = ["copy", "overlay"])]
    fn unchanged(bencher: Bencher, mode: &str) {
        refreshed(bencher, mode, |_| 0);
    }

    #[divan::bench(args = ["copy", "overlay"])]
    fn one_file_edited(bencher: Bencher, mode: &str) {
        refreshed(bencher, mode, |count| {
            let text = format!("{mode} {count} {}\n", fastrand::u64(..));
            fs::write(BIG.join("part-7/directory-350/file-7000.txt"), text).expect("a file");
            1
        });
    }
}
