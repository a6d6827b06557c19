//! Throughput, processor time and memory of `agent batch` on local sandboxes, each figure as a ratio against what a user would do
//! otherwise, in one run.
//!
//! `cargo bench --bench batch` measures all, with names behind `--` only these: `throughput`, `others`, `memory`, `latency`.
//! `MINI_SWE_AGENT=…/bin/mini` has that program do the same tasks; `docs/internals/figures.md` says how to install it.

use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TURNS: usize = 10;
/// Between two looks at the memory of a process, each of which walks through all of it in the kernel.
const LOOK: Duration = Duration::from_millis(250);

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let measured = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    println!("load: {}", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let model = worker(TURNS, Duration::ZERO);
    // The first run of a machine makes what later ones find.
    batch(&model, 4, 4);
    if measured("throughput") {
        throughput(&model);
    }
    if measured("others") {
        others(&model);
    }
    if measured("memory") {
        memory();
    }
    if measured("latency") {
        latency();
    }
}

/// One at a time against 16, and what the agent itself costs.
fn throughput(model: &Endpoint) {
    let one = batch(model, 32, 1);
    let sixteen = batch(model, 96, 16);
    let ratio = each(one.took, 32) / each(sixteen.took, 96);
    println!("{TURNS} turns of `true`, one at a time: {:.1} ms a task", each(one.took, 32));
    println!(
        "16 in parallel: {:.1} ms a task, {ratio:.2} x the throughput; {:.1} ms of the agent's own processor time a task",
        each(sixteen.took, 96),
        each(sixteen.own, 96)
    );
}

/// The same tasks by a process for each, of this agent and of another one.
fn others(model: &Endpoint) {
    let batch = batch(model, 96, 16).took;
    let line = |name: &str, took: Duration, tasks: usize| {
        let ratio = each(took, tasks) / each(batch, 96);
        println!("{name}: {:.1} ms a task; the batch has {ratio:.1} x its throughput", each(took, tasks));
    };
    println!("batch, 16 in parallel: {:.1} ms a task", each(batch, 96));
    let run = format!("{} run -q -C $1 work </dev/null >/dev/null", env!("CARGO_BIN_EXE_agent"));
    line("xargs -P 16 agent run", xargs(model, 96, &run), 96);
    match std::env::var("MINI_SWE_AGENT") {
        Ok(mini) => {
            let run = format!(
                "cd $1 && {mini} -m openai/test-model -t work -y --exit-immediately -o out.json </dev/null >log 2>&1"
            );
            line("xargs -P 16 mini-swe-agent (without a sandbox)", xargs(model, 16, &run), 16);
        }
        Err(_) => println!("mini-swe-agent: not measured, MINI_SWE_AGENT does not name it"),
    }
}

/// With one session, 16 and 200 at once, each with a sandbox.
fn memory() {
    let model = worker(3, Duration::from_millis(700));
    let runs = [1, 16, 200].map(|sessions| (sessions, batch(&model, sessions, sessions)));
    let first = &runs[0].1;
    for (sessions, Run { peak_kib, pss_kib, anonymous_kib, .. }) in &runs {
        let further = (*sessions as f64 - 1.0).max(1.0);
        let a_session = (*peak_kib as f64 - first.peak_kib as f64) / further / 1024.0;
        println!(
            "{sessions} sessions: {:.1} MiB at most ({:.1} MiB PSS, {:.1} MiB of it not the program's file), {a_session:.2} MiB \
             for each further one",
            mib(*peak_kib),
            mib(*pss_kib),
            mib(*anonymous_kib)
        );
    }
}

/// 1,000 tasks at an endpoint that takes half a second, 200 at once.
fn latency() {
    const ANSWER: Duration = Duration::from_millis(500);
    for calls in [0, TURNS] {
        let model = worker(calls, ANSWER);
        let run = batch(&model, 1000, 200);
        let ideal = 1000.0 / 200.0 * (calls as f64 + 1.0) * ANSWER.as_secs_f64();
        println!(
            "1000 tasks of {calls} `true`, 200 at once, 500 ms an answer: {:.2} s, {:.0} % of the ideal; {:.1} ms of the agent's own \
             processor time a task; {:.1} MiB",
            run.took.as_secs_f64(),
            ideal / run.took.as_secs_f64() * 100.0,
            each(run.own, 1000),
            mib(run.peak_kib)
        );
    }
}

fn each(time: Duration, tasks: usize) -> f64 {
    time.as_secs_f64() * 1000.0 / tasks as f64
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// A model that calls `true` so many times and answers. To mini-swe-agent it speaks as that expects.
fn worker(calls: usize, delay: Duration) -> Endpoint {
    let turn = move |body: &Value| -> Script {
        let all = |list: &str| body[list].as_array().into_iter().flatten();
        let done = all("messages").filter(|message| message["role"] == "tool").count();
        let is_mini = all("tools").any(|tool| tool["function"]["name"] == "bash");
        let name = if is_mini { "bash" } else { "run_commands" };
        // Another command each time: the same one again and again would be stopped.
        let call = |command: String| endpoint().tool_call(name, json!({ "command": command }));
        let script = match done < calls {
            true => call(format!("true {done}")),
            false if is_mini => call("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT".to_owned()),
            false => endpoint().text("done"),
        };
        script.delay(delay)
    };
    endpoint().by_rule(turn).start()
}

struct Run {
    took: Duration,
    /// Processor time of the process itself, without that of the processes that it started.
    own: Duration,
    /// The most that was resident.
    peak_kib: u64,
    /// The most that was seen of its proportional share, and of what is not the program's own file.
    pss_kib: u64,
    anonymous_kib: u64,
}

fn agent(home: &Path, model: &Endpoint) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
    command.env("AGENT_HOME", home.join("agent")).env("AGENT_SANDBOX", "local").env("AGENT_API_KEY", "key");
    command.env("AGENT_BASE_URL", model.url()).env("AGENT_MODEL", "test-model").current_dir(home);
    command
}

fn batch(model: &Endpoint, tasks: usize, parallel: usize) -> Run {
    let home = tempfile::tempdir().expect("a directory");
    let line = |i| json!({"id": format!("t{i}"), "prompt": "work", "files": {}}).to_string() + "\n";
    fs::write(home.path().join("tasks.jsonl"), (0..tasks).map(line).collect::<String>()).expect("the tasks");
    let started = Instant::now();
    let child = agent(home.path(), model)
        .args(["batch", "tasks.jsonl", "--out", "out", "-q", "--parallel", &parallel.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .expect("agent starts");
    let (status, run) = wait(child, started);
    assert!(status.success(), "{status}");
    run
}

/// Waits, and looks at the process meanwhile.
fn wait(child: Child, started: Instant) -> (ExitStatus, Run) {
    let pid = child.id() as i32;
    // SAFETY: all zero is a valid value of both structures of integers.
    let (mut ended, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    let has_ended = AtomicBool::new(false);
    let (pss_kib, anonymous_kib) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| most_memory(pid, &has_ended));
        // SAFETY: the pointer is to a live variable. The process stays a zombie, whose times can be read.
        let waited =
            unsafe { libc::waitid(libc::P_PID, pid as u32, &mut ended, libc::WEXITED | libc::WNOWAIT) };
        has_ended.store(true, Ordering::Relaxed);
        assert_eq!(waited, 0, "the child is waited for");
        looks.join().expect("the looks end")
    });
    let took = started.elapsed();
    let own = own_time(pid);
    let mut status = 0;
    // SAFETY: both pointers are to live variables; the child is waited for here alone.
    let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    assert!(waited > 0, "the child is waited for");
    let run = Run { took, own, peak_kib: usage.ru_maxrss as u64, pss_kib, anonymous_kib };
    (ExitStatus::from_raw(status), run)
}

/// The most that is seen of a process's proportional share and of its anonymous memory.
fn most_memory(pid: i32, has_ended: &AtomicBool) -> (u64, u64) {
    let (mut pss, mut anonymous) = (0, 0);
    while !has_ended.load(Ordering::Relaxed) {
        let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        pss = pss.max(field(&memory, "Pss:"));
        anonymous = anonymous.max(field(&memory, "Anonymous:"));
        std::thread::sleep(LOOK);
    }
    (pss, anonymous)
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// User and system time of the process without its children.
fn own_time(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks =
        |index: usize| fields.get(index).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
    // SAFETY: asks for a number.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64((ticks(11) + ticks(12)) as f64 / a_second as f64)
}

/// `seq | xargs -P 16` over a command for a directory, `$1`.
fn xargs(model: &Endpoint, tasks: usize, run: &str) -> Duration {
    let home = tempfile::tempdir().expect("a directory");
    for i in 0..tasks {
        fs::create_dir(home.path().join(format!("t{i}"))).expect("a directory");
    }
    let started = Instant::now();
    let call = format!("seq -f t%g 0 {} | xargs -P 16 -I {{}} sh -c '{run}' sh {{}}", tasks - 1);
    let mut shell = Command::new("sh");
    let variables = agent(home.path(), model);
    shell.envs(variables.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("OPENAI_API_KEY", "key").env("OPENAI_API_BASE", model.url());
    shell.env("MSWEA_CONFIGURED", "true").env("MSWEA_COST_TRACKING", "ignore_errors");
    shell.env("MSWEA_SILENT_STARTUP", "1").env("MSWEA_GLOBAL_CONFIG_DIR", home.path());
    let status = shell.args(["-c", &call]).current_dir(home.path()).status().expect("xargs runs");
    assert!(status.success(), "{status}");
    started.elapsed()
}
