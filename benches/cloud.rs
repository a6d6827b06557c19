//! Sandboxes at a provider, over a slow link, side by side with the vendor's own SDK at the same provider.
//!
//! `cargo bench --bench cloud`. The provider is `agent serve` with local sandboxes; between it and both clients is a proxy
//! with 80 ms of latency. `.ci/sdks` installs the SDK. Making a TCP connection takes no time here, and there is no TLS:
//! over a real link both cost the SDK and `agent` a round trip or two each.

use agent::machine::Machine;
use agent::sandbox::cloud::{Cloud, E2B, E2b};
use agent::sandbox::{Backend, Command, FileWrite, Network, Node, Outcome, Output, Program, Sandbox, Spec};
use agent_testbed::e2b;
use agent_testing::link::Link;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is between a client and the provider, for everything but the bulk of output.
const SLOW: Link = Link { delay: Duration::from_millis(40), bytes_per_second: None };
/// The same for that.
const FAST: Link = Link { delay: Duration::from_millis(50), bytes_per_second: Some(50_000_000) };
/// Commands in a row, files at once, bytes of output.
const COMMANDS: u32 = 20;
const FILES: usize = 500;
const OUTPUT: u64 = 100_000_000;
/// Sandboxes that are started, of which the median counts.
const STARTS: usize = 5;

#[tokio::main]
async fn main() {
    println!("load: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let provider = e2b::start();
    let target: SocketAddr = provider.url.trim_start_matches("http://").parse().expect("an address");
    let slow = format!("http://{}", SLOW.proxy(target).await);
    let fast = format!("http://{}", FAST.proxy(target).await);
    let sdk = Sdk::find();
    let rtt = 2 * SLOW.delay;

    let created = sdk.median("ready", &slow);
    for network in [Network::Full, Network::None] {
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            let begun = Instant::now();
            let (backend, session, sandbox) = start(&slow, network.clone()).await;
            run(&sandbox, "true").await;
            starts.push(begun.elapsed());
            backend.destroy(&session).await.expect("it is removed");
        }
        starts.sort();
        report(&format!("create and first command, --network {network}"), starts[STARTS / 2], created, rtt);
    }

    let (backend, session, sandbox) = start(&slow, Network::None).await;
    let begun = Instant::now();
    for _ in 0..COMMANDS {
        run(&sandbox, "true").await;
    }
    report("20 times `true`", begun.elapsed(), sdk.median("commands", &slow), rtt);
    let begun = Instant::now();
    let written = sandbox.write_files(files()).await.expect("it answers");
    assert!(written.into_iter().all(|result| result.is_ok()));
    report("500 files", begun.elapsed(), sdk.median("files", &slow), rtt);
    drop(sandbox);
    backend.destroy(&session).await.expect("it is removed");

    let (backend, session, sandbox) = start(&fast, Network::None).await;
    let begun = Instant::now();
    let bytes = run(&sandbox, &format!("head -c {OUTPUT} /dev/zero")).await;
    let rate = bytes as f64 / begun.elapsed().as_secs_f64() / 1e6;
    assert_eq!(bytes, OUTPUT);
    let of_link = rate / 50.0 * 100.0;
    println!("100 MB of output: {rate:.1} MB/s, {of_link:.0} % of the link");
    if let Some(time) = sdk.median("output", &fast) {
        println!("  SDK, 10 MB: {:.1} MB/s", 10.0 / time.as_secs_f64());
    }
    drop(sandbox);
    backend.destroy(&session).await.expect("it is removed");
}

/// One line: ours, the SDK's, and both in round trips.
fn report(name: &str, own: Duration, sdk: Option<Duration>, rtt: Duration) {
    let show = |time: Duration| {
        format!(
            "{:.0} ms ({:.1} round trips)",
            time.as_secs_f64() * 1e3,
            time.as_secs_f64() / rtt.as_secs_f64()
        )
    };
    let sdk = sdk.map(|sdk| {
        format!("; SDK {}; {:.1} times as fast", show(sdk), sdk.as_secs_f64() / own.as_secs_f64())
    });
    println!("{name}: {}{}", show(own), sdk.unwrap_or_default());
}

async fn start(url: &str, network: Network) -> (Cloud<E2b>, String, Sandbox) {
    let set = [("E2B_API_URL", url), ("E2B_SANDBOX_URL", url), ("E2B_API_KEY", e2b::KEY)];
    let set = set.map(|(name, value)| (name.into(), value.into()));
    let machine = Arc::new(Machine::new(std::env::vars_os().chain(set)));
    let backend = Cloud::new(E2b::connect(&E2B, &machine).expect("a provider"), machine);
    let session = format!("bench-{}-{}", std::process::id(), fastrand::u32(..));
    let spec = Spec { network, idle_ttl: Duration::from_secs(30), ..Spec::new(&session) };
    let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("it starts");
    let sandbox = Sandbox::connect(channel).await.expect("its guest answers");
    (backend, session, sandbox)
}

/// Runs shell text; the bytes that it printed.
async fn run(sandbox: &Sandbox, text: &str) -> u64 {
    let command = Command {
        program: Program::Shell(text.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(Duration::from_secs(120)),
        live_bytes: u64::MAX,
        stdin: false,
    };
    let mut bytes = 0;
    let mut count = |output: Output<'_>| {
        if let Output::Data(_, piece) = output {
            bytes += piece.len() as u64;
        }
    };
    let finished = sandbox.run(command, &mut count).await.expect("it answers");
    assert_eq!(finished.outcome, Outcome::Exited(0));
    bytes
}

fn files() -> Vec<FileWrite> {
    let file = |n| FileWrite {
        path: format!("many/file-{n}").into(),
        node: Node::Regular(vec![b'x'; 1000]),
        mode: None,
        mtime_ns: None,
        follow: true,
    };
    (0..FILES).map(file).collect()
}

/// E2B's own SDK, where it is installed.
struct Sdk(Option<std::path::PathBuf>);

impl Sdk {
    fn find() -> Self {
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = root.join(target).join("sdks/e2b");
        let found = directory.join("installed").exists().then_some(directory);
        if found.is_none() {
            println!("the SDK is not measured: .ci/sdks installs it");
        }
        Self(found)
    }

    /// The time that it takes for the same.
    fn median(&self, what: &str, url: &str) -> Option<Duration> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cloud.py");
        let output = std::process::Command::new("python3")
            .arg(program)
            .arg(what)
            .env("PYTHONPATH", self.0.as_ref()?)
            .envs([
                ("E2B_API_URL", url),
                ("E2B_SANDBOX_URL", url),
                ("E2B_API_KEY", e2b::KEY),
                ("E2B_HTTP_VERSION", "1.1"),
            ])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .ok()?;
        let seconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
        Some(Duration::from_secs_f64(seconds))
    }
}
