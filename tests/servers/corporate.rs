//! Behind a company's proxy.

use agent_testbed::agent::{Agent, agent};
use agent_testing::site::Site;
use agent_testing::socks;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy that connects to `site` whatever host it is asked for, and takes one password.
struct CompanyProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl CompanyProxy {
    fn start(site: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (address, heads) =
            (listener.local_addr().expect("an address"), Arc::<Mutex<Vec<String>>>::default());
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // A client may close its connection at any time.
                std::thread::spawn(move || drop(serve(stream, site, &kept)));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("the heads").clone()
    }
}

fn serve(mut client: TcpStream, site: SocketAddr, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().expect("the heads").push(head.clone());
    // user:pa:ss
    if !head.contains("Proxy-Authorization: Basic dXNlcjpwYTpzcw==\r\n") {
        return client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    }
    let mut server = TcpStream::connect(site)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
    std::io::copy(&mut server, &mut client).map(drop)
}

fn fetching(proxy: &CompanyProxy, password: &str) -> Agent {
    let url = format!("http://user:{password}@{}", proxy.address);
    agent().env("HTTPS_PROXY", url).args([
        "exec",
        "--network",
        "files.company.test:8080,10.0.0.9:8080",
        "sh",
        "-c",
        "curl -sS http://files.company.test:8080/hello; env",
    ])
}

#[test]
fn allowed_connections_go_through_this_machines_proxy_without_its_credentials_inside() {
    let site = Site::http().file("/hello", "from the site\n");
    let proxy = CompanyProxy::start(site.address);
    let finished = fetching(&proxy, "pa%3Ass").run().expect_code(0);
    assert!(finished.stdout.contains("from the site\n"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(!finished.stdout.contains("pa%3Ass") && !finished.stdout.contains(&proxy.address.to_string()));
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with("CONNECT files.company.test:8080 HTTP/1.1\r\n"), "{heads:?}");

    let refused = fetching(&proxy, "wrong").run().expect_code(0);
    assert!(refused.stdout.contains("wants other credentials (407)"), "{}", refused.stdout);
    assert_eq!(proxy.heads().len(), 2, "it is not tried again");
}

#[test]
fn allowed_connections_go_through_a_socks_proxy_that_resolves_their_names() {
    let site = Site::http().file("/hello", "from the site\n");
    let (address, asked) = socks::start(site.address, Some(("user", "pa:ss")));
    let fetch = |password: &str| {
        agent()
            .env("ALL_PROXY", format!("socks5h://user:{password}@{address}"))
            .args(["exec", "--network", "files.company.test:8080"])
            .args(["sh", "-c", "curl -sS http://files.company.test:8080/hello; env"])
            .run()
            .expect_code(0)
    };
    let finished = fetch("pa%3Ass");
    assert!(finished.stdout.contains("from the site\n"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(!finished.stdout.contains("pa%3Ass") && !finished.stdout.contains(&address.to_string()));
    assert_eq!(asked.recv().expect("it is asked"), "files.company.test");
    let refused = fetch("wrong");
    assert!(refused.stdout.contains("wants other credentials"), "{}", refused.stdout);
    assert!(asked.try_recv().is_err(), "nothing is connected");
}

#[test]
fn what_is_not_allowed_never_reaches_the_proxy() {
    let site = Site::http();
    let proxy = CompanyProxy::start(site.address);
    let url = format!("http://user:pa%3Ass@{}", proxy.address);
    let fetch = |network: &str, target: &str, exceptions: &str| {
        let command = format!("curl -sS --max-time 20 http://{target}/hello");
        agent()
            .env("HTTPS_PROXY", &url)
            .env("NO_PROXY", exceptions)
            .args(["exec", "--network", network, "sh", "-c", &command])
            .run()
            .stdout
    };
    assert!(fetch("one.test:8080", "other.test:8080", "").contains("is not on the list"));
    assert!(fetch("public:8080", "10.0.0.9:8080", "").contains("may not connect"));
    // Every public host: a name that only the proxy could resolve is not known to be one.
    assert!(fetch("public:8080", "files.company.test:8080", "").contains("cannot be resolved"));
    assert!(
        fetch("files.company.test:8080", "files.company.test:8080", "company.test")
            .contains("cannot be resolved")
    );
    assert!(proxy.heads().is_empty(), "{:?}", proxy.heads());
}
