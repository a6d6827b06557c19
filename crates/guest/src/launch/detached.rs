//! `guest detach ADDRESS:PORT|@NAME VERIFIER SPEC [PROBES]`: makes a machine that a provider has started for one session a
//! sandbox, and serves WebSockets there in the background, or streams at an abstract socket.
//!
//! `SPEC` is a [`LaunchSpec`] in hexadecimal digits, of which user, environment, resource limits and filters count. The
//! process that was called prepares, so that whatever fails is its caller's to read, and ends when the guest is listening.
//! With `PROBES`, none of these addresses may answer (`probe.rs`): a provider that does not block the network is found out. The guest
//! listens meanwhile, so that its client's way to it is there by then; that client sends nothing of the session before this has ended well.

use super::identity;
use super::own;
use super::probe;
use super::step::{FailedStep, Step};
use super::sys;
use crate::processes;
use agent_wire::launch_spec::LaunchSpec;
use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The option of a guest that serves WebSockets.
const WEBSOCKET: &str = "--websocket-fd";
/// The descriptor at which the guest finds its listening socket.
const LISTEN_FD: i32 = 3;
/// The number of looks for what is left of an earlier guest, and the pause between two.
const MAX_ROUNDS: usize = 200;
const ROUND: Duration = Duration::from_millis(10);
/// The directories that every sandbox has.
const DIRECTORIES: [&str; 2] = ["/workspace", "/home/agent"];

/// `guest detach …`. Returns when the guest is listening.
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut next = || arguments.next().ok_or(crate::USAGE.to_owned());
    let (address, verifier, spec) = (next()?, next()?, next()?);
    let probes = arguments.next().unwrap_or_default();
    let spec = crate::hex(&spec).ok_or("the specification is not in hexadecimal digits")?;
    let spec = LaunchSpec::decode(&spec).map_err(|error| error.to_string())?;
    sys::close_from(3);
    crate::sys::set_umask(0o022);
    detach(&address, &verifier, &spec).map_err(|failure| failure.to_string())?;
    probe::prove_isolation(&probes).inspect_err(|_| {
        // Its machine is removed anyway.
        let _ = end_earlier(&spec, sys::effective_user() == 0);
    })
}

/// The entrance for a client.
enum Entrance<'a> {
    /// A port, for who knows what the verifier is the hash of.
    Port(TcpListener, &'a str),
    /// An abstract socket, for the user who started the guest.
    Socket(&'a str),
}

fn detach(address: &str, verifier: &str, spec: &LaunchSpec) -> Result<(), FailedStep> {
    let is_root = sys::effective_user() == 0;
    end_earlier(spec, is_root).step("end an earlier guest")?;
    for directory in DIRECTORIES {
        fs::create_dir_all(directory).step(&format!("make {directory}"))?;
        if is_root {
            chown(directory, Some(spec.uid), Some(spec.gid)).step(&format!("give {directory} away"))?;
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
            .step(&format!("open {directory}"))?;
    }
    if is_root {
        name_user(spec);
    }
    let entrance = match address.strip_prefix('@') {
        Some(name) => Entrance::Socket(name),
        None => Entrance::Port(TcpListener::bind(address).step(&format!("listen at {address}"))?, verifier),
    };
    let (mut said, status) = io::pipe().step("make a pipe")?;
    // A child that executes only when all else is done, so that its end without a word means success.
    if sys::fork_into(0).step("start the guest")? == 0 {
        drop(said);
        let mut status: OwnedFd = status.into();
        let failure = match serve(entrance, spec, is_root, &mut status) {
            Err(failure) => failure,
            Ok(never) => match never {},
        };
        let _ = fs::File::from(status).write_all(failure.to_string().as_bytes());
        std::process::exit(1);
    }
    drop((entrance, status));
    match io::read_to_string(&mut said).step("hear from the guest")?.as_str() {
        "" => Ok(()),
        failure => Err(FailedStep::new("start the guest", io::Error::other(failure.to_owned()))),
    }
}

/// Ends an earlier guest of this machine and what runs under it. A copy of a machine with its memory has the guest of another
/// session, which would let in a client that knows that session's secret.
fn end_earlier(spec: &LaunchSpec, is_root: bool) -> io::Result<()> {
    for _ in 0..MAX_ROUNDS {
        let earlier = processes::that(|id, status| match is_root {
            // No other account has the id of the sandbox's user.
            true => user_of(status) == Some(spec.uid),
            false => user_of(status) == Some(sys::effective_user()) && is_guest(id),
        });
        if earlier.is_empty() {
            return Ok(());
        }
        earlier.into_iter().for_each(|id| crate::sys::kill(id, crate::sys::SIGKILL));
        std::thread::sleep(ROUND);
    }
    Err(io::Error::other("it cannot be killed"))
}

/// The real user in the text of `/proc/PID/status`. What is undumpable belongs to root by its directory's owner.
fn user_of(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns whether a process was started as [`serve`] starts the guest at a port.
fn is_guest(id: i32) -> bool {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let mut words = line.split(|&byte| byte == 0);
    words.next() == Some(b"/proc/self/exe") && words.any(|word| word == WEBSOCKET.as_bytes())
}

/// Gives the sandbox's user a name, for the programs that ask for one. A machine whose list is read-only has none.
fn name_user(spec: &LaunchSpec) {
    let entries = [
        ("/etc/passwd", format!("agent:x:{}:{}::/home/agent:/bin/sh\n", spec.uid, spec.gid)),
        ("/etc/group", format!("agent:x:{}:\n", spec.gid)),
    ];
    for (file, entry) in entries {
        let is_named = fs::read_to_string(file).is_ok_and(|text| text.contains(&entry));
        if !is_named && let Ok(mut file) = OpenOptions::new().append(true).open(file) {
            let _ = file.write_all(entry.as_bytes());
        }
    }
}

/// The life of the child until it executes the guest. Returns only what went wrong.
fn serve(
    entrance: Entrance<'_>,
    spec: &LaunchSpec,
    is_root: bool,
    status: &mut OwnedFd,
) -> Result<Infallible, FailedStep> {
    sys::leave_session();
    *status = own(sys::duplicate_above(status.as_raw_fd()).step("keep the pipe")?);
    let way = match entrance {
        Entrance::Port(listener, verifier) => {
            let copy = own(sys::duplicate_above(listener.as_raw_fd()).step("keep the listener")?);
            drop(listener);
            super::detach()?;
            sys::duplicate_to(copy.as_raw_fd(), LISTEN_FD).step("keep the listener")?;
            [WEBSOCKET, "3", verifier].map(str::to_owned).to_vec()
        }
        Entrance::Socket(name) => {
            super::detach()?;
            let option = if is_root { "--socket" } else { "--user-socket" };
            [option, name].map(str::to_owned).to_vec()
        }
    };
    super::TERMINATING_SIGNALS.iter().for_each(|signal| sys::default_signal(*signal));
    std::env::set_current_dir("/workspace").step("enter /workspace")?;
    match is_root {
        true => identity::give_up_privileges(spec, is_root, &[])?,
        false => identity::give_up_gaining_privileges(spec)?,
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let environment = spec.env.iter().map(|(name, value)| match name.as_encoded_bytes() {
        // The image knows where its programs are.
        b"PATH" => (name, &path),
        _ => (name, value),
    });
    let mut guest = Command::new("/proc/self/exe");
    guest.args(&spec.argv).args(way).env_clear().envs(environment);
    Err(FailedStep::new("start the guest", guest.exec()))
}
