//! Behind a company's proxy, with a company's package mirrors.

use crate::support::agent::{Agent, agent};
use crate::support::site::Site;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
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

#[test]
fn mirrors_of_cargo_and_maven_are_inside_without_credentials() {
    let call = agent();
    let home: PathBuf = call.workspace().parent().expect("a parent").join("home");
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("the directory");
        std::fs::write(path, text).expect("the file");
    };
    write(
        ".cargo/config.toml",
        "[source.crates-io]\nreplace-with = \"mirror\"\n\
         [source.mirror]\nregistry = \"sparse+https://me:secret@10.9.8.7:8443/index/\"\n[registry]\ntoken = \"secret\"\n",
    );
    write(
        ".m2/settings.xml",
        "<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>http://10.9.8.7:8081/all</url></mirror></mirrors>\
         <servers><server><password>secret</password></server></servers></settings>",
    );
    let finished = call
        .args(["exec", "--network", "registries", "sh", "-c", "cat ~/.cargo/config.toml ~/.m2/settings.xml"])
        .run()
        .expect_code(0);
    assert!(
        finished.stdout.contains("registry = \"sparse+https://10.9.8.7:8443/index/\""),
        "{}",
        finished.stdout
    );
    assert!(finished.stdout.contains("<url>http://10.9.8.7:8081/all</url>"), "{}", finished.stdout);
    assert!(!finished.stdout.contains("secret"), "{}", finished.stdout);
    let none = finished.again().args(["exec", "sh", "-c", "ls -A ~"]).run().expect_code(0);
    assert!(!none.stdout.contains(".cargo"), "without registries there is nothing to name: {}", none.stdout);
}

/// The sandbox may not reach such an address otherwise.
#[test]
fn a_mirror_with_a_private_address_is_used_by_pip_npm_and_go_without_credentials() {
    let site = Site::http().file("/simple/", "the company's index\n");
    let host = site.host_and_port();
    let call = agent();
    let home: PathBuf = call.workspace().parent().expect("a parent").join("home");
    std::fs::create_dir_all(home.join(".config/pip")).expect("a directory");
    let pip = format!("[global]\nindex-url = http://me:secret@{host}/simple/\n");
    std::fs::write(home.join(".config/pip/pip.conf"), pip).expect("the file");
    std::fs::write(
        home.join(".npmrc"),
        format!("registry=http://{host}/npm/\n//{host}/npm/:_authToken=secret\n"),
    )
    .expect("the file");
    let finished = call
        .env("GOPROXY", format!("http://me:secret@{host}/go,direct"))
        .args(["exec", "--network", "registries", "sh", "-c"])
        .args(["curl -sS $PIP_INDEX_URL; echo $npm_config_registry $GOPROXY; env"])
        .run()
        .expect_code(0);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines[0], "the company's index", "{}", finished.stderr);
    assert_eq!(lines[1], format!("http://{host}/npm/ http://{host}/go,direct"));
    assert!(!finished.stdout.contains("secret"), "{}", finished.stdout);
    let without = finished.again().args(["exec", "--network", "pypi.org", "env"]).run().expect_code(0);
    assert!(!without.stdout.contains("PIP_INDEX_URL"), "{}", without.stdout);
}
