//! `agent serve` with clients that are hostile, or gone.

use agent_testbed::serve::{KEY, Server};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);

fn server(options: &[&str]) -> Server {
    Server::start("local", options)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Returns what is answered until the server closes.
fn read(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // Broken off is an answer as well.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(server: &Server, line: &str, headers: &[&str], body: &[u8]) -> String {
    let mut stream = connect(server);
    let mut head =
        format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
    // A server that refuses may have closed the connection.
    let _ = stream.write_all(body);
    read(&mut stream)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn key() -> String {
    format!("X-API-Key: {KEY}")
}

/// The headers with which a new sandbox is used.
fn create(server: &Server) -> [String; 2] {
    let answer = ask(server, "POST /sandboxes", &[&key()], br#"{"templateID":"base","timeout":600}"#);
    assert_eq!(status(&answer), 201, "{answer}");
    let json: Value = serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    let text = |name: &str| json[name].as_str().expect("text").to_owned();
    [format!("E2b-Sandbox-Id: {}", text("sandboxID")), format!("X-Access-Token: {}", text("envdAccessToken"))]
}

fn works(server: &Server) {
    assert_eq!(status(&ask(server, "GET /v2/sandboxes", &[&key()], b"")), 200);
}

#[test]
fn requests_without_an_end_are_bounded() {
    let server = server(&[]);
    let [id, token] = create(&server);
    // A head without an end.
    let mut stream = connect(&server);
    let refused = (0..100).find_map(|n| {
        let line = format!("X-{n}: {}\r\n", "x".repeat(8_000));
        match n {
            0 => stream.write_all(format!("GET /v2/sandboxes HTTP/1.1\r\n{line}").as_bytes()).err(),
            _ => stream.write_all(line.as_bytes()).err(),
        }
    });
    let answer = read(&mut stream);
    assert!(refused.is_some() || status(&answer) == 431 || answer.is_empty(), "{answer:.200}");
    assert_ne!(status(&answer), 200);
    // A body without an end: of the control plane, and of a message.
    for (line, headers) in [
        ("POST /sandboxes", vec![key()]),
        (
            "POST /process.Process/List",
            vec![id.clone(), token.clone(), "Content-Type: application/json".to_owned()],
        ),
    ] {
        let mut stream = connect(&server);
        let mut head = format!("{line} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n");
        headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
        let piece = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
        let sent = (0..64).take_while(|_| stream.write_all(piece.as_bytes()).is_ok()).count();
        let answer = read(&mut stream);
        assert!(
            sent < 64 || [400, 413].contains(&status(&answer)),
            "{line}: {sent} MiB were taken: {answer:.200}"
        );
    }
    // A file that unpacks without an end is refused at its limit, and nothing of it is there.
    let zeros = bomb();
    let headers = [&*id, &token, "Content-Encoding: gzip", "Content-Type: application/octet-stream"];
    let answer = ask(&server, "POST /files?path=bomb", &headers, &zeros);
    assert_eq!(status(&answer), 400, "{answer:.200}");
    assert_eq!(status(&ask(&server, "GET /files?path=bomb", &[&id, &token], b"")), 404);
    works(&server);
}

/// More than 512 MiB of zeros, compressed.
fn bomb() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    (0..520).for_each(|_| encoder.write_all(&zeros).expect("packed"));
    encoder.finish().expect("packed")
}

#[test]
fn paths_lead_nowhere_but_into_the_sandbox() {
    let server = server(&[]);
    let secret = tempfile::tempdir().expect("a directory");
    let path = secret.path().join("secret");
    std::fs::write(&path, "secret of the host").expect("the file");
    let [id, token] = create(&server);
    let host = path.display().to_string();
    let up = "../".repeat(30);
    let encoded = host.replace('/', "%2f");
    for tried in [
        host.clone(),
        format!("{up}{host}"),
        format!("/home/user/{up}{host}"),
        format!("..%2f..%2f..%2f..%2f..{encoded}"),
        format!("/proc/1/root{host}"),
        format!("/proc/self/root{host}"),
        format!("{host}%00.txt"),
        "%ff%fe".to_owned(),
    ] {
        let answer = ask(&server, &format!("GET /files?path={tried}"), &[&id, &token], b"");
        // A file of this name may be there in the sandbox by now.
        assert!(!answer.contains("secret of the host"), "{tried}: {answer:.300}");
        let kind = "Content-Type: application/octet-stream";
        let answer = ask(&server, &format!("POST /files?path={tried}"), &[&id, &token, kind], b"overwritten");
        assert!(status(&answer) > 0, "{tried}: {answer}");
    }
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{up}{host}\"\r\n\r\noverwritten\r\n--b--\r\n"
    );
    ask(
        &server,
        "POST /files",
        &[&id, &token, "Content-Type: multipart/form-data; boundary=b"],
        form.as_bytes(),
    );
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "secret of the host");
    works(&server);
}

#[test]
fn a_thousand_sandboxes_are_not_made() {
    let server = server(&["--max-sandboxes", "3"]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let create = || {
            (0..50)
                .map(|_| status(&ask(&server, "POST /sandboxes", &[&key()], b"{\"timeout\":600}")))
                .collect()
        };
        let threads: Vec<_> = (0..20).map(|_| scope.spawn(create)).collect();
        threads.into_iter().flat_map(|thread| -> Vec<u16> { thread.join().expect("answers") }).collect()
    });
    assert_eq!(statuses.len(), 1_000);
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 3);
    assert!(statuses.iter().all(|status| [201, 429].contains(status)));
    server.wait_for_sandboxes(3);
}

/// Starts a shell command, whose answer has begun and is not read further.
fn start(server: &Server, [id, token]: &[String; 2], shell: &str, header: &str) -> TcpStream {
    let mut stream = connect(server);
    let body = json!({ "process": { "cmd": "/bin/sh", "args": ["-c", shell] } }).to_string();
    let mut message = vec![0];
    message.extend(u32::try_from(body.len()).expect("short").to_be_bytes());
    message.extend(body.as_bytes());
    let head = format!(
        "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n{id}\r\n{token}\r\n{header}Content-Type: application/connect+json\r\n\
         Content-Length: {}\r\n\r\n",
        message.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&message)).expect("sent");
    stream.read_exact(&mut [0; 16]).expect("an answer");
    stream
}

/// A bug: the time limit of a process did not end it while its client did not read what it wrote.
#[test]
fn a_client_that_does_not_read_keeps_no_process_beyond_its_time() {
    let server = server(&[]);
    let sandbox = create(&server);
    let unread = start(&server, &sandbox, "yes", "Connect-Timeout-Ms: 5000\r\n");
    let headers = [sandbox[0].as_str(), &sandbox[1], "Content-Type: application/json"];
    let listed = || ask(&server, "POST /process.Process/List", &headers, b"{}");
    assert!(listed().contains("\"pid\""), "{}", listed());
    let deadline = Instant::now() + TIMEOUT;
    while listed().contains("\"pid\"") {
        assert!(Instant::now() < deadline, "it runs on");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(unread);
}

#[test]
fn a_client_that_vanishes_leaves_no_process_and_no_connection_behind() {
    let server = server(&[]);
    let sandbox = create(&server);
    for _ in 0..20 {
        // It has begun; then the client is gone, in the middle of the answer.
        drop(start(&server, &sandbox, "sleep 12345", ""));
    }
    let [id, token] = sandbox;
    // Uploads that are announced and never come.
    let silent: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = connect(&server);
            let head = format!("POST /files?path=x HTTP/1.1\r\nHost: x\r\n{id}\r\n{token}\r\nContent-Length: 500000000\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    works(&server);
    drop(silent);
    // As at the hosted services, a process outlives its client until its time is over; the next client sees and kills it.
    let listed =
        ask(&server, "POST /process.Process/List", &[&id, &token, "Content-Type: application/json"], b"{}");
    assert_eq!(status(&listed), 200, "{listed:.200}");
    let answer =
        ask(&server, &format!("DELETE /sandboxes/{}", id.split(' ').nth(1).expect("an id")), &[&key()], b"");
    assert_eq!(status(&answer), 204, "{answer}");
    server.wait_for_sandboxes(0);
    works(&server);
}

#[test]
fn fifty_kills_of_the_server_leave_no_sandbox() {
    let mut server = server(&[]);
    for kill in 0..50u64 {
        let mut stream = connect(&server);
        let request = format!(
            "POST /sandboxes HTTP/1.1\r\nHost: x\r\n{}\r\nContent-Length: 15\r\n\r\n{{\"timeout\":600}}",
            key()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        // At every moment of a start: before it, in it, and after it.
        if kill % 3 != 0 {
            stream.set_read_timeout(Some(Duration::from_millis(1 + kill % 17))).expect("a timeout");
            match stream.read(&mut [0; 64]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                answered => assert!(answered.is_ok(), "{answered:?}"),
            }
        }
        server.kill();
        server = server.restart();
    }
    // Guests end ten seconds after their last client has gone, and the next start removes what they leave.
    server.wait_until_nothing_runs();
    assert_eq!(server.stop(), Some(143));
    let server = server.restart();
    create(&server);
    server.wait_for_sandboxes(1);
}
