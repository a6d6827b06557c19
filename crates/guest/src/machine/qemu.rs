//! Starts QEMU with the sockets that connect it.

use super::monitor::Monitor;
use crate::sys;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// QEMU, and what it is connected by.
pub struct Launched {
    pub port: OwnedFd,
    pub rest: Machine,
}

pub struct Machine {
    pub machine: Child,
    pub monitor: Monitor,
    pub console: Option<File>,
    pub errors: Option<File>,
}

/// Starts QEMU, which boots or takes a state.
pub fn launch(command: &[String], boot_arguments: &[String], state: Option<&str>) -> io::Result<Launched> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let (port, of_machine) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.args(arguments);
    sys::keep_on_exec(of_machine.as_raw_fd())?;
    command.args(["-chardev", &format!("socket,id=port,fd={}", of_machine.as_raw_fd())]);
    let (monitor, of_monitor) = UnixStream::pair()?;
    sys::keep_on_exec(of_monitor.as_raw_fd())?;
    command.args(["-chardev", &format!("socket,id=monitor,fd={}", of_monitor.as_raw_fd())]);
    command.args(["-mon", "chardev=monitor,mode=control"]);
    let state = state.map(File::open).transpose()?;
    match &state {
        Some(state) => {
            sys::keep_on_exec(state.as_raw_fd())?;
            command.args(["-incoming", &format!("fd:{}", state.as_raw_fd())]);
        }
        None => {
            command.args(boot_arguments);
        }
    }
    // SAFETY: it only sets the signals that the child blocks, and needs no memory.
    unsafe {
        command.pre_exec(|| {
            sys::unblock_signals();
            Ok(())
        });
    }
    let mut machine = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let console = machine.stdout.take().map(OwnedFd::from).map(File::from);
    let errors = machine.stderr.take().map(OwnedFd::from).map(File::from);
    for file in console.iter().chain(&errors) {
        sys::set_nonblocking(file.as_raw_fd())?;
    }
    let rest = Machine { machine, monitor: Monitor::new(monitor)?, console, errors };
    Ok(Launched { port: port.into(), rest })
}
