//! `agent mcp --listen`: the token, pages of other origins, both eras.

use crate::support::mcp_server::McpServer;
use agent_testbed::agent::{Agent, agent};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Server(McpServer);

impl Server {
    fn start(call: Agent) -> Self {
        Self::listening(call, "127.0.0.1:0")
    }

    fn listening(call: Agent, address: &str) -> Self {
        Self(McpServer::listening(call.env("AGENT_MCP_TOKEN", TOKEN), address, &[]))
    }

    async fn post(&self, headers: &[(&str, &str)], body: &Value) -> (u16, HeaderMap, Value) {
        let mut all = HeaderMap::new();
        let usual = [
            ("authorization", &*format!("Bearer {TOKEN}")),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
        ];
        for (name, value) in usual.iter().chain(headers) {
            all.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        // Another test of this process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.post(&self.0.url).headers(all).body(body.to_string()).send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        (status, headers, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

#[tokio::test]
async fn a_request_without_the_token_or_of_another_origin_is_refused() {
    let server = Server::start(agent());
    let ping = request("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
    for (headers, expected) in [
        (vec![], 200),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "")], 401),
        (vec![("origin", "https://example.org")], 403),
        (vec![("origin", "null")], 403),
        (vec![("origin", "http://localhost:3000")], 200),
        (vec![("origin", "http://localhost.example.org")], 403),
        (vec![("host", "example.org")], 403),
        (vec![("host", "127.0.0.1.example.org:80")], 403),
        (vec![("accept", "text/html")], 406),
        (vec![("content-type", "text/plain")], 415),
    ] {
        let (status, _, body) = server.post(&headers, &ping).await;
        assert_eq!(status, expected, "{headers:?}: {body}");
    }
}

#[tokio::test]
async fn a_client_that_begins_with_initialize_has_a_session() {
    let server = Server::start(agent());
    let (status, _, _) = server.post(&[], &request("tools/list", json!({}))).await;
    assert_eq!(status, 400);
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
    let (_, headers, body) = server.post(&[], &request("initialize", initialize)).await;
    assert_eq!(body["result"]["protocolVersion"], "2025-11-25");
    let session = headers["mcp-session-id"].to_str().unwrap();
    let call =
        request("tools/call", json!({ "name": "run_commands", "arguments": { "command": "echo hi" } }));
    let (status, _, body) = server.post(&[("mcp-session-id", session)], &call).await;
    assert_eq!((status, &body["result"]["structuredContent"]["exit_code"]), (200, &json!(0)), "{body}");
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post(&[("mcp-session-id", session)], &notification).await.0, 202);
    assert_eq!(server.post(&[("mcp-session-id", "unknown")], &call).await.0, 404);
}

#[tokio::test]
async fn headers_of_the_modern_era_have_to_say_what_the_message_says() {
    let server = Server::start(agent());
    let call = request("tools/call", modern(json!({ "name": "network", "arguments": {} })));
    let (version, method) = (("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"));
    let (status, _, body) = server.post(&[version, method, ("mcp-name", "network")], &call).await;
    assert_eq!((status, &body["result"]["resultType"]), (200, &json!("complete")), "{body}");
    for headers in [
        vec![],
        vec![version],
        vec![version, method],
        vec![version, ("mcp-method", "tools/list"), ("mcp-name", "network")],
        vec![version, method, ("mcp-name", "apply")],
    ] {
        let (status, _, body) = server.post(&headers, &call).await;
        assert_eq!((status, &body["error"]["code"]), (400, &json!(-32020)), "{headers:?}: {body}");
    }
    let unknown = request("no/such/method", modern(json!({})));
    let (status, _, body) = server.post(&[version, ("mcp-method", "no/such/method")], &unknown).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!(-32601)), "{body}");
}

#[tokio::test]
async fn a_request_is_refused_before_its_body_is_read() {
    // 64 MiB were read first, of any number of clients without a token.
    let server = Server::start(agent());
    let address = server.0.url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp")).unwrap();
    for (headers, expected) in [
        (format!("Host: {address}\r\n"), "401"),
        (format!("Host: example.org\r\nAuthorization: Bearer {TOKEN}\r\n"), "403"),
        (format!("Host: {address}\r\nAuthorization: Bearer {TOKEN}\r\n"), "406"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /mcp HTTP/1.1\r\n{headers}Content-Length: 1000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(std::str::from_utf8(&answer[9..]), Ok(expected), "{headers}");
    }
}

#[tokio::test]
async fn a_client_that_began_with_initialize_cancels_a_call() {
    // The notification was accepted and the command went on.
    let server = Server::start(agent());
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
    let (_, headers, _) = server.post(&[], &request("initialize", initialize)).await;
    let session = headers["mcp-session-id"].to_str().unwrap();
    let run = |id: u64, command: &str| {
        let params = json!({ "name": "run_commands", "arguments": { "command": command } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let (long, wait) =
        (run(1, "touch started; sleep 600"), run(2, "while [ ! -e started ]; do sleep 0.05; done"));
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    let session = [("mcp-session-id", session)];
    let others = async {
        assert_eq!(server.post(&session, &wait).await.0, 200);
        assert_eq!(server.post(&[("mcp-session-id", "another")], &cancel).await.0, 202);
        assert_eq!(server.post(&session, &cancel).await.0, 202);
    };
    let ((_, _, answer), ()) = tokio::join!(server.post(&session, &long), others);
    assert!(answer["error"].to_string().contains("cancelled"), "{answer}");
    let gone = run(3, "while pgrep -x sleep; do sleep 0.05; done; echo gone");
    let (_, _, answer) = server.post(&session, &gone).await;
    assert!(answer.to_string().contains("gone"), "{answer}");
}

#[tokio::test]
async fn a_server_of_every_network_is_reached_by_any_name_with_the_token() {
    // It knew only the name 0.0.0.0.
    let server = Server::listening(agent(), "0.0.0.0:0");
    let ping = request("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
    for (headers, expected) in [
        (vec![("host", "build-machine.lan:8765")], 200),
        (vec![("host", "build-machine.lan"), ("origin", "http://build-machine.lan:8765")], 200),
        (vec![("host", "build-machine.lan"), ("origin", "https://example.org")], 403),
        (vec![("host", "build-machine.lan"), ("authorization", "Bearer wrong")], 401),
    ] {
        let (status, _, body) = server.post(&headers, &ping).await;
        assert_eq!(status, expected, "{headers:?}: {body}");
    }
}

#[tokio::test]
async fn clients_that_never_say_that_they_are_gone_keep_nobody_out() {
    // For an hour after 64 of them nobody could connect.
    let server = Server::start(agent());
    let initialize = request("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
    let (_, headers, _) = server.post(&[], &initialize).await;
    let first = [("mcp-session-id", headers["mcp-session-id"].to_str().unwrap())];
    let call = request("tools/call", json!({ "name": "network", "arguments": {} }));
    assert_eq!(server.post(&first, &call).await.0, 200);
    for _ in 0..300 {
        assert_eq!(server.post(&[], &initialize).await.0, 200);
    }
    // One with a sandbox is not forgotten.
    assert_eq!(server.post(&first, &call).await.0, 200);
}
