//! Memory, processes, time and output: what is taken is bounded, and what happened is said.

use agent::sandbox::{Command, Outcome};
use agent_testbed::agent::agent;
use agent_testbed::backends::{on_every_backend, on_every_backend_with, program_on_every_backend, shell};
use agent_testing::endpoint::endpoint;
use agent_testing::skip::left_out;
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test]
async fn attack_10_a_fork_bomb_ends_with_its_command() {
    on_every_backend_with(
        |spec| spec.limits.pids = 100,
        async |inside| {
            let bomb = Command { timeout: Some(Duration::from_secs(3)), ..shell("f() { f | f & f; }; f") };
            let ran = inside.run(bomb).await;
            assert_ne!(ran.outcome(), Outcome::Exited(0), "on {}: {}", inside.backend, ran.text());
            assert!(
                ran.text().contains("Resource temporarily unavailable"),
                "on {}: {}",
                inside.backend,
                ran.text()
            );
            assert_eq!(inside.output_of("echo still here").await, "still here");
        },
    )
    .await;
}

/// A bug: what a bomb had been counted for a moment longer, and the next command could not fork.
#[tokio::test]
async fn attack_10_the_command_after_a_fork_bomb_can_fork() {
    on_every_backend_with(
        |spec| spec.limits.pids = 100,
        async |inside| {
            for _ in 0..4 {
                let bomb =
                    Command { timeout: Some(Duration::from_millis(500)), ..shell("f() { f | f & f; }; f") };
                inside.run(bomb).await;
                let forks = "for i in $(seq 40); do sleep 0.2 & done; wait; echo $(true) done";
                assert_eq!(inside.output_of(forks).await, "done", "on {}", inside.backend);
            }
        },
    )
    .await;
}

/// A bomb whose command ends at once leaves its splinters behind: they must not keep the next command from starting.
#[tokio::test]
async fn attack_10_what_a_fork_bomb_leaves_behind_gives_way() {
    on_every_backend_with(
        |spec| spec.limits.pids = 60,
        async |inside| {
            let ran = inside.sh("for i in $(seq 200); do setsid sleep 1000 & done 2>/dev/null; exit 0").await;
            assert!(ran.finished.left_running > 20, "on {}: {ran:?}", inside.backend);
            let error = inside.sandbox.run(shell("true"), &mut |_| {}).await.expect_err("no process is left");
            assert!(error.to_string().contains("earlier commands left too many running"), "{error}");
            let deadline = Instant::now() + Duration::from_secs(60);
            // The kernel counts a process for a moment longer than it lives, and those of other sandboxes of the same user.
            let runs = async || {
                let ran = inside.sandbox.run(shell("ls /"), &mut |_| {}).await;
                ran.is_ok_and(|ran| ran.outcome == Outcome::Exited(0))
            };
            while !runs().await {
                assert!(Instant::now() < deadline, "on {}: they do not give way", inside.backend);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        },
    )
    .await;
}

#[tokio::test]
async fn attack_10_a_memory_bomb_is_told_as_one() {
    on_every_backend_with(
        |spec| spec.limits.memory = 256 << 20,
        async |inside| {
            let bomb =
                "exec /usr/bin/python3 -c 'x = bytearray(600 << 20); x[::4096] = b\"x\" * len(x[::4096])'";
            let outcome = inside.sh(bomb).await.outcome();
            match inside.has_memory_group() {
                true => assert_eq!(outcome, Outcome::OomKilled, "on {}", inside.backend),
                // Each process has a limit of its own there, and gets MemoryError.
                false => assert_eq!(outcome, Outcome::Exited(1)),
            }
            assert_eq!(inside.output_of("echo still here").await, "still here");
        },
    )
    .await;
}

#[tokio::test]
async fn attack_10_memory_that_looks_like_files_is_bounded_too() {
    on_every_backend_with(
        |spec| spec.limits.memory = 256 << 20,
        async |inside| {
            // The others are on the node's disk: `attack_11_every_directory_of_a_pod_counts`.
            let is_pod = inside.backend == "kubernetes";
            let places = if is_pod { &["/dev/shm"][..] } else { &["/tmp", "/dev/shm", "/run"] };
            for place in places {
                let ran = inside.sh(&format!("head -c 1G /dev/zero > {place}/big")).await;
                let ended = matches!(ran.outcome(), Outcome::Exited(1) | Outcome::OomKilled);
                assert!(ended, "{place} on {}: {ran:?}", inside.backend);
                let kept = inside.output_of(&format!("stat -c %s {place}/big; rm {place}/big")).await;
                assert!(
                    kept.parse::<u64>().expect("a size") <= 128 << 20,
                    "{place} on {}: {kept}",
                    inside.backend
                );
            }
            // Full file systems in memory leave room for commands.
            inside
                .sh(&format!("for d in {}; do head -c 1G /dev/zero > $d/big; done", places.join(" ")))
                .await;
            assert_eq!(inside.output_of("echo still here").await, "still here");
        },
    )
    .await;
}

/// Segments of System V's shared memory belong to no process, so no limit of a process holds for them.
#[tokio::test]
async fn attack_10_shared_memory_without_a_file_is_bounded_too() {
    on_every_backend_with(
        |spec| spec.limits.memory = 256 << 20,
        async |inside| {
            // What is counted is what there is at the end: where a segment ends with the last process that has it, nothing is.
            let take = |letting_go: &str| format!(
                "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nc.shmat.restype = ctypes.c_void_p\n\
                 for n in range(100):\n\
                \x20   id = c.shmget(0, 16 << 20, 0o1600)\n\
                \x20   at = c.shmat(id, None, 0) if id >= 0 else None\n\
                \x20   if id < 0 or at in (None, 2**64 - 1): break\n\
                \x20   ctypes.memset(at, 1, 16 << 20); {letting_go}\n\
                 print(sum(int(line.split()[3]) for line in open(\"/proc/sysvipc/shm\").readlines()[1:]) >> 20)"
            );
            for letting_go in ["c.shmdt(ctypes.c_void_p(at))", "pass"] {
                let ran = inside.sh(&format!("exec /usr/bin/python3 -c '{}'", take(letting_go))).await;
                if !inside.has_memory_group() {
                    left_out("not held on local without a memory control group: shared memory is nobody's");
                    return;
                }
                let bounded = match ran.outcome() {
                    Outcome::Exited(0) => ran.text().parse::<u32>().expect("megabytes") <= 256,
                    outcome => outcome == Outcome::OomKilled,
                };
                assert!(bounded, "{letting_go} on {}: {ran:?}", inside.backend);
                if inside.backend != "kubernetes" {
                    // What was taken fills the rest of the sandbox's life.
                    return;
                }
                assert_eq!(inside.output_of("echo still here").await, "still here");
            }
        },
    )
    .await;
}

/// What fills sockets, and says how much they took. TCP connections hold what was sent and not read, UDP sockets what has
/// arrived.
const FILL_SOCKETS: [(&str, &str); 2] = [
    (
        "TCP",
        "import socket\nserver = socket.create_server((\"127.0.0.1\", 0), backlog=200)\nheld, taken = [], 0\n\
         for n in range(95):\n\
        \x20   one = socket.create_connection(server.getsockname()); held += [one, server.accept()[0]]\n\
        \x20   one.setblocking(False)\n\
        \x20   try:\n\
        \x20       while True: taken += one.send(bytes(1 << 20))\n\
        \x20   except BlockingIOError: pass\n\
         print(taken >> 20)",
    ),
    (
        "UDP",
        "import socket\nheld, taken = [], 0\nsend = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); send.setblocking(False)\n\
         for n in range(500):\n\
        \x20   one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind((\"127.0.0.1\", 0)); held.append(one)\n\
        \x20   one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20); one.setblocking(False)\n\
        \x20   for i in range(40):\n\
        \x20       try: send.sendto(bytes(60000), one.getsockname())\n\
        \x20       except OSError: pass\n\
         for one in held:\n\
        \x20   try:\n\
        \x20       while True: taken += len(one.recv(70000))\n\
        \x20   except OSError: pass\n\
         print(taken >> 20)",
    ),
];

/// Version 1 of the control groups does not count what sockets hold back as memory, unless it is asked to; version 2 does.
#[tokio::test]
async fn attack_32_the_buffers_of_sockets_are_bounded_too() {
    on_every_backend_with(
        |spec| spec.limits.memory = 256 << 20,
        async |inside| {
            if !inside.has_memory_group() {
                left_out("not held on local without a memory control group");
                return;
            }
            for (kind, fill) in FILL_SOCKETS {
                let ran = inside.sh(&format!("exec /usr/bin/python3 -c '{fill}'")).await;
                match ran.outcome() {
                    Outcome::Exited(0) => {
                        let megabytes = ran.text().parse::<u32>().expect("megabytes");
                        let backend = inside.backend;
                        assert!(
                            megabytes <= 128,
                            "{megabytes} MiB in {kind} sockets of a sandbox of 256 MiB on {backend}"
                        );
                    }
                    outcome => assert_eq!(outcome, Outcome::OomKilled, "{}", ran.text()),
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn attack_10_spinning_leaves_the_host_its_processors() {
    on_every_backend_with(
        |spec| spec.limits.cpus = 0.5,
        async |inside| {
            let spin = "import os, time\nfor n in range(8):\n\
                \x20   if os.fork() == 0:\n\
                \x20       while True: pass\n\
                 time.sleep(3)\nimport signal\nos.killpg(0, 0)\n\
                 t = sum(float(x) for p in os.listdir(\"/proc\") if p.isdigit() and p != \"1\" for x in open(f\"/proc/{p}/stat\").read().rsplit(\")\", 1)[1].split()[11:13])\n\
                 print(t / os.sysconf(\"SC_CLK_TCK\"), flush=True)\nos.killpg(0, 9)";
            let started = Instant::now();
            let ran = inside.run(Command { timeout: Some(Duration::from_secs(30)), ..shell(&format!("exec /usr/bin/python3 -c '{spin}'")) }).await;
            let weak = agent::sandbox::local::checks().weaknesses.iter().any(|weakness| weakness.contains("processor"));
            if inside.backend == "local" && weak {
                left_out("not held on local: processor time is not limited without a cpu control group");
                return;
            }
            let used: f64 = ran.text().lines().next().and_then(|line| line.parse().ok()).expect("seconds");
            assert!(used < 0.75 * started.elapsed().as_secs_f64() + 0.5, "{used} s on {}", inside.backend);
        },
    )
    .await;
}

/// Through the whole program: its memory stays where it was, and the model gets a note of what is missing.
#[test]
fn attack_12_a_flood_on_both_streams_costs_no_memory() {
    program_on_every_backend(|backend| {
        let flood = json!({ "command": "yes out & yes err >&2 & wait", "timeout_s": 6 });
        let model = endpoint().tool_call("run_commands", flood).text("done").start();
        let running = agent().endpoint(&model).sandbox(backend).args(["run", "flood"]).start();
        let status = format!("/proc/{}/status", running.pid());
        let mut peak_kb = 0;
        while let Ok(status) = std::fs::read_to_string(&status) {
            let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let Some(field) = field else { break };
            peak_kb = peak_kb.max(field.trim().trim_end_matches(" kB").parse::<u64>().expect("kB"));
            std::thread::sleep(Duration::from_millis(50));
        }
        running.wait().expect_code(0);
        let result = model.requests()[1].messages().pop().expect("a result")["content"].to_string();
        assert!(result.contains("Timed out after 6 s") && result.contains("[output shortened: "), "{result}");
        assert!(result.len() < 100_000, "{}", result.len());
        assert!(peak_kb > 0 && peak_kb < 150_000, "{peak_kb} kB on {backend}");
    });
}

#[tokio::test]
async fn attack_13_nothing_outlives_its_time_limit() {
    on_every_backend(async |inside| {
        let stubborn = "trap '' TERM HUP INT\n\
             (trap '' TERM; setsid sh -c \"trap '' TERM; sleep 4321\" & sleep 4321) &\n\
             /usr/bin/python3 -c 'import os, signal, time\nfor n in range(20):\n\
            \x20   if os.fork() == 0:\n\
            \x20       os.setsid()\n\
            \x20       if os.fork(): os._exit(0)\n\
            \x20       signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
            \x20       time.sleep(4321)\n' &\n\
             sh -c 'kill -STOP $$' &\n\
             sleep 4321 & wait; sleep 4321";
        let command = Command { timeout: Some(Duration::from_millis(500)), ..shell(stubborn) };
        let started = Instant::now();
        let ran = inside.run(command).await;
        assert_eq!((ran.outcome(), ran.finished.left_running), (Outcome::TimedOut, 0), "on {}", inside.backend);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        // This command's own shell, and what it counts with.
        let left = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^432[1]$\\|STOP \\$\\$' || true";
        assert_eq!(inside.output_of(left).await, "0", "on {}", inside.backend);
    })
    .await;
}

/// A bug: an answer of begun code blocks held a processor for minutes, and meanwhile no limit and no signal did anything.
#[test]
fn attack_37_a_huge_answer_is_under_the_limits_and_the_signals() {
    let answer = format!("{} ", "```x\n{\n".repeat(1000)).repeat(500);
    let whole = || endpoint().text(&answer);
    let unfinished = || whole().stall(Duration::from_secs(300));
    for (script, limit, signal, code) in [
        (whole(), "10m", None, 0),
        (unfinished(), "2s", None, 5),
        (unfinished(), "10m", Some(libc::SIGTERM), 143),
        (unfinished(), "10m", Some(libc::SIGINT), 130),
    ] {
        let model = script.start();
        let call = agent().endpoint(&model).sandbox("local").args(["run", "--max-time", limit, "go"]);
        let running = call.start();
        while model.requests().is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let asked = Instant::now();
        if let Some(signal) = signal {
            running.signal(signal);
        }
        running.wait().expect_code(code);
        assert!(asked.elapsed() < Duration::from_secs(30), "exit code {code} after {:?}", asked.elapsed());
    }
}

/// A bug: empty files on a file system in memory took what no limit of an ordinary user's sandbox counts.
#[tokio::test]
async fn attack_38_empty_files_in_memory_are_bounded() {
    on_every_backend_with(
        |spec| spec.limits.memory = 256 << 20,
        async |inside| {
            if inside.backend != "local" {
                left_out(format!("not tried on {}: a control group counts them", inside.backend));
                return;
            }
            let fill = "import os\ntotal = 0\nfor d in (\"/tmp\", \"/run\", \"/dev/shm\"):\n\
                 \x20   try:\n\
                 \x20       for n in range(100000): os.close(os.open(f\"{d}/{n}\", os.O_CREAT)); total += 1\n\
                 \x20   except OSError: pass\n\
                 print(total)";
            let made: u64 = inside.python(fill).await.parse().expect("a number");
            assert!((1000..(256 << 20) / 4096).contains(&made), "{made} files on {}", inside.backend);
        },
    )
    .await;
}
