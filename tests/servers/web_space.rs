//! The image of `examples/huggingface-space`: built from a base of this machine's packages, without a network, and run as a Space runs it.

use agent_testbed::agent::{DEADLINE, binary};
use agent_testbed::engine::engine;
use agent_testbed::serve::{KEY, Server};
use agent_testing::counterpart::root;
use agent_testing::debian_image::{DebianImage, docker, succeeded};
use agent_testing::endpoint::{Endpoint, endpoint};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const TOKEN: &str = "a-token-that-nobody-guesses";
/// The name of the Space. Its port is the one that the Dockerfile says.
const NAME: &str = "localhost:7860";
/// What the engine has to leave to a container whose programs make namespaces.
const NAMESPACES: [&str; 4] =
    ["--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"];

/// A container that is removed when the test ends.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(&["rm", "--force", "--volumes", &self.0]);
    }
}

/// The packages that the Dockerfile installs.
fn packages(dockerfile: &str) -> Vec<&str> {
    let line =
        dockerfile.lines().find(|line| line.contains("apt-get install")).expect("a line with packages");
    let words = line.split_whitespace().skip_while(|word| *word != "install").skip(1);
    words.filter(|word| !word.starts_with('-') && *word != "\\").collect()
}

/// The image of the Space; `None` where this machine lacks what it is made of.
fn build(directory: &Path) -> Option<(DebianImage, DebianImage)> {
    let example = root().join("examples/huggingface-space/Dockerfile");
    let text = std::fs::read_to_string(&example).expect("the Dockerfile");
    let packages = packages(&text);
    let base = DebianImage::of(&packages, directory)?;
    let context = directory.join("space");
    std::fs::create_dir(&context).expect("a directory");
    for file in ["Dockerfile", "start"] {
        std::fs::copy(example.with_file_name(file), context.join(file)).expect("a copy");
    }
    std::fs::copy(binary(), context.join("agent")).expect("a copy");
    let base_argument = format!("BASE={}", base.0);
    let space = DebianImage(format!("local.test/space-{}:1", std::process::id()));
    let context = context.display().to_string();
    let arguments =
        ["build", "--network", "none", "--build-arg", &base_argument, "--tag", &space.0, &context];
    succeeded(&docker(&arguments));
    Some((base, space))
}

/// The command that runs the Space: as the user of its image, without rights, and with nothing that can be written to but its home and `/tmp`.
fn space(how: &str, name: &str, token: &str, model: &str, more: &[&str], image: &str) -> Output {
    let mut command = Command::new("docker");
    command.args(["run", how, "--name", name, "--read-only", "--cap-drop", "ALL", "--init"]);
    command.args(["--tmpfs", "/tmp:exec", "--tmpfs", "/home/user:uid=1000,gid=1000,mode=700,exec"]);
    command.args(["--security-opt", "no-new-privileges"]);
    for (variable, value) in [
        ("SPACE_HOST", NAME),
        ("AGENT_WEB_TOKEN", token),
        ("AGENT_BASE_URL", model),
        ("AGENT_API_KEY", "test-key"),
        ("AGENT_MODEL", "test-model"),
    ] {
        command.args(["--env", &format!("{variable}={value}")]);
    }
    // Of a variable that is there twice the last one counts.
    command.args(more).arg(image).stdin(Stdio::null()).output().expect("docker starts")
}

/// Where containers reach a port of this machine's loopback: `address` is the bridge's. It serves until the test process ends.
fn relay(address: &str, to: String) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("a port of the bridge");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for outer in listener.incoming().flatten() {
            let Ok(inner) = TcpStream::connect(&to) else { continue };
            for (from, to) in [(&outer, &inner), (&inner, &outer)] {
                let (mut from, mut to) = (from.try_clone().expect("a copy"), to.try_clone().expect("a copy"));
                std::thread::spawn(move || {
                    // Either side may close the connection at any time.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    port
}

/// What a browser sends to the Space at `address`.
struct Browser {
    address: String,
    token: String,
    visitor: String,
}

impl Browser {
    fn curl(&self, path: &str, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--no-buffer", "--max-time", "100"]);
        for header in [
            format!("Host: {NAME}"),
            format!("Origin: https://{NAME}"),
            "Sec-Fetch-Site: same-origin".to_owned(),
            format!("Authorization: Bearer {}", self.token),
            format!("X-Agent-Visitor: {}", self.visitor),
        ] {
            curl.args(["--header", &header]);
        }
        curl.args(more).arg(format!("http://{}{path}", self.address));
        curl.stdin(Stdio::null()).stdout(Stdio::piped());
        curl
    }

    /// The status and the body of an answer.
    fn ask(&self, path: &str, more: &[&str]) -> (u16, String) {
        let done =
            self.curl(path, more).args(["--write-out", "\n%{http_code}"]).output().expect("curl starts");
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').expect("a status");
        (status.parse().expect("a status"), body.to_owned())
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value, expected: u16) -> Value {
        let header = ["--header", "Content-Type: application/json", "--data", &body.to_string()];
        let (status, answer) = self.ask(path, &header);
        assert_eq!(status, expected, "{path}: {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }
}

fn name(what: &str) -> String {
    format!("agent-space-{what}-{}", std::process::id())
}

/// It never runs without a sandbox, and says what is in the way and what to do; nor without a password or a name.
fn refuses(image: &str) {
    let (nameless, elsewhere) = (["--env", "SPACE_HOST="], "--sandbox novita");
    for (token, options, code, reasons) in [
        (
            TOKEN,
            &[][..],
            4,
            ["the local sandbox did not start: a system call filter is on this process", elsewhere],
        ),
        (
            TOKEN,
            &NAMESPACES[..2],
            4,
            ["the local sandbox did not start: parts of /proc are hidden here", elsewhere],
        ),
        ("", &NAMESPACES[..], 2, ["no password", "AGENT_WEB_TOKEN"]),
        (TOKEN, &nameless[..], 2, ["SPACE_HOST is not set", "localhost:7860"]),
    ] {
        let refused = space("--rm", &name("refusing"), token, "http://127.0.0.1:9/v1", options, image);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(code), "{said}");
        for reason in reasons {
            assert!(said.contains(reason), "{reason}: {said}");
        }
    }
}

/// This machine's address in the engine's network: the first one. An engine that has just made its bridge names no gateway.
fn gateway() -> String {
    let inspect = ["network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}"];
    let subnet = succeeded(&docker(&inspect));
    let (address, bits) = subnet.trim().split_once('/').expect("an address and its bits");
    let address: Ipv4Addr = address.parse().expect("an address");
    let mask = u32::MAX << (32 - bits.parse::<u32>().expect("a number of bits"));
    Ipv4Addr::from((u32::from(address) & mask) + 1).to_string()
}

/// Starts it where namespaces can be made, and waits until it listens: its address.
fn serve(image: &str, model: &Endpoint) -> (Container, String) {
    let gateway = gateway();
    let port = relay(&gateway, model.root().trim_start_matches("http://").to_owned());
    let container = Container(name("serving"));
    let url = format!("http://{gateway}:{port}/v1");
    succeeded(&space("--detach", &container.0, TOKEN, &url, &NAMESPACES, image));
    assert_eq!(succeeded(&docker(&["exec", &container.0, "id", "-u"])), "1000");
    let inspect = ["inspect", "--format", "{{.NetworkSettings.IPAddress}}", &container.0];
    let address = format!("{}:7860", succeeded(&docker(&inspect)));
    listens(&container, &address, "local");
    (container, address)
}

/// Waits until it serves visitors with sandboxes of that kind.
fn listens(container: &Container, address: &str, sandbox: &str) {
    let said = || String::from_utf8_lossy(&docker(&["logs", &container.0]).stderr).into_owned();
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < DEADLINE, "{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    // The engine passes on what is printed a little later.
    while !said().contains(&format!("Every visitor gets a sandbox of its own: {sandbox}")) {
        assert!(started.elapsed() < DEADLINE, "{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts it as a Space runs it, under the engine's own filter, with the key of a provider: its address.
fn serve_at_a_provider(image: &str, model: &Endpoint, provider: &Server) -> (Container, String) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let url = format!("http://{}", provider.address());
    let variables = [
        format!("PORT={}", free.port()),
        format!("NOVITA_API_KEY={KEY}"),
        format!("NOVITA_API_URL={url}"),
        format!("NOVITA_SANDBOX_URL={url}"),
    ];
    // Without TLS a key goes to this machine alone, so the container has its loopback.
    let mut more = vec!["--network", "host"];
    variables.iter().for_each(|variable| more.extend(["--env", variable]));
    let container = Container(name("at-a-provider"));
    succeeded(&space("--detach", &container.0, TOKEN, &model.url(), &more, image));
    let address = format!("127.0.0.1:{}", free.port());
    listens(&container, &address, "novita");
    assert_eq!(succeeded(&docker(&["exec", &container.0, "id", "-u"])), "1000");
    let status = succeeded(&docker(&["exec", &container.0, "grep", "Seccomp:", "/proc/self/status"]));
    assert!(status.ends_with('2'), "the engine's filter is on: {status}");
    for program in ["python3 -c 'import matplotlib'", "pip3 --version", "node --version"] {
        succeeded(&docker(&["exec", &container.0, "sh", "-c", program]));
    }
    (container, address)
}

/// A visitor gets nowhere without the password, and with it uploads a file, has it changed, and takes a patch away.
fn visit(address: String, sandbox: &str) {
    let mut browser =
        Browser { address, token: "not-the-password-at-all".to_owned(), visitor: String::new() };
    let (status, page) = browser.ask("/", &[]);
    assert!(status == 200 && page.contains("app.js"), "{status} {page}");
    assert_eq!(browser.ask("/api/sessions", &[]).0, 401);
    browser.token = TOKEN.to_owned();
    let key = browser.post("/api/visitor", &json!({}), 200);
    browser.visitor = key["visitor"].as_str().expect("a key").to_owned();
    let kind = ["--request", "PUT", "--header", "Content-Type: application/octet-stream"];
    let upload = [&kind[..], &["--data-binary", "hello\n"]].concat();
    assert_eq!(browser.ask("/api/upload?path=list.txt", &upload).0, 200);
    let opened = browser.post("/api/sessions", &json!({}), 200);
    let at = |path: &str| format!("/api/session/{}/{path}", opened["session"].as_str().expect("an id"));
    let mut events = browser.curl(&at("events"), &[]).spawn().expect("curl starts");
    let lines = BufReader::new(events.stdout.take().expect("its output")).lines();
    browser.post(&at("prompt"), &json!({"text": "make it loud"}), 202);
    let mut seen = String::new();
    for line in lines.map_while(Result::ok) {
        seen.push_str(&line);
        if line.contains("I made it loud.") {
            break;
        }
    }
    let _ = events.kill();
    let _ = events.wait();
    for part in [&format!(r#""backend":"{sandbox}""#), "I made it loud."] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    let (_, patch) = browser.ask(&at("patch"), &[]);
    assert!(patch.contains("loud.txt") && patch.contains("+HELLO"), "{patch}");
}

#[tokio::test]
async fn the_image_of_the_space_serves_visitors_here_and_at_a_provider_and_refuses_to_start_without_a_sandbox()
 {
    if engine().await.is_none() || !Path::new("/var/lib/dpkg/status").exists() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let Some((_base, space)) = build(directory.path()) else { return };
    refuses(&space.0);
    let model = || {
        let loud = json!({"command": "tr a-z A-Z < list.txt > loud.txt; id -un; pwd"});
        endpoint().tool_call("run_commands", loud).text("I made it loud.").start()
    };
    let of_local = model();
    let (container, address) = serve(&space.0, &of_local);
    visit(address, "local");
    drop(container);
    // A bug: on an ordinary Space, where no namespaces can be made, it ended.
    let (of_provider, provider) = (model(), Server::start("local", &[]));
    let (_container, address) = serve_at_a_provider(&space.0, &of_provider, &provider);
    visit(address, "novita");
}
