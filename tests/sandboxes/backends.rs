//! One suite for every backend: what is written once over `Sandbox` has to work on all of them.
//! A further backend is measured by adding it to `agent_testbed::backends`.

use agent::sandbox::{
    Command, EntryKind, FileWrite, Node, Outcome, Output, Sandbox, Spec, State, WalkOptions,
};
use agent_testbed::backends::{
    EVERYTHING, backend, on_backends_with, on_everything as on_every_backend, output_of, shell, spec,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[tokio::test]
async fn commands_run_in_the_workspace_as_nobody_special() {
    on_every_backend(async |inside| {
        assert_eq!(inside.output_of("pwd").await, "/workspace");
        assert_ne!(inside.output_of("id -u").await, "0");
        assert_eq!(inside.output_of("echo $HOME $CI $PAGER").await, "/home/agent 1 cat");
        assert_eq!(inside.sh("exit 7").await.outcome(), Outcome::Exited(7));
        assert_eq!(inside.sh("kill -9 $$").await.outcome(), Outcome::Signaled(9));
    })
    .await;
}

/// A bug: git refused to commit where the identity is configured for the whole machine, as it is nearly everywhere.
#[tokio::test]
async fn git_commits_as_whom_the_repository_says_or_else_as_the_agent() {
    on_every_backend(async |inside| {
        let commit = "git commit -q --allow-empty -m one && git log -1 --format='%an <%ae>, %cn <%ce>'";
        let agent = inside.output_of(&format!("git init -q /tmp/r && cd /tmp/r && {commit}")).await;
        assert_eq!(agent, "agent <agent@sandbox.invalid>, agent <agent@sandbox.invalid>");
        let configure = "git config user.name Own && git config user.email own@example.com";
        let own = inside.output_of(&format!("cd /tmp/r && {configure} && {commit}")).await;
        assert_eq!(own, "Own <own@example.com>, Own <own@example.com>");
    })
    .await;
}

#[tokio::test]
async fn output_is_bytes() {
    on_every_backend(async |inside| {
        assert_eq!(inside.sh(r"printf '\000\377\376a\nb'").await.bytes, b"\0\xff\xfea\nb");
    })
    .await;
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_does_not_hold_up_the_command() {
    on_every_backend(async |inside| {
        let started = Instant::now();
        let finished =
            inside.sandbox.run(shell("sleep 300 & echo started"), &mut |_| {}).await.expect("answers");
        assert_eq!(finished.outcome, Outcome::Exited(0));
        assert!(started.elapsed() < Duration::from_secs(30));
        assert_eq!(finished.left_running, u32::from(inside.has_subreapers().await));
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_and_kept_in_a_file() {
    on_every_backend(async |inside| {
        let flood = Command {
            live_bytes: 10_000,
            ..shell("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
        };
        let (mut seen, mut gap, mut last) = (0, 0, Vec::new());
        let finished = inside
            .sandbox
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
        assert_eq!(inside.output_of(&format!("wc -c < {}", spool.display())).await, "20000005");
    })
    .await;
}

#[tokio::test]
async fn files_of_any_name_and_size() {
    on_every_backend(async |inside| {
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
        for result in inside.sandbox.write_files(files).await.expect("answers") {
            result.expect("written");
        }
        for name in names {
            assert_eq!(inside.sandbox.read_file(&path(name), 0, 100).await.expect("read").bytes, name);
        }
        assert_eq!(inside.output_of("wc -c < big").await, (100 << 20).to_string());
        let middle = inside.sandbox.read_file(Path::new("big"), 50 << 20, 1000).await.expect("read").bytes;
        assert_eq!(middle, big[50 << 20..][..1000]);
        inside.output_of("mkfifo pipe").await;
        for path in ["pipe", "/dev/zero", ".", "/etc/shadow", "missing"] {
            assert!(inside.sandbox.read_file(Path::new(path), 0, 10).await.is_err(), "{path}");
        }
    })
    .await;
}

/// gVisor's releases of 2022 do not know a flag that `ls -l` and `stat` pass, which the guest finds out.
#[tokio::test]
async fn programs_learn_about_files() {
    on_every_backend(async |inside| {
        let facts = inside.sandbox.facts(&[]).await.expect("facts");
        let code = if facts.takes_no_automount { 0 } else { 1 };
        let ran = inside.sh("stat -c %F /").await;
        assert_eq!(ran.outcome(), Outcome::Exited(code), "on {}: {}", inside.backend, ran.text());
    })
    .await;
}

#[tokio::test]
async fn a_directory_that_may_only_be_listed_does_not_fail_a_walk() {
    on_every_backend(async |inside| {
        inside
            .output_of("mkdir -p listed/below && echo x > listed/file && echo y > other && chmod 444 listed")
            .await;
        let entries = inside.sandbox.walk(Path::new("."), WalkOptions::default()).await.expect("a walk");
        let found =
            |name: &str| entries.iter().find(|entry| entry.path == Path::new(name)).map(|entry| &entry.kind);
        assert_eq!(found("other"), Some(&EntryKind::File));
        assert_eq!(
            (found("listed"), found("listed/file")),
            (Some(&EntryKind::Directory), Some(&EntryKind::Other))
        );
    })
    .await;
}

#[tokio::test]
async fn jobs_go_on_in_the_background() {
    on_every_backend(async |inside| {
        let job = inside
            .sandbox
            .start_job(Command { timeout: None, ..shell("echo up; sleep 600") })
            .await
            .expect("a job");
        let output = inside.sandbox.job_output(job, Duration::from_secs(20)).await.expect("its output");
        assert!(output.state.is_none() && !output.output.is_empty(), "{output:?}");
        let killed = inside.sandbox.job_kill(job).await.expect("killed");
        assert!(killed.state.is_some_and(|finished| finished.outcome != Outcome::Exited(0)));
        assert!(inside.sandbox.job_kill(99).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn servers_on_loopback_work() {
    on_every_backend(async |inside| {
        let python = "import socket,threading as t\ns=socket.create_server(('127.0.0.1',0))\n\
                      t.Thread(target=lambda:s.accept()[0].send(b'hi')).start()\n\
                      print(socket.create_connection(s.getsockname()).recv(2).decode())";
        assert_eq!(inside.output_of(&format!("/usr/bin/python3 -c \"{python}\"")).await, "hi");
    })
    .await;
}

#[tokio::test]
async fn a_kept_sandbox_goes_when_its_date_has_passed_and_it_does_not_run() {
    for backend_name in EVERYTHING {
        let Some(backend) = backend(backend_name).await else { continue };
        let spec = Spec { ephemeral: false, delete_after: Some(Duration::from_millis(1)), ..spec() };
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        let state = async || {
            let list = backend.list().await.expect("the list");
            list.into_iter().find(|listed| listed.session == spec.session)
        };
        // The date is a whole second, so it has passed by now.
        tokio::time::sleep(Duration::from_millis(2)).await;
        backend.sweep().await.expect("swept");
        let mut listed = state().await.expect("what runs stays");
        // The status of a pod follows its start by up to a second.
        let deadline = Instant::now() + Duration::from_secs(30);
        while listed.state == State::Starting && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            listed = state().await.expect("what runs stays");
        }
        assert_eq!(listed.state, State::Running);
        assert!(listed.expires.is_some_and(|date| date.starts_with("20")));
        assert_eq!(output_of(&sandbox, "echo here").await, "here");
        if !backend.capabilities().pause {
            backend.destroy(&spec.session).await.expect("removed");
            continue;
        }
        if let Err(error) = backend.pause(&spec.session).await {
            // A rootless engine on control groups of version 1 has none.
            assert!(error.hint_text().is_some_and(|hint| hint.contains("control groups")), "{error:?}");
            backend.destroy(&spec.session).await.expect("removed");
            continue;
        }
        backend.sweep().await.expect("swept");
        assert_eq!(state().await, None, "{backend_name}: what is frozen and past its date goes");
    }
}

/// A bug: engines without control groups dropped the limits without a notice.
#[tokio::test]
async fn no_process_gets_more_memory_than_the_sandbox_has() {
    let small = |spec: &mut Spec| spec.limits.memory = 256 << 20;
    on_backends_with(&EVERYTHING, small, async |inside| {
        // gVisor's wrapper in CI runs without control groups, and gVisor has no limit of a process's data.
        if inside.spec.runtime.is_some() {
            return;
        }
        let hog = |megabytes: u32| format!("/usr/bin/python3 -c 'len(bytearray({megabytes} << 20))'");
        inside.output_of(&hog(64)).await;
        inside.expect_failure(&hog(400)).await;
    })
    .await;
}
