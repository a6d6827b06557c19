//! Running a program of this machine to its end: in a process group of its own, within a time, with bounded outputs.
//!
//! The group keeps a Ctrl-C of the terminal from it, and is killed if the program takes too long or nobody waits any more.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

/// The time for which the output of a program that has ended is waited for: what it left running may hold it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);

/// A program that has ended.
pub struct Ran {
    pub status: ExitStatus,
    /// The beginning of what it wrote.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs `command` with `input`, and keeps the first `max_output` bytes of each output. `None` if it did not end within `limit`.
/// What it left running stays.
pub async fn run(
    command: std::process::Command,
    input: &[u8],
    limit: Duration,
    max_output: usize,
) -> io::Result<Option<Ran>> {
    let mut command = Command::from(command);
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let status = {
        let feeding = async {
            if let Some(mut stdin) = stdin {
                // One that does not read it closes the pipe.
                let _ = stdin.write_all(input).await;
            }
        };
        let reading = async {
            tokio::join!(collect(out, &mut stdout, max_output), collect(err, &mut stderr, max_output))
        };
        let mut talking = pin!(async { tokio::join!(feeding, reading) });
        let ended = timeout(limit, async {
            tokio::select! {
                status = child.wait() => (status, false),
                _ = &mut talking => (child.wait().await, true),
            }
        });
        let Ok((status, has_all)) = ended.await else { return Ok(None) };
        if !has_all {
            // What has arrived counts.
            let _ = timeout(OUTPUT_TIMEOUT, talking).await;
        }
        status?
    };
    group.leave();
    Ok(Some(Ran { status, stdout, stderr }))
}

/// The program's processes, which end with it unless it has ended in time.
struct Group(Option<Pid>);

impl Group {
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // A group that is gone has no processes to end.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end, and keeps the beginning.
async fn collect(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, max: usize) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; 8192];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..length.min(max - kept.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(text: &str) -> std::process::Command {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[tokio::test]
    async fn outputs_are_bounded_and_input_is_read() {
        let script = "head -c 5; head -c 300000 /dev/zero; echo no >&2; exit 3";
        let ran = run(shell(script), b"12345678", LONG, 1000).await.unwrap().unwrap();
        assert_eq!(
            (ran.status.code(), ran.stdout.len(), ran.stderr.as_slice()),
            (Some(3), 1000, &b"no\n"[..])
        );
        assert!(ran.stdout.starts_with(b"12345"));
    }

    #[tokio::test]
    async fn the_whole_group_ends_when_nobody_waits_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let text = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", path.display());
        let waiting = async {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = run(shell(&text), b"", LONG, 10) => panic!("it runs"),
            () = waiting => {}
        }
        let child = std::fs::read_to_string(&path).unwrap();
        let ended = async {
            while Path::new("/proc").join(child.trim()).join("exe").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, ended).await.expect("its child ends too");
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_ended() {
        assert!(run(shell("sleep 600"), b"", Duration::from_millis(100), 10).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_is_not_waited_for() {
        let began = Instant::now();
        let ran = run(shell("echo done; sleep 60 &"), b"", LONG, 100).await.unwrap().unwrap();
        assert_eq!(ran.stdout, b"done\n");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn a_ctrl_c_of_the_terminal_does_not_reach_it() {
        // Running clones were killed by the first Ctrl-C, which lets tasks finish.
        let ran =
            run(shell("cut -d' ' -f5 /proc/$$/stat && echo $$"), b"", LONG, 100).await.unwrap().unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        let numbers: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(numbers[0], numbers[1], "it leads a group of its own");
    }
}
