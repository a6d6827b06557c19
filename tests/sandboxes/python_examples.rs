//! The programs in `examples/python/`, against a scripted endpoint and real sandboxes.

use agent_testbed::agent::{Agent, agent, binary};
use agent_testbed::serve::{KEY, Server};
use agent_testing::counterpart::{python, root};
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// How long a program may take to start on a machine that is busy with other tests: its libraries are large.
const DEADLINE: Duration = Duration::from_secs(300);

fn example(name: &str) -> std::path::PathBuf {
    root().join("examples/python").join(name)
}

fn with(python: &Path, model: &Endpoint, call: Agent) -> Agent {
    call.driven_by(python)
        .env("OPENAI_BASE_URL", model.url())
        .env("OPENAI_API_KEY", "test-key")
        .env("OPENAI_MODEL", "test-model")
        .env("GRADIO_ANALYTICS_ENABLED", "False")
        .env(
            "PYTHONPATH",
            [root().join("python/src"), root().join("examples/python")]
                .map(|path| path.display().to_string())
                .join(":"),
        )
        .deadline(DEADLINE)
}

/// With the variables of a server for programs of Novita's SDK.
fn with_novita(python: &Path, model: &Endpoint, server: &Server) -> Agent {
    let url = format!("http://{}", server.address());
    with(python, model, agent())
        .env("NOVITA_API_KEY", KEY)
        .env("NOVITA_API_URL", &url)
        .env("NOVITA_SANDBOX_URL", &url)
}

fn coding() -> Endpoint {
    endpoint()
        .tool_call("write_file", json!({ "path": "hello.py", "data": "print(6 * 7)\n" }))
        .tool_call("run_commands", json!({ "command": "python3 hello.py; exit 3" }))
        .tool_call("read_file", json!({ "path": "missing.txt" }))
        .text("It prints 42.")
        .start()
}

#[test]
fn the_loop_on_novitas_sdk_writes_and_runs_a_program() {
    let Some(python) = python("novita") else { return };
    let (model, server) = (coding(), Server::start("local", &[]));
    let finished = with_novita(&python, &model, &server)
        .args([example("novita_loop.py").as_os_str(), "write and run hello.py".as_ref()])
        .run()
        .expect_code(0);
    for line in ["exit code 3\n42\n", "[read_file {\"path\":\"missing.txt\"}]\nerror: ", "It prints 42.\n"] {
        assert!(finished.stdout.contains(line), "{line}: {}", finished.stdout);
    }
    server.wait_for_sandboxes(0);
}

#[test]
fn the_page_on_novitas_sdk_has_a_chat_and_a_command_panel_in_one_sandbox() {
    let Some(python) = python("novita") else { return };
    let (model, server) = (coding(), Server::start("local", &[]));
    let client = root().join("tests/clients/gradio_page.py");
    let finished = with_novita(&python, &model, &server).args([client]).run().expect_code(0);
    assert!(finished.stdout.ends_with("passed\n"), "{}{}", finished.stdout, finished.stderr);
}

fn classics() -> Endpoint {
    let code = [
        "import random\nrandom.seed(1)\nprint(round(4 * sum(random.random() ** 2 + random.random() ** 2 <= 1 for _ in range(100000)) / 100000, 1))",
        "import math\nprint(math.factorial(20))",
        "a, b = 0, 1\nfor _ in range(20):\n    print(a, end=' ')\n    a, b = b, a + b",
        "print(sum(range(1, 10001)))",
    ];
    let script = code.iter().fold(endpoint(), |script, code| {
        script.tool_call("run_code", json!({ "lang": "python", "code": code })).text("Done.")
    });
    script.start()
}

fn classics_on(backend: &str, call: Agent) {
    let Some(python) = python("langchain") else { return };
    let model = classics();
    let finished = with(&python, &model, call)
        .env("AGENT_BINARY", binary())
        .args([example("langchain_classics.py").as_os_str(), backend.as_ref()])
        .run()
        .expect_code(0);
    for result in ["3.1", "2432902008176640000", "0 1 1 2 3 5 8 13 21 34 55", "50005000"] {
        assert!(finished.stdout.contains(result), "{result}: {}", finished.stdout);
    }
}

#[test]
fn the_langchain_agent_does_the_classics_in_a_local_sandbox() {
    classics_on("local", agent());
}

#[tokio::test]
async fn the_langchain_agent_does_the_classics_in_docker() {
    if agent_testbed::backends::backend("docker").await.is_some() {
        tokio::task::spawn_blocking(|| classics_on("docker", agent())).await.unwrap();
    }
}

#[tokio::test]
async fn the_langchain_agent_does_the_classics_in_a_pod() {
    let Some(api) = agent_testbed::cluster::Api::connect().await else { return };
    let call = crate::kubernetes::program(&api, agent());
    tokio::task::spawn_blocking(|| classics_on("kubernetes", call)).await.unwrap();
}

#[test]
fn the_deepagents_agent_has_a_sandbox_for_each_thread() {
    let Some(python) = python("langchain") else { return };
    let write = |text: &str| json!({ "file_path": "/workspace/note.txt", "content": text });
    let model = endpoint()
        .tool_call("write_file", write("of the first\n"))
        .text("Noted.")
        .tool_call("write_file", write("of the second\n"))
        .text("Noted, too.")
        .start();
    let call = with(&python, &model, agent()).env("AGENT_BINARY", binary());
    let workspace = call.workspace().to_owned();
    let arguments = [example("deepagents_threads.py").into_os_string(), "note it".into(), "note that".into()];
    let finished = call.args(arguments).run().expect_code(0);
    for line in ["thread 1: Noted.", "+of the first", "thread 2: Noted, too.", "+of the second"] {
        assert!(finished.stdout.contains(line), "{line}: {}", finished.stdout);
    }
    assert!(!workspace.join("note.txt").exists());
}
