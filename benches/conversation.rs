//! What a turn costs as the conversation grows: the processor time in user mode of `agent run`, with the programs that it runs.
//!
//! `cargo bench --bench conversation`: in each protocol, and for a long conversation in the chat protocol. Each turn is `true` in a local sandbox, and the endpoint answers at once.

use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHORT: usize = 200;
const LONG: usize = 1_000;

fn main() {
    let each = |from: Duration, to: Duration, turns: usize| {
        to.saturating_sub(from).as_secs_f64() * 1e3 / turns as f64
    };
    for protocol in ["chat", "responses", "messages"] {
        let (start, short) = (user_time(1, protocol), user_time(SHORT, protocol));
        println!("{protocol}, turns 2 to {SHORT}: {:.2} ms each", each(start, short, SHORT - 1));
        if protocol == "chat" {
            let long = user_time(LONG, protocol);
            println!(
                "{protocol}, turns {} to {LONG}: {:.2} ms each",
                SHORT + 1,
                each(short, long, LONG - SHORT)
            );
        }
    }
}

/// The user time of a session of so many turns.
fn user_time(turns: usize, protocol: &str) -> Duration {
    let home = tempfile::tempdir().expect("a directory");
    let mut script = endpoint();
    for turn in 0..turns {
        // Another word each time: identical calls would be taken for a loop.
        script = script.tool_call("run_commands", json!({ "command": format!("true {turn}") }));
    }
    let model = script.text("done").start();
    let before = of_children();
    let done = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["run", "-q", "--sandbox", "local", "--max-turns", "2000", "go"])
        .current_dir(home.path())
        .env("AGENT_HOME", home.path().join("home"))
        .env("AGENT_BASE_URL", model.url())
        .env("AGENT_API_KEY", "key")
        .env("AGENT_MODEL", "model")
        .env("AGENT_PROTOCOL", protocol)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    of_children() - before
}

/// The user time of all processes that this one has waited for, and of those that they have.
fn of_children() -> Duration {
    // SAFETY: all bytes zero are a valid `rusage`, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage), 0);
        usage
    };
    Duration::new(usage.ru_utime.tv_sec as u64, usage.ru_utime.tv_usec as u32 * 1_000)
}
