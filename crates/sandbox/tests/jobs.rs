//! Terminals, and jobs that outlive their client.

use agent_event::Stream;
use agent_sandbox::{Command, Finished, Outcome, Process, ProcessEvent, TerminalSize};
use agent_testing::guest::{DEADLINE, Guest, attach, shell, wait_until};
use std::time::Duration;

const SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// Reads output until it contains `expected`.
async fn read_until(process: &mut Process, expected: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.contains(expected) {
            match process.next().await.unwrap() {
                ProcessEvent::Output(_, bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
                ProcessEvent::Gap(bytes) => text.push_str(&format!("[{bytes} bytes]")),
                ProcessEvent::Finished(finished) => panic!("it ended: {finished:?} after {text:?}"),
            }
        }
    };
    if tokio::time::timeout(DEADLINE, read).await.is_err() {
        panic!("{expected:?} did not come: {text:?}");
    }
    text
}

/// Reads to the end.
async fn finish(process: &mut Process) -> (String, Finished) {
    let mut text = String::new();
    loop {
        match tokio::time::timeout(DEADLINE, process.next()).await.expect("an end").unwrap() {
            ProcessEvent::Output(stream, bytes) => {
                assert_eq!(stream, Stream::Stdout);
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
            ProcessEvent::Gap(_) => {}
            ProcessEvent::Finished(finished) => return (text, finished),
        }
    }
}

fn with_stdin(text: &str) -> Command {
    Command { stdin: true, ..shell(text) }
}

mod terminals {
    use super::*;

    #[tokio::test]
    async fn a_command_has_a_terminal_of_the_size_asked_for() {
        let guest = Guest::start().await;
        let command = shell("test -t 0 -a -t 1 -a -t 2 && stty size && exit 7");
        let mut process = guest.sandbox.spawn_in_terminal(command, SIZE).await.unwrap();
        let (text, finished) = finish(&mut process).await;
        assert_eq!((text.as_str(), finished.outcome), ("24 80\r\n", Outcome::Exited(7)));
    }

    #[tokio::test]
    async fn all_output_arrives_before_the_end() {
        let guest = Guest::start().await;
        for _ in 0..20 {
            let command = shell("seq 1 2000; printf end");
            let mut process = guest.sandbox.spawn_in_terminal(command, SIZE).await.unwrap();
            let (text, _) = finish(&mut process).await;
            assert!(text.ends_with("2000\r\nend"), "{:?}", &text[text.len().saturating_sub(40)..]);
        }
    }

    #[tokio::test]
    async fn input_is_echoed_and_read() {
        let guest = Guest::start().await;
        let mut process =
            guest.sandbox.spawn_in_terminal(shell("read line; echo got $line"), SIZE).await.unwrap();
        process.write_stdin(b"hello\r").await.unwrap();
        let (text, finished) = finish(&mut process).await;
        assert_eq!((text.as_str(), finished.outcome), ("hello\r\ngot hello\r\n", Outcome::Exited(0)));
    }

    #[tokio::test]
    async fn the_end_of_input_ends_a_program_that_reads_lines() {
        let guest = Guest::start().await;
        let mut process = guest.sandbox.spawn_in_terminal(shell("cat"), SIZE).await.unwrap();
        process.write_stdin(b"line\r").await.unwrap();
        read_until(&mut process, "line\r\nline").await;
        process.close_stdin();
        assert_eq!(finish(&mut process).await.1.outcome, Outcome::Exited(0));
    }

    #[tokio::test]
    async fn a_resize_reaches_the_program() {
        let guest = Guest::start().await;
        let command = shell("trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done");
        let mut process = guest.sandbox.spawn_in_terminal(command, SIZE).await.unwrap();
        read_until(&mut process, "ready").await;
        process.resize(TerminalSize { rows: 50, columns: 132 });
        assert!(finish(&mut process).await.0.contains("50 132"));
    }

    #[tokio::test]
    async fn ctrl_c_and_signals_reach_the_foreground() {
        let guest = Guest::start().await;
        let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done";
        for by_key in [true, false] {
            let mut process = guest.sandbox.spawn_in_terminal(shell(script), SIZE).await.unwrap();
            read_until(&mut process, "ready").await;
            if by_key {
                process.write_stdin(b"\x03").await.unwrap();
            } else {
                process.signal(libc::SIGINT);
            }
            let (text, finished) = finish(&mut process).await;
            assert!(text.contains("caught"), "{text:?}");
            assert_eq!(finished.outcome, Outcome::Exited(3));
        }
    }

    #[tokio::test]
    async fn dropping_the_process_ends_what_runs_in_the_terminal() {
        let guest = Guest::start().await;
        let command = shell("echo $$ > pid; echo ready; cat");
        let mut process = guest.sandbox.spawn_in_terminal(command, SIZE).await.unwrap();
        read_until(&mut process, "ready").await;
        drop(process);
        let id = std::fs::read_to_string(guest.path("pid")).unwrap().trim().parse().unwrap();
        wait_until("the end of the command", || !agent_testing::guest::is_alive(id)).await;
    }

    #[tokio::test]
    async fn nothing_but_the_terminal_is_open_in_the_command() {
        let guest = Guest::start().await;
        let command = shell("ls /proc/self/fd | tr '\\n' ' '");
        let mut process = guest.sandbox.spawn_in_terminal(command, SIZE).await.unwrap();
        assert_eq!(finish(&mut process).await.0, "0 1 2 3 ");
    }
}

mod attached {
    use super::*;

    #[tokio::test]
    async fn a_job_reads_what_the_attached_client_writes() {
        let guest = Guest::start().await;
        let job = guest
            .sandbox
            .start_job(with_stdin("while read line; do echo got $line; done; exit 4"))
            .await
            .unwrap();
        let mut process = guest.sandbox.attach_job(job, 0).await.unwrap();
        process.write_stdin(b"one\n").await.unwrap();
        read_until(&mut process, "got one\n").await;
        process.close_stdin();
        assert_eq!(finish(&mut process).await.1.outcome, Outcome::Exited(4));
        // The end is reported to those who come later as well.
        let mut late = guest.sandbox.attach_job(job, 0).await.unwrap();
        let (text, finished) = finish(&mut late).await;
        assert_eq!((text.as_str(), finished.outcome), ("got one\n", Outcome::Exited(4)));
    }

    #[tokio::test]
    async fn another_client_finds_the_job_running_and_no_output_lost() {
        // SAFETY: reads a number.
        if unsafe { libc::geteuid() } != 0 {
            return; // Only root may connect to the abstract socket.
        }
        let name = format!("agent-test-{}-{}", std::process::id(), fastrand::u64(..));
        let _guest = Guest::start_with(&["--socket", &name]).await;
        let (lost, first) = attach(&name).await;
        let job = first
            .start_job(with_stdin("echo first; while read line; do echo got $line; done"))
            .await
            .unwrap();
        let mut process = first.attach_job(job, 0).await.unwrap();
        read_until(&mut process, "first\n").await;
        process.write_stdin(b"one\n").await.unwrap();
        read_until(&mut process, "got one\n").await;
        // The link breaks without a close.
        drop(lost);
        drop((process, first));

        let (_link, other) = attach(&name).await;
        let mut process = other.attach_job(job, "first\n".len() as u64).await.unwrap();
        process.write_stdin(b"two\n").await.unwrap();
        assert_eq!(read_until(&mut process, "got two\n").await, "got one\ngot two\n");
        process.close_stdin();
        assert_eq!(finish(&mut process).await.1.outcome, Outcome::Exited(0));
    }

    #[tokio::test]
    async fn the_jobs_that_run_are_listed_and_their_output_stays_unread() {
        let guest = Guest::start().await;
        assert!(guest.sandbox.running_jobs().await.unwrap().is_empty());
        let ended = guest.sandbox.start_job(shell("echo over")).await.unwrap();
        let runs = guest.sandbox.start_job(with_stdin("echo here; cat")).await.unwrap();
        guest.sandbox.job_output(ended, DEADLINE).await.unwrap();
        while guest.sandbox.job_output(ended, DEADLINE).await.unwrap().state.is_none() {}
        let running = guest.sandbox.running_jobs().await.unwrap();
        assert_eq!(running, [(runs, Some("echo here; cat".to_owned()))]);
        let output = guest.sandbox.job_output(runs, DEADLINE).await.unwrap();
        assert!(!output.output.is_empty() && output.state.is_none(), "{output:?}");
    }

    #[tokio::test]
    async fn dropping_the_process_leaves_the_job_running() {
        let guest = Guest::start().await;
        let job = guest.sandbox.start_job(with_stdin("cat")).await.unwrap();
        drop(guest.sandbox.attach_job(job, 0).await.unwrap());
        let mut again = guest.sandbox.attach_job(job, 0).await.unwrap();
        again.write_stdin(b"still here").await.unwrap();
        read_until(&mut again, "still here").await;
        again.kill();
        assert_eq!(finish(&mut again).await.1.outcome, Outcome::Signaled(libc::SIGTERM));
    }

    #[tokio::test]
    async fn a_client_that_attaches_later_takes_over_the_job() {
        let guest = Guest::start().await;
        let job = guest.sandbox.start_job(with_stdin("cat")).await.unwrap();
        let mut first = guest.sandbox.attach_job(job, 0).await.unwrap();
        let mut second = guest.sandbox.attach_job(job, 0).await.unwrap();
        second.write_stdin(b"mine").await.unwrap();
        read_until(&mut second, "mine").await;
        let error = first.next().await.unwrap_err();
        assert!(error.to_string().contains("another client is attached"), "{error}");
    }

    #[tokio::test]
    async fn output_that_is_no_longer_kept_is_a_gap() {
        let guest = Guest::start().await;
        let job = guest
            .sandbox
            .start_job(shell("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end"))
            .await
            .unwrap();
        while guest.sandbox.job_output(job, Duration::from_secs(10)).await.unwrap().state.is_none() {}
        let mut process = guest.sandbox.attach_job(job, 1000).await.unwrap();
        let (mut gap, mut length) = (0, 0);
        loop {
            match process.next().await.unwrap() {
                ProcessEvent::Gap(bytes) => gap += bytes,
                ProcessEvent::Output(_, bytes) => length += bytes.len() as u64,
                ProcessEvent::Finished(_) => break,
            }
        }
        assert_eq!(gap + length, 1_000_005 - 1000);
        assert!(length >= 256 << 10, "{length}");
        let mut beyond = guest.sandbox.attach_job(job, 2_000_000).await.unwrap();
        assert!(beyond.next().await.unwrap_err().to_string().contains("has written only"));
        let mut unknown = guest.sandbox.attach_job(99, 0).await.unwrap();
        assert!(unknown.next().await.unwrap_err().to_string().contains("there is no job 99"));
    }

    #[tokio::test]
    async fn an_attached_client_that_does_not_read_blocks_the_job_and_loses_nothing() {
        let guest = Guest::start().await;
        // It waits for the client: what it wrote before would be kept only in part.
        let script = with_stdin("read go; head -c 5000000 /dev/zero");
        let job = guest.sandbox.start_job(script).await.unwrap();
        let mut process = guest.sandbox.attach_job(job, 0).await.unwrap();
        process.write_stdin(b"go\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (text, _) = finish(&mut process).await;
        assert_eq!(text.len(), 5_000_000);
    }

    #[tokio::test]
    async fn a_signal_interrupts_the_program_and_not_the_job() {
        let guest = Guest::start().await;
        let script = "trap 'echo interrupted' INT; echo ready; while read line; do echo got $line; done";
        let job = guest.sandbox.start_job(with_stdin(script)).await.unwrap();
        let mut process = guest.sandbox.attach_job(job, 0).await.unwrap();
        read_until(&mut process, "ready").await;
        process.signal(libc::SIGINT);
        read_until(&mut process, "interrupted").await;
        process.write_stdin(b"on\n").await.unwrap();
        read_until(&mut process, "got on").await;
    }

    #[tokio::test]
    async fn a_job_can_have_a_terminal() {
        let guest = Guest::start().await;
        let job = guest.sandbox.start_job_in_terminal(shell("read line; stty size"), SIZE).await.unwrap();
        let mut process = guest.sandbox.attach_job(job, 0).await.unwrap();
        process.resize(TerminalSize { rows: 10, columns: 20 });
        process.write_stdin(b"\r").await.unwrap();
        assert!(finish(&mut process).await.0.contains("10 20"));
    }
}
