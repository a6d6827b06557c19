//! How soon a virtual machine runs its first command, beside a plain start of QEMU with the same kernel: `cargo bench --bench machine`.
//!
//! A plain start ends where the kernel finds nothing to start. `AGENT_BENCH_CACHE` names a directory with images that are there already.

use agent::error::Result;
use agent::machine::Machine;
use agent::sandbox::vm::{Settings, Vm};
use agent::sandbox::{Backend, Command, Program, Sandbox, Spec};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts, of which the median counts, and commands after the first.
const STARTS: usize = 5;
const COMMANDS: usize = 40;
const MEMORY: u64 = 512 << 20;

#[tokio::main]
async fn main() {
    println!("load: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let machine = Arc::new(Machine::of_this_process());
    let cache = std::env::var_os("AGENT_BENCH_CACHE").map(PathBuf::from);
    Settings { cache, ..Settings::default() }.keep(&machine);
    let vm = match Vm::connect(machine) {
        Ok(vm) => vm,
        Err(error) => return println!("not measured: {error}"),
    };
    println!("{}", vm.location());
    measure(&vm).await.expect("machines start");
}

async fn measure(vm: &Vm) -> Result<()> {
    // Images and states are made once.
    let once = Instant::now();
    one(vm, 0).await?;
    println!("the first start, with what is made once: {:.2?}", once.elapsed());
    let mut plain = Vec::new();
    let mut starts = Vec::new();
    let mut first = Vec::new();
    let mut further = Vec::new();
    let mut pauses = Vec::new();
    let mut resumes = Vec::new();
    for number in 1..=STARTS {
        plain.extend(plain_start());
        let times = one(vm, number).await?;
        starts.push(times.started);
        first.push(times.first);
        further.extend(times.further);
        pauses.push(times.paused);
        resumes.push(times.resumed);
        println!(
            "memory of QEMU above the limit, the limit used: {} MB",
            (times.memory.saturating_sub(MEMORY)) >> 20
        );
    }
    let plain = median(plain);
    for (what, times) in [
        ("until the guest answers", starts),
        ("until the first command has ended", first),
        ("a further command", further),
        ("paused to disk, its limit used", pauses),
        ("resumed until a command has ended", resumes),
    ] {
        let time = median(times);
        let ratio = time.as_secs_f64() / plain.as_secs_f64().max(f64::MIN_POSITIVE);
        println!("{what}: {time:.3?}, {ratio:.2} of a plain start of QEMU ({plain:.2?})");
    }
    Ok(())
}

struct Times {
    started: Duration,
    first: Duration,
    further: Vec<Duration>,
    paused: Duration,
    resumed: Duration,
    memory: u64,
}

async fn one(vm: &Vm, number: usize) -> Result<Times> {
    let mut spec = Spec::new(format!("bench-{}-{number}", std::process::id()));
    spec.limits.memory = MEMORY;
    let began = Instant::now();
    let (channel, _) = vm.start(&spec, &|_, _, _| {}).await?;
    let sandbox = Sandbox::connect(channel).await?;
    let started = began.elapsed();
    run(&sandbox, "true").await?;
    let first = began.elapsed();
    let mut further = Vec::new();
    for _ in 0..COMMANDS {
        let began = Instant::now();
        run(&sandbox, "true").await?;
        further.push(began.elapsed());
    }
    run(&sandbox, "head -c 400M /dev/zero > /dev/shm/used 2>/dev/null; head -c 450M /dev/urandom > file; cat file > /dev/null").await?;
    let memory = qemu_memory();
    let began = Instant::now();
    vm.pause(&spec.session).await?;
    let paused = began.elapsed();
    let began = Instant::now();
    vm.resume(&spec.session).await?;
    run(&sandbox, "true").await?;
    let resumed = began.elapsed();
    vm.destroy(&spec.session).await?;
    Ok(Times { started, first, further, paused, resumed, memory })
}

async fn run(sandbox: &Sandbox, command: &str) -> Result<()> {
    let command = Command {
        program: Program::Shell(command.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(Duration::from_secs(120)),
        live_bytes: 1 << 20,
        stdin: false,
    };
    sandbox.run(command, &mut |_| {}).await.map(drop)
}

/// The time from the start of QEMU until its kernel has booted and ended the machine.
fn plain_start() -> Option<Duration> {
    let kernel = std::fs::read_dir("/boot").ok()?.flatten().map(|entry| entry.path());
    let kernel = kernel.filter(|path| path.to_string_lossy().contains("vmlinuz")).max()?;
    let began = Instant::now();
    let options = "-M q35 -accel tcg -cpu max -m 256 -nodefaults -no-user-config -nographic -no-reboot -nic none -serial null";
    let status = std::process::Command::new("qemu-system-x86_64")
        .args(options.split(' '))
        .arg("-kernel")
        .arg(kernel)
        .args(["-append", "console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.ok().filter(std::process::ExitStatus::success).map(|_| began.elapsed())
}

/// What the only QEMU of this user's machines takes, in bytes.
fn qemu_memory() -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |process: &Path| -> Option<u64> {
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        let status =
            std::fs::read_to_string(process.join("status")).ok().filter(|_| name.starts_with("qemu"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    };
    processes.filter_map(|process| of(&process.path())).max().unwrap_or_default()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
