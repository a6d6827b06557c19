//! A container engine of the sandbox's own, where the kernel is the sandbox's own as well.

use super::step::{FailedStep, Step};
use super::sys::{self, MS_NODEV, MS_NOEXEC, MS_NOSUID};
use agent_wire::launch_spec::{ENGINE_SOCKET, LaunchSpec};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The log of the engine; its last line is in the error where it does not start.
const LOG: &str = "/var/log/engine.log";
/// The number of bytes at its end that are looked at.
const LAST_WORDS: usize = 600;
/// The time limit for the engine to listen, which an emulated processor does slowly.
const LONGEST_START: Duration = Duration::from_secs(120);
/// The time limit for one answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Mounts what programs find that are root on a kernel of their own: `/sys`, and the sandbox's control groups.
pub fn mount_kernel_files() -> Result<(), FailedStep> {
    let flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    let groups = "/sys/fs/cgroup";
    for (kind, target) in [("sysfs", "/sys"), ("cgroup2", groups)] {
        let target = Path::new(target);
        sys::mount_at(Path::new(kind), target, kind, flags, OsStr::new("")).step_at("mount", target)?;
    }
    Ok(())
}

/// Starts the engine of `spec`, if there is one, and waits until it listens.
pub fn start(spec: &LaunchSpec) -> Result<(), FailedStep> {
    let Some((program, arguments)) = spec.engine.split_first() else { return Ok(()) };
    let start = || {
        let log = File::create(LOG)?;
        let mut engine = Command::new(program);
        engine.args(arguments).env_clear().envs(spec.engine_env.iter().map(|(name, value)| (name, value)));
        engine.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        engine.current_dir("/").spawn()
    };
    let mut engine = match start() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("there is no {} in it", program.display());
            return Err(FailedStep::new("start a container engine", io::Error::new(error.kind(), text)));
        }
        started => started.step("start a container engine")?,
    };
    wait_for(&mut engine).step("start a container engine")
}

fn wait_for(engine: &mut Child) -> io::Result<()> {
    let until = Instant::now() + LONGEST_START;
    while !answers().unwrap_or_default() {
        if let Some(status) = engine.try_wait()? {
            return Err(io::Error::other(format!("{status}: {}", last_words())));
        }
        if Instant::now() > until {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it does not listen: {}", last_words()),
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns whether the engine answers; it listens before it is sure that it can start.
fn answers() -> io::Result<bool> {
    let mut connection = UnixStream::connect(ENGINE_SOCKET)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.write_all(b"GET /_ping HTTP/1.0\r\n\r\n")?;
    let mut status = [0; 12];
    connection.read_exact(&mut status)?;
    Ok(status.ends_with(b" 200"))
}

/// The last line of the log.
fn last_words() -> String {
    let log = fs::read(LOG).unwrap_or_default();
    let end = String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_WORDS)..]).into_owned();
    end.lines().next_back().unwrap_or_default().to_owned()
}
