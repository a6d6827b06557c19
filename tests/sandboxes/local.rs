//! Local sandboxes: real ones, from the inside and from the outside.
//!
//! Each test runs in a process of its own, which has files and directories of its own: once as the user who runs the tests, and,
//! where that is root, once more as an ordinary user.

use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Command, Network, Outcome, Output, Sandbox, Spec, State, WorkspaceMount};
use agent_testbed::backends::shell;
use agent_testing::machine;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

/// The variable that says to a process of this test program that it is the one to run the test.
const INSIDE: &str = "AGENT_TEST_LOCAL";
/// An ordinary user; it needs no entry in `/etc/passwd`.
const ORDINARY: u32 = 12_345;
/// How long anything may take that happens at once on an idle machine.
const SOON: Duration = Duration::from_secs(30);

/// Runs `test`, the test called `name`, in processes of its own.
fn each_user<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(test());
    }
    let users: &[Option<u32>] = if is_root() { &[None, Some(ORDINARY)] } else { &[None] };
    for user in users {
        let home = home_of(*user);
        let output = again(name, *user, home.path()).output().unwrap();
        assert!(
            output.status.success(),
            "as user {user:?}:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(left_over(home.path()), Vec::<PathBuf>::new(), "as user {user:?}");
    }
}

/// This test program again, for one test, as `user`.
fn again(name: &str, user: Option<u32>, home: &Path) -> process::Command {
    let mut command = process::Command::new("/proc/self/exe");
    command.args([&format!("local::{name}"), "--exact", "--nocapture"]);
    command.env(INSIDE, "1").env("HOME", home).env("AGENT_HOME", home.join("agent"));
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    // rustup and pyenv find their directories through HOME where these are not set.
    if user.is_none() {
        let real = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        command.env("RUSTUP_HOME", real.join(".rustup")).env("CARGO_HOME", real.join(".cargo"));
    }
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// A home with a secret in it.
fn home_of(user: Option<u32>) -> tempfile::TempDir {
    let home = tempfile::Builder::new().prefix("agent-local-").tempdir().unwrap();
    fs::write(home.path().join("secret"), "s3cret").unwrap();
    if let Some(user) = user {
        std::os::unix::fs::chown(home.path(), Some(user), Some(user)).unwrap();
    }
    home
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

/// Returns what is left of sandboxes whose private directories were below `home`: once nothing more goes away.
fn left_over(home: &Path) -> Vec<PathBuf> {
    let sandboxes = home.join("agent/data/sandboxes");
    let entries = || fs::read_dir(&sandboxes).into_iter().flatten().flatten().map(|entry| entry.path());
    eventually(|| entries().next().is_none());
    entries().collect()
}

fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    condition()
}

fn spec(session: &str) -> Spec {
    Spec { idle_ttl: Duration::from_secs(1), ..Spec::new(format!("{session}-{}", process::id())) }
}

fn local() -> Local {
    Local::new(machine())
}

async fn start(spec: &Spec) -> Sandbox {
    let (channel, info) = local().start(spec, &|_, _, _| {}).await.unwrap();
    assert_eq!((info.backend.as_str(), info.image), ("local", None));
    Sandbox::connect(channel).await.unwrap()
}

/// Runs a shell script inside: how it ended, and what it said on both streams.
async fn run(sandbox: &Sandbox, script: &str) -> (Outcome, String) {
    let command = Command { timeout: Some(Duration::from_secs(120)), ..shell(script) };
    let mut said = Vec::new();
    let finished = sandbox
        .run(command, &mut |output| {
            if let Output::Data(_, bytes) = output {
                said.extend_from_slice(bytes);
            }
        })
        .await
        .unwrap();
    (finished.outcome, String::from_utf8_lossy(&said).into_owned())
}

/// Returns what a script says that has to succeed.
async fn said(sandbox: &Sandbox, script: &str) -> String {
    let (outcome, said) = run(sandbox, script).await;
    assert_eq!(outcome, Outcome::Exited(0), "{script}: {said}");
    said
}

/// Returns whether the sandbox is gone, as its client sees it.
async fn is_lost(sandbox: &Sandbox) -> bool {
    sandbox.facts(&[]).await.is_err_and(|error| error.kind() == agent::error::Kind::Sandbox)
}

async fn refused(sandbox: &Sandbox, script: &str) {
    let (outcome, said) = run(sandbox, script).await;
    assert_ne!(outcome, Outcome::Exited(0), "{script} was not refused: {said}");
}

#[test]
fn the_full_network_is_the_hosts_without_its_abstract_sockets() {
    each_user("the_full_network_is_the_hosts_without_its_abstract_sockets", || async {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("agent-test-{}", process::id());
        let _private = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let sandbox = start(&Spec { network: Network::Full, ..spec("full") }).await;
        let port = host.local_addr().unwrap().port();
        said(&sandbox, &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")).await;
        let connect = format!(
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")' 2>&1 | grep -q 'not permitted'"
        );
        let checks = agent::sandbox::local::checks();
        if !checks.weaknesses.iter().any(|weakness| weakness.contains("Landlock before Linux 6.12")) {
            said(&sandbox, &connect).await;
        }
        sandbox.shutdown().await;
    });
}

#[test]
fn everyday_tools_work() {
    each_user("everyday_tools_work", || async {
        let sandbox = start(&spec("tools")).await;
        let (_, tools) = run(&sandbox, "command -v bash git python3 node cargo gcc").await;
        let has = |tool: &str| tools.lines().any(|path| path.ends_with(&format!("/{tool}")));
        assert!(has("bash"), "{tools}");
        if has("git") {
            said(
                &sandbox,
                "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m m",
            )
            .await;
        }
        if has("python3") {
            let script = "import multiprocessing as m, os, ssl, subprocess\n\
                 p = m.Process(target=print); p.start(); p.join()\n\
                 os.openpty(); subprocess.run([\"true\"], check=True); print(6 * 7)";
            assert!(said(&sandbox, &format!("python3 -c '{script}'")).await.ends_with("42\n"));
        }
        if has("node") {
            assert_eq!(said(&sandbox, "node -p '6*7'").await, "42\n");
        }
        if has("cargo") && has("gcc") {
            let built = said(
                &sandbox,
                "cargo init -q --name hello h && cd h && cargo test -q --offline && cargo run -q --offline",
            )
            .await;
            assert!(built.ends_with("Hello, world!\n"), "{built}");
        }
        sandbox.shutdown().await;
    });
}

#[test]
fn a_second_client_finds_what_the_first_has_left() {
    each_user("a_second_client_finds_what_the_first_has_left", || async {
        let spec = spec("attach");
        let first = start(&spec).await;
        said(&first, "echo kept > /tmp/kept").await;
        let second = Sandbox::connect(local().attach(&spec.session).await.unwrap()).await.unwrap();
        assert_eq!(said(&second, "cat /tmp/kept").await, "kept\n");
        drop(first);
        assert_eq!(said(&second, "cat /tmp/kept").await, "kept\n");
        let states = |listed: Vec<agent::sandbox::Listed>| {
            listed.into_iter().map(|sandbox| (sandbox.session, sandbox.state)).collect::<Vec<_>>()
        };
        let state = |state| vec![(spec.session.clone(), state)];
        assert_eq!(states(local().list().await.unwrap()), state(State::Running));
        local().pause(&spec.session).await.unwrap();
        assert_eq!(states(local().list().await.unwrap()), state(State::Paused));
        local().resume(&spec.session).await.unwrap();
        assert_eq!(states(local().list().await.unwrap()), state(State::Running));
        assert_eq!(said(&second, "cat /tmp/kept").await, "kept\n");
        local().sweep().await.unwrap();
        assert_eq!(said(&second, "cat /tmp/kept").await, "kept\n");
        local().pause(&spec.session).await.unwrap();
        local().destroy(&spec.session).await.unwrap();
        assert!(local().list().await.unwrap().is_empty());
        assert!(is_lost(&second).await);
    });
}

#[test]
fn a_kept_sandbox_starts_again_with_its_files() {
    each_user("a_kept_sandbox_starts_again_with_its_files", || async {
        starts_again(Spec { ephemeral: false, ..spec("kept") }).await;
    });
}

#[test]
fn a_kept_overlay_starts_again_with_its_files() {
    each_user("a_kept_overlay_starts_again_with_its_files", || async {
        let workspace = WorkspaceMount::Overlay { lower: project(), hidden: Vec::new() };
        starts_again(Spec { ephemeral: false, workspace, ..spec("kept") }).await;
    });
}

async fn starts_again(spec: Spec) {
    let first = start(&spec).await;
    said(&first, "echo kept > kept").await;
    first.shutdown().await;
    let stopped = async || local().list().await.unwrap()[0].state == State::Stopped;
    let deadline = Instant::now() + SOON;
    while !stopped().await && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    local().sweep().await.unwrap();
    local().resume(&spec.session).await.unwrap();
    let again = Sandbox::connect(local().attach(&spec.session).await.unwrap()).await.unwrap();
    assert_eq!(said(&again, "cat kept").await, "kept\n");
    local().destroy(&spec.session).await.unwrap();
}

#[test]
fn hostile_leftovers_are_removed_and_nothing_else_is() {
    each_user("hostile_leftovers_are_removed_and_nothing_else_is", || async {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let sandbox = start(&spec("hostile")).await;
        said(
            &sandbox,
            &format!(
                "ln -s {0} out; ln -s {0}/secret ~/out\n\
                 mkdir -p shut/shut && touch shut/shut/file && chmod 000 shut/shut shut\n\
                 touch \"$(printf 'a\\nb')\" \"$(printf '\\377')\" -- -rf\n\
                 python3 -c 'import os\n\
                 for _ in range(50): os.mkdir(\"d\" * 250); os.chdir(\"d\" * 250)'\n\
                 python3 -c 'import os; os.mkdir(\"many\"); os.chdir(\"many\")\n\
                 for i in range(20000): os.close(os.open(str(i), os.O_CREAT))'\n\
                 chmod 000 ~ /workspace",
                home.display()
            ),
        )
        .await;
        sandbox.shutdown().await;
        assert_eq!(left_over(&home), Vec::<PathBuf>::new());
        assert_eq!(fs::read_to_string(home.join("secret")).unwrap(), "s3cret");
    });
}

/// A project below `$HOME` whose name has everything in it that mount options treat specially.
fn project() -> PathBuf {
    let project = PathBuf::from(std::env::var_os("HOME").unwrap()).join("my, pro:ject\\1");
    fs::create_dir_all(project.join("src")).unwrap();
    fs::write(project.join("src/old"), "old").unwrap();
    fs::write(project.join("gone"), "gone").unwrap();
    project
}

const CHANGE: &str =
    "echo new > src/old && echo more > src/more && rm gone && mkdir made && stat -c %U src/old made";

#[test]
fn under_an_overlay_the_host_tree_stays_as_it_was() {
    each_user("under_an_overlay_the_host_tree_stays_as_it_was", || async {
        let project = project();
        fs::create_dir_all(project.join("deep/er/left out")).unwrap();
        let hidden = vec!["deep/er/left out".into(), "deep/secret".into()];
        fs::write(project.join("deep/secret"), "secret").unwrap();
        let workspace = WorkspaceMount::Overlay { lower: project.clone(), hidden };
        let sandbox = start(&Spec { workspace, ..spec("overlay") }).await;
        assert_eq!(said(&sandbox, "cat src/old").await, "old");
        assert_eq!(
            said(&sandbox, "find deep; echo x > deep/er/new; mkdir -p 'deep/er/left out'; rm -r deep").await,
            "deep\ndeep/er\n"
        );
        assert_eq!(said(&sandbox, CHANGE).await, "agent\nagent\n");
        assert_eq!(said(&sandbox, "cat src/old src/more; ls").await, "new\nmore\nmade\nsrc\n");
        assert_eq!(fs::read_to_string(project.join("src/old")).unwrap(), "old");
        assert!(
            project.join("gone").exists()
                && !project.join("made").exists()
                && !project.join("src/more").exists()
                && project.join("deep/secret").exists()
        );
        sandbox.shutdown().await;
    });
}

#[test]
fn a_bound_workspace_is_the_host_tree_itself() {
    each_user("a_bound_workspace_is_the_host_tree_itself", || async {
        use std::os::unix::fs::MetadataExt;
        let project = project();
        let workspace = WorkspaceMount::Bind(project.clone());
        let sandbox = start(&Spec { workspace, ..spec("bind") }).await;
        assert_eq!(said(&sandbox, CHANGE).await, "agent\nagent\n");
        refused(&sandbox, "ls ../secret /home/*/secret").await;
        assert_eq!(fs::read_to_string(project.join("src/old")).unwrap(), "new\n");
        let owner = |name: &str| fs::metadata(project.join(name)).unwrap().uid();
        assert_eq!(owner("made"), owner("src"), "what is made inside belongs to whom the tree belongs to");
        assert!(!project.join("gone").exists());
        sandbox.shutdown().await;
    });
}

#[test]
fn a_killed_owner_leaves_nothing() {
    const WAIT: &str = "AGENT_TEST_LOCAL_WAIT";
    if std::env::var_os(WAIT).is_some() {
        return each_user("a_killed_owner_leaves_nothing", || async {
            let sandbox = start(&spec("owner")).await;
            said(&sandbox, "(trap '' TERM; sleep 1000) & sleep 0.1").await;
            fs::write(PathBuf::from(std::env::var_os("HOME").unwrap()).join("started"), "").unwrap();
            std::future::pending::<()>().await;
        });
    }
    let users: &[Option<u32>] = if is_root() { &[None, Some(ORDINARY)] } else { &[None] };
    for user in users {
        let home = home_of(*user);
        let mut owner = again("a_killed_owner_leaves_nothing", *user, home.path())
            .env(WAIT, "1")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(|| home.path().join("started").exists()));
        let id = format!("agent-owner-{}", owner.id());
        let processes = fs::read_to_string(
            home.path().join(format!("agent/data/sandboxes/owner-{}/processes", owner.id())),
        )
        .unwrap();
        let pids: Vec<&str> = processes.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(pids.len(), 2);
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_eq!(left_over(home.path()), Vec::<PathBuf>::new());
        assert!(eventually(|| pids.iter().all(|pid| !Path::new("/proc").join(pid).exists())));
        assert!(eventually(|| !cgroup_exists(Path::new("/sys/fs/cgroup"), &id, 0)));
    }
}

fn cgroup_exists(directory: &Path, name: &str, depth: usize) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    depth < 12
        && directories.any(|entry| entry.file_name() == name || cgroup_exists(&entry.path(), name, depth + 1))
}

#[test]
fn what_a_killed_launcher_leaves_is_swept() {
    each_user("what_a_killed_launcher_leaves_is_swept", || async {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let spec = spec("swept");
        let sandbox = start(&spec).await;
        said(&sandbox, "echo 1 > file").await;
        let directory = home.join("agent/data/sandboxes").join(&spec.session);
        let processes = fs::read_to_string(directory.join("processes")).unwrap();
        let launcher = processes.split(' ').next().unwrap();
        assert!(process::Command::new("kill").args(["-9", launcher]).status().unwrap().success());
        assert!(eventually(|| process::Command::new("kill")
            .args(["-0", launcher])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| !s.success())));
        assert!(is_lost(&sandbox).await);
        assert!(directory.exists());
        // A sandbox is left over once its first process has ended.
        let started = Instant::now();
        while directory.exists() && started.elapsed() < SOON {
            local().sweep().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!directory.exists());
    });
}

#[test]
fn a_private_directory_is_private() {
    each_user("a_private_directory_is_private", || async {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let spec = spec("private");
        let sandbox = start(&spec).await;
        let sandboxes = home.join("agent/data/sandboxes");
        for directory in [sandboxes.clone(), sandboxes.join(&spec.session)] {
            assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let twice = local().start(&spec, &|_, _, _| {}).await.err().unwrap();
        assert!(twice.to_string().contains("already has a sandbox"), "{twice}");
        assert_eq!(said(&sandbox, "echo still here").await, "still here\n");
        sandbox.shutdown().await;
    });
}

#[test]
fn where_user_namespaces_are_forbidden_the_error_says_so() {
    const FORBIDDEN: &str = "AGENT_TEST_LOCAL_FORBIDDEN";
    const NAME: &str = "where_user_namespaces_are_forbidden_the_error_says_so";
    if std::env::var_os(FORBIDDEN).is_some() {
        return each_user(NAME, || async {
            let error = local().start(&spec("forbidden"), &|_, _, _| {}).await.err().unwrap();
            assert!(error.to_string().contains("user.max_user_namespaces = 0"), "{error}");
            assert!(error.hint_text().unwrap().contains("sysctl"));
            assert!(!agent::sandbox::local::checks().obstacles.is_empty());
        });
    }
    // A user namespace of an ordinary user's own, in which no further ones may be made. Its program comes in as a descriptor,
    // because that user may not be able to walk to where it is.
    let user = Some(ORDINARY).filter(|_| is_root());
    let home = home_of(user);
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec /proc/self/fd/0 \"$@\"";
    let mut forbidden = process::Command::new("unshare");
    forbidden.args(["--user", "--map-current-user", "--keep-caps", "sh", "-c", script, "sh"]);
    let plain = again(NAME, user, home.path());
    forbidden.args(plain.get_args()).env(FORBIDDEN, "1").stdin(fs::File::open("/proc/self/exe").unwrap());
    forbidden.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(user) = user {
        forbidden.uid(user).gid(user);
    }
    let output = forbidden.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn what_is_no_session_id_is_refused() {
    each_user("what_is_no_session_id_is_refused", || async {
        for bad in ["../x", "", "A/b", "."] {
            assert!(local().destroy(bad).await.is_err(), "{bad}");
            assert!(local().attach(bad).await.is_err(), "{bad}");
        }
        let other_image = Spec { image: Some("python:3".into()), ..spec("image") };
        assert!(local().start(&other_image, &|_, _, _| {}).await.is_err());
        local().destroy("never-was").await.unwrap();
    });
}
