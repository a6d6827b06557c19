//! One suite for every backend: what is written once over `Sandbox` has to work on all of them.
//! A further backend is measured by adding it to `BACKENDS`.

use agent::event::{Limits, Stream};
use agent::sandbox::docker::Docker;
use agent::sandbox::local::Local;
use agent::sandbox::{
    Backend, Command, FileWrite, Network, Node, Outcome, Output, Program, Sandbox, Spec, WorkspaceMount,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BACKENDS: [&str; 2] = ["local", "docker"];

/// The backend, or `None` (with one line) where this machine has none and none is required.
async fn backend(name: &str) -> Option<Box<dyn Backend>> {
    match name {
        "local" => Some(Box::new(Local)),
        _ => match Docker::connect().await {
            Ok(docker) => Some(Box::new(docker)),
            Err(error) if std::env::var_os("AGENT_TEST_REQUIRE_DOCKER").is_some() => panic!("{error}"),
            Err(error) => {
                eprintln!("not tried on docker: {error}");
                None
            }
        },
    }
}

fn spec(test: &str) -> Spec {
    Spec {
        session: format!("suite-{test}-{}-{}", std::process::id(), fastrand::u32(..)),
        image: None,
        limits: Limits::default(),
        network: Network::None,
        runtime: None,
        idle_ttl: Duration::from_secs(20),
        ephemeral: true,
        workspace: WorkspaceMount::Empty,
    }
}

/// Runs `test` in a fresh sandbox of every backend.
async fn everywhere<F: Future<Output = ()>>(name: &str, test: impl Fn(Sandbox) -> F) {
    for backend_name in BACKENDS {
        let Some(backend) = backend(backend_name).await else { continue };
        eprintln!("on {backend_name}");
        let spec = spec(name);
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        test(sandbox.clone()).await;
        sandbox.shutdown().await;
        backend.destroy(&spec.session).await.expect("the sandbox goes");
    }
}

fn shell(command: &str) -> Command {
    Command {
        program: Program::Shell(command.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        live_bytes: 1 << 20,
        stdin: false,
    }
}

/// What the command wrote on stdout, and how it ended.
async fn run(sandbox: &Sandbox, command: Command) -> (Outcome, Vec<u8>) {
    let mut bytes = Vec::new();
    let finished = sandbox
        .run(command, &mut |output| {
            if let Output::Data(Stream::Stdout, piece) = output {
                bytes.extend_from_slice(piece);
            }
        })
        .await
        .expect("the sandbox answers");
    (finished.outcome, bytes)
}

async fn said(sandbox: &Sandbox, command: &str) -> String {
    let (outcome, bytes) = run(sandbox, shell(command)).await;
    assert_eq!(outcome, Outcome::Exited(0), "{command}: {}", String::from_utf8_lossy(&bytes));
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

#[tokio::test]
async fn commands_run_in_the_workspace_as_nobody_special() {
    everywhere("commands", |sandbox| async move {
        assert_eq!(said(&sandbox, "pwd").await, "/workspace");
        assert_ne!(said(&sandbox, "id -u").await, "0");
        assert_eq!(said(&sandbox, "echo $HOME $CI $PAGER").await, "/home/agent 1 cat");
        assert_eq!(run(&sandbox, shell("exit 7")).await.0, Outcome::Exited(7));
        assert_eq!(run(&sandbox, shell("kill -9 $$")).await.0, Outcome::Signaled(9));
    })
    .await;
}

#[tokio::test]
async fn output_is_bytes() {
    everywhere("bytes", |sandbox| async move {
        let (_, bytes) = run(&sandbox, shell(r"printf '\000\377\376a\nb'")).await;
        assert_eq!(bytes, b"\0\xff\xfea\nb");
    })
    .await;
}

#[tokio::test]
async fn a_time_limit_ends_a_grandchild_that_ignores_term() {
    everywhere("limit", |sandbox| async move {
        let stubborn = Command {
            timeout: Some(Duration::from_millis(300)),
            ..shell("(trap '' TERM; setsid sh -c \"trap '' TERM; sleep 4321\" & sleep 4321) & wait")
        };
        let started = Instant::now();
        assert_eq!(run(&sandbox, stubborn).await.0, Outcome::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert_eq!(
            said(
                &sandbox,
                "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 432[1]' || true"
            )
            .await,
            "0"
        );
    })
    .await;
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_does_not_hold_up_the_command() {
    everywhere("holds", |sandbox| async move {
        let started = Instant::now();
        let finished = sandbox.run(shell("sleep 300 & echo started"), &mut |_| {}).await.expect("answers");
        assert_eq!(finished.outcome, Outcome::Exited(0));
        assert!(started.elapsed() < Duration::from_secs(30));
        assert_eq!(finished.left_running, 1);
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_and_kept_in_a_file() {
    everywhere("flood", |sandbox| async move {
        let flood = Command {
            live_bytes: 10_000,
            ..shell("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
        };
        let (mut seen, mut gap, mut last) = (0, 0, Vec::new());
        let finished = sandbox
            .run(flood, &mut |output| match output {
                Output::Data(_, bytes) => {
                    seen += bytes.len() as u64;
                    last = bytes.to_vec();
                }
                Output::Gap(bytes) => gap += bytes,
            })
            .await
            .expect("answers");
        assert_eq!((seen + gap, finished.output_bytes), (20_000_005, 20_000_005));
        assert!(seen < 2_000_000, "{seen}");
        assert!(last.ends_with(b"end\n"));
        let spool = finished.spool.expect("a file");
        assert_eq!(said(&sandbox, &format!("wc -c < {}", spool.display())).await, "20000005");
    })
    .await;
}

#[tokio::test]
async fn files_of_any_name_and_size() {
    everywhere("files", |sandbox| async move {
        let names: [&[u8]; 3] = [b"a\nb", b"\xff\xfe", b"deep/er/file"];
        let path = |name: &[u8]| -> PathBuf {
            use std::os::unix::ffi::OsStrExt;
            Path::new(std::ffi::OsStr::from_bytes(name)).to_owned()
        };
        let write = |path, content| FileWrite {
            path,
            node: Node::Regular(content),
            mode: None,
            mtime_ns: None,
            follow: true,
        };
        let big: Vec<u8> = (0..100u32 << 20).map(|n| (n % 251) as u8).collect();
        let mut files: Vec<FileWrite> = names.iter().map(|name| write(path(name), name.to_vec())).collect();
        files.push(write("big".into(), big.clone()));
        for result in sandbox.write_files(files).await.expect("answers") {
            result.expect("written");
        }
        for name in names {
            assert_eq!(sandbox.read_file(&path(name), 0, 100).await.expect("read").bytes, name);
        }
        assert_eq!(said(&sandbox, "wc -c < big").await, (100 << 20).to_string());
        let middle = sandbox.read_file(Path::new("big"), 50 << 20, 1000).await.expect("read").bytes;
        assert_eq!(middle, big[50 << 20..][..1000]);
        said(&sandbox, "mkfifo pipe").await;
        for path in ["pipe", "/dev/zero", ".", "/etc/shadow", "missing"] {
            assert!(sandbox.read_file(Path::new(path), 0, 10).await.is_err(), "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn jobs_go_on_in_the_background() {
    everywhere("jobs", |sandbox| async move {
        let job =
            sandbox.start_job(Command { timeout: None, ..shell("echo up; sleep 600") }).await.expect("a job");
        let output = sandbox.job_output(job, Duration::from_secs(20)).await.expect("its output");
        assert!(output.state.is_none() && !output.output.is_empty(), "{output:?}");
        let killed = sandbox.job_kill(job).await.expect("killed");
        assert!(killed.state.is_some_and(|finished| finished.outcome != Outcome::Exited(0)));
        assert!(sandbox.job_kill(99).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn servers_on_loopback_work_and_nothing_else_is_reachable() {
    everywhere("loopback", |sandbox| async move {
        assert_eq!(
            said(
                &sandbox,
                "ls /sys/class/net 2>/dev/null || awk 'NR>2{sub(\":\",\"\",$1);print $1}' /proc/net/dev"
            )
            .await,
            "lo"
        );
        let python = "import socket,threading as t\ns=socket.create_server(('127.0.0.1',0))\n\
                      t.Thread(target=lambda:s.accept()[0].send(b'hi')).start()\n\
                      print(socket.create_connection(s.getsockname()).recv(2).decode())";
        assert_eq!(said(&sandbox, &format!("/usr/bin/python3 -c \"{python}\"")).await, "hi");
    })
    .await;
}

#[tokio::test]
async fn too_much_memory_is_said_in_those_words() {
    for name in BACKENDS {
        let Some(backend) = backend(name).await else { continue };
        let weak = agent::sandbox::local::checks().weaknesses;
        if name == "local" && weak.iter().any(|weakness| weakness.contains("memory")) {
            eprintln!("not tried on local: no control group for memory here");
            continue;
        }
        let mut spec = spec("memory");
        spec.limits.memory = 128 << 20;
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        let bomb = "exec /usr/bin/python3 -c 'x=[]\nwhile True: x.append(bytearray(1<<20))'";
        assert_eq!(run(&sandbox, shell(bomb)).await.0, Outcome::OomKilled, "{name}");
        assert_eq!(said(&sandbox, "echo still here").await, "still here");
        backend.destroy(&spec.session).await.expect("the sandbox goes");
    }
}
