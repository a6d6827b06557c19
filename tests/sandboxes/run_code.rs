//! `run_code` on every backend: each language, the state that is kept, interrupts, and programs that attack the interpreter
//! that runs them.

use agent::error::Result;
use agent::event::Events;
use agent::log::{ArtifactLimits, Artifacts};
use agent::tools::code::{Language, RunCode, Toolchains};
use agent::tools::{Bounds, Context, Reach, Tool, ToolResult};
use agent_testbed::agent::agent;
use agent_testbed::backends::{TestSandbox, is_ordinary_user, on_backends_with, on_every_backend};
use agent_testing::endpoint::endpoint;
use agent_testing::skip::left_out;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Go compiles its standard library at the first program, which took five minutes; the others take half a minute for each.
const SLOW_WHEN_EMULATED: [Language; 3] = [Language::Go, Language::Java, Language::Rust];

/// A session's tool, as the turn loop calls it.
struct Session<'a> {
    tool: RunCode,
    inside: &'a TestSandbox,
    events: Arc<Events>,
    store: TempDir,
    /// The answers to what was asked for: what may be reached.
    reach: Answers,
}

/// Keeps the first program of Go from compiling what other programs import, for tests that are not about that: as if it were done.
const GO_IS_WARM: &str = "mkdir -p ~/.cache/agent/code/go/warm";

/// Answers every question about hosts.
struct Answers {
    refusal: Option<&'static str>,
    asked: Mutex<Vec<String>>,
}

impl Reach for Answers {
    fn reach<'a>(&'a self, hosts: &'a [&'a str], purpose: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        self.asked.lock().expect("a lock").push(format!("{purpose} from {}", hosts.join(", ")));
        Box::pin(async { Ok(self.refusal.map(str::to_owned)) })
    }
}

impl<'a> Session<'a> {
    fn new(inside: &'a TestSandbox) -> Self {
        let store = TempDir::new().expect("a directory");
        let reach = Answers { refusal: Some("use --network registries"), asked: Mutex::default() };
        Self { tool: RunCode::new(None, None), inside, events: Arc::new(Events::new(1)), store, reach }
    }

    async fn call(&self, arguments: Value) -> ToolResult {
        let artifacts = Artifacts::of_session(self.store.path(), ArtifactLimits::default());
        let context = Context {
            sandbox: &self.inside.sandbox,
            events: &self.events,
            artifacts: &artifacts,
            call: "call_1",
            reach: &self.reach,
            bounds: Bounds::default(),
        };
        let mut result =
            (&self.tool as &dyn Tool).call(context, arguments).await.expect("the sandbox answers");
        result.text.truncate(result.text.trim_end().len());
        result
    }

    /// Starts an interpreter, which takes seconds where the processor is emulated, so that a time limit is the program's alone.
    async fn start(&self, language: &str) {
        assert_eq!(self.run(language, "1").await, "value: 1");
    }

    /// Runs code, and returns the result without its first line.
    async fn run(&self, language: &str, code: &str) -> String {
        let result = self.call(json!({ "language": language, "code": code })).await;
        result.text.split_once('\n').map(|(_, text)| text.to_owned()).unwrap_or(result.text)
    }

    /// Every sandbox of the tests has Python.
    async fn has_interpreter(&self, name: &str) -> bool {
        name == "python" || self.has(Language::JavaScript).await
    }

    async fn has(&self, language: Language) -> bool {
        let there = Toolchains::ask(&self.inside.sandbox).await.expect("the sandbox answers").runs(language);
        // A toolchain of rustup's is in the home of the user who installed it.
        let is_rustup_of_root = language == Language::Rust && is_ordinary_user();
        if SLOW_WHEN_EMULATED.contains(&language) && self.inside.backend == "vm" {
            left_out(format!(
                "not tested on vm: {}, whose compiler an emulated processor runs for long",
                language.name()
            ));
            return false;
        }
        let is_required = std::env::var_os("AGENT_TEST_REQUIRE_LANGUAGES").is_some() && !is_rustup_of_root;
        assert!(
            there || !is_required,
            "{} is required, and missing on {}",
            language.name(),
            self.inside.backend
        );
        if !there {
            left_out(format!("not tested on {}: {}", self.inside.backend, language.name()));
        }
        there
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_language_prints_and_fails_with_its_own_exit_code() {
    let programs = [
        (Language::Python, "print('six times seven is', 6 * 7)", "import sys; sys.exit(3)"),
        (Language::JavaScript, "console.log('six times seven is', 6 * 7)", "process.exit(3)"),
        (
            Language::TypeScript,
            "const product: number = 6 * 7;\nconsole.log('six times seven is', product)",
            "process.exit(3)",
        ),
        (
            Language::Java,
            "public class Product { public static void main(String[] a) { System.out.println(\"six times seven is \" + 6 * 7); } }",
            "System.exit(3);",
        ),
        (
            Language::Cpp,
            "#include <iostream>\nint main() { std::cout << \"six times seven is \" << 6 * 7 << std::endl; }",
            "int main() { return 3; }",
        ),
        (
            Language::Go,
            "import \"fmt\"\nfunc main() { fmt.Println(\"six times seven is\", 6*7) }",
            "package main\nimport \"os\"\nfunc main() { os.Exit(3) }",
        ),
        (Language::Ruby, "puts \"six times seven is #{6 * 7}\"", "exit 3"),
        (
            Language::C,
            "#include <stdio.h>\nint main(void) { printf(\"six times seven is %d\\n\", 6 * 7); }",
            "int main(void) { return 3; }",
        ),
        (Language::Rust, "println!(\"six times seven is {}\", 6 * 7);", "std::process::exit(3)"),
        (Language::R, "cat('six times seven is', 6 * 7, '\\n')", "quit(status = 3)"),
        (Language::Bash, "echo six times seven is $((6 * 7))", "exit 3"),
    ];
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        inside.output_of(GO_IS_WARM).await;
        for (language, hello, failing) in programs {
            if !session.has(language).await {
                continue;
            }
            let name = language.name();
            let said = session.call(json!({ "language": name, "code": hello, "timeout_s": 300 })).await;
            assert!(said.ok && said.text.contains("six times seven is 42"), "{name}: {}", said.text);
            let failed = session.call(json!({ "language": name, "code": failing, "timeout_s": 300 })).await;
            assert_eq!((failed.ok, failed.exit_code), (false, Some(3)), "{name}: {}", failed.text);
            if language == Language::Go {
                // Here, where its packages are compiled already.
                expect_no_build(
                    &session,
                    language,
                    "package main\nfunc main() { nothing() }",
                    "undefined: nothing",
                )
                .await;
            }
        }
    })
    .await;
}

async fn expect_no_build(session: &Session<'_>, language: Language, code: &str, message: &str) {
    let call = json!({ "language": language.name(), "code": code, "timeout_s": 300 });
    let result = session.call(call).await;
    assert!(result.text.starts_with("the code does not build: exit code"), "{}", result.text);
    assert!(result.text.contains(message), "{}", result.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_build_is_reported_with_the_compilers_message() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        for (language, code, message) in [
            (Language::Cpp, "int main() { return nothing; }", "nothing"),
            (Language::Java, "class A { public static void main(String[] a) { nothing(); } }", "nothing"),
        ] {
            if session.has(language).await {
                expect_no_build(&session, language, code, message).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_imports_and_functions_are_kept_over_a_hundred_cells() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        assert_eq!(
            session.run("python", "import math\ndef double(n): return 2 * n\ntotal = 0").await,
            "(no output)"
        );
        for n in 1..=100 {
            let value = session.run("python", &format!("total += double({n})\nmath.floor(total)")).await;
            assert_eq!(value, format!("value: {}", n * (n + 1)));
        }
        if !session.has(Language::JavaScript).await {
            return;
        }
        let begin = "const path = require('node:path'); let total = 0; const double = (n) => 2 * n";
        session.run("javascript", begin).await;
        for n in 1..=20 {
            let value =
                session.run("js", &format!("total += double({n}); path.basename(`a/${{total}}`)")).await;
            assert_eq!(value, format!("value: '{}'", n * (n + 1)));
        }
        // A cell may be sent again with changes.
        assert_eq!(session.run("javascript", "const double = (n) => 3 * n; double(2)").await, "value: 6");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn await_works_at_the_top_level() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let python = "import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))";
        assert_eq!(session.run("python", python).await, "value: [1, 2]");
        if !session.has(Language::JavaScript).await {
            return;
        }
        let javascript = "import { setTimeout as sleep } from 'node:timers/promises';\nconst os = await import('node:os');\n\
                          await sleep(10, typeof os.cpus)";
        assert_eq!(session.run("javascript", javascript).await, "value: 'function'");
        assert_eq!(session.run("javascript", "typeof sleep + typeof os").await, "value: 'functionobject'");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_streams_arrive_in_order_and_the_value_last() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let python = "import sys, os\nfor n in range(3):\n    print('out', n); print('err', n, file=sys.stderr)\n\
                      os.system('echo from a process')\n'the value'";
        let printed = "out 0\nerr 0\nout 1\nerr 1\nout 2\nerr 2\nfrom a process\nvalue: 'the value'";
        assert_eq!(session.run("python", python).await, printed);
        let javascript = "for (let n = 0; n < 3; n++) { console.log('out', n); console.error('err', n); }\n\
                          require('child_process').execSync('echo from a process', { stdio: 'inherit' });\n'the value'";
        if session.has(Language::JavaScript).await {
            assert_eq!(session.run("javascript", javascript).await, printed);
        }
        // Nothing is printed after the last line break, and the value still has a line of its own.
        assert_eq!(session.run("python", "print('x', end='')\n1").await, "x\nvalue: 1");
        assert_eq!(session.run("python", "5;").await, "(no output)");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traceback_has_the_users_lines_only() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        session.run("python", "import json\ndef parse(text):\n    return json.loads(text)").await;
        let result = session.call(json!({ "language": "python", "code": "parse('{')" })).await;
        assert_eq!(result.exit_code, Some(1));
        // Python 3.13 and later mark the part of a line that is meant.
        let is_mark =
            |line: &&str| line.contains(['^', '~']) && line.trim_matches([' ', '^', '~']).is_empty();
        let lines: Vec<&str> = result.text.lines().filter(|line| !is_mark(line)).collect();
        assert_eq!(
            lines[1..5],
            [
                "Traceback (most recent call last):",
                "  File \"<cell 2>\", line 1, in <module>",
                "    parse('{')",
                "  File \"<cell 1>\", line 3, in parse"
            ]
        );
        assert!(!result.text.contains("agent") && !result.text.contains("decoder.py"), "{}", result.text);
        if !session.has(Language::JavaScript).await {
            return;
        }
        let result = session.run("javascript", "function f() { throw new TypeError('no') }\n\nf()").await;
        assert_eq!(result, "TypeError: no\n    at f (cell-1.js:1:22)\n    at cell-1.js:3:1");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_takes_too_long_is_interrupted_and_keeps_its_variables() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        for (language, set, sleep, busy) in [
            ("python", "kept = 7", "import time\ntime.sleep(600)", "while True: pass"),
            (
                "javascript",
                "let kept = 7",
                "await new Promise((r) => setTimeout(r, 600000))",
                "while (true) {}",
            ),
        ] {
            if !session.has_interpreter(language).await {
                continue;
            }
            session.run(language, set).await;
            for code in [sleep, busy] {
                let call = json!({ "language": language, "code": code, "timeout_s": 1 });
                let result = session.call(call).await;
                assert!(result.text.starts_with("Timed out after 1 s"), "{language}: {}", result.text);
                assert!(result.text.contains("its variables are kept"), "{language}: {}", result.text);
                assert_eq!(session.run(language, "kept").await, "value: 7");
            }
        }
    })
    .await;
}

/// A bug: a long cell was written to an interpreter that waited for somebody to read what it printed as it started.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_cell_reaches_an_interpreter_that_prints_before_it_reads() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let customize = "d=$(python3 -m site --user-site); mkdir -p \"$d\"; \
                         echo \"print('x' * 3000000)\" > \"$d/usercustomize.py\"; python3 -c 1 | wc -c";
        assert_eq!(inside.output_of(customize).await, "3000001");
        let code = format!("len('{}')", "y".repeat(3_000_000));
        let result = session.call(json!({ "language": "python", "code": code, "timeout_s": 60 })).await.text;
        assert!(result.ends_with("value: 3000000"), "{result:.200}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_the_interrupt_is_killed_and_the_loss_reported() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        session.start("python").await;
        let code =
            "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)";
        let result = session.call(json!({ "language": "python", "code": code, "timeout_s": 1 })).await;
        assert!(result.text.starts_with("Timed out after 1 s"), "{}", result.text);
        assert!(
            result.text.contains("was killed") && result.text.contains("its variables are gone"),
            "{}",
            result.text
        );
        let next = session.call(json!({ "language": "python", "code": "1 + 1" })).await;
        assert!(next.text.contains("this is a new python interpreter, because"), "{}", next.text);
        assert!(next.text.ends_with("value: 2"), "{}", next.text);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_is_interrupted_and_the_next_one_works() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        session.run("python", "kept = 7").await;
        let sleep = session.call(json!({ "language": "python", "code": "import time; time.sleep(600)" }));
        let dropped = tokio::time::timeout(Duration::from_millis(500), sleep).await;
        assert!(dropped.is_err(), "it sleeps for ten minutes");
        assert_eq!(session.run("python", "kept").await, "value: 7");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_is_bounded_and_ends_at_the_time_limit() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        for (language, code) in [
            ("python", "while True: print('x' * 1000)"),
            ("javascript", "while (true) console.log('x'.repeat(1000))"),
        ] {
            if !session.has_interpreter(language).await {
                continue;
            }
            session.start(language).await;
            let begun = Instant::now();
            let result = session.call(json!({ "language": language, "code": code, "timeout_s": 1 })).await;
            assert!(result.text.starts_with("Timed out after 1 s"), "{:.200}", result.text);
            assert!(result.truncated && result.text.len() < 64 << 10, "{} bytes", result.text.len());
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
            assert!(session.run(language, "1 + 1").await.ends_with("value: 2"));
        }
    })
    .await;
}

/// Runs `work` while Python executes `line` at its start.
async fn with_start(session: &Session<'_>, line: &str, work: impl AsyncFnOnce()) {
    let directory = session.inside.output_of("python3 -m site --user-site").await;
    let script = format!("mkdir -p {directory} && printf '%s\\n' '{line}' > {directory}/start.pth");
    session.inside.output_of(&script).await;
    work().await;
    session.inside.output_of(&format!("rm {directory}/start.pth")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_that_is_interrupted_while_it_starts_has_lost_nothing() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let slow = "import time; time.sleep(5)";
        with_start(&session, slow, async || {
            let call = json!({ "language": "python", "code": "1", "timeout_s": 0.5 });
            let result = session.call(call).await;
            assert!(result.text.starts_with("Timed out after"), "{}", result.text);
            let note = "[the python interpreter had not started yet: nothing of the code was run]";
            assert!(result.text.contains(note) && !result.text.contains("gone"), "{}", result.text);
            let call = session.call(json!({ "language": "python", "code": "1" }));
            assert!(
                tokio::time::timeout(Duration::from_millis(500), call).await.is_err(),
                "it starts for 5 s"
            );
        })
        .await;
        let next = session.call(json!({ "language": "python", "code": "kept = 7\nkept" })).await;
        assert!(next.text.ends_with("s\nvalue: 7"), "{}", next.text);
        // What was lost before is said by the first call that runs.
        session.call(json!({ "language": "python", "code": "import os; os._exit(5)" })).await;
        with_start(&session, slow, async || {
            let call = json!({ "language": "python", "code": "1", "timeout_s": 0.5 });
            assert!(session.call(call).await.text.contains("had not started yet"));
        })
        .await;
        let next = session.call(json!({ "language": "python", "code": "1" })).await;
        assert!(
            next.text.contains("because the one before ended: earlier variables are gone"),
            "{}",
            next.text
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_that_warns_at_its_start_works_and_one_that_does_not_start_says_so() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        with_start(&session, "import sys; sys.stderr.write(\"careful\\n\")", async || {
            assert_eq!(session.run("python", "1 + 1").await, "careful\nvalue: 2");
        })
        .await;
        let session = Session::new(inside);
        with_start(&session, "import os; os.write(2, b\"broken\\n\"); os._exit(9)", async || {
            let result = session.call(json!({ "language": "python", "code": "1" })).await;
            let text = "exit code 9";
            assert!(!result.ok && result.text.starts_with(text), "{}", result.text);
            let note = "[the python interpreter did not start: nothing of the code was run]\nbroken";
            assert!(result.text.ends_with(note), "{}", result.text);
        })
        .await;
    })
    .await;
}

/// Each of these has one outcome, which says that the state is gone; the next call works, and says that it is a fresh one.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_program_does_to_its_interpreter_the_next_call_works() {
    let python = [
        ("import os; os._exit(5)", "exit code 5"),
        ("import os; os._exit(0)", "exit code 0, before the end"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        ("import ctypes; ctypes.string_at(0)", "killed by signal 11"),
        ("import os; os.closerange(3, 4096)", "exit code 70"),
        (
            "import os\nfor fd in range(3, 4096):\n  try: os.write(fd, b'rubbish\\n' * 100)\n  except OSError: pass",
            "killed by signal 9",
        ),
        (
            "import os\nfor fd in range(3, 4096):\n  try: os.write(fd, b'0' * 32 + b' ok 0 0 0\\n')\n  except OSError: pass",
            "killed by signal 9",
        ),
    ];
    let javascript = [
        ("process.reallyExit(5)", "exit code 5"),
        ("process.kill(process.pid, 'SIGKILL')", "killed by signal 9"),
        ("require('fs').closeSync(4)", "exit code 70"),
        ("require('fs').closeSync(1)", "exit code 70"),
        ("process.stdout.end()", "exit code 70"),
        ("require('fs').writeSync(4, 'rubbish\\n')", "killed by signal 9"),
    ];
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        for (language, attacks) in [("python", &python[..]), ("javascript", &javascript[..])] {
            if !session.has_interpreter(language).await {
                continue;
            }
            for (attack, outcome) in attacks {
                session.run(language, "before = 1").await;
                let result =
                    session.call(json!({ "language": language, "code": attack, "timeout_s": 60 })).await;
                assert!(!result.ok && result.text.starts_with(outcome), "{attack}: {}", result.text);
                assert!(result.text.contains("its variables are gone"), "{attack}: {}", result.text);
                let next = session.call(json!({ "language": language, "code": "2 + 2" })).await;
                assert!(next.text.contains("this is a new"), "{attack}: {}", next.text);
                assert!(next.ok && next.text.ends_with("value: 4"), "{attack}: {}", next.text);
                assert!(!session.run(language, "before").await.contains("value"), "{attack}");
            }
        }
    })
    .await;
}

/// These harm nothing but the cell that does them.
#[tokio::test(flavor = "multi_thread")]
async fn a_cell_cannot_spoil_the_streams_of_the_next_one() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        session.run("python", "kept = 1").await;
        for code in [
            "import sys; sys.stdout.close()",
            "import os; os.close(0); os.close(1); os.close(2)",
            "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
            "import os\nif os.fork() == 0: raise SystemExit(1)",
            "import sys; sys.modules.clear()",
            "import builtins; del builtins.display",
            "raise BaseException('x')",
            "raise KeyboardInterrupt",
            "def f(): f()\nf()",
            "class A:\n  def __repr__(self): raise ValueError('no')\nA()",
            "input()",
        ] {
            session.run("python", code).await;
            assert!(session.run("python", "print('seen')\nkept").await.ends_with("seen\nvalue: 1"), "{code}");
        }
        let long = session.run("python", "'x' * 10_000_000").await;
        assert!(long.len() < 64 << 10 && long.contains('…'), "{} bytes", long.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_is_installed_later_is_found() {
    // The directory of the user's libraries did not exist when the interpreter started, and was not looked at again.
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        assert!(session.run("python", "import late").await.contains("No module named 'late'"));
        let made = "import os, site\nd = site.getusersitepackages()\nos.makedirs(d, exist_ok=True)\n";
        let written = "open(d + '/late.py', 'w').write('x = 7')\nimport late\nlate.x";
        assert_eq!(session.run("python", &format!("{made}{written}")).await, "value: 7");
        // Of an editable installation, there is a path in a file alone.
        let pointed = "os.makedirs('/tmp/elsewhere', exist_ok=True)\nopen('/tmp/elsewhere/pointed.py', 'w').write('y = 8')\n\
                       open(d + '/pointed.pth', 'w').write('/tmp/elsewhere\\n')\nimport pointed\npointed.y";
        assert_eq!(session.run("python", pointed).await, "value: 8");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_may_be_written_as_in_a_notebook() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        for (code, expected) in [
            ("\n    x = 1\n    x + 1\n", "value: 2"),
            ("!echo {x} $((1 + 1))", "1 2"),
            ("found = !echo one; echo two\nfound", "value: ['one', 'two']"),
            ("%%sh\necho from the shell", "from the shell"),
            ("text = \"\"\"\n!no command\n\"\"\"\n!echo a command\nlen(text)", "a command\nvalue: 13"),
            ("%matplotlib inline\n5 % 3", "value: 2"),
        ] {
            assert_eq!(session.run("python", code).await.replace("\n\n", "\n"), expected, "{code}");
        }
        let unknown = session.run("python", "%nothing").await;
        assert!(unknown.contains("UsageError: Line magic function `%nothing` not found"), "{unknown}");
        let broken = session.run("python", "x = 1\nif:\n").await;
        assert!(broken.contains("line 2") && broken.contains("SyntaxError"), "{broken}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_and_an_undo_start_a_new_interpreter() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        session.run("python", "kept = 1").await;
        let call = json!({ "language": "py", "code": "'kept' in globals()", "reset": true });
        let result = session.call(call).await;
        assert!(
            result.text.contains("because a reset was asked for") || result.text.ends_with("value: False")
        );
        assert_eq!(session.run("python", "kept = 2").await, "(no output)");
        let discarded = session.tool.discard_state().await.expect("there was an interpreter");
        assert!(discarded.contains("python"), "{discarded}");
        let next = session.call(json!({ "language": "python", "code": "'kept' in globals()" })).await;
        assert!(
            next.text.contains("the user undid changes") && next.text.ends_with("value: False"),
            "{}",
            next.text
        );
        assert!(session.tool.discard_state().await.is_some());
        assert!(session.tool.discard_state().await.is_none(), "nothing is left to end");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_language_that_is_not_there_is_refused_with_those_that_are() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let result = session.call(json!({ "language": "cobol", "code": "" })).await;
        assert!(
            !result.ok && result.text.starts_with("error: there is no language \"cobol\""),
            "{}",
            result.text
        );
        assert!(result.text.contains("this sandbox has python, "), "{}", result.text);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_value_can_be_shown_as_is_an_artifact() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let code = "class Table:\n  def __repr__(self): return 'Table'\n  def _repr_html_(self): return '<table></table>'\nTable()";
        let result = session.call(json!({ "language": "python", "code": code })).await;
        assert!(result.text.contains("value: Table\n[file "), "{}", result.text);
        assert_eq!(result.content.len(), 2, "{:?}", result.content);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_it_is_in_the_workspace() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        session.run("python", "1").await;
        session.run("javascript", "1").await;
        for (language, code) in
            [("cpp", "int main() {}"), ("java", "int x = 1;"), ("bash", "true"), ("ruby", "1")]
        {
            session.run(language, code).await;
        }
        assert_eq!(inside.output_of("ls -A /workspace").await, "");
    })
    .await;
}

/// The first program compiles packages in the background for the next ones. On one backend alone, because each sandbox
/// compiles what it needs of Go's standard library.
#[tokio::test(flavor = "multi_thread")]
async fn usual_packages_of_go_are_compiled_once_and_outside_of_the_workspace() {
    on_backends_with(
        &["docker"],
        |_| {},
        async |inside| {
            let session = Session::new(inside);
            if !session.has(Language::Go).await {
                return;
            }
            let call = json!({ "language": "go", "code": "package main\nfunc main() {}", "timeout_s": 300 });
            let result = session.call(call).await;
            assert!(result.ok, "{}", result.text);
            inside.output_of("while ! [ -e ~/.cache/agent/code/go/warm/done ]; do sleep 0.2; done").await;
            let stale = "CGO_ENABLED=0 GO111MODULE=off GOFLAGS= go list -f '{{.Stale}}' encoding/json regexp";
            assert_eq!(inside.output_of(stale).await.trim(), "false\nfalse");
            assert_eq!(inside.output_of("ls -A /workspace").await, "");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_network_libraries_name_the_flag_and_what_is_there_needs_none() {
    on_every_backend(async |inside| {
        let session = Session::new(inside);
        let call = json!({ "language": "python", "code": "1", "libraries": ["no-such-library-at-all"] });
        let result = session.call(call).await;
        assert!(
            result
                .text
                .contains("may not connect to pypi.org, files.pythonhosted.org: use --network registries"),
            "{}",
            result.text
        );
        let asked = session.reach.asked.lock().expect("a lock").clone();
        assert_eq!(asked, ["install no-such-library-at-all (python) from pypi.org, files.pythonhosted.org"]);
        for name in ["--index-url=http://x", "git+https://x", "./x", "a; touch /workspace/x", "$(touch x)"] {
            let call = json!({ "language": "python", "code": "1", "libraries": [name] });
            let result = session.call(call).await;
            assert!(result.text.contains("is not a valid library name"), "{name}: {}", result.text);
        }
        assert_eq!(inside.output_of("ls -A /workspace").await, "");
    })
    .await;
}

#[test]
fn the_model_is_offered_what_the_sandbox_has_and_a_resumed_session_begins_anew() {
    let model = endpoint()
        .tool_call("run_code", json!({ "language": "python", "code": "kept = 7" }))
        .text("ok")
        .tool_call("run_code", json!({ "language": "python", "code": "'kept' in globals()" }))
        .text("ok")
        .start();
    let key = ["run", "-q", "--session-key", "k", "go"];
    let first = agent().endpoint(&model).args(key).run().expect_code(0);
    first.again().endpoint(&model).args(key).run().expect_code(0);
    let requests = model.chat_requests();
    let tools = requests[0]["tools"].as_array().expect("tools");
    let tool = tools.iter().find(|tool| tool["function"]["name"] == "run_code").expect("run_code");
    let languages =
        tool["function"]["parameters"]["properties"]["language"]["enum"].as_array().expect("languages");
    assert!(languages.contains(&"python".into()) && languages.contains(&"bash".into()), "{languages:?}");
    assert_eq!(
        requests[0]["tools"], requests[1]["tools"],
        "the prefix of a session's requests never changes"
    );
    let messages = model.requests()[3].messages();
    let last = messages.iter().rfind(|message| message["role"] == "tool").expect("a result");
    let text = last["content"].as_str().expect("text");
    assert!(text.contains("because the session was resumed") && text.contains("value: False"), "{text}");
}

/// An image is sent again in the place where the model saw it: the requests of a session begin with the same bytes.
#[test]
fn a_resumed_session_sends_the_images_of_earlier_calls_again() {
    let model = endpoint()
        .tool_call("run_code", json!({ "language": "python", "code": PICTURE }))
        .text("ok")
        .text("ok")
        .start();
    let call = ["run", "-q", "--session-key", "k", "go"];
    let config = "[models.test-model]\nimages = true\n";
    let first = agent().endpoint(&model).config(config).args(call).run().expect_code(0);
    first.again().endpoint(&model).args(call).run().expect_code(0);
    let requests = model.chat_requests();
    let sent = |request: usize| requests[request]["messages"].as_array().expect("messages").clone();
    let (before, after) = (sent(1), sent(2));
    let image = &before[before.len() - 1]["content"][1]["image_url"]["url"];
    assert!(image.as_str().is_some_and(|url| url.starts_with("data:image/png;base64,")), "{image}");
    assert_eq!(after[..before.len()], before[..]);
}

/// A picture of one pixel.
const PICTURE: &str = "import struct, zlib
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
class Picture:
    def _repr_png_(self):
        header = struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)
        return b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(bytes(4))) + chunk(b'IEND', b'')
Picture()";
