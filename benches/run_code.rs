//! `run_code` side by side with what its users would do without it: a Jupyter kernel, the interpreter and the compiler
//! themselves. Everything in the local sandbox but the kernel, which runs on the machine.
//!
//! The kernel and llm-sandbox need a package index that `pip` reaches, and llm-sandbox a Docker engine with the image that
//! AGENT_BENCH_IMAGE names, in which `python` is; what is missing is left out.

use agent::event::Events;
use agent::log::{ArtifactLimits, Artifacts};
use agent::machine::Machine;
use agent::sandbox::docker::Docker;
use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Command, Outcome, Output, Program, Sandbox, Spec};
use agent::tools::code::{Ended, Language, Libraries, Ran, Request, RunCode, Runner};
use agent::tools::{Bounds, Context, Tool};
use divan::Bencher;
use serde_json::json;
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

static MACHINE: LazyLock<Arc<Machine>> = LazyLock::new(|| Arc::new(Machine::of_this_process()));

static LOCAL: LazyLock<Local> = LazyLock::new(|| Local::new(Arc::clone(&MACHINE)));

fn spec(image: Option<&str>) -> Spec {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Spec {
        image: image.map(str::to_owned),
        idle_ttl: Duration::from_secs(20),
        ..Spec::new(format!("bench-code-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)))
    }
}

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    RUNTIME.block_on(async {
        let (channel, _) = LOCAL.start(&spec(None), &|_, _, _| {}).await.expect("a sandbox");
        Sandbox::connect(channel).await.expect("the guest answers")
    })
});

/// The tool as the turn loop calls it, with a directory for pictures, and the search for what was put there.
struct Called {
    tool: RunCode,
    events: Events,
    store: tempfile::TempDir,
}

impl Called {
    /// A tool that knows already what the sandbox has.
    fn new() -> Self {
        let store = tempfile::tempdir().expect("a directory");
        let called = Self { tool: RunCode::new(None, None), events: Events::new(1), store };
        called.run("bash", "true");
        called
    }

    fn run(&self, language: &str, code: &str) {
        let artifacts = Artifacts::of_session(self.store.path(), ArtifactLimits::default());
        let context = Context {
            sandbox: &SANDBOX,
            events: &self.events,
            artifacts: &artifacts,
            call: "call",
            reach: &(),
            bounds: Bounds::default(),
        };
        let arguments = json!({ "language": language, "code": code });
        let called = (&self.tool as &dyn Tool).call(context, arguments);
        assert!(RUNTIME.block_on(called).expect("the sandbox answers").ok, "the code runs");
    }
}

fn request(language: Language, code: &str) -> Request {
    Request {
        language,
        code: code.to_owned(),
        libraries: Libraries::parse(language, &[]).expect("no libraries"),
        timeout: Duration::from_secs(120),
        reset: false,
        display: String::new(),
        env: Vec::new(),
        is_notebook: false,
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
    fn tool(bencher: Bencher) {
        let called = Called::new();
        called.run("python", "1+1");
        bencher.bench_local(|| called.run("python", "1+1"));
    }

    #[divan::bench]
    fn ipykernel(bencher: Bencher) {
        let Some(kernel) = &*KERNEL else { return };
        bencher.bench_local(|| kernel.lock().expect("a lock").run("1+1"));
    }
}

/// The first cell of an interpreter, and the interpreter itself.
#[divan::bench_group(sample_count = 40)]
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
    fn tool(bencher: Bencher) {
        bencher.with_inputs(Called::new).bench_local_refs(|called| called.run("python", "1+1"));
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

/// Four small tasks and what they print.
const CLASSICS: [(&str, &str); 4] = [
    (
        "import random\nrandom.seed(1)\nprint(4 * sum(random.random() ** 2 + random.random() ** 2 <= 1 for _ in range(100_000)) / 100_000)",
        "3.1",
    ),
    ("import math\nprint(math.factorial(20))", "2432902008176640000"),
    ("a, b = 0, 1\nfor _ in range(20): a, b = b, a + b\nprint(a)", "6765"),
    ("print(sum(range(1, 10_001)))", "50005000"),
];

/// The four tasks in containers of one engine, from the same image: with the container's start and removal, and in one that
/// runs.
#[divan::bench_group(sample_count = 5)]
mod four_classics {
    use super::*;

    fn classics(runner: &Runner, sandbox: &Sandbox) {
        for (code, expected) in CLASSICS {
            let (cell, mut printed) = (request(Language::Python, code), Vec::new());
            let mut on_output = |output: Output<'_>| {
                if let Output::Data(_, bytes) = output {
                    printed.extend_from_slice(bytes);
                }
            };
            let ran = RUNTIME.block_on(runner.run(sandbox, &(), &cell, &mut on_output));
            ran.expect("the sandbox answers");
            assert!(String::from_utf8_lossy(&printed).starts_with(expected), "{code}");
        }
    }

    fn in_container(docker: &Docker, image: &str, work: impl FnOnce(&Sandbox)) {
        let spec = spec(Some(image));
        let sandbox = RUNTIME.block_on(async {
            let (channel, _) = docker.start(&spec, &|_, _, _| {}).await.expect("a container");
            Sandbox::connect(channel).await.expect("the guest answers")
        });
        work(&sandbox);
        RUNTIME.block_on(docker.destroy(&spec.session)).expect("it is removed");
    }

    #[divan::bench]
    fn run_code_whole(bencher: Bencher) {
        let Some((docker, image)) = &*ENGINE else { return };
        in_container(docker, image, |_| {});
        bencher.bench_local(|| {
            in_container(docker, image, |sandbox| classics(&Runner::new(None), sandbox));
        });
    }

    #[divan::bench]
    fn llm_sandbox_whole(bencher: Bencher) {
        let Some(client) = &*LLM_SANDBOX else { return };
        bencher.bench_local(|| client.lock().expect("a lock").run("whole"));
    }

    /// The first task of each starts the interpreter.
    #[divan::bench]
    fn run_code_tasks(bencher: Bencher) {
        let Some((docker, image)) = &*ENGINE else { return };
        in_container(docker, image, |sandbox| {
            bencher.with_inputs(|| Runner::new(None)).bench_local_refs(|runner| classics(runner, sandbox));
        });
    }

    #[divan::bench]
    fn llm_sandbox_tasks(bencher: Bencher) {
        let Some(client) = &*LLM_SANDBOX else { return };
        bencher.bench_local(|| client.lock().expect("a lock").run("tasks"));
    }
}

static ENGINE: LazyLock<Option<(Docker, String)>> = LazyLock::new(|| {
    let image = std::env::var("AGENT_BENCH_IMAGE").ok()?;
    let docker = RUNTIME.block_on(Docker::connect(Arc::clone(&MACHINE))).ok()?;
    RUNTIME.block_on(docker.has_image(&image)).ok()?.then_some((docker, image))
});

static LLM_SANDBOX: LazyLock<Option<Mutex<Client>>> = LazyLock::new(|| {
    let (_, image) = ENGINE.as_ref()?;
    let tasks = json!(CLASSICS).to_string();
    Client::start(&["llm-sandbox[docker]"], LLM_SANDBOX_CLIENT, &[image, &tasks])
});

/// Sets nothing up in the container but its directory, and has no network, as ours: the quickest that it offers.
const LLM_SANDBOX_CLIENT: &str = "
import json, sys
from llm_sandbox import SandboxSession
image, tasks = sys.argv[1], json.loads(sys.argv[2])
def opened():
    session = SandboxSession(lang='python', image=image, verbose=False, skip_environment_setup=True,
                             runtime_configs={'network_mode': 'none'})
    session.open()
    return session
def run(session):
    for code, expected in tasks:
        result = session.run(code)
        assert result.exit_code == 0 and result.stdout.startswith(expected), result
kept = opened()
print('ready', flush=True)
for request in sys.stdin:
    if request.strip() == 'whole':
        session = opened()
        run(session)
        session.close()
    else:
        run(kept)
    print('done', flush=True)
kept.close()
";

/// A kernel, driven by a client that runs one cell for each line that it reads.
static KERNEL: LazyLock<Option<Mutex<Client>>> =
    LazyLock::new(|| Client::start(&["ipykernel"], KERNEL_CLIENT, &[]));

const KERNEL_CLIENT: &str = "
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
import sys
print('ready', flush=True)
for code in sys.stdin:
    request = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message['parent_header'].get('msg_id') == request and message['msg_type'] == 'status' \\
                and message['content']['execution_state'] == 'idle':
            break
    print('done', flush=True)
manager.shutdown_kernel(now=True)
";

/// A Python program in a virtual environment of its own, which does something for each line that it reads.
struct Client {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _directory: tempfile::TempDir,
}

impl Client {
    fn start(packages: &[&str], program: &str, arguments: &[&str]) -> Option<Mutex<Self>> {
        let directory = tempfile::tempdir().expect("a directory");
        let python = directory.path().join("bin/python3");
        let succeeds = |program: &mut std::process::Command| {
            program.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let mut install = std::process::Command::new(&python);
        install.args(["-m", "pip", "install", "-q"]).args(packages);
        let is_there =
            succeeds(std::process::Command::new("python3").args(["-m", "venv"]).arg(directory.path()))
                && succeeds(&mut install);
        if !is_there {
            eprintln!("{} cannot be installed: it is left out", packages.join(", "));
            return None;
        }
        let mut child = std::process::Command::new(&python)
            .args(["-c", program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (requests, answers) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut client = Self { requests, answers, _directory: directory };
        client.wait("ready");
        Some(Mutex::new(client))
    }

    fn run(&mut self, request: &str) {
        writeln!(self.requests, "{request}").expect("the client reads");
        self.wait("done");
    }

    fn wait(&mut self, expected: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the client answers");
        assert_eq!(line.trim(), expected);
    }
}
