//! MCP servers that have a sandbox for themselves: those of images, as `docker run` starts them, and those with limits of their own.

use agent_testbed::agent::{Agent, agent};
use agent_testbed::engine::{DEADLINE, engine};
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

const SERVER: &str = include_str!("mcp_servers/server.py");

/// Makes the image $1 of this machine's Python and the server in the file $2.
const IMAGE: &str = r#"
set -eu
# The system's: what a user installed may be in a directory that only this user can enter.
PATH=/usr/bin:$PATH
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
modules=$(python3 -c 'import sysconfig; print(sysconfig.get_config_var("DESTSHARED") or "")')
mkdir -p image/server
cp -L --parents "$python" $(ldd "$python" "$modules"/*.so 2>/dev/null | sed -nE 's#.*[[:space:]](/[^ ]+) \(.*#\1#p' | sort -u) image
tar c -P --exclude=__pycache__ --exclude=test --exclude=site-packages --exclude=dist-packages "$library" | tar x -C image
cp "$2" image/server/server.py
chmod -R a+rX image
tar c -C image . | docker import --change "ENTRYPOINT [\"$python\", \"/server/server.py\"]" --change 'CMD ["legacy"]' \
  --change 'ENV TOKEN=of-the-image' --change 'WORKDIR /server' - "$1" >/dev/null
"#;

/// An image, which is removed when the test ends, however it ends.
struct Image(String);

impl Image {
    fn make(name: &str) -> Self {
        let image = Self(format!("local.test/mcp-{name}-{}:1", std::process::id()));
        let directory = tempfile::tempdir().expect("a directory");
        let server = directory.path().join("server.py");
        std::fs::write(&server, SERVER).expect("the server is written");
        let mut make = Command::new("sh");
        make.args(["-c", IMAGE, "sh", &image.0]).arg(server).current_dir(directory.path());
        let output = make.output().expect("sh runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        image
    }

    /// Waits until no container is left that was made from it.
    fn wait_until_unused(&self) {
        let start = Instant::now();
        let filter = format!("ancestor={}", self.0);
        loop {
            let listed = Command::new("docker").args(["ps", "-aq", "--filter", &filter]).output();
            if listed.expect("docker runs").stdout.is_empty() {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "a container of {} is left", self.0);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

fn calls(calls: &[(&str, Value)]) -> Endpoint {
    let script = calls.iter().fold(endpoint(), |script: Script, (tool, arguments)| {
        script.tool_call(&format!("mcp__s__{tool}"), arguments.clone())
    });
    script.text("Done.").start()
}

fn results(model: &Endpoint) -> Vec<String> {
    let read = |request: &agent_testing::endpoint::Request| {
        request.messages().last().unwrap()["content"].as_str().unwrap_or_default().to_owned()
    };
    model.requests()[1..].iter().map(read).collect()
}

fn with_server(settings: &str) -> Agent {
    agent().deadline(Duration::from_secs(120)).config(&format!("[mcp.servers.s]\n{settings}\n"))
}

#[tokio::test]
async fn docker_run_is_a_container_of_its_own_without_the_project() {
    if engine().await.is_none() {
        return;
    }
    let image = Image::make("run");
    let words = ["run", "-i", "--rm", "-e", "TOKEN", "--memory=256m", &image.0, "modern"];
    let settings = format!("command = \"docker\"\nargs = {}\nenv = {{ TOKEN = \"for it\" }}", json!(words));
    let model = calls(&[
        ("where", json!({})),
        ("write", json!({ "path": "/workspace/new.txt" })),
        ("read", json!({ "path": "/workspace/of-the-project.txt" })),
    ]);
    let finished = with_server(&settings)
        .file("of-the-project.txt", "a secret\n")
        .endpoint(&model)
        .args(["run", "--json", "use the tools"])
        .run()
        .expect_code(0);
    let results = results(&model);
    let seen: Value = serde_json::from_str(&results[0]).unwrap_or_else(|_| panic!("{results:?}"));
    assert_eq!((&seen["cwd"], &seen["token"]), (&json!("/server"), &json!("for it")));
    assert_eq!(seen["argv"], json!(["modern"]));
    assert_ne!(seen["uid"], 0, "it runs as the sandbox's user");
    assert_eq!(results[1], "written");
    assert!(!results[2].contains("a secret"), "{}", results[2]);
    let shown = finished.again().args(["diff"]).run().expect_code(0);
    assert!(!shown.stdout.contains("new.txt"), "{}", shown.stdout);
    image.wait_until_unused();
}

#[tokio::test]
async fn an_image_brings_its_arguments_its_variables_and_its_directory() {
    if engine().await.is_none() {
        return;
    }
    let image = Image::make("image");
    let model = calls(&[("where", json!({}))]);
    with_server(&format!("image = {:?}", image.0))
        .endpoint(&model)
        .args(["run", "--json", "use the tools"])
        .run()
        .expect_code(0);
    let seen: Value = serde_json::from_str(&results(&model)[0]).unwrap();
    assert_eq!((&seen["cwd"], &seen["token"]), (&json!("/server"), &json!("of-the-image")));
    assert_eq!(seen["argv"], json!(["legacy"]));
    let missing = calls(&[]);
    let finished = with_server("image = \"127.0.0.1:1/nope:1\"")
        .endpoint(&missing)
        .args(["run", "use the tools"])
        .run()
        .expect_code(0);
    assert!(finished.stderr.contains("has no sandbox to run in"), "{}", finished.stderr);
}

#[tokio::test]
async fn limits_of_a_server_hold_in_a_sandbox_of_its_own() {
    if engine().await.is_none() {
        return;
    }
    let model =
        calls(&[("children", json!({ "count": 60 })), ("write", json!({ "path": "/workspace/new.txt" }))]);
    let settings = format!("command = \"python3\"\nargs = {}\npids = 24", json!(["-c", SERVER]));
    let finished = with_server(&settings)
        .endpoint(&model)
        .args(["run", "--json", "--sandbox", "docker", "use the tools"])
        .run()
        .expect_code(0);
    let results = results(&model);
    let children: u32 = results[0].parse().unwrap_or_else(|_| panic!("{results:?}"));
    assert!((1..24).contains(&children), "{children}");
    assert_eq!(results[1], "written");
    let shown = finished.again().args(["diff"]).run().expect_code(0);
    assert!(!shown.stdout.contains("new.txt"), "{}", shown.stdout);
}

#[test]
fn what_docker_run_asks_for_and_a_sandbox_cannot_give_is_refused_by_name() {
    let run = |words: &[&str]| {
        let call = with_server(&format!("command = \"docker\"\nargs = {}", json!(words)));
        call.args(["run", "use the tools"]).run().expect_code(2)
    };
    for (words, named) in [
        (vec!["run", "-i", "-v", "/:/host", "image"], "docker run -v"),
        (vec!["run", "--privileged", "image"], "docker run --privileged"),
        (vec!["run", "--network=host", "image"], "docker run --network host"),
    ] {
        let finished = run(&words);
        assert!(finished.stderr.contains(named), "{}", finished.stderr);
        assert!(finished.stderr.contains("where = \"host\""), "{}", finished.stderr);
    }
}
