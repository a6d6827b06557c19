//! Throughput and memory of `agent batch` on local sandboxes, each figure as a ratio against what a user would do otherwise.
//!
//! `cargo bench --bench batch`: a scripted endpoint without latency, tasks of ten turns of `true`; then an endpoint that takes
//! half a second.

use endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[path = "../tests/support/endpoint.rs"]
#[allow(dead_code)] // the bench needs little of it
mod endpoint;

const TURNS: usize = 10;

fn main() {
    let model = worker();
    // The first run of a machine makes what later ones find.
    batch(&model, 4, 4);
    let one = batch(&model, 32, 1);
    let sixteen = batch(&model, 96, 16);
    let each = |run: &Run, tasks: f64| run.took.as_secs_f64() * 1000.0 / tasks;
    println!("one at a time: {:.1} ms a task", each(&one, 32.0));
    let ratio = each(&one, 32.0) / each(&sixteen, 96.0);
    println!("16 in parallel: {:.1} ms a task, {ratio:.2} x the throughput", each(&sixteen, 96.0));
    let separate = xargs(&model, 96, 16);
    let ratio = separate.as_secs_f64() / sixteen.took.as_secs_f64();
    println!(
        "xargs -P 16 agent run: {:.1} ms a task; the batch has {ratio:.2} x its throughput",
        separate.as_secs_f64() * 1000.0 / 96.0
    );
    let many = batch(&model, 128, 64);
    let a_session = (many.peak_kib as f64 - one.peak_kib as f64) / 63.0 / 1024.0;
    println!(
        "memory: {:.1} MiB with one session, {a_session:.2} MiB for each further one (64 at once)",
        one.peak_kib as f64 / 1024.0
    );
    let slow = endpoint().by_rule(|_| endpoint().text("done").delay(Duration::from_millis(500))).start();
    let waiting = batch(&slow, 1000, 200);
    let ideal = 1000.0 / 200.0 * 0.5;
    println!(
        "1000 tasks, 200 at once, 500 ms an answer: {:.2} s, {:.0} % of the ideal; {:.1} MiB",
        waiting.took.as_secs_f64(),
        ideal / waiting.took.as_secs_f64() * 100.0,
        waiting.peak_kib as f64 / 1024.0
    );
}

/// A model that calls `true` ten times and answers.
fn worker() -> Endpoint {
    let turn = |body: &Value| -> Script {
        let results =
            body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "tool");
        match results.count() {
            // Another command each time: the same one again and again would be stopped.
            done if done < TURNS => {
                endpoint().tool_call("run_commands", json!({ "command": format!("true {done}") }))
            }
            _ => endpoint().text("done"),
        }
    };
    endpoint().by_rule(turn).start()
}

struct Run {
    took: Duration,
    peak_kib: u64,
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
    let (status, peak_kib) = wait(child);
    assert!(status.success(), "{status}");
    Run { took: started.elapsed(), peak_kib }
}

/// Waits, and reports the most memory that the process itself had.
fn wait(child: Child) -> (ExitStatus, u64) {
    // SAFETY: all zero is a valid value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both pointers are to live variables; the child is waited for here alone.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert!(waited > 0, "the child is waited for");
    (ExitStatus::from_raw(status), usage.ru_maxrss as u64)
}

fn xargs(model: &Endpoint, tasks: usize, parallel: usize) -> Duration {
    let home = tempfile::tempdir().expect("a directory");
    for i in 0..tasks {
        fs::create_dir(home.path().join(format!("t{i}"))).expect("a directory");
    }
    let started = Instant::now();
    let one = format!("{} run -q -C {{}} work </dev/null >/dev/null", env!("CARGO_BIN_EXE_agent"));
    let call = format!("seq -f t%g 0 {} | xargs -P {parallel} -I {{}} sh -c '{one}'", tasks - 1);
    let mut shell = Command::new("sh");
    let variables = agent(home.path(), model);
    shell.envs(variables.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let status = shell.args(["-c", &call]).current_dir(home.path()).status().expect("xargs runs");
    assert!(status.success(), "{status}");
    started.elapsed()
}
