//! The guest, attacked by what it runs. How the host holds against a guest that has been taken over is in
//! `hostile_guest.rs`: whatever it says, the connection ends, and what waited is `Lost`.

use agent::sandbox::Outcome;
use agent_testbed::backends::on_every_backend;
use agent_testing::skip::left_out;

#[tokio::test]
async fn attack_08_the_guest_is_not_killed_stopped_or_spoken_for() {
    on_every_backend(async |inside| {
        for signal in ["KILL", "STOP", "TERM", "INT", "HUP", "SEGV", "USR1", "XFSZ", "SYS"] {
            inside.sh(&format!("kill -{signal} 1")).await;
            assert_eq!(inside.output_of("echo here").await, "here", "after SIG{signal} on {}", inside.backend);
        }
        if inside.is_gvisor() {
            left_out("not held on gVisor before 2023: a process of the same user opens the guest's descriptors");
            return;
        }
        // Its memory and its descriptors, standard input and output among them.
        let reach = "import glob, os\nreached = 0\n\
             for place in [\"/proc/1/mem\"] + [f\"/proc/1/fd/{n}\" for n in range(64)] + glob.glob(\"/proc/1/task/*/mem\"):\n\
            \x20   for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):\n\
            \x20       try: os.open(place, flags | os.O_NONBLOCK); reached += 1\n\
            \x20       except OSError: pass\n\
             print(reached)";
        assert_eq!(inside.python(reach).await, "0", "on {}", inside.backend);
        // The watcher above the command, likewise.
        let reach = reach.replace("/proc/1/", "/proc/%d/").replace("f\"/proc/%d/fd/{n}\"", "f\"/proc/{os.getppid()}/fd/{n}\"");
        let reach = reach.replace("\"/proc/%d/mem\"", "f\"/proc/{os.getppid()}/mem\"").replace("glob.glob(\"/proc/%d/task/*/mem\")", "[]");
        assert_eq!(inside.python(&reach).await, "0", "on {}", inside.backend);
    })
    .await;
}

#[tokio::test]
async fn attack_08_its_limits_are_nobody_elses_to_set() {
    on_every_backend(async |inside| {
        let lower = "import os, resource as r\nset = []\n\
             for victim in (1, os.getppid()):\n\
             \x20   for limit in (r.RLIMIT_NOFILE, r.RLIMIT_FSIZE):\n\
             \x20       try: r.prlimit(victim, limit, (3, 3)); set.append(victim)\n\
             \x20       except PermissionError: pass\n\
             print(set)";
        assert_eq!(inside.python(lower).await, "[]", "on {}", inside.backend);
        assert_eq!(
            inside.output_of("ulimit -n 64 && ulimit -n").await,
            "64",
            "one's own, on {}",
            inside.backend
        );
    })
    .await;
}

/// Calls that would leave the guest too little time to enforce the disk quota and time limits: number and arguments.
const SLOWING: [(&str, libc::c_long, &str); 8] = [
    ("SCHED_IDLE", libc::SYS_sched_setscheduler, "1, 5, bytes(8)"),
    ("scheduling parameters", libc::SYS_sched_setparam, "1, bytes(8)"),
    ("scheduling attributes", libc::SYS_sched_setattr, "1, bytes([48] + [0] * 47), 0"),
    ("a single processor", libc::SYS_sched_setaffinity, "1, 8, bytes([1] + [0] * 7)"),
    ("nice 19", libc::SYS_setpriority, "0, 1, 19"),
    ("nice 19 for the group", libc::SYS_setpriority, "1, 1, 19"),
    ("nice 19 for all of the user", libc::SYS_setpriority, "2, 0, 19"),
    ("idle input and output", libc::SYS_ioprio_set, "1, 1, 3 << 13"),
];

#[tokio::test]
async fn attack_36_the_guest_is_not_slowed_down() {
    on_every_backend(async |inside| {
        for (name, number, arguments) in SLOWING {
            let code = format!(
                "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n\
                 print(ctypes.get_errno() if c.syscall({number}, {arguments}) < 0 else 0)"
            );
            let refused = libc::EPERM.to_string();
            assert_eq!(inside.python(&code).await, refused, "{name} on {}", inside.backend);
        }
        // One's own may be changed.
        inside.output_of("renice -n 19 -p $$ && taskset -p 1 $$ && nice -n 3 true").await;
        // gVisor has no priorities of input and output.
        if !inside.is_gvisor() {
            inside.output_of("ionice -c 3 -p $$").await;
        }
    })
    .await;
}

#[tokio::test]
async fn attack_08_its_socket_lets_nobody_in() {
    on_every_backend(async |inside| {
        // Every Unix socket that can be seen from inside, and the name that is known from the source.
        let forge = "import socket, struct\nanswers = []\n\
             names = [line.split()[-1] for line in open(\"/proc/net/unix\").read().splitlines()[1:] if len(line.split()) > 7]\n\
             for name in set(names + [\"@agent-guest\"]):\n\
            \x20   s = socket.socket(socket.AF_UNIX); s.settimeout(2)\n\
            \x20   try:\n\
            \x20       s.connect(name.replace(\"@\", chr(0), 1))\n\
            \x20       hello = bytes([0]) + b\"agnt\" + struct.pack(\"<H\", 1)\n\
            \x20       s.sendall(struct.pack(\"<II\", len(hello), 0) + hello)\n\
            \x20       answers.append(s.recv(100))\n\
            \x20   except OSError: pass\n\
             print([answer for answer in answers if answer])";
        assert_eq!(inside.python(forge).await, "[]", "on {}", inside.backend);
        assert_eq!(inside.output_of("echo still here").await, "still here");
    })
    .await;
}

#[tokio::test]
async fn attack_08_a_killed_watcher_is_no_success_and_reaches_no_other_session() {
    on_every_backend(async |inside| {
        let other = inside.neighbour().await;
        let ran = inside.sh("(setsid sleep 1000 &); kill -9 $PPID; kill -9 -1; sleep 1000").await;
        assert_eq!(ran.outcome(), Outcome::Lost, "on {}", inside.backend);
        assert_eq!(other.output_of("echo untouched").await, "untouched");
        // Ends by its time limit where one is left.
        inside
            .output_of(
                "while cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 100[0]'; do sleep 0.05; done",
            )
            .await;
        other.destroy().await;
    })
    .await;
}
