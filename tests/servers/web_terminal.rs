//! The terminals of `agent web` over their sockets: what they are for, and what clients that want more than that get.

use crate::web::{Server, TOKEN, serve, serve_with, wait_for};
use agent_testbed::agent::agent;
use agent_testing::endpoint::endpoint;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const DEADLINE: Duration = Duration::from_secs(60);

/// A tab's end of a socket.
struct Client {
    socket: WebSocketStream<UnixStream>,
    output: String,
    /// The texts of the server.
    said: Vec<Value>,
    place: u64,
}

/// Returns the status of a handshake with these headers, and the connection.
async fn shake(server: &Server, address: &str, headers: &str) -> (u16, UnixStream) {
    let mut stream = UnixStream::connect(&server.socket).await.expect("a connection");
    let request = format!("GET {address} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.expect("in time").expect("a byte"));
    }
    let head = String::from_utf8(head).expect("text");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(!head.contains("access-control"), "{head}");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), stream)
}

const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The number of a terminal, and the address of a socket to it.
fn terminal(server: &Server, session: &str, number: Option<u64>) -> (u64, String) {
    let path = format!("/api/session/{session}/terminal");
    let opened = server.post(&path, &json!({"terminal": number, "columns": 80, "rows": 24}), 200);
    let address = opened["socket"].as_str().expect("an address").to_owned();
    (opened["terminal"].as_u64().expect("a number"), address)
}

async fn connect(server: &Server, address: &str) -> Client {
    let (status, stream) = shake(server, address, &format!("{UPGRADE}Origin: http://localhost\r\n")).await;
    assert_eq!(status, 101);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    Client { socket, output: String::new(), said: Vec::new(), place: 0 }
}

impl Client {
    async fn type_in(&mut self, text: &str) {
        self.socket.send(Message::binary(text.as_bytes().to_vec())).await.expect("sent");
    }

    /// Reads until `is_it`, and says what it has shown, as the page does.
    async fn until(&mut self, is_it: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !is_it(self) {
            assert!(started.elapsed() < DEADLINE, "{:?} {}", self.said, self.output);
            match timeout(DEADLINE, self.socket.next()).await.expect("in time") {
                Some(Ok(Message::Binary(bytes))) => {
                    self.place += bytes.len() as u64;
                    self.output.push_str(&String::from_utf8_lossy(&bytes));
                    let shown = json!({"shown": self.place}).to_string();
                    let _ = self.socket.send(Message::text(shown)).await;
                }
                Some(Ok(Message::Text(text))) => {
                    let said: Value = serde_json::from_str(&text).expect("JSON");
                    if let Some(begin) = said["begin"].as_u64() {
                        self.place = begin;
                        self.output.clear();
                    }
                    self.said.push(said);
                }
                Some(Ok(_)) => {}
                end => panic!("the socket ended: {end:?} {:?}", self.said),
            }
        }
    }

    async fn until_shown(&mut self, text: &str) {
        self.until(|client| client.output.contains(text)).await;
    }

    /// The code with which the server closes it.
    async fn closed(mut self) -> CloseCode {
        loop {
            match timeout(DEADLINE, self.socket.next()).await.expect("in time") {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code,
                Some(Ok(_)) => {}
                end => panic!("no code: {end:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_is_kept_for_the_next_tab_and_the_model_hears_of_it() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let (number, address) = terminal(&server, &session, None);
    let mut first = connect(&server, &address).await;
    first.type_in("stty size; echo $((6 * 7))-seen > seen.txt; cat seen.txt\n").await;
    first.until_shown("42-seen\r\n").await;
    assert!(first.output.contains("24 80"), "{}", first.output);
    drop(first);
    let mut second = connect(&server, &terminal(&server, &session, Some(number)).1).await;
    second.until_shown("42-seen\r\n").await;
    assert_eq!(second.said[0]["begin"], 0);
    assert!(second.said[0]["now"].as_u64() > Some(20), "{:?}", second.said);
    second.socket.send(Message::text(r#"{"size":[100,30]}"#)).await.expect("sent");
    second.type_in("stty size\n").await;
    second.until_shown("30 100").await;
    let mut tab = server.tab(&session, 0);
    tab.until(|name, data| name == "status" && data["changes"]["added"] == 1);
    server.post(&format!("/api/session/{session}/prompt"), &json!({"text": "look"}), 202);
    tab.until(|name, data| name == "status" && data["busy"] == true);
    tab.until_idle();
    let sent = model.requests()[0].messages().iter().map(ToString::to_string).collect::<String>();
    assert!(sent.contains("has used a terminal in the sandbox"), "{sent}");
    server.post(&format!("/api/session/{session}/terminal/close"), &json!({"terminal": number}), 202);
    second.until(|client| client.said.last().is_some_and(|said| said["end"] == "closed")).await;
    assert_eq!(second.closed().await, CloseCode::Normal);
    let again = json!({"terminal": number, "columns": 80, "rows": 24});
    server.post(&format!("/api/session/{session}/terminal"), &again, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_needs_a_fresh_name_and_the_own_page() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let (number, address) = terminal(&server, &session, None);
    let own = "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n";
    for (headers, expected) in [
        (format!("{UPGRADE}Origin: http://evil.example\r\n"), 403),
        (format!("{UPGRADE}Origin: http://localhost:3000\r\n"), 403),
        (format!("{UPGRADE}Origin: null\r\n"), 403),
        (format!("{UPGRADE}{own}Sec-Fetch-Site: cross-site\r\n"), 403),
        (format!("{UPGRADE}Origin: http://localhost\r\nHost: evil.example\r\n"), 400),
        (own.to_owned(), 400),
        (UPGRADE.replace("13", "8") + own, 400),
        (UPGRADE.replace("Upgrade: websocket\r\n", "") + own, 400),
        (format!("{UPGRADE}{own}"), 101),
        // It was good once.
        (format!("{UPGRADE}{own}"), 403),
    ] {
        assert_eq!(shake(&server, &address, &headers).await.0, expected, "{headers}");
    }
    for name in ["x", "..", TOKEN, &"x".repeat(2000)] {
        let address = format!("/socket/{name}");
        let with_token = format!("{UPGRADE}{own}Authorization: Bearer {TOKEN}\r\n");
        assert_eq!(shake(&server, &address, &with_token).await.0, 403, "{name}");
    }
    let path = format!("/api/session/{session}/terminal");
    for (body, expected) in [
        (json!({"terminal": number + 1, "columns": 80, "rows": 24}), 409),
        (json!({"columns": 70_000, "rows": 24}), 422),
        (json!({"columns": 80, "rows": 24, "command": "id"}), 422),
    ] {
        server.post(&path, &body, expected);
    }
    for _ in 0..3 {
        server.post(&path, &json!({"columns": 0, "rows": 65_535}), 200);
    }
    server.post(&path, &json!({"columns": 80, "rows": 24}), 409);
    let mut tabs = Vec::new();
    while tabs.len() < 8 {
        let client = connect(&server, &terminal(&server, &session, Some(number)).1).await;
        tabs.push(client);
        tokio::task::yield_now().await;
    }
    let (_, ninth) = terminal(&server, &session, Some(number));
    assert_eq!(shake(&server, &ninth, &format!("{UPGRADE}{own}")).await.0, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_the_protocol_or_sends_too_much_is_closed() {
    let model = endpoint().text("ok").start();
    let server = serve(agent().endpoint(&model));
    let session = server.open();
    let (number, address) = terminal(&server, &session, None);
    let mut large = connect(&server, &address).await;
    // Its end may come before all of it is sent.
    let _ = large.socket.send(Message::binary(vec![b'x'; 64 << 10])).await;
    assert_eq!(large.closed().await, CloseCode::Size);
    for text in
        ["", "{}", "[]", r#"{"size":[1]}"#, r#"{"size":[-1,5]}"#, r#"{"run":"id"}"#, r#"{"shown":"x"}"#]
    {
        let mut client = connect(&server, &terminal(&server, &session, Some(number)).1).await;
        client.socket.send(Message::text(text)).await.expect("sent");
        assert_eq!(client.closed().await, CloseCode::Policy, "{text}");
    }
    let mut flood = connect(&server, &terminal(&server, &session, Some(number)).1).await;
    flood.type_in("stty -icanon -echo; echo sleeps; sleep 1000\n").await;
    flood.until_shown("sleeps\r\n").await;
    let feeding = async {
        while flood.socket.feed(Message::binary(vec![b'x'; 8 << 10])).await.is_ok()
            && flood.socket.flush().await.is_ok()
        {}
    };
    timeout(DEADLINE, feeding).await.expect("it is closed");
    // The shell is as it was.
    let mut client = connect(&server, &terminal(&server, &session, Some(number)).1).await;
    client.until_shown("sleeps\r\n").await;
    assert!(client.socket.send(Message::text(r#"{"shown":18446744073709551615}"#)).await.is_ok());
    client.socket.send(Message::text(r#"{"draw":[0,65535]}"#)).await.expect("sent");
    let (_, other) = terminal(&server, &session, None);
    let mut other = connect(&server, &other).await;
    other.type_in("echo $((1 + 1))-is-two\n").await;
    other.until_shown("2-is-two").await;
}

/// Resident bytes of the server.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|size| size.parse::<u64>().ok()).expect("a size") << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tab_that_does_not_read_holds_up_no_program_and_costs_no_memory() {
    let model = endpoint().text("ok").start();
    let agent = agent();
    let done = agent.workspace().join("done");
    let server = serve_with(agent.endpoint(&model), &["--workspace-mode", "bind"]);
    let session = server.open();
    let (number, address) = terminal(&server, &session, None);
    let mut slow = connect(&server, &address).await;
    slow.until_shown("$ ").await;
    let before = resident(&server);
    slow.type_in("yes 0123456789abcdef | head -c 60000000; touch done; echo the-$((1 + 1))-end\n").await;
    wait_for(&done);
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 12 << 20, "{grown} bytes");
    slow.until_shown("the-2-end").await;
    assert!(slow.said.iter().filter(|said| said["begin"].is_u64()).count() >= 2, "{:?}", slow.said);
    assert!(slow.place > 60_000_000);
    let mut late = connect(&server, &terminal(&server, &session, Some(number)).1).await;
    late.until_shown("the-2-end").await;
    assert!(late.output.len() <= 256 << 10 && late.output.starts_with("0123"), "{}", late.output.len());
}
