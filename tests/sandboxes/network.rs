//! The network that is asked for, on every backend: what gets through, and what does not.

use agent::Result;
use agent::approval::{Answer, Approver, Question};
use agent::event::{Event, Events, Listener, Record};
use agent::network::{Entry, Gateway, Limits, PORT};
use agent::sandbox::{Command, FileWrite, Network, Node, Outcome, Output, Sandbox, Spec};
use agent_testbed::backends::{BACKENDS, backend, shell};
use agent_testing::counterpart::has;
use agent_testing::site::{ADDRESS, CERTIFICATE, Site};
use agent_testing::skip::left_out;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DEADLINE: Duration = Duration::from_secs(60);

/// A sandbox with a network, and its events.
struct Net {
    sandbox: Sandbox,
    gateway: Arc<Gateway>,
    seen: Arc<Mutex<Vec<Event>>>,
}

struct Keep(Arc<Mutex<Vec<Event>>>);

impl Listener for Keep {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        self.0.lock().unwrap().push(record.event.clone());
        Ok(())
    }
}

/// Runs `test` in a fresh sandbox of every backend, which may reach `hosts`.
async fn everywhere<F: Future<Output = ()>>(hosts: &[&str], limits: Limits, test: impl Fn(Arc<Net>) -> F) {
    for backend_name in BACKENDS {
        let Some(backend) = backend(backend_name).await else { continue };
        eprintln!("on {backend_name}");
        let network = match hosts {
            [] => Network::None,
            hosts => Network::Hosts(hosts.iter().map(ToString::to_string).collect()),
        };
        let spec = Spec {
            network: network.clone(),
            idle_ttl: Duration::from_secs(20),
            ..Spec::new(format!("net-{}-{}", std::process::id(), fastrand::u32(..)))
        };
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        let seen = Arc::default();
        let events = Arc::new(Events::new(1));
        events.begin("test", 1, Box::new(Keep(Arc::clone(&seen))));
        let gateway = Gateway::new(&network, events, limits).expect("the list is one");
        gateway.attach(&sandbox).await.expect("the proxy opens");
        test(Arc::new(Net { sandbox: sandbox.clone(), gateway, seen })).await;
        sandbox.shutdown().await;
        backend.destroy(&spec.session).await.expect("the sandbox goes");
    }
}

impl Net {
    /// How a command ended, and its output on both streams.
    async fn run(&self, command: &str) -> (Outcome, String) {
        let command = Command { timeout: Some(Duration::from_secs(120)), ..shell(command) };
        let mut output = Vec::new();
        let finished = self
            .sandbox
            .run(command, &mut |part| {
                if let Output::Data(_, bytes) = part {
                    output.extend_from_slice(bytes);
                }
            })
            .await
            .expect("the sandbox answers");
        (finished.outcome, String::from_utf8_lossy(&output).into_owned())
    }

    /// The output of a command that has to succeed.
    async fn output(&self, command: &str) -> String {
        let (outcome, output) = self.run(command).await;
        assert_eq!(outcome, Outcome::Exited(0), "{command}: {output}\n{:?}", self.events());
        output.trim_end().to_owned()
    }

    /// Returns what the proxy answers to these bytes, until it closes. A program inside could send them.
    async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.sandbox.connect_port(PORT).await.expect("the proxy listens");
        let mut answer = Vec::new();
        let exchange = async {
            stream.write_all(bytes.as_ref()).await?;
            stream.read_to_end(&mut answer).await
        };
        // Broken off is an answer as well.
        let _ = tokio::time::timeout(DEADLINE, exchange).await.expect("the proxy closes");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Puts the site's certificate into the workspace, as `ca.pem`.
    async fn trust_the_site(&self) {
        let file = FileWrite {
            path: "ca.pem".into(),
            node: Node::Regular(CERTIFICATE.into()),
            mode: None,
            mtime_ns: None,
            follow: false,
        };
        self.sandbox.write_files(vec![file]).await.expect("the file is written");
    }

    fn events(&self) -> Vec<Event> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for an event.
    async fn wait_for(&self, what: impl Fn(&Event) -> bool) -> Event {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.events().into_iter().find(|event| what(event)) {
                return event;
            }
            assert!(begun.elapsed() < DEADLINE, "only these events came: {:?}", self.events());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The rule of the last refusal.
    fn rule(&self) -> String {
        let denied = self.events().into_iter().rev().find_map(|event| match event {
            Event::Denied { rule, .. } => Some(rule),
            _ => None,
        });
        denied.unwrap_or_else(|| panic!("nothing was denied: {:?}", self.events()))
    }
}

fn connect(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

/// A listener that nobody may reach.
fn canary() -> (TcpListener, String) {
    let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
    listener.set_nonblocking(true).expect("a mode");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

fn saw_nobody(canary: &TcpListener) {
    assert_eq!(canary.accept().expect_err("nobody came").kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_named_host_is_reached_over_http_https_and_plain_tcp() {
    let (http, https) =
        (Site::http().file("/hello", "hello\n"), Site::https().file("/hello", "hello, safely\n"));
    let hosts = [http.host_and_port(), https.host_and_port()];
    everywhere(&[&hosts[0], &hosts[1]], Limits::default(), |net| {
        let (http, https) = (http.host_and_port(), https.host_and_port());
        async move {
            net.trust_the_site().await;
            assert_eq!(net.output(&format!("curl -sS http://{http}/hello")).await, "hello");
            assert_eq!(
                net.output(&format!("curl -sS --cacert ca.pem https://{https}/hello")).await,
                "hello, safely"
            );
            // Any protocol: the port was named.
            let raw = format!("{}GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n", connect(&http));
            assert!(net.ask(raw).await.ends_with("\r\n\r\nhello\n"));
            let event = net.wait_for(|event| matches!(event, Event::Connection { received: 14.., .. })).await;
            let Event::Connection { host, port, allowed, sent, reason, .. } = event else { unreachable!() };
            assert_eq!((host.as_str(), allowed, reason), ("127.0.0.2", true, None));
            assert!(http.ends_with(&format!(":{port}")) && sent > 50);
            assert_eq!(net.output("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo");
        }
    })
    .await;
}

#[tokio::test]
async fn ipv6_is_named_in_brackets() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return left_out("this machine has no IPv6");
    };
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"six\n");
        }
    });
    everywhere(&[&address], Limits::default(), |net| {
        let address = address.clone();
        async move {
            // The server speaks first.
            assert!(net.ask(connect(&address)).await.ends_with("\r\n\r\nsix\n"));
            let connection = net.wait_for(|event| matches!(event, Event::Connection { .. })).await;
            assert!(matches!(connection, Event::Connection { host, received: 4, .. } if host == "::1"));
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_named_is_refused_and_nobody_sees_anything() {
    let (canary, address) = canary();
    let port = canary.local_addr().unwrap().port();
    everywhere(&["*.example.com", "127.0.0.2:1", "vm.example.org"], Limits::default(), |net| {
        let address = address.clone();
        async move {
            for target in [
                address.as_str(),
                &format!("127.2:{port}"),
                &format!("[::ffff:127.0.0.2]:{port}"),
                &format!("0x7f000002:{port}"),
                &format!("localhost:{port}"),
                "169.254.169.254:80",
                "[fd00:ec2::254]:80",
                "10.0.0.1:443",
                "example.com:443",
                "evilexample.com:443",
                "a.example.com.evil.org:443",
                "a.example.com:8443",
                "a.example.com:22",
            ] {
                let answer = net.ask(connect(target)).await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{target}: {answer}");
                assert!(answer.contains("--network"), "{answer}");
                assert!(net.rule().contains("not on the list"), "{target}: {}", net.rule());
            }
            let (outcome, output) = net.run(&format!("curl -sS http://{address}/secret")).await;
            assert_eq!(outcome, Outcome::Exited(0));
            assert!(output.contains(&format!("with --network {address}")), "{output}");
            let connections = net
                .events()
                .into_iter()
                .filter(|event| matches!(event, Event::Connection { allowed: false, .. }));
            assert_eq!(connections.count(), 14, "each is an event");
            assert!(net.gateway.explain("").is_some_and(|note| note.contains("it is not on the list")));
        }
    })
    .await;
    saw_nobody(&canary);
}

#[tokio::test]
async fn a_name_that_leads_into_the_machines_own_network_is_refused_even_when_it_is_allowed() {
    let (canary, _) = canary();
    let port = canary.local_addr().unwrap().port();
    let always: Arc<dyn Approver> =
        Arc::new(|question: &Question<'_>| -> BoxFuture<'static, Result<Answer>> {
            panic!("asked, although the address is known: {question}")
        });
    everywhere(&["127.0.0.1:1"], Limits::default(), |net| {
        let always = Arc::clone(&always);
        async move {
            net.gateway.ask_with(always);
            let answer = net.ask(connect(&format!("localhost:{port}"))).await;
            assert!(
                answer.starts_with(&format!(
                    "HTTP/1.1 403 localhost:{port} refused: its address is a loopback"
                )),
                "{answer}"
            );
            assert!(answer.contains(&format!("with --network 127.0.0.1:{port}")), "{answer}");
            assert!(net.rule().contains("a loopback address"), "{}", net.rule());
        }
    })
    .await;
    saw_nobody(&canary);
}

#[tokio::test]
async fn a_redirect_is_checked_again() {
    let (canary, address) = canary();
    let site = Site::http().redirect("/", &format!("http://{address}/"));
    everywhere(&[&site.host_and_port()], Limits::default(), |net| {
        let (site, address) = (site.host_and_port(), address.clone());
        async move {
            let (_, output) = net.run(&format!("curl -sSL http://{site}/")).await;
            assert!(output.contains(&format!("may not connect to {address}")), "{output}");
        }
    })
    .await;
    saw_nobody(&canary);
}

#[tokio::test]
async fn tls_has_to_name_the_host_that_was_asked_for() {
    let site = Site::https();
    everywhere(&[&site.host_and_port()], Limits::default(), |net| {
        let site = site.host_and_port();
        async move {
            for name in ["evil.test", "server.test"] {
                let request = [connect(&site).as_bytes(), &greeting_of_a_client(name)].concat();
                let answer = net.ask(request).await;
                assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("403"), "{answer}");
                assert!(net.rule().contains(&format!("TLS asks for {name:?}")), "{}", net.rule());
            }
            let sent = net.events().into_iter().filter_map(|event| match event {
                Event::Connection { sent, .. } => Some(sent),
                _ => None,
            });
            assert_eq!(sent.collect::<Vec<_>>(), [0, 0], "the server got nothing");
        }
    })
    .await;
}

#[tokio::test]
async fn a_second_request_does_not_ride_on_the_first() {
    let site = Site::http().file("/", "first\n").file("/second", "second\n");
    everywhere(&[&site.host_and_port()], Limits::default(), |net| {
        let site = site.host_and_port();
        async move {
            let one = |path: &str, host: &str, fields: &str| {
                format!("GET http://{site}{path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
            };
            let answer = net.ask(one("/", &site, "") + &one("/second", &site, "")).await;
            assert!(answer.ends_with("\r\n\r\nfirst\n"), "{answer}");
            let smuggled = one("/", &site, "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n")
                + "0\r\n\r\nGET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n";
            assert!(net.ask(smuggled).await.starts_with("HTTP/1.1 411 "));
            assert!(net.ask(one("/", "evil.test", "")).await.starts_with("HTTP/1.1 400 "));
            assert!(
                net.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    .await
                    .contains("the sandbox's HTTP proxy")
            );
            assert!(net.ask(vec![b'x'; 100_000]).await.starts_with("HTTP/1.1 4"));
        }
    })
    .await;
    assert!(site.requests().iter().all(|head| !head.contains("/second")), "{:?}", site.requests());
}

#[tokio::test]
async fn a_server_that_does_not_close_gets_no_second_request_either() {
    let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            let first = stream.read(&mut buffer).unwrap_or(0);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none");
            // The second request is sent as soon as the answer is there, so that it would be here by then.
            stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
            let second = stream.read(&mut buffer[first..]).unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&buffer[..first + second]).into_owned());
        }
    });
    let receiver = Arc::new(Mutex::new(receiver));
    everywhere(&[&address], Limits::default(), |net| {
        let (address, receiver) = (address.clone(), Arc::clone(&receiver));
        async move {
            let request = format!("GET http://{address}/ HTTP/1.1\r\n\r\n");
            let mut stream = net.sandbox.connect_port(PORT).await.expect("the proxy listens");
            stream.write_all(request.as_bytes()).await.expect("the proxy listens");
            let mut answer = vec![0; 41];
            stream.read_exact(&mut answer).await.expect("an answer");
            assert!(answer.ends_with(b"one"), "{}", String::from_utf8_lossy(&answer));
            stream.write_all(request.replace("GET", "POST").as_bytes()).await.expect("the proxy listens");
            let request =
                tokio::task::spawn_blocking(move || receiver.lock().unwrap().recv_timeout(DEADLINE));
            let request = request.await.expect("no panic").expect("the server got a request");
            assert_eq!(request, format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"));
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_goes_through_as_long_as_it_says() {
    let site = Site::http().file("/", "thanks\n");
    everywhere(&[&site.host_and_port()], Limits::default(), |net| {
        let site = site.host_and_port();
        async move {
            let post =
                format!("head -c 3000000 /dev/zero | curl -sS --data-binary @- -H 'Expect:' http://{site}/");
            assert_eq!(net.output(&post).await, "thanks");
            net.wait_for(|event| matches!(event, Event::Connection { sent: 3_000_000.., allowed: true, .. }))
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn there_is_a_limit_on_connections_at_once_in_all_and_on_bytes() {
    let (listener, address) = canary();
    let limits = Limits { at_once: 2, connections: 5, bytes: 10_000 };
    everywhere(&[&address], limits, |net| {
        let (address, listener) = (address.clone(), listener.try_clone().expect("a listener"));
        async move {
            let open = async || {
                let mut stream = net.sandbox.connect_port(PORT).await.expect("the proxy listens");
                stream.write_all(connect(&address).as_bytes()).await.expect("the proxy listens");
                let mut answer = [0; 12];
                stream.read_exact(&mut answer).await.expect("an answer");
                (String::from_utf8_lossy(&answer).into_owned(), stream)
            };
            let (first, second, third) = (open().await, open().await, open().await);
            assert_eq!([first.0, second.0, third.0], ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 503"]);
            net.wait_for(|event| *event == Event::LimitReached { limit: "connections_at_once".into() }).await;

            // A server that closes ends the connection.
            let (_first, _) = listener.accept().expect("the first");
            drop(listener.accept().expect("the second"));
            drop(second.1);
            net.wait_for(|event| matches!(event, Event::Connection { allowed: true, .. })).await;
            let mut stream = first.1;
            stream.write_all(&[b'x'; 20_000]).await.expect("the sandbox takes it");
            net.wait_for(|event| *event == Event::LimitReached { limit: "network_bytes".into() }).await;

            let (fourth, fifth) = (open().await, open().await);
            assert_eq!([&fourth.0, &fifth.0], ["HTTP/1.1 200", "HTTP/1.1 200"]);
            assert_eq!(open().await.0, "HTTP/1.1 503");
            net.wait_for(|event| *event == Event::LimitReached { limit: "connections".into() }).await;
            let before = net.events().len();
            assert_eq!(open().await.0, "HTTP/1.1 503");
            assert_eq!(net.events().len(), before, "a flood is not reported one by one");
            // But each connection that was allowed before is reported, however many came since.
            while listener.accept().is_ok() {}
            drop((fourth.1, fifth.1));
            let is_reported = |event: &&Event| matches!(event, Event::Connection { allowed: true, .. });
            net.wait_for(|_| net.events().iter().filter(is_reported).count() == 4).await;
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_host_nothing_listens_until_one_is_allowed() {
    let site = Site::http().file("/", "hello\n");
    everywhere(&[], Limits::default(), |net| {
        let site = site.host_and_port();
        async move {
            assert_eq!(net.output("echo \"[$HTTP_PROXY]\"").await, "[]");
            assert!(net.sandbox.connect_port(PORT).await.is_err());
            let entry = Entry::parse(&site).unwrap();
            net.gateway.change(|rules| rules.allow(entry.clone()));
            net.gateway.attach(&net.sandbox).await.expect("the proxy opens");
            assert_eq!(net.output(&format!("curl -sS http://{site}/")).await, "hello");
            net.gateway.change(|rules| rules.deny(entry));
            net.gateway.attach(&net.sandbox).await.expect("the proxy stays");
            assert!(net.output(&format!("curl -sS http://{site}/")).await.contains("the user denied it"));
        }
    })
    .await;
}

#[tokio::test]
async fn the_user_is_asked_once_however_many_connections_wait() {
    let site = Site::http().file("/", "hello\n");
    everywhere(&["127.0.0.1:1"], Limits::default(), |net| {
        let site = site.host_and_port();
        async move {
            let questions = Arc::new(Mutex::new(Vec::new()));
            let answers = Arc::new(Mutex::new(vec![Answer::Never, Answer::Always, Answer::Once]));
            let (asked, to_give) = (Arc::clone(&questions), Arc::clone(&answers));
            let (go, gone) = tokio::sync::watch::channel(false);
            net.gateway.ask_with(Arc::new(move |question: &Question<'_>| {
                asked.lock().unwrap().push(question.to_string());
                let (answer, mut gone) = (to_give.lock().unwrap().pop(), gone.clone());
                async move {
                    gone.wait_for(|go| *go).await.expect("the test waits");
                    answer.ok_or_else(|| agent::Error::usage("no answer is left"))
                }
                .boxed()
            }));
            let fetch = || {
                let net = Arc::clone(&net);
                let request = format!("GET http://{site}/ HTTP/1.1\r\n\r\n");
                tokio::spawn(async move { net.ask(request).await })
            };
            let both = (fetch(), fetch());
            while questions.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // Both have come by now, or the second is asked about anew and has an answer of its own: `session`.
            go.send_replace(true);
            assert!(both.0.await.unwrap().ends_with("hello\n") && both.1.await.unwrap().ends_with("hello\n"));
            while answers.lock().unwrap().len() > 1 {
                assert!(fetch().await.unwrap().ends_with("hello\n"));
            }
            let count = questions.lock().unwrap().len();
            assert!(fetch().await.unwrap().ends_with("hello\n"));
            assert_eq!(questions.lock().unwrap().len(), count, "for the session");
            assert_eq!(
                questions.lock().unwrap()[0],
                format!("A program in the sandbox wants to connect to {site}, a loopback address. Allow it?")
            );

            let elsewhere = net.ask(connect("never.test:443")).await;
            assert!(
                elsewhere.starts_with("HTTP/1.1 403 ") && net.rule().contains("denied it for this session"),
                "{elsewhere}"
            );
            net.ask(connect("never.test:443")).await;
            assert_eq!(questions.lock().unwrap().len(), count + 1, "never again");
        }
    })
    .await;
}

#[tokio::test]
async fn no_event_is_emitted_once_the_session_has_ended() {
    let (_listener, address) = canary();
    everywhere(&[&address], Limits::default(), |net| {
        let address = address.clone();
        async move {
            let mut stream = net.sandbox.connect_port(PORT).await.expect("the proxy listens");
            stream.write_all(connect(&address).as_bytes()).await.expect("the proxy listens");
            stream.read_exact(&mut [0; 12]).await.expect("an answer");
            net.gateway.end().await;
            assert_eq!(net.events().len(), 1, "the open one is reported: {:?}", net.events());
            net.ask(connect("elsewhere.test:443")).await;
            assert_eq!(net.events().len(), 1);
        }
    })
    .await;
}

/// The usual tools find the proxy by themselves.
#[tokio::test]
async fn pip_installs_git_clones_and_cargo_fetches() {
    if !has("pip3", "python3-pip") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let on_host = |script: &str| {
        let output = std::process::Command::new("bash")
            .args(["-euc", script])
            .current_dir(directory.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .expect("bash");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    };
    on_host(
        "git init -q src && cd src && echo cloned > file && git add . && \
         git -c user.name=t -c user.email=t@t commit -qm first && cd .. && \
         git clone -q --bare src repo.git && git -C repo.git update-server-info",
    );
    on_host(
        "mkdir -p hello-1.0.0/src && printf '[package]\\nname = \"hello\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' \
         > hello-1.0.0/Cargo.toml && echo > hello-1.0.0/src/lib.rs && tar czf hello.crate hello-1.0.0",
    );
    on_host(
        "python3 -c \"import zipfile; z = zipfile.ZipFile('greet-1.0-py3-none-any.whl', 'w')
z.writestr('greet.py', 'print(\\\"greetings\\\")\\n')
z.writestr('greet-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: greet\\nVersion: 1.0\\n')
z.writestr('greet-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
z.writestr('greet-1.0.dist-info/RECORD', '')\"",
    );
    let krate = std::fs::read(directory.path().join("hello.crate")).expect("a crate");
    let sum = hex::encode(Sha256::digest(&krate));
    let line = format!(
        r#"{{"name":"hello","vers":"1.0.0","deps":[],"cksum":"{sum}","features":{{}},"yanked":false}}"#
    );
    let site = Site::https();
    let url = format!("https://{}", site.host_and_port());
    let site = site
        .directory("/repo.git", &directory.path().join("repo.git"))
        .file("/simple/greet/", "<a href=\"../../greet-1.0-py3-none-any.whl\">greet-1.0-py3-none-any.whl</a>")
        .file("/greet-1.0-py3-none-any.whl", read(directory.path(), "greet-1.0-py3-none-any.whl"))
        .file("/index/config.json", format!(r#"{{"dl":"{url}/crates"}}"#))
        .file("/index/he/ll/hello", line)
        .file("/crates/hello/1.0.0/download", krate);
    everywhere(&[&site.host_and_port()], Limits::default(), |net| {
        let url = url.clone();
        async move {
            net.trust_the_site().await;
            let trust = "export GIT_SSL_CAINFO=$PWD/ca.pem PIP_CERT=$PWD/ca.pem CARGO_HTTP_CAINFO=$PWD/ca.pem;";
            let pip = format!("{trust} python3 -m pip install -q --user --index-url {url}/simple greet && python3 -m greet");
            assert!(net.output(&pip).await.ends_with("greetings"));
            let git = format!("{trust} git clone -q {url}/repo.git && cat repo/file");
            assert_eq!(net.output(&git).await, "cloned");
            let cargo = format!(
                "{trust} mkdir -p project/src project/.cargo && cd project && echo > src/lib.rs
                 printf '[registries.own]\\nindex = \"sparse+{url}/index/\"\\n' > .cargo/config.toml
                 printf '[package]\\nname = \"p\"\\nversion = \"0.1.0\"\\n[dependencies]\\nhello = {{ version = \"1\", registry = \"own\" }}\\n' > Cargo.toml
                 cargo fetch -q && ls $HOME/.cargo/registry/src/*/"
            );
            assert_eq!(net.output(&cargo).await, "hello-1.0.0");
            let all = net.events();
            assert!(all.iter().all(|event| matches!(event, Event::Connection { allowed: true, .. })), "{all:?}");
        }
    })
    .await;
    assert!(site.connections() >= 3);
}

fn read(directory: &Path, name: &str) -> Vec<u8> {
    std::fs::read(directory.join(name)).expect("a file")
}

/// The first flight of a real TLS client.
fn greeting_of_a_client(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a greeting");
    bytes
}
