//! `agent exec` between two pipes: input and output of any length, in any order.

use agent_testbed::agent::{DEADLINE, Finished, agent};
use agent_testbed::backends::program_on_every_backend_and_provider;
use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// More than the pipes and windows on the way hold together.
const LONG: usize = 30_000_000;

/// A shell command with this input, which has to end with this code.
#[track_caller]
fn exec(backend: &str, shell: &str, input: &str, code: i32) -> Finished {
    let ran = agent().sandbox(backend).args(["exec", "--", "sh", "-c", shell]).stdin(input).run();
    assert_eq!(ran.code, code, "{shell} on {backend}: {}", ran.stderr);
    ran
}

/// A bug: while `agent exec` wrote the input it read no output, so that a command that does both waited for ever.
#[test]
fn input_and_output_pass_each_other() {
    let input: String = (0..LONG / 10).map(|line| format!("{line:09}\n")).collect();
    program_on_every_backend_and_provider(|backend| {
        let copied = exec(backend, "cat", &input, 0).stdout;
        assert!(copied == input, "{} of {} bytes on {backend}", copied.len(), input.len());
        let writes = format!("head -c {LONG} /dev/zero | tr '\\0' x");
        // It writes everything before it reads anything.
        let first = exec(backend, &format!("{writes}; wc -c >&2; exit 5"), &input, 5);
        let read = first.stderr.lines().last().and_then(|line| line.parse().ok());
        assert_eq!((first.stdout.len(), read), (LONG, Some(LONG)), "on {backend}");
        // It closes its input first, or ends.
        assert_eq!(exec(backend, &format!("exec <&-; {writes}"), &input, 0).stdout.len(), LONG);
        assert_eq!(exec(backend, "echo unread; exit 7", &input, 7).stdout, "unread\n");
    });
}

/// A call whose standard output nobody reads. It is killed with its value.
struct Unread {
    child: Child,
    _root: Arc<TempDir>,
}

impl Unread {
    /// Starts a command, and waits until it can write no more.
    fn start(shell: &str) -> Self {
        let (mut command, root) = agent().args(["exec", "--", "sh", "-c", shell]).into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let unread = Self { child: command.spawn().expect("it starts"), _root: root };
        let (deadline, mut before) = (Instant::now() + DEADLINE, 0);
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let stdout = unread.child.stdout.as_ref().expect("piped");
            let waiting = rustix::io::ioctl_fionread(stdout).expect("a pipe");
            if waiting > 0 && waiting == before {
                return unread;
            }
            before = waiting;
            assert!(Instant::now() < deadline, "it writes");
        }
    }

    /// Waits for the end: the exit code.
    #[track_caller]
    fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not end");
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bug: `agent exec` whose output nobody read did not react to signals.
#[test]
fn a_signal_ends_it_while_nobody_reads_its_output() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130)] {
        let mut unread = Unread::start("yes");
        // SAFETY: the child is ours and not waited for yet, so the pid is still valid.
        unsafe { libc::kill(unread.child.id() as i32, signal) };
        assert_eq!(unread.end(), Some(code));
    }
}

#[test]
fn input_is_passed_on_while_nobody_reads_the_output() {
    let mut unread = Unread::start("yes & wc -c > read; kill $!; exit 3");
    let mut stdin = unread.child.stdin.take().expect("piped");
    let (sender, fed) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(stdin.write_all(&vec![b'x'; LONG])));
    fed.recv_timeout(DEADLINE).expect("it is read").expect("fed");
    drop(unread.child.stdout.take());
    // What a shell returns for a command whose reader has gone.
    assert_eq!(unread.end(), Some(141));
}
