//! Tools on files that are made to take long: one of 300 KB on one line, two million lines, bytes that are not text.

use agent::error::Result;
use agent::event::Events;
use agent::log::{ArtifactLimits, Artifacts};
use agent::sandbox::{FileWrite, Node};
use agent::tools::{Bounds, Context, Reach, Registry};
use agent_testbed::agent::agent;
use agent_testbed::backends::on_backends_with;
use agent_testing::endpoint::endpoint;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A second of work, on a machine that does much else.
const QUICK: Duration = Duration::from_secs(20);

fn long_line() -> String {
    (0..15_000).map(|n| format!("const a{n:05}=f();")).collect()
}

/// Reaches no hosts.
struct Nowhere;

impl Reach for Nowhere {
    fn reach<'a>(&'a self, _: &'a [&'a str], _: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(async { Ok(Some("nothing is reached".to_owned())) })
    }
}

/// Files by their names.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("long.js", long_line().into_bytes()),
        ("lines.txt", b"x\n".repeat(2_000_000)),
        ("alike.txt", b"const b = 2;\n".repeat(300_000)),
        ("nul.bin", vec![0; 300_000]),
        ("invalid.txt", [0x80, 0xff, b'a', b' '].repeat(250_000)),
        ("marks.txt", format!("e{}\n", "\u{301}".repeat(10_000)).into_bytes()),
    ]
}

/// Texts that are in none of the files.
const MISSES: [&str; 6] =
    ["const a00001=g();", "x\nx\ny", "const c = 3;\nconst d = 4;", "\0\0\u{1}", "e\u{301}!", "~"];

/// Checks what an edit answers whose text is nearly in the long line.
fn assert_names_the_nearest(near: &str) {
    assert!(
        near.starts_with("error: old is in long.js 0 times; the nearest is at line 1, column "),
        "{near}"
    );
    assert!(near.contains("const a00001=f();") && near.len() < 500, "{near}");
}

/// A bug: an edit whose old text was not in a minified file was looked for there for minutes, and only SIGKILL ended that.
#[tokio::test]
async fn no_tool_takes_long_with_a_hostile_file() {
    on_backends_with(
        &["local"],
        |_| {},
        async |inside| {
            let (tools, events) = (Registry::builtin(), Events::new(1));
            let store = tempfile::tempdir().expect("a directory");
            let artifacts = Artifacts::of_session(store.path(), ArtifactLimits::default());
            let context = Context {
                sandbox: &inside.sandbox,
                events: &events,
                artifacts: &artifacts,
                call: "call_1",
                reach: &Nowhere,
                bounds: Bounds::default(),
            };
            let call = async |name: &str, arguments: Value| {
                let started = Instant::now();
                let tool = tools.get(name).expect("a tool");
                let result = tool.call(context, arguments).await.expect("the sandbox answers");
                let took = started.elapsed();
                assert!(took < QUICK, "{name} took {took:?}: {:.200}", result.text);
                let length = result.text.chars().count();
                assert!(length < 40_000, "{name}: {length} characters: {:.200}", result.text);
                result
            };
            for (path, content) in files() {
                let text = String::from_utf8_lossy(&content).into_owned();
                let files =
                    json!([{ "path": path, "data": text }, { "path": format!("{path}.json"), "data": text }]);
                assert!(call("write_files", json!({ "files": files })).await.ok, "{path}");
                let one = json!({ "path": format!("{path}.json"), "data": text });
                assert!(call("write_file", one).await.ok, "{path}");
                let write = FileWrite {
                    path: path.into(),
                    node: Node::Regular(content),
                    mode: None,
                    mtime_ns: None,
                    follow: true,
                };
                inside.sandbox.write_files(vec![write]).await.expect("answers").remove(0).expect("written");
                for miss in MISSES.map(str::to_owned).into_iter().chain([text + "~"]) {
                    let result = call("edit_file", json!({ "path": path, "old": miss, "new": "z" })).await;
                    assert!(!result.ok, "{path}: {miss:.20}");
                }
                for (offset, column) in [(1, 1), (1, 290_000), (1_999_999, 1), (2_000_001, 1), (1, u64::MAX)]
                {
                    call("read_file", json!({ "path": path, "offset": offset, "column": column })).await;
                }
                let twice = json!({ "command": format!("cat {path} {path}") });
                assert!(call("run_commands", twice).await.ok, "{path}");
                let code = format!("open({path:?}, 'rb').read().decode(errors='replace')");
                assert!(call("run_code", json!({ "language": "python", "code": code })).await.ok, "{path}");
            }
            let near = call("edit_file", json!({ "path": "long.js", "old": MISSES[0], "new": "z" })).await;
            assert_names_the_nearest(&near.text);
        },
    )
    .await;
}

/// A bug: what was behind the first page of a long line could not be read.
#[test]
fn a_file_of_one_long_line_is_read_through() {
    let next = |request: &Value| -> Option<Value> {
        let last = request["messages"].as_array()?.last()?;
        let (note, _) = last["content"].as_str()?.split_once("]\n")?;
        let column = note.rsplit_once(" and column ")?.1.parse::<u64>().ok()?;
        Some(json!({ "path": "long.js", "offset": 1, "column": column }))
    };
    let model = endpoint().by_rule(move |request| {
        let is_first = request["messages"]
            .as_array()
            .is_some_and(|messages| messages.last().is_some_and(|m| m["role"] == "user"));
        match next(request) {
            Some(arguments) => endpoint().tool_call("read_file", arguments),
            None if is_first => endpoint().tool_call("read_file", json!({ "path": "long.js" })),
            None => endpoint().text("read"),
        }
    });
    let model = model.start();
    let call = agent().endpoint(&model).file("long.js", long_line());
    let finished = call.args(["run", "--json", "go"]).run().expect_code(0);
    let parts = finished.events_of("tool_finished");
    let text: String = parts
        .iter()
        .map(|part| part["result"].as_str().expect("a text"))
        .map(|part| part.split_once("]\n").map_or(part, |(_, text)| text))
        .collect();
    assert!(parts.len() > 5 && text == long_line(), "{} parts, {} bytes", parts.len(), text.len());
}

#[test]
fn a_ctrl_c_ends_a_run_while_an_edit_is_looked_for() {
    let lines = (0..600_000).map(|n| format!("const value_{n:06} = 1;\n"));
    let content: String = [long_line(), "\n".to_owned()].into_iter().chain(lines).collect();
    let miss = json!({ "path": "a.js", "old": "const value_x = 2;\n", "new": "z" });
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let model = endpoint().tool_calls(&vec![("edit_file", miss.clone()); 100]).text("ok").start();
        let running = agent().endpoint(&model).file("a.js", &content).args(["run", "--json", "go"]).start();
        let sessions = running.home("data").join("sessions");
        let kept = || {
            let entry = std::fs::read_dir(&sessions).ok()?.next()?.ok()?;
            std::fs::read_to_string(entry.path().join("events.jsonl")).ok()
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !kept().is_some_and(|text| text.contains("\"type\":\"tool_started\"")) {
            assert!(Instant::now() < deadline, "the tool does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        running.signal(signal);
        let signalled = Instant::now();
        let finished = running.wait().expect_code(code);
        assert!(signalled.elapsed() < QUICK / 2, "{:?}", signalled.elapsed());
        assert_eq!(finished.events_of("tool_finished").len(), 100, "every call has its answer");
    }
}
