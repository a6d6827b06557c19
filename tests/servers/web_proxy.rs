//! The proxies and the systemd unit of `examples/web`, with their own programs: nginx, Caddy, systemd-analyze.

use agent_testbed::agent::{DEADLINE, Running, agent};
use agent_testing::counterpart::has;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TOKEN: &str = "a-token-that-nobody-guesses";

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/web").join(name);
    std::fs::read_to_string(path).expect("the example")
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[track_caller]
fn wait_for_port(port: u16) {
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < DEADLINE, "nothing listens on {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `agent web` behind a proxy with TLS.
struct Site {
    url: String,
    token: &'static str,
    _proxy: Killed,
    running: Running,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.running.signal(libc::SIGKILL);
    }
}

impl Site {
    fn curl(&self, path: &str, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        let bearer = format!("Authorization: Bearer {}", self.token);
        curl.args(["--silent", "--insecure", "--no-buffer", "--max-time", "100", "--header", &bearer]);
        curl.args(more).arg(format!("{}{path}", self.url)).stdin(Stdio::null()).stdout(Stdio::piped());
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

    /// The same as the page does it.
    fn post(&self, path: &str, body: &Value, more: &[&str]) -> (u16, String) {
        let (origin, body) = (format!("Origin: {}", self.url), body.to_string());
        let json = "Content-Type: application/json";
        let own = ["--header", json, "--header", &origin, "--header", "Sec-Fetch-Site: same-origin"];
        self.ask(path, &[&own, &["--data", &body][..], more].concat())
    }
}

/// The page, a stream that is not held back, refusals, and who is locked out.
fn works_through(start: impl FnOnce(u16, u16) -> Killed) {
    let (inner, outer) = (free_port(), free_port());
    let words: String = (0..40).map(|number| format!("word{number} ")).collect();
    // The end of the answer never comes: what is seen of it was not held back.
    let model = endpoint().text(&words).after(900).stall(Duration::from_secs(3600)).start();
    let (listen, name) = (format!("127.0.0.1:{inner}"), format!("localhost:{outer}"));
    let running = agent()
        .endpoint(&model)
        .env("AGENT_WEB_TOKEN", TOKEN)
        .args(["web", "--listen", &listen, "--behind-proxy", &name])
        .start();
    wait_for_port(inner);
    let mut site =
        Site { url: format!("https://{name}"), token: TOKEN, _proxy: start(inner, outer), running };
    // A bug of this test: Caddy listens before it has made its certificate.
    let started = Instant::now();
    let (status, page) = loop {
        match site.ask("/", &[]) {
            (0, _) if started.elapsed() < DEADLINE => std::thread::sleep(Duration::from_millis(50)),
            answer => break answer,
        }
    };
    assert!(status == 200 && page.contains("app.js"), "{status} {page}");
    let (status, body) = site.post("/api/sessions", &json!({}), &[]);
    assert_eq!(status, 200, "{body}");
    let opened: Value = serde_json::from_str(&body).expect("JSON");
    let at = |path: &str| format!("/api/session/{}/{path}", opened["session"].as_str().expect("an id"));
    let mut events = Killed(site.curl(&at("events"), &[]).spawn().expect("curl starts"));
    let mut lines = BufReader::new(events.0.stdout.take().expect("its output")).lines();
    assert_eq!(site.post(&at("prompt"), &json!({"text": "hello"}), &[]).0, 202);
    let mut until = |what: &str| {
        let found = lines.by_ref().map_while(Result::ok).find(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("the stream ended before {what}"))
    };
    until("word0");
    assert_eq!(site.post(&at("stop"), &json!({}), &[]).0, 202);
    until("\"interrupted\":true");
    // Another page, another name, no token.
    let foreign = ["--header", "Origin: https://evil.example", "--header", "Content-Type: application/json"];
    assert_eq!(site.ask("/api/sessions", &[&foreign[..], &["--data", "{}"]].concat()).0, 403);
    // nginx passes the name on, which is refused; Caddy has nothing for it.
    assert!(!site.ask("/", &["--header", "Host: evil.example"]).1.contains("app.js"));
    // Addresses that the client itself names do not hide it.
    site.token = "a-wrong-one";
    for number in 0..10 {
        let forged = format!("X-Forwarded-For: 192.0.2.{number}");
        assert_eq!(site.ask("/api/sessions", &["--header", &forged]).0, 401);
    }
    assert_eq!(site.ask("/api/sessions", &[]).0, 429);
}

#[test]
fn the_page_works_behind_nginx() {
    if !has("nginx", "nginx") || !has("curl", "curl") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/testing/src/tls");
    works_through(|inner, outer| {
        let server = example("nginx.conf");
        let changes = [
            ("listen 443", format!("listen 127.0.0.1:{outer}")),
            ("server_name agent.example.org", "server_name localhost".to_owned()),
            ("/etc/ssl/certs/agent.example.org.pem", tls.join("certificate.pem").display().to_string()),
            ("/etc/ssl/private/agent.example.org.key", tls.join("key.pem").display().to_string()),
            ("127.0.0.1:7860;", format!("127.0.0.1:{inner};")),
        ];
        let server = changes.iter().fold(server, |server, (from, to)| {
            assert!(server.contains(from), "{from}");
            server.replace(from, to)
        });
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {};\n", path(what)))
            .concat();
        let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
        let whole = format!(
            "{user}daemon off;\nmaster_process off;\nerror_log stderr;\npid {};\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n",
            path("pid")
        );
        std::fs::write(path("nginx.conf"), whole).expect("the configuration");
        let arguments = ["-p", &path(""), "-c", &path("nginx.conf")];
        Killed(Command::new("nginx").args(arguments).spawn().expect("nginx starts"))
    });
}

#[test]
fn the_page_works_behind_caddy() {
    if !has("caddy", "caddy") || !has("curl", "curl") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    works_through(|inner, outer| {
        let site = example("Caddyfile")
            .replace("\nagent.example.org {", &format!("\nhttps://localhost:{outer} {{\n\ttls internal"))
            .replace("reverse_proxy 127.0.0.1:7860", &format!("reverse_proxy 127.0.0.1:{inner}"));
        assert!(site.contains("tls internal") && site.contains(&format!(":{inner}")), "{site}");
        let options = "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n";
        let path = directory.path().join("Caddyfile");
        std::fs::write(&path, format!("{options}{site}")).expect("the configuration");
        let mut caddy = Command::new("caddy");
        caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(&path);
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            caddy.env(variable, directory.path());
        }
        caddy.stderr(Stdio::null());
        Killed(caddy.spawn().expect("Caddy starts"))
    });
}

#[test]
fn the_unit_is_one_that_systemd_reads() {
    if !has("systemd-analyze", "systemd") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = agent_testbed::agent::binary().display().to_string();
    let unit = example("agent-web.service").replace("/usr/local/bin/agent", &program);
    let path = directory.path().join("agent-web.service");
    std::fs::File::create(&path).and_then(|mut file| file.write_all(unit.as_bytes())).expect("the unit");
    let checked = Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("it starts");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && !said.contains("agent-web"), "{said}");
}
