//! The guest, run as a plain child process: commands, jobs, files, and what a hostile neighbour may try.

use crate::support::guest::{Guest, alive, shell, until};
use agent::sandbox::{Outcome, Program};
use std::time::{Duration, Instant};

mod commands {
    use super::*;

    #[tokio::test]
    async fn exit_codes_and_both_outputs() {
        let guest = Guest::start().await;
        let ran = guest.sh("echo out; echo err >&2; exit 7").await;
        assert_eq!(ran.outcome(), Outcome::Exited(7));
        assert_eq!((ran.stdout.as_slice(), ran.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(ran.finished().output_bytes, 8);
        assert_eq!(ran.finished().spool, None);
        assert_eq!(ran.finished().left_running, 0);
    }

    #[tokio::test]
    async fn a_signal_is_told_as_one() {
        let guest = Guest::start().await;
        assert_eq!(guest.sh("kill -SEGV $$").await.outcome(), Outcome::Signaled(11));
    }

    #[tokio::test]
    async fn a_program_that_is_not_there() {
        let guest = Guest::start().await;
        let mut command = shell("");
        command.program = Program::Argv(vec!["no-such-program".into()]);
        let ran = guest.run(command).await;
        assert_eq!(ran.outcome(), Outcome::Exited(127));
        assert!(String::from_utf8_lossy(&ran.stderr).contains("cannot run no-such-program"));
    }

    #[tokio::test]
    async fn a_time_limit_ends_daemons_that_ignore_term() {
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
            assert!(!alive(id), "{name}");
        }
    }

    #[tokio::test]
    async fn a_background_child_that_holds_stdout_does_not_hold_up_the_command() {
        let guest = Guest::start().await;
        let started = Instant::now();
        let ran = guest.sh("(while :; do echo still here; sleep 0.05; done) & echo $!").await;
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(ran.outcome(), Outcome::Exited(0));
        assert!(ran.finished().left_running >= 1);
        let id = ran.text().lines().find_map(|line| line.parse().ok()).unwrap();
        // It goes on living, and nothing stops it from writing.
        guest.sh("sleep 0.3").await;
        assert!(alive(id));
    }

    #[tokio::test]
    async fn dropping_the_future_kills() {
        let guest = Guest::start().await;
        let mut ignore = |_: agent::sandbox::Output<'_>| ();
        let run = guest.sandbox.run(shell("echo $$ > pid; sleep 1000 & sleep 1000"), &mut ignore);
        assert!(tokio::time::timeout(Duration::from_millis(500), run).await.is_err());
        let id: i32 = std::fs::read_to_string(guest.path("pid")).unwrap().trim().parse().unwrap();
        until("the end of the command", || !alive(id)).await;
    }

    #[tokio::test]
    async fn a_flood_is_cut_in_the_middle_and_kept_in_a_file() {
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
    async fn everything_is_streamed_where_that_is_asked_for() {
        let guest = Guest::start().await;
        let ran = guest.sh("head -c 20000000 /dev/urandom | tee copy").await;
        assert_eq!(ran.stdout, std::fs::read(guest.path("copy")).unwrap());
    }
}
