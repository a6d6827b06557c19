//! The guest, run as a plain child process: commands, jobs, files, and what a hostile neighbour may try.

use agent_sandbox::{Outcome, Program};
use agent_testing::guest::{Guest, is_alive, shell, wait_until};
use std::time::{Duration, Instant};

mod commands {
    use super::*;

    #[tokio::test]
    async fn a_command_reports_its_exit_code_and_both_outputs() {
        let guest = Guest::start().await;
        let ran = guest.sh("echo out; echo err >&2; exit 7").await;
        assert_eq!(ran.outcome(), Outcome::Exited(7));
        assert_eq!((ran.stdout.as_slice(), ran.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(ran.finished().output_bytes, 8);
        assert_eq!(ran.finished().spool, None);
        assert_eq!(ran.finished().left_running, 0);
    }

    /// A bug: a text that is longer than the kernel takes as an argument could not be run.
    #[tokio::test]
    async fn a_command_of_any_length_behaves_as_a_short_one() {
        let guest = Guest::start().await;
        let tail = "\ncat; (echo $0 $# $-; ls /tmp/.agent-text-* 2>/dev/null); sleep 0 & wait; set -e\nfalse\necho unreached";
        let short = guest.sh(tail).await;
        assert_eq!(short.outcome(), Outcome::Exited(1));
        for length in [131_071, 131_072, 300_000, 5_000_000] {
            let text = format!("#{}{tail}", "x".repeat(length - tail.len() - 1));
            assert_eq!(text.len(), length);
            let ran = guest.sh(&text).await;
            assert_eq!((ran.outcome(), ran.text()), (short.outcome(), short.text()), "{length} bytes");
            assert_eq!(ran.stderr, short.stderr, "{length} bytes");
        }
        let lines = format!("{}\n", "x".repeat(99)).repeat(1500);
        let heredoc = format!("cat > big.txt <<'EOF'\n{lines}EOF");
        assert_eq!(guest.sh(&format!("{heredoc}\nwc -c < big.txt")).await.text().trim(), "150000");
        let mut command = shell("");
        command.program = Program::Argv(["sh", "-c", &format!("{heredoc}\nexit 7")].map(Into::into).to_vec());
        assert_eq!(guest.run(command).await.outcome(), Outcome::Exited(7));
        let job = guest.sandbox.start_job(shell(&format!("{heredoc}\necho job"))).await.expect("it starts");
        let output = guest.sandbox.job_output(job, Duration::from_secs(30)).await.expect("its output");
        assert_eq!(
            output.output,
            [agent_sandbox::Piece::Data(agent_event::Stream::Stdout, b"job\n".to_vec())]
        );
        let refused = guest.sandbox.spawn(shell(&"x".repeat((16 << 20) + 1))).await.err().expect("too long");
        assert_eq!(refused.to_string(), "a shell command is longer than 16 MiB");
    }

    #[tokio::test]
    async fn a_command_that_a_signal_ended_reports_the_signal() {
        let guest = Guest::start().await;
        assert_eq!(guest.sh("kill -SEGV $$").await.outcome(), Outcome::Signaled(11));
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_reported_as_a_shell_does() {
        let guest = Guest::start().await;
        let mut command = shell("");
        command.program = Program::Argv(vec!["no-such-program".into()]);
        let ran = guest.run(command).await;
        assert_eq!(ran.outcome(), Outcome::Exited(127));
        assert!(String::from_utf8_lossy(&ran.stderr).contains("cannot run no-such-program"));
    }

    /// Plain words are run without a shell. Nobody may see a difference to a shell's answer, which a comment at the
    /// end asks for; `$_` and `SHLVL` are what nobody looks at.
    #[tokio::test]
    async fn a_command_without_a_shell_behaves_as_in_a_shell() {
        let guest = Guest::start().await;
        guest.sh("printf '%s\n' 'echo no shebang $# $0 $PWD' > script; chmod +x script; mkdir -p sub; cp script sub; touch plain").await;
        for text in [
            "true",
            "false",
            "  ls  -a ",
            "sha256sum script",
            "./script a b",
            "sub/script",
            "script",
            "./plain",
            "./sub",
            "sub",
            "no-such-program x",
            "no/such/program",
            "A=1",
            "A=1 env",
            "pwd",
            "printf %s-",
            "kill -l 9",
            "exit 3",
            "test -f plain",
            "if",
            "printenv PWD",
            "sleep 0",
            "head -c 5 script",
            "cat no-such-file",
            "",
            "%1",
            "-x",
            ".",
            ":",
            "python3 --version",
            "nice -n 1 printenv PATH",
        ] {
            let plain = guest.sh(text).await;
            let shell = guest.sh(&format!("{text} # asks a shell")).await;
            let result = |ran: &agent_testing::guest::Ran| {
                (ran.outcome(), ran.text(), String::from_utf8_lossy(&ran.stderr).into_owned())
            };
            assert_eq!(result(&plain), result(&shell), "{text}");
        }
    }

    #[tokio::test]
    async fn a_program_is_found_where_it_is_now() {
        let guest = Guest::start().await;
        let make = |directory: &str| {
            format!(
                "mkdir -p {directory}; echo 'echo {directory}' > {directory}/tool; chmod +x {directory}/tool"
            )
        };
        let path =
            format!("{}:{}:/usr/bin:/bin", guest.path("first").display(), guest.path("second").display());
        let tool = || {
            let mut command = shell("tool");
            command.env = vec![("PATH".into(), path.clone().into())];
            guest.run(command)
        };
        assert_eq!(tool().await.outcome(), Outcome::Exited(127));
        guest.sh(&make("second")).await;
        assert_eq!(tool().await.text(), "second\n");
        guest.sh(&make("first")).await;
        assert_eq!(tool().await.text(), "first\n");
        guest.sh("rm -r first").await;
        assert_eq!(tool().await.text(), "second\n");
        guest.sh(&format!("rm -r second; {}", make("second"))).await;
        assert_eq!(tool().await.text(), "second\n");
        guest.sh("rm second/tool; mkdir second/tool").await;
        assert_eq!(tool().await.outcome(), Outcome::Exited(127));
    }

    #[tokio::test]
    async fn an_exported_function_replaces_a_program() {
        let guest = Guest::start().await;
        let mut command = shell("uname -m");
        command.env = vec![("BASH_FUNC_uname%%".into(), "() { echo function; }".into())];
        assert_eq!(guest.run(command).await.text(), "function\n");
    }

    #[tokio::test]
    async fn a_timeout_ends_daemons_that_ignore_sigterm() {
        let guest = Guest::start().await;
        let mut command = shell(
            "trap '' TERM
             setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 0.1; done' > /dev/null 2>&1 < /dev/null &
             (setsid sh -c 'trap \"\" TERM; echo $$ > daemon2; while :; do sleep 0.1; done' &)
             while :; do sleep 0.1; done",
        );
        command.timeout = Some(Duration::from_millis(500));
        let started = Instant::now();
        let ran = guest.run(command).await;
        assert_eq!(ran.outcome(), Outcome::TimedOut);
        assert_eq!(ran.finished().left_running, 0);
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        for name in ["daemon", "daemon2"] {
            let id = std::fs::read_to_string(guest.path(name)).unwrap().trim().parse().unwrap();
            assert!(!is_alive(id), "{name}");
        }
    }

    #[tokio::test]
    async fn a_background_child_that_keeps_stdout_open_does_not_delay_the_command() {
        let guest = Guest::start().await;
        let started = Instant::now();
        let ran = guest.sh("(while :; do echo still here; sleep 0.05; done) & echo $!").await;
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(ran.outcome(), Outcome::Exited(0));
        assert!(ran.finished().left_running >= 1);
        let id = ran.text().lines().find_map(|line| line.parse().ok()).unwrap();
        // It survives, and may continue to write.
        guest.sh("sleep 0.3").await;
        assert!(is_alive(id));
    }

    #[tokio::test]
    async fn dropping_the_future_kills_the_command() {
        let guest = Guest::start().await;
        let mut ignore = |_: agent_sandbox::Output<'_>| ();
        let run = guest.sandbox.run(shell("echo $$ > pid; sleep 1000 & sleep 1000"), &mut ignore);
        assert!(tokio::time::timeout(Duration::from_millis(500), run).await.is_err());
        let id: i32 = std::fs::read_to_string(guest.path("pid")).unwrap().trim().parse().unwrap();
        wait_until("the end of the command", || !is_alive(id)).await;
    }

    #[tokio::test]
    async fn long_output_is_cut_in_the_middle_and_kept_in_a_file() {
        let guest = Guest::start().await;
        let mut command = shell("head -c 10000000 /dev/zero | tr '\\0' x; echo end");
        command.live_bytes = 1000;
        let ran = guest.run(command).await;
        assert_eq!(ran.outcome(), Outcome::Exited(0));
        assert_eq!(ran.finished().output_bytes, 10_000_004);
        assert_eq!(ran.stdout.len() as u64 + ran.gap, 10_000_004);
        assert!(ran.stdout.len() > 256 << 10 && ran.stdout.len() < 400 << 10, "{}", ran.stdout.len());
        assert!(ran.stdout.ends_with(b"xend\n"));
        let spool = ran.finished().spool.clone().unwrap();
        assert_eq!(ran.finished().spool_bytes, 10_000_004);
        assert_eq!(std::fs::metadata(spool).unwrap().len(), 10_000_004);
    }

    #[tokio::test]
    async fn all_output_is_streamed_on_request() {
        let guest = Guest::start().await;
        let ran = guest.sh("head -c 20000000 /dev/urandom | tee copy").await;
        assert_eq!(ran.stdout, std::fs::read(guest.path("copy")).unwrap());
    }
}

mod more_commands {
    use super::*;
    use agent_base::error::Kind;
    use agent_event::Stream;
    use agent_sandbox::{Command, ProcessEvent};
    use agent_testing::guest::{DEADLINE, Ran};
    use sha2::{Digest, Sha256};

    #[tokio::test]
    async fn binary_output_is_returned_byte_for_byte() {
        let guest = Guest::start().await;
        let ran = guest.sh(r"printf '\377\376\000\200'; printf '\303\050' >&2").await;
        assert_eq!(ran.stdout, [0xff, 0xfe, 0x00, 0x80]);
        assert_eq!(ran.stderr, [0xc3, 0x28]);
    }

    #[tokio::test]
    async fn a_command_reads_its_standard_input_to_the_end() {
        let guest = Guest::start().await;
        let mut command = shell("sha256sum");
        command.stdin = true;
        let mut process = guest.sandbox.spawn(command).await.unwrap();
        // More than pipe and window together hold.
        process.write_stdin(&vec![b'a'; 3_000_000]).await.unwrap();
        process.close_stdin();
        let ran = follow(&mut process).await;
        let expected: String = hex::encode(Sha256::digest(vec![b'a'; 3_000_000]));
        assert_eq!(ran.text(), format!("{expected}  -\n"));
        assert_eq!(ran.outcome(), Outcome::Exited(0));
    }

    #[tokio::test]
    async fn a_command_that_reads_no_input_does_not_block_the_sender() {
        let guest = Guest::start().await;
        let mut command = shell("exec <&-; sleep 0.2; exit 3");
        command.stdin = true;
        let mut process = guest.sandbox.spawn(command).await.unwrap();
        let fed = tokio::time::timeout(DEADLINE, process.write_stdin(&vec![0; 5_000_000])).await.unwrap();
        assert!(fed.is_ok() || fed.unwrap_err().kind() == Kind::InSandbox);
        assert_eq!(follow(&mut process).await.outcome(), Outcome::Exited(3));
    }

    #[tokio::test]
    async fn the_output_of_a_killed_command_is_kept() {
        let guest = Guest::start().await;
        let mut process = guest.sandbox.spawn(shell("echo before; sleep 1000")).await.unwrap();
        assert_eq!(process.next().await.unwrap(), ProcessEvent::Output(Stream::Stdout, b"before\n".to_vec()));
        process.kill();
        assert_eq!(follow(&mut process).await.outcome(), Outcome::Signaled(15));
    }

    /// A bug: a signal that came while the program was being started was lost.
    #[tokio::test]
    async fn a_signal_right_after_the_start_arrives() {
        let guest = Guest::start().await;
        for round in 0..50 {
            let mut process = guest.sandbox.spawn(shell("exec sleep 1000")).await.unwrap();
            process.signal(libc::SIGKILL);
            let ended = tokio::time::timeout(Duration::from_secs(60), follow(&mut process)).await;
            let ended = ended.unwrap_or_else(|_| panic!("the signal of round {round} is lost"));
            assert_eq!(ended.outcome(), Outcome::Signaled(libc::SIGKILL));
        }
    }

    #[tokio::test]
    async fn output_that_is_not_read_blocks_the_command_and_not_the_guest() {
        let guest = Guest::start().await;
        let mut stuck = guest.sandbox.spawn(shell("yes > /dev/stdout")).await.unwrap();
        // The other stream is served as ever, and the guest's memory stays where it was.
        for _ in 0..20 {
            assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
        }
        assert!(guest.memory_kb() < 16_000, "{} kB", guest.memory_kb());
        stuck.kill();
        assert_eq!(follow(&mut stuck).await.outcome(), Outcome::Signaled(15));
    }

    #[tokio::test]
    async fn long_output_on_both_streams_does_not_use_the_guests_memory() {
        let guest = Guest::start().await;
        let mut command = shell("yes & yes >&2 & wait");
        command.live_bytes = 10_000;
        command.timeout = Some(Duration::from_secs(1));
        let ran = guest.run(command).await;
        assert_eq!(ran.outcome(), Outcome::TimedOut);
        assert!(ran.gap > 0);
        assert!(guest.memory_kb() < 16_000, "{} kB", guest.memory_kb());
        let spool = ran.finished().spool.clone().unwrap();
        assert_eq!(std::fs::metadata(spool).unwrap().len(), ran.finished().spool_bytes);
        assert!(ran.finished().spool_bytes <= 64 << 20);
    }

    #[tokio::test]
    async fn concurrent_commands_keep_their_output_apart() {
        let guest = Guest::start().await;
        let runs = (0..40).map(async |n| guest.sh(&format!("sleep 0.1; echo {n}; exit {n}")).await);
        let all = futures_util::future::join_all(runs).await;
        for (n, ran) in all.iter().enumerate() {
            assert_eq!(ran.text(), format!("{n}\n"));
            assert_eq!(ran.outcome(), Outcome::Exited(n as i32));
        }
    }

    #[tokio::test]
    async fn a_command_gets_its_working_directory_and_environment() {
        let guest = Guest::start().await;
        std::fs::create_dir(guest.path("sub")).unwrap();
        let mut command = shell("pwd; echo \"$EXTRA\"; env | grep -c AGENT_GUEST; umask");
        command.cwd = Some("sub".into());
        command.env = vec![("EXTRA".into(), "a\nb".into())];
        let ran = guest.run(command).await;
        let place = guest.path("sub").canonicalize().unwrap();
        assert_eq!(ran.text(), format!("{}\na\nb\n0\n0022\n", place.display()));
    }

    #[tokio::test]
    async fn an_unusable_working_directory_is_refused() {
        let guest = Guest::start().await;
        std::fs::write(guest.path("file"), "").unwrap();
        std::os::unix::fs::symlink("/proc/self/fd", guest.path("link")).unwrap();
        for place in ["nowhere", "file", "/proc/self/fd/3", "/proc/self/fd", "link", "a\0b"] {
            let command = Command { cwd: Some(place.into()), ..shell("true") };
            let error = guest.sandbox.run(command, &mut |_| ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::InSandbox, "{place}: {error}");
            assert!(error.to_string().contains("directory") || place.contains('\0'), "{place}: {error}");
        }
    }

    #[tokio::test]
    async fn a_command_inherits_no_descriptor_of_the_guest() {
        let guest = Guest::start().await;
        let ran = guest.sh("ls -l /proc/self/fd | wc -l; ls /proc/self/fd").await;
        // A line of totals, 0, 1, 2, and the one that ls has open.
        assert!(ran.text().starts_with("5\n"), "{}", ran.text());
        let status = guest.sh("cat /proc/self/status").await.text();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("SigBlk:"), "0000000000000000");
        // The C library keeps 32 and 33 for itself.
        assert_eq!(u64::from_str_radix(field("SigIgn:"), 16).unwrap() & 0x7fff_ffff, 0);
    }

    #[tokio::test]
    async fn a_command_that_kills_its_supervisor_is_lost_and_leaves_no_processes() {
        let guest = Guest::start().await;
        let ran = guest.sh("(setsid sleep 1000 & echo $!); kill -9 $PPID; sleep 1000").await;
        assert_eq!(ran.outcome(), Outcome::Lost);
        let id = ran.text().trim().parse().unwrap();
        wait_until("the orphan's end", || !is_alive(id)).await;
        assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
    }

    #[tokio::test]
    async fn a_command_that_stops_its_supervisor_is_still_timed_out() {
        let guest = Guest::start().await;
        let mut command = shell("kill -STOP $PPID; sleep 1000 & sleep 1000");
        command.timeout = Some(Duration::from_millis(300));
        let ran = tokio::time::timeout(DEADLINE, guest.run(command)).await.unwrap();
        assert_eq!(ran.outcome(), Outcome::TimedOut);
        assert_eq!(ran.finished().left_running, 0);
    }

    #[tokio::test]
    async fn a_process_tree_that_keeps_forking_is_killed() {
        let guest = Guest::start().await;
        let mut command = shell(
            "trap '' TERM; hop() { (setsid bash -c \"$(declare -f hop); trap '' TERM; sleep 0.02; hop\" &) ; }; hop; hop; hop
             echo $$; sleep 1000",
        );
        command.timeout = Some(Duration::from_millis(500));
        let ran = tokio::time::timeout(DEADLINE, guest.run(command)).await.unwrap();
        assert_eq!(ran.outcome(), Outcome::TimedOut);
        assert_eq!(ran.finished().left_running, 0);
    }

    /// Reads all events to the end.
    async fn follow(process: &mut agent_sandbox::Process) -> Ran {
        let mut ran = Ran::default();
        loop {
            match tokio::time::timeout(DEADLINE, process.next()).await.unwrap().unwrap() {
                ProcessEvent::Output(Stream::Stdout, bytes) => ran.stdout.extend(bytes),
                ProcessEvent::Output(Stream::Stderr, bytes) => ran.stderr.extend(bytes),
                ProcessEvent::Gap(bytes) => ran.gap += bytes,
                ProcessEvent::Finished(finished) => {
                    ran.finished = Some(finished);
                    return ran;
                }
            }
        }
    }
}

mod jobs {
    use super::*;
    use agent_base::error::Kind;
    use agent_event::Stream;
    use agent_sandbox::Piece;

    #[tokio::test]
    async fn each_poll_of_a_job_returns_only_new_output() {
        let guest = Guest::start().await;
        let job =
            guest.sandbox.start_job(shell("echo one; until [ -e go ]; do sleep 0.02; done; echo two")).await;
        let job = job.unwrap();
        assert_eq!(job, 1);
        let first = guest.sandbox.job_output(job, Duration::from_secs(20)).await.unwrap();
        assert_eq!(first.output, [Piece::Data(Stream::Stdout, b"one\n".to_vec())]);
        assert_eq!(first.state, None);
        let nothing = guest.sandbox.job_output(job, Duration::from_millis(50)).await.unwrap();
        assert_eq!((nothing.output.len(), nothing.state), (0, None));
        std::fs::write(guest.path("go"), "").unwrap();
        let second = guest.sandbox.job_output(job, Duration::from_secs(20)).await.unwrap();
        assert_eq!(second.output, [Piece::Data(Stream::Stdout, b"two\n".to_vec())]);
        let end = guest.sandbox.job_output(job, Duration::from_secs(20)).await.unwrap();
        assert_eq!(end.state.unwrap().outcome, Outcome::Exited(0));
        // The end is reported as often as it is asked for.
        let again = guest.sandbox.job_output(job, Duration::ZERO).await.unwrap();
        assert_eq!(again.state.unwrap().outcome, Outcome::Exited(0));
    }

    #[tokio::test]
    async fn job_output_beyond_the_buffer_is_counted() {
        let guest = Guest::start().await;
        let job = guest
            .sandbox
            .start_job(shell("head -c 5000000 /dev/zero; touch done; sleep 1000"))
            .await
            .unwrap();
        wait_until("the output", || guest.path("done").exists()).await;
        let news = guest.sandbox.job_output(job, Duration::from_secs(20)).await.unwrap();
        let (gap, rest) = news.output.split_first().unwrap();
        let Piece::Gap(gap) = gap else { panic!("{gap:?}") };
        let kept: usize =
            rest.iter().map(|piece| if let Piece::Data(_, b) = piece { b.len() } else { 0 }).sum();
        assert_eq!(gap + kept as u64, 5_000_000);
        let killed = guest.sandbox.job_kill(job).await.unwrap();
        assert_eq!(killed.state.unwrap().outcome, Outcome::Signaled(15));
    }

    #[tokio::test]
    async fn killing_a_finished_job_kills_the_processes_it_left() {
        let guest = Guest::start().await;
        let job = guest.sandbox.start_job(shell("setsid sleep 1000 & echo $!")).await.unwrap();
        let mut state = None;
        let mut output = Vec::new();
        while state.is_none() {
            let news = guest.sandbox.job_output(job, Duration::from_secs(20)).await.unwrap();
            output.extend(news.output);
            state = news.state;
        }
        assert_eq!(state.unwrap().left_running, 1);
        let Piece::Data(_, id) = &output[0] else { panic!("{output:?}") };
        let id = String::from_utf8_lossy(id).trim().parse().unwrap();
        assert!(is_alive(id));
        guest.sandbox.job_kill(job).await.unwrap();
        assert!(!is_alive(id));
    }

    #[tokio::test]
    async fn an_unknown_job_is_an_error() {
        let guest = Guest::start().await;
        let error = guest.sandbox.job_output(5, Duration::ZERO).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (Kind::InSandbox, "there is no job 5"));
        assert!(guest.sandbox.job_kill(5).await.is_err());
    }

    #[tokio::test]
    async fn jobs_beyond_the_limit_are_refused_and_finished_ones_forgotten() {
        let guest = Guest::start().await;
        for _ in 0..64 {
            guest.sandbox.start_job(shell("sleep 1000")).await.unwrap();
        }
        let error = guest.sandbox.start_job(shell("true")).await.unwrap_err();
        assert!(error.to_string().contains("64 jobs are running"), "{error}");
        guest.sandbox.job_kill(3).await.unwrap();
        assert_eq!(guest.sandbox.start_job(shell("true")).await.unwrap(), 65);
        assert!(guest.sandbox.job_output(3, Duration::ZERO).await.is_err());
    }
}

mod files {
    use super::*;
    use agent_base::error::Kind;
    use agent_sandbox::{Entry, EntryKind, FileWrite, Node, WalkOptions};
    use sha2::{Digest, Sha256};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    fn file(path: impl Into<PathBuf>, bytes: &[u8]) -> FileWrite {
        let node = Node::Regular(bytes.to_vec());
        FileWrite { path: path.into(), node, mode: None, mtime_ns: None, follow: false }
    }

    async fn write(guest: &Guest, file: FileWrite) -> agent_base::Result<()> {
        guest.sandbox.write_files(vec![file]).await.unwrap().remove(0)
    }

    #[tokio::test]
    async fn file_names_need_not_be_utf8() {
        let guest = Guest::start().await;
        for name in [&b"new\nline"[..], b"not utf-8 \xff\xfe", b" -rf", b"deep/er/still"] {
            let name = Path::new(OsStr::from_bytes(name));
            write(&guest, file(name, b"\0\xff")).await.unwrap();
            assert_eq!(guest.sandbox.read_file(name, 0, 100).await.unwrap().bytes, b"\0\xff");
            assert_eq!(guest.sandbox.stat(name).await.unwrap().size, 2);
        }
        let listed = guest.sandbox.walk(Path::new(""), WalkOptions::default()).await.unwrap();
        assert!(listed.iter().any(|entry| entry.path.as_os_str().as_bytes() == b"not utf-8 \xff\xfe"));
    }

    #[tokio::test]
    async fn modes_times_and_symlinks_are_written() {
        let guest = Guest::start().await;
        std::fs::write(guest.path("script"), "old").unwrap();
        std::fs::set_permissions(guest.path("script"), std::fs::Permissions::from_mode(0o755)).unwrap();
        write(&guest, file("script", b"new")).await.unwrap();
        assert_eq!(guest.path("script").metadata().unwrap().mode() & 0o7777, 0o755);
        write(&guest, FileWrite { mode: Some(0o600), mtime_ns: Some(-1), ..file("script", b"") })
            .await
            .unwrap();
        let entry = guest.sandbox.stat(Path::new("script")).await.unwrap();
        assert_eq!((entry.mode, entry.mtime_ns, entry.size), (0o600, -1, 0));
        write(&guest, file("plain", b"")).await.unwrap();
        assert_eq!(guest.path("plain").metadata().unwrap().mode() & 0o7777, 0o644);

        let link = FileWrite { node: Node::Symlink("plain".into()), mtime_ns: Some(5), ..file("link", b"") };
        write(&guest, link).await.unwrap();
        let entry = guest.sandbox.stat(Path::new("link")).await.unwrap();
        assert_eq!((entry.kind, entry.mtime_ns), (EntryKind::Symlink("plain".into()), 5));
        // Followed, its target changes; otherwise the symlink is replaced.
        write(&guest, FileWrite { follow: true, ..file("link", b"through") }).await.unwrap();
        assert_eq!(std::fs::read(guest.path("plain")).unwrap(), b"through");
        write(&guest, file("link", b"replaced")).await.unwrap();
        assert!(guest.path("link").symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read(guest.path("plain")).unwrap(), b"through");
    }

    #[tokio::test]
    async fn a_dangling_symlink_is_followed_as_an_editor_does() {
        let guest = Guest::start().await;
        symlink("not-yet/there", guest.path("link")).unwrap();
        write(&guest, FileWrite { follow: true, ..file("link", b"now") }).await.unwrap();
        assert_eq!(std::fs::read(guest.path("not-yet/there")).unwrap(), b"now");
    }

    #[tokio::test]
    async fn a_file_of_100_mb_is_written_and_read() {
        let guest = Guest::start().await;
        let mut bytes = vec![0; 100_000_000];
        bytes.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 7 / 3) as u8);
        write(&guest, file("big", &bytes)).await.unwrap();
        let read = guest.sandbox.read_file(Path::new("big"), 0, u64::MAX).await.unwrap();
        assert!(read.bytes == bytes);
        assert_eq!(read.size, 100_000_000);
        let part = guest.sandbox.read_file(Path::new("big"), 99_999_990, 5).await.unwrap();
        assert_eq!(part.bytes, bytes[99_999_990..99_999_995]);
        assert!(guest.memory_kb() < 16_000, "{} kB", guest.memory_kb());
        assert_eq!(std::fs::read_dir(guest.path("")).unwrap().count(), 1, "no temporary file is left");
    }

    #[tokio::test]
    async fn reading_anything_but_a_regular_file_is_refused_immediately() {
        let guest = Guest::start().await;
        guest.sh("mkfifo fifo; ln -s fifo to-fifo; mkdir directory").await;
        let refusals = [
            ("fifo", "a named pipe"),
            ("to-fifo", "a named pipe"),
            ("directory", "a directory"),
            ("/dev/zero", "a device"),
            ("/proc/self/status", "belongs to the sandbox's guest"),
            ("missing", "No such file"),
            ("directory/../missing/file", "No such file"),
        ];
        for (path, why) in refusals {
            let error = guest.sandbox.read_file(Path::new(path), 0, 100).await.unwrap_err();
            assert_eq!(error.kind(), Kind::InSandbox, "{path}");
            assert!(error.to_string().contains(why), "{path}: {error}");
        }
        for path in ["fifo", "directory"] {
            assert!(write(&guest, file(path, b"x")).await.is_err(), "{path}");
        }
        let version = guest.sandbox.read_file(Path::new("/proc/version"), 0, 10_000).await.unwrap();
        assert!(version.bytes.starts_with(b"Linux"));
    }

    #[tokio::test]
    async fn each_file_of_a_write_has_its_own_result() {
        let guest = Guest::start().await;
        std::fs::write(guest.path("file"), "").unwrap();
        let results = guest
            .sandbox
            .write_files(vec![file("good", b"1"), file("file/below", b"2"), file("also", &[3; 200_000])])
            .await
            .unwrap();
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(std::fs::read(guest.path("also")).unwrap(), [3; 200_000]);
        let removed = vec!["good".into(), "missing".into(), "also".into()];
        let results = guest.sandbox.remove_files(removed).await.unwrap();
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert!(!guest.path("good").exists());
    }

    #[tokio::test]
    async fn only_empty_directories_are_removed() {
        let guest = Guest::start().await;
        write(&guest, file("full/file", b"")).await.unwrap();
        let again = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert!(guest.sandbox.remove_files(again(&["full"])).await.unwrap()[0].is_err());
        let results = guest.sandbox.remove_files(again(&["full/file", "full"])).await.unwrap();
        assert!(results.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn a_walk_lists_and_hashes() {
        let guest = Guest::start().await;
        // Around every boundary of the hash's blocks, and beyond one read.
        let sizes = [0_usize, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000, 65_535, 65_536, 200_001];
        for size in sizes {
            let bytes: Vec<u8> = (0..size).map(|n| (n * 31 % 251) as u8).collect();
            write(&guest, file(format!("dir/{size}"), &bytes)).await.unwrap();
        }
        symlink("/etc/shadow", guest.path("dir/link")).unwrap();
        guest.sh("mkfifo dir/fifo; mkdir -p left/out empty; touch left/out/file").await;
        let options = WalkOptions { exclude: vec!["left/out".into()], ..WalkOptions::default() };
        for round in ["cold", "warm"] {
            let mut entries = guest.sandbox.walk(Path::new(""), options.clone()).await.unwrap();
            let parents_first = |entry: &Entry| entry.path.parent() == Some(Path::new(""));
            assert!(parents_first(&entries[0]));
            entries.sort_by(|a, b| a.path.cmp(&b.path));
            assert_eq!(entries.len(), sizes.len() + 6, "{round}");
            for entry in &entries {
                let name = entry.path.to_str().unwrap();
                let expected = match name {
                    "dir/link" => EntryKind::Symlink("/etc/shadow".into()),
                    "dir/fifo" => EntryKind::Other,
                    "dir" | "left" | "left/out" | "empty" => EntryKind::Directory,
                    _ => EntryKind::File,
                };
                assert_eq!(entry.kind, expected, "{name}");
                let hash = (expected == EntryKind::File)
                    .then(|| Sha256::digest(std::fs::read(guest.path(name)).unwrap()).into());
                assert_eq!(entry.hash, hash, "{name} {round}");
            }
            // Old enough to be remembered the next time.
            tokio::time::sleep(Duration::from_millis(60)).await;
            guest.sandbox.walk(Path::new(""), options.clone()).await.unwrap();
        }
        // Same size, other content.
        write(&guest, file("dir/64", &[9; 64])).await.unwrap();
        let entries = guest.sandbox.walk(Path::new("dir"), WalkOptions::default()).await.unwrap();
        let changed = entries.iter().find(|entry| entry.path == Path::new("64")).unwrap();
        assert_eq!(changed.hash, Some(Sha256::digest([9; 64]).into()));
    }

    #[tokio::test]
    async fn a_walk_beyond_its_limit_is_an_error() {
        let guest = Guest::start().await;
        guest.sh("mkdir d; cd d; touch $(seq 1000)").await;
        let options = WalkOptions { max_entries: 1000, ..WalkOptions::default() };
        let error = guest.sandbox.walk(Path::new(""), options.clone()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::InSandbox);
        assert!(error.to_string().contains("more entries than the limit"), "{error}");
        assert_eq!(guest.sandbox.walk(Path::new("d"), options).await.unwrap().len(), 1000);
    }

    #[tokio::test]
    async fn a_walk_does_not_delay_other_requests() {
        let guest = Guest::start().await;
        guest.sh("truncate -s 3G sparse").await;
        let walk = guest.sandbox.walk(Path::new(""), WalkOptions::default());
        let run = async {
            let started = Instant::now();
            assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
            started.elapsed()
        };
        let walk = std::pin::pin!(walk);
        tokio::select! {
            _ = walk => panic!("3 GB are hashed faster than a process starts"),
            elapsed = run => assert!(elapsed < Duration::from_secs(2), "{elapsed:?}"),
        }
    }

    /// CVE-2024-21626: what a container runtime has forgotten to close.
    #[tokio::test]
    async fn inherited_descriptors_are_closed() {
        let directory = tempfile::TempDir::new().unwrap();
        std::fs::write(directory.path().join("secret"), "s3cret").unwrap();
        let leak = std::fs::File::open(directory.path()).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&leak);
        // SAFETY: takes no pointer. Processes that other tests start now inherit it too, which is harmless.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        let guest = Guest::start().await;
        drop(leak);
        for place in [format!("/proc/self/fd/{fd}/secret"), format!("/dev/fd/{fd}/secret")] {
            assert!(guest.sandbox.read_file(Path::new(&place), 0, 10).await.is_err(), "{place}");
        }
    }

    #[tokio::test]
    async fn facts_describe_the_sandbox() {
        let guest = Guest::start().await;
        let facts = guest.sandbox.facts(&["sh", "no-such-tool"]).await.unwrap();
        assert_eq!(facts.tools, ["sh"]);
        assert!(facts.disk_free.unwrap() > 0);
    }
}

mod clients {
    use super::*;
    use agent_sandbox::wire::{Decoder, MAGIC, Message, VERSION, encode};
    use agent_sandbox::{Channel, Sandbox};
    use agent_testing::guest::{channel, program, signal, start};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    use std::process::Stdio;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    /// A name that no other test has.
    fn socket_name() -> String {
        format!("agent-test-{}-{}", std::process::id(), fastrand::u64(..))
    }

    async fn connect(name: &str) -> UnixStream {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let stream = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        stream.set_nonblocking(true).unwrap();
        UnixStream::from_std(stream).unwrap()
    }

    fn over(stream: UnixStream) -> Channel {
        let (reader, writer) = stream.into_split();
        Channel::new(reader, writer)
    }

    fn is_root() -> bool {
        // SAFETY: reads a number.
        unsafe { libc::geteuid() == 0 }
    }

    #[tokio::test]
    async fn after_reconnecting_jobs_run_and_foreground_commands_are_gone() {
        if !is_root() {
            return; // Only root may connect to the abstract socket; see the next test.
        }
        let name = socket_name();
        let guest = Guest::start_with(&["--socket", &name]).await;
        let mut attach = tokio::process::Command::new(program())
            .args(["attach", "--socket", &name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let first = Sandbox::connect(channel(&mut attach)).await.unwrap();
        let job = first.start_job(shell("echo begun; sleep 1000")).await.unwrap();
        let foreground = first.spawn(shell("echo $$ > foreground; sleep 1000")).await.unwrap();
        wait_until("the command", || std::fs::read(guest.path("foreground")).is_ok_and(|id| !id.is_empty()))
            .await;
        drop((foreground, first));
        assert!(attach.wait().await.unwrap().success());

        let second = Sandbox::connect(over(connect(&name).await)).await.unwrap();
        let news = second.job_output(job, Duration::from_secs(20)).await.unwrap();
        assert_eq!((news.output.len(), news.state), (1, None));
        let id = std::fs::read_to_string(guest.path("foreground")).unwrap().trim().parse().unwrap();
        wait_until("the foreground command's end", || !is_alive(id)).await;
    }

    #[tokio::test]
    async fn only_root_may_connect_to_the_abstract_socket() {
        let name = socket_name();
        let _guest = Guest::start_with(&["--socket", &name]).await;
        let mut command = tokio::process::Command::new(program());
        command.args(["attach", "--socket", &name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if is_root() {
            let directory = program();
            let directory = directory.parent().unwrap();
            std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            command.uid(65_534).gid(65_534);
        }
        let mut child = command.spawn().unwrap();
        assert!(Sandbox::connect(channel(&mut child)).await.is_err());
        child.wait().await.unwrap();
    }

    #[tokio::test]
    async fn only_a_client_that_violates_the_protocol_is_disconnected() {
        if !is_root() {
            return;
        }
        let name = socket_name();
        let guest = Guest::start_with(&["--socket", &name]).await;
        let mut hello = Vec::new();
        encode(0, &Message::Hello { magic: MAGIC, version: VERSION }, &mut hello).unwrap();
        let good = [hello, b"GET / HTTP/1.1\r\n".to_vec()].concat();
        for bytes in [vec![0xff; 100], vec![0; 100], b"SSH-2.0".to_vec(), good] {
            let mut stream = connect(&name).await;
            stream.write_all(&bytes).await.unwrap();
            let mut answer = Vec::new();
            // Cut off with bytes unread is a reset, and an end as well.
            let _ =
                tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap();
        }
        assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
    }

    #[tokio::test]
    async fn another_protocol_version_is_named() {
        let directory = TempDir::new().unwrap();
        let (mut child, mut channel) = start(directory.path(), &["--idle-ttl", "0"]);
        let mut hello = Vec::new();
        encode(0, &Message::Hello { magic: MAGIC, version: VERSION + 1 }, &mut hello).unwrap();
        channel.writer.write_all(&hello).await.unwrap();
        let mut answer = Vec::new();
        channel.reader.read_to_end(&mut answer).await.unwrap();
        let mut decoder = Decoder::new();
        decoder.feed(&answer);
        assert_eq!(decoder.next(), Ok(Some((0, Message::Hello { magic: MAGIC, version: VERSION }))));
        assert!(child.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn a_guest_without_clients_ends_after_its_idle_timeout() {
        let directory = TempDir::new().unwrap();
        let (mut child, channel) = start(directory.path(), &["--idle-ttl", "1"]);
        let sandbox = Sandbox::connect(channel).await.unwrap();
        let workspace = directory.path().join("workspace");
        sandbox.start_job(shell("setsid sleep 1000 & echo $! > pid; sleep 1000")).await.unwrap();
        wait_until("the job", || std::fs::read(workspace.join("pid")).is_ok_and(|id| !id.is_empty())).await;
        // Longer than the time to live, but not alone.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(child.try_wait().unwrap().is_none());
        drop(sandbox);
        assert!(
            tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap().success()
        );
        let id = std::fs::read_to_string(workspace.join("pid")).unwrap().trim().parse().unwrap();
        wait_until("the job's end", || !is_alive(id)).await;
    }

    #[tokio::test]
    async fn shutdown_ends_every_process() {
        for way in ["shutdown", "SIGTERM"] {
            let directory = TempDir::new().unwrap();
            let (mut child, channel) = start(directory.path(), &[]);
            let sandbox = Sandbox::connect(channel).await.unwrap();
            let workspace = directory.path().join("workspace");
            sandbox.start_job(shell("trap '' TERM; echo $$ > pid; while :; do sleep 1; done")).await.unwrap();
            wait_until("the job", || std::fs::read(workspace.join("pid")).is_ok_and(|id| !id.is_empty()))
                .await;
            match way {
                "shutdown" => sandbox.shutdown().await,
                _ => signal(child.id().unwrap() as i32, libc::SIGTERM),
            }
            assert!(child.wait().await.unwrap().success());
            let id = std::fs::read_to_string(workspace.join("pid")).unwrap().trim().parse().unwrap();
            wait_until("the job's end", || !is_alive(id)).await;
        }
    }

    #[tokio::test]
    async fn commands_of_a_guest_that_dies_are_lost() {
        let mut guest = Guest::start().await;
        let mut process = guest.sandbox.spawn(shell("sleep 1000")).await.unwrap();
        assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
        guest.child.kill().await.unwrap();
        let event = process.next().await.unwrap();
        assert!(
            matches!(&event, agent_sandbox::ProcessEvent::Finished(f) if f.outcome == Outcome::Lost),
            "{event:?}"
        );
        let error = guest.sandbox.stat(std::path::Path::new(".")).await.unwrap_err();
        assert_eq!(error.kind(), agent_base::error::Kind::Sandbox);
        assert!(error.to_string().contains("the guest is gone"), "{error}");
    }
}

mod ports {
    use super::*;
    use agent_base::error::Kind;
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_connection_carries_bytes_both_ways_with_half_close() {
        let guest = Guest::start().await;
        // Stands for a server that runs inside: the guest runs on this machine.
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = tokio::net::TcpListener::bind(address).await else { continue };
            let port = server.local_addr().unwrap().port();
            // The guest asks 127.0.0.1 first: a server of another test may have the same number there. A socket that is bound and does not
            // listen refuses.
            let other = tokio::net::TcpSocket::new_v4().unwrap();
            let is_second = server.local_addr().unwrap().is_ipv6();
            if is_second && other.bind(([127, 0, 0, 1], port).into()).is_err() {
                continue;
            }
            let echo = tokio::spawn(async move {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                stream.write_all(&all).await.unwrap();
            });
            let mut stream = guest.sandbox.connect_port(port).await.unwrap();
            let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
            stream.write_all(&sent).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.unwrap();
            assert!(received == sent);
            echo.await.unwrap();
        }
    }

    #[tokio::test]
    async fn dropping_a_connection_at_any_moment_affects_nothing_else() {
        let guest = Guest::start().await;
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        // While it connects.
        for _ in 0..50 {
            let connect = guest.sandbox.connect_port(port);
            let _ = tokio::time::timeout(Duration::from_micros(fastrand::u64(1..500)), connect).await;
        }
        // Once the server closes first, once the host does, with bytes in flight.
        for server_first in [true, false] {
            let mut stream = guest.sandbox.connect_port(port).await.unwrap();
            let (mut accepted, _) = loop {
                let accepted = server.accept().await.unwrap();
                // Those let go above are still in the queue, closed.
                if accepted.0.peek(&mut [0]).now_or_never().is_none() {
                    break accepted;
                }
            };
            if server_first {
                drop(accepted);
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                drop(stream);
            } else {
                stream.write_all(&[1; 100_000]).await.unwrap();
                drop(stream);
                let mut received = Vec::new();
                let _ = accepted.read_to_end(&mut received).await;
            }
            assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
        }
    }

    #[tokio::test]
    async fn connecting_to_a_closed_port_is_an_error() {
        let guest = Guest::start().await;
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = guest.sandbox.connect_port(free).await.unwrap_err();
        assert_eq!(error.kind(), Kind::InSandbox);
        assert!(error.to_string().contains("nothing answers on the port"), "{error}");
    }
}
