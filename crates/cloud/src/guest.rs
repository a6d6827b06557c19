//! How the guest gets onto a provider's machine and is started there.

use super::api::quote;
use super::provider::{Executed, is_isolated};
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::HOME;
use agent_sandbox::PUBLIC_ADDRESSES;
use agent_sandbox::Spec;
use agent_sandbox::bootstrap;
use agent_sandbox::environment;
use agent_sandbox::seccomp;
use agent_wire::launch_spec::LaunchSpec;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::borrow::Cow;
use std::io::Write;
use std::sync::{Arc, OnceLock};

/// The label that holds [`Launch::label`].
pub const LABEL: &str = "agent.launch";
/// The label that names the guest's file, where it has to be found again.
pub const FILE: &str = "agent.guest";
/// The line that is printed once the guest listens. Profiles of login shells may print more.
const READY: &str = "agent-guest-is-ready";
/// The user inside where the provider's machine is root's: no distribution gives this id to an account.
const USER: u32 = 65_521;
/// The number of looks for the file of the guest, every 50 ms.
const MAX_LOOKS: u32 = 2400;
/// Open files of a process, the same as on other backends.
const OPEN_FILES: u64 = 16_384;
/// Silence after which the guest lets go of a client: the host pings every 15 s.
const KEEPALIVE: &str = "90";

/// The guest, compressed.
pub struct Packed {
    pub bytes: Cow<'static, [u8]>,
    /// Of the guest itself: names its file.
    pub id: String,
}

/// The guest, compressed when it was built, or once in the life of this process.
pub async fn packed(machine: &Machine) -> Result<Arc<Packed>> {
    static PACKED: OnceLock<Arc<Packed>> = OnceLock::new();
    let guest = bootstrap::bytes(machine)?;
    let id = bootstrap::id(&guest);
    if let Some(packed) = PACKED.get().filter(|packed| packed.id == id) {
        return Ok(Arc::clone(packed));
    }
    let bytes = match bootstrap::packed(machine) {
        Some(bytes) => Cow::Borrowed(bytes),
        None => Cow::Owned(compressed(guest).await?),
    };
    Ok(Arc::clone(PACKED.get_or_init(|| Arc::new(Packed { bytes, id }))))
}

async fn compressed(guest: Cow<'static, [u8]>) -> Result<Vec<u8>> {
    let compress = move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&guest).and_then(|()| encoder.finish())
    };
    let bytes = tokio::task::spawn_blocking(compress).await.map_err(std::io::Error::other).flatten();
    bytes.map_err(|error| Error::unexpected("the guest cannot be compressed").caused_by(error))
}

/// The port at which the guest of a session listens. In one range with others' servers, but every session has its own.
pub fn port(session: &str) -> u16 {
    let [low, high, ..] = Hash::of(session).0;
    21_000 + u16::from_le_bytes([low, high]) % 10_000
}

/// The name of the socket of a session's guest, among abstract ones.
pub fn socket(session: &str) -> String {
    format!("agent-guest-{session}")
}

/// Returns whether a label may be a part of the name of the guest's file.
pub fn is_file_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Shell text that joins its own streams to the guest's `socket`, once its file is there. One that another user has put in
/// its place is not run; who started the guest joins it.
#[cfg_attr(not(feature = "modal"), allow(dead_code))]
pub fn join_command(guest: &str, socket: &str, time: std::time::Duration) -> String {
    let looks = time.as_millis() / 50;
    format!(
        "g={guest}; s=; n=0; until [ -x \"$g\" ] || [ $n -ge {looks} ]; do n=$((n+1)); sleep 0.05 || sleep 1; done; \
         [ \"$(id -u)\" = 0 ] || {{ sudo -n true >/dev/null 2>&1 && s='sudo -n'; }}; \
         [ -O \"$g\" ] && exec $s \"$g\" attach --socket {socket}"
    )
}

/// Everything that a guest needs to know to serve a session. It is kept as a label, so that it can be started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub session: String,
    memory: u64,
    disk: u64,
    pids: u64,
    idle_seconds: u64,
    is_isolated: bool,
}

impl Launch {
    /// Returns what `spec` asks for.
    pub fn of(spec: &Spec) -> Self {
        Self {
            session: spec.session.clone(),
            memory: spec.limits.memory,
            disk: spec.limits.disk,
            pids: spec.limits.pids,
            idle_seconds: spec.idle_ttl.as_secs().clamp(1, u64::from(u32::MAX)),
            is_isolated: is_isolated(spec),
        }
    }

    /// As a label's value.
    pub fn label(&self) -> String {
        let Self { memory, disk, pids, idle_seconds, is_isolated, .. } = self;
        let network = if *is_isolated { "isolated" } else { "full" };
        format!("{memory}.{disk}.{pids}.{idle_seconds}.{network}")
    }

    /// Reads a label's value.
    pub fn from_label(session: &str, label: &str) -> Option<Self> {
        let mut parts = label.split('.');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (memory, disk, pids, idle_seconds) = (number()?, number()?, number()?, number()?);
        let is_isolated = parts.next()? != "full";
        Some(Self { session: session.to_owned(), memory, disk, pids, idle_seconds, is_isolated })
    }

    /// Shell text that waits until the `size` bytes of the packed guest are at `path`, unpacks and starts it. With `sudo`,
    /// where that asks for no password, the sandbox gets a user of its own. The guest listens at `address`: an address with its
    /// port, or `@` and the name of an abstract socket.
    pub fn command(&self, path: &str, size: usize, address: &str, verifier: &Hash) -> Result<String> {
        let spec = hex::encode(self.spec()?.encode());
        let probes = if self.is_isolated { PUBLIC_ADDRESSES } else { "" };
        Ok(format!(
            "{{ g={path}; s=; n=0; \
             until [ -f \"$g.gz\" ] && [ \"$(wc -c <\"$g.gz\")\" -ge {size} ] || [ $n -ge {MAX_LOOKS} ]; \
             do n=$((n+1)); sleep 0.05 || sleep 1; done; gzip -dc \"$g.gz\" >\"$g.new\" && chmod 755 \"$g.new\" && mv -f \"$g.new\" \"$g\" && rm -f \"$g.gz\" && \
             {{ [ \"$(id -u)\" = 0 ] || {{ sudo -n true >/dev/null 2>&1 && s='sudo -n'; }}; \
             $s env \"PATH=$PATH\" \"$g\" detach {address} {verifier} {spec} '{probes}' && echo {READY}; }}; }} \
             </dev/null 2>&1"
        ))
    }

    fn spec(&self) -> Result<LaunchSpec> {
        let idle = self.idle_seconds.to_string();
        let disk = self.disk.to_string();
        let argv = ["serve", "--idle-ttl", &idle, "--disk", &disk, "--keepalive", KEEPALIVE];
        let env = environment::variables("", HOME);
        Ok(LaunchSpec {
            uid: USER,
            gid: USER,
            argv: argv.map(Into::into).into(),
            env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            rlimits: vec![
                (libc::RLIMIT_NOFILE as i32, OPEN_FILES),
                (libc::RLIMIT_CORE as i32, 0),
                (libc::RLIMIT_FSIZE as i32, self.disk),
                // Private writable memory of each process: the whole is the provider's to limit.
                (libc::RLIMIT_DATA as i32, self.memory),
                (libc::RLIMIT_NPROC as i32, self.pids),
            ],
            seccomp: seccomp::filters()?,
            ..LaunchSpec::default()
        })
    }
}

/// The guest started, and cannot be connected to.
pub fn unreachable(provider: &str, why: &str) -> Error {
    Error::sandbox(format!("the guest in the {provider} sandbox cannot be reached: {why}"))
        .hint("`agent resume` starts another sandbox from the session's checkpoints")
}

/// Fails with what went wrong where the guest did not start.
pub fn check_start(provider: &str, executed: &Executed) -> Result<()> {
    if executed.output.contains(READY) {
        return Ok(());
    }
    let said = quote(&executed.output);
    if said.contains("the network is open") {
        let open = format!("{provider} did not block the sandbox's network, though it was asked to: {said}");
        return Err(Error::sandbox(open)
            .hint("nothing was copied into it and it is removed; --network full allows what is reachable"));
    }
    let hint = match said.contains("Exec format") || said.contains("exec format") {
        true => {
            "the sandbox has another processor than this machine: name a guest that was built for it with AGENT_GUEST"
        }
        false => {
            "the image needs a shell, gzip, and a user who may make /workspace (root, or sudo without a password)"
        }
    };
    let code = executed.exit_code;
    Err(Error::sandbox(format!(
        "the guest did not start in the {provider} sandbox (exit code {code}): {said}"
    ))
    .hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_sandbox::local::Local;
    use agent_sandbox::{Backend, Command, FileWrite, Network, Node, Output, Program, Sandbox};

    #[test]
    fn a_label_holds_all_that_a_start_needs() {
        let launch = Launch {
            session: "s".to_owned(),
            memory: 1 << 30,
            disk: 2 << 30,
            pids: 99,
            idle_seconds: 60,
            is_isolated: true,
        };
        assert_eq!(Launch::from_label("s", &launch.label()), Some(launch.clone()));
        // What is not understood is isolated.
        let label = launch.label().replace("isolated", "other");
        assert_eq!(Launch::from_label("s", &label), Some(launch));
        assert_eq!(Launch::from_label("s", "1.2"), None);
    }

    /// Runs shell text in a local sandbox that has the guest as `/tmp/g`: what it printed.
    async fn in_sandbox(network: Network, text: String) -> String {
        let machine = Arc::new(Machine::of_this_process());
        let backend: Arc<dyn Backend> = Arc::new(Local::new(Arc::clone(&machine)));
        let id = format!("detached-{:08x}", fastrand::u32(..));
        let spec = Spec { network, ..Spec::new(&id) };
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.unwrap();
        let sandbox = Sandbox::connect(channel).await.unwrap();
        let node = Node::Regular(bootstrap::bytes(&machine).unwrap().to_vec());
        let guest =
            FileWrite { path: "/tmp/g".into(), node, mode: Some(0o755), mtime_ns: None, follow: false };
        sandbox.write_files(vec![guest]).await.unwrap().remove(0).unwrap();
        let command = Command {
            program: Program::Shell(text),
            cwd: None,
            env: Vec::new(),
            timeout: Some(std::time::Duration::from_secs(60)),
            live_bytes: 1 << 20,
            stdin: false,
        };
        let mut said = Vec::new();
        let mut take = |output: Output<'_>| {
            if let Output::Data(_, piece) = output {
                said.extend_from_slice(piece);
            }
        };
        sandbox.run(command, &mut take).await.unwrap();
        sandbox.shutdown().await;
        backend.destroy(&id).await.unwrap();
        String::from_utf8(said).unwrap()
    }

    /// The specification of a launch, as an argument of the guest.
    fn argument(label: &str) -> String {
        hex::encode(Launch::from_label("s", label).unwrap().spec().unwrap().encode())
    }

    #[tokio::test]
    async fn a_guest_whose_network_is_open_does_not_stay() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let reachable = listener.local_addr().unwrap().to_string();
        // It answers every time: for some seconds, a block that comes late is waited for.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.unwrap().write_all(b"\x16\x03\x03");
            }
        });
        let (verifier, spec) = (Hash::of(""), argument("1073741824.1073741824.100.60.isolated"));
        let text = format!(
            "/tmp/g detach 127.0.0.1:0 {verifier} {spec} {reachable} 2>&1; echo \"code $?\"; \
             for id in /proc/[0-9]*; do tr '\\0' ' ' <$id/cmdline; echo; done 2>/dev/null | grep -c -e '--websocket[-]fd'"
        );
        let said = in_sandbox(Network::Full, text).await;
        assert!(said.contains(&format!("the network is open: {reachable} can be reached")), "{said}");
        assert!(said.ends_with("code 1\n0\n"), "its guest listens no more: {said}");
        let error = check_start("daytona", &Executed { exit_code: 1, output: said }).unwrap_err();
        assert!(error.to_string().starts_with("daytona did not block the sandbox's network"), "{error}");
    }

    #[test]
    fn a_block_of_the_network_that_comes_late_is_waited_for() {
        // A provider that blocks in the background was found out by one trial that came too early.
        let machine = Machine::of_this_process();
        let (program, _open) = bootstrap::program(&machine).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // The first two connections are answered; then nothing listens any more.
        std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let _ = stream.unwrap().write_all(b"\x16\x03\x03");
            }
        });
        let output = std::process::Command::new(program).args(["probe", &address]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "isolated\n", "{output:?}");
    }

    /// A copy of a machine with its memory has the guest of its source.
    #[tokio::test]
    async fn an_earlier_guest_is_ended_before_another_one_starts() {
        let (verifier, spec) = (Hash::of(""), argument("1073741824.1073741824.100.60.full"));
        let text = format!(
            "for port in 21001 21002; do /tmp/g detach 127.0.0.1:$port {verifier} {spec} || exit 9; \
             while read -r _ address _ state _; do [ \"$state\" != 0A ] || echo \"$address\"; done </proc/net/tcp; done"
        );
        let said = in_sandbox(Network::None, text).await;
        assert_eq!(said, "0100007F:5209\n0100007F:520A\n");
    }

    #[test]
    fn a_command_is_short_enough_for_a_request_and_names_no_secret() {
        let launch = Launch::from_label("s", "1.2.3.4.isolated").unwrap();
        let command = launch.command("/tmp/g", 7, "127.0.0.1", &Hash::of("secret")).unwrap();
        assert!(command.len() < 64 << 10, "{}", command.len());
        assert!(command.contains(&Hash::of("secret").to_string()));
    }
}
