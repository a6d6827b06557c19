//! `run_code` side by side with what its users would do without it: a Jupyter kernel, the interpreter and the compiler
//! themselves. Everything in the local sandbox but the kernel, which runs on the machine.
//!
//! The kernel needs a package index that `pip` reaches; without one it is left out.

use agent::sandbox::local::Local;
use agent::sandbox::machine::Machine;
use agent::sandbox::{Backend, Command, Network, Outcome, Program, Sandbox, Spec, WorkspaceMount};
use agent::tools::code::{Ended, Language, Libraries, Ran, Request, Runner};
use divan::Bencher;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
    RUNTIME.block_on(SANDBOX.shutdown());
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

static LOCAL: LazyLock<Local> = LazyLock::new(|| Local::new(Arc::new(Machine::of_this_process())));

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let spec = Spec {
        session: format!("bench-code-{}", std::process::id()),
        image: None,
        limits: agent::event::Limits::default(),
        network: Network::None,
        runtime: None,
        idle_ttl: Duration::from_secs(20),
        ephemeral: true,
        delete_after: None,
        workspace: WorkspaceMount::Empty,
    };
    RUNTIME.block_on(async {
        let (channel, _) = LOCAL.start(&spec, &|_, _, _| {}).await.expect("a sandbox");
        Sandbox::connect(channel).await.expect("the guest answers")
    })
});

fn request(language: Language, code: &str) -> Request {
    Request {
        language,
        code: code.to_owned(),
        libraries: Libraries::parse(language, &[]).expect("no libraries"),
        timeout: Duration::from_secs(120),
        reset: false,
        display: String::new(),
        env: Vec::new(),
    }
}

fn run(runner: &Runner, request: &Request) {
    let ran = RUNTIME.block_on(runner.run(&SANDBOX, &(), request, &mut |_| {})).expect("the sandbox answers");
    let is_done = match ran {
        Ran::Cell(cell) => matches!(cell.ended, Ended::Answered { answer, .. } if answer.exit_code == 0),
        Ran::Snippet(ran) => ran.finished.outcome == Outcome::Exited(0),
    };
    assert!(is_done, "the code runs");
}

fn shell(text: &str) {
    let command = Command {
        program: Program::Shell(text.to_owned()),
        cwd: Some("/tmp".into()),
        env: Vec::new(),
        timeout: Some(Duration::from_secs(120)),
        live_bytes: 1 << 10,
        stdin: false,
    };
    let finished = RUNTIME.block_on(SANDBOX.run(command, &mut |_| {})).expect("the sandbox answers");
    assert_eq!(finished.outcome, Outcome::Exited(0), "{text}");
}

/// A Python cell of `1+1` in an interpreter that is running, and in a kernel that is.
#[divan::bench_group(sample_count = 200)]
mod warm_python_cell {
    use super::*;

    #[divan::bench]
    fn run_code(bencher: Bencher) {
        let (runner, cell) = (Runner::new(None), request(Language::Python, "1+1"));
        run(&runner, &cell);
        bencher.bench_local(|| run(&runner, &cell));
    }

    #[divan::bench]
    fn ipykernel(bencher: Bencher) {
        let Some(kernel) = &*KERNEL else { return };
        bencher.bench_local(|| kernel.lock().expect("a lock").run());
    }
}

/// The first cell of an interpreter, and the interpreter itself.
#[divan::bench_group(sample_count = 20)]
mod first_python_cell {
    use super::*;

    #[divan::bench]
    fn run_code(bencher: Bencher) {
        let cell = request(Language::Python, "1+1");
        // What the sandbox has is asked once a session.
        let runner = || {
            let runner = Runner::new(None);
            RUNTIME.block_on(runner.toolchains(&SANDBOX)).expect("the sandbox answers");
            runner
        };
        bencher.with_inputs(runner).bench_local_refs(|runner| run(runner, &cell));
    }

    #[divan::bench]
    fn python3_c(bencher: Bencher) {
        bencher.bench_local(|| shell("python3 -c 1+1"));
    }
}

const CPP: &str =
    "#include <iostream>\n#include <map>\n#include <algorithm>\nint main() { std::cout << \"hello\\n\"; }\n";

fn numbered(code: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{code}// {}\n", NEXT.fetch_add(1, Relaxed))
}

/// A C++ program that was not compiled before (its headers were), the same one again, and the compiler itself.
#[divan::bench_group(sample_count = 5)]
mod cpp {
    use super::*;

    fn warm() -> Runner {
        let runner = Runner::new(None);
        run(&runner, &request(Language::Cpp, &numbered(CPP)));
        shell("while ! ls /home/agent/.cache/agent/code/cpp/headers-*/std.h.gch; do sleep 0.2; done");
        runner
    }

    #[divan::bench]
    fn first(bencher: Bencher) {
        let runner = warm();
        bencher
            .with_inputs(|| request(Language::Cpp, &numbered(CPP)))
            .bench_local_refs(|program| run(&runner, program));
    }

    #[divan::bench]
    fn second(bencher: Bencher) {
        let (runner, program) = (warm(), request(Language::Cpp, CPP));
        run(&runner, &program);
        bencher.bench_local(|| run(&runner, &program));
    }

    #[divan::bench]
    fn compiler(bencher: Bencher) {
        let command = format!("cat > a.cpp <<'END'\n{CPP}END\ng++ -O0 a.cpp && ./a.out");
        bencher.bench_local(|| shell(&command));
    }
}

/// A Java program that was not compiled before, and the same one again.
#[divan::bench_group(sample_count = 5)]
mod java {
    use super::*;

    const JAVA: &str =
        "public class Hello { public static void main(String[] a) { System.out.println(\"hello\"); } }\n";

    #[divan::bench]
    fn first(bencher: Bencher) {
        let runner = Runner::new(None);
        bencher
            .with_inputs(|| request(Language::Java, &numbered(JAVA)))
            .bench_local_refs(|program| run(&runner, program));
    }

    #[divan::bench]
    fn second(bencher: Bencher) {
        let (runner, program) = (Runner::new(None), request(Language::Java, JAVA));
        run(&runner, &program);
        bencher.bench_local(|| run(&runner, &program));
    }
}

/// A kernel in a virtual environment of its own, driven by a client that runs one cell for each line that it reads.
struct Kernel {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _directory: tempfile::TempDir,
}

const CLIENT: &str = "
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
import sys
print('ready', flush=True)
for _ in sys.stdin:
    request = client.execute('1+1')
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message['parent_header'].get('msg_id') == request and message['msg_type'] == 'status' \\
                and message['content']['execution_state'] == 'idle':
            break
    print('done', flush=True)
manager.shutdown_kernel(now=True)
";

static KERNEL: LazyLock<Option<Mutex<Kernel>>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let python = directory.path().join("bin/python3");
    let succeeds = |program: &mut std::process::Command| {
        program.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let is_there = succeeds(std::process::Command::new("python3").args(["-m", "venv"]).arg(directory.path()))
        && succeeds(std::process::Command::new(&python).args(["-m", "pip", "install", "-q", "ipykernel"]));
    if !is_there {
        eprintln!("ipykernel cannot be installed: it is left out");
        return None;
    }
    let mut child = std::process::Command::new(&python)
        .args(["-c", CLIENT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let (requests, answers) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
    let mut kernel = Kernel { requests, answers, _directory: directory };
    kernel.wait("ready");
    Some(Mutex::new(kernel))
});

impl Kernel {
    fn run(&mut self) {
        self.requests.write_all(b"\n").expect("the client reads");
        self.wait("done");
    }

    fn wait(&mut self, expected: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the client answers");
        assert_eq!(line.trim(), expected);
    }
}
