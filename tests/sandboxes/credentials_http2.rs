//! Programs that speak HTTP/2 alone to hosts that a credential is bound to.

use crate::credentials::{TOKEN, configured, exec, exec_by, has};
use agent_testing::private_site::PrivateSite;
use agent_testing::skip::missing;
use serde_json::{Value, json};
use std::process::Command;

fn has_h2() -> bool {
    let has = Command::new("/usr/bin/python3")
        .args(["-c", "import httpx, h2"])
        .status()
        .is_ok_and(|it| it.success());
    if !has {
        missing("python3-httpx and python3-h2");
    }
    has
}

#[test]
fn clients_of_both_use_http1_and_those_of_http2_alone_are_served() {
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let script = "curl -sS --http2 -w '%{http_version}\\n' -H \"Authorization: Bearer $TOKEN\" https://$H/x";
    let finished = exec(&site, "", "site", script);
    assert_eq!(finished.stdout, "x\n1.1\n", "{}", finished.stderr);
    if !has_h2() {
        return;
    }
    let script = "/usr/bin/python3 -c 'import httpx, os, ssl, sys
for http1 in True, False:
    with httpx.Client(http1=http1, http2=True, verify=ssl.create_default_context()) as client:
        for path in \"/x\", \"/reflect\", \"/reflect-in-pieces\":
            answer = client.get(sys.argv[1] + path, headers={\"Authorization\": \"Bearer \" + os.environ[\"TOKEN\"]})
            print(answer.http_version, answer.text.split()[0][:4], answer.headers.get(\"x-echo\", \"\")[:11])' https://$H";
    let finished = exec(&site, "", "site", script);
    let lines = |version: &str| format!("{version} x \n{version} ghp_ Bearer ghp_\n{version} ghp_ \n");
    assert_eq!(finished.stdout, lines("HTTP/1.1") + &lines("HTTP/2"), "{}", finished.stderr);
    assert!(site.requests()[1..].iter().all(|sent| sent.is_authorised));
}

/// Asks over one connection of HTTP/2.
const NODE_CLIENT: &str = r#"
const http2 = require("http2"), net = require("net"), tls = require("tls");
const [host, port] = process.argv[2].split(":");
const plain = net.connect(3128, "127.0.0.1", () => plain.write(`CONNECT ${host}:${port} HTTP/1.1\r\n\r\n`));
plain.once("data", async () => {
  const createConnection = () => tls.connect({ socket: plain, host, ALPNProtocols: ["h2"] });
  const session = http2.connect(`https://${host}:${port}`, { createConnection });
  const ask = (path, body, each) => new Promise((resolve, reject) => {
    const headers = { ":path": path, ":method": body === undefined ? "GET" : "POST", authorization: "Bearer " + process.env.TOKEN };
    const stream = session.request({ ...headers, cookie: ["a=1", "b=2"] });
    let text = "", length = 0;
    stream.on("data", (data) => { length += data.length; if (length < 1000) text += data; if (each) each(data); });
    stream.on("end", () => resolve(length < 1000 ? text.trim() : length));
    stream.on("error", reject);
    stream.end(body);
  });
  const many = await Promise.all(Array.from({ length: 100 }, () => ask("/x")));
  console.log(many.filter((text) => text === "x").length);
  console.log(await ask("/large?bytes=5000000"), await ask("/length", Buffer.alloc(3000000)), await ask("/length", ""));
  // More than the window of the connection holds.
  const sent = await Promise.all(Array.from({ length: 64 }, () => ask("/length", Buffer.alloc(1000000))));
  console.log(sent.filter((length) => length === "1000000").length);
  let gone;
  const streamed = await ask("/stream", undefined, (data) => { if (`${data}` === "first\n") gone = ask("/go-on"); });
  await gone;
  console.log(streamed.replace("\n", " "));
  session.close();
});
"#;

#[test]
fn many_streams_share_a_connection_and_bodies_stream_in_both_directions() {
    if !has("node") {
        return;
    }
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let call = configured(&site, "methods = [\"GET\", \"POST\"]").file("client.js", NODE_CLIENT);
    let finished = exec_by(call, &site, "site", "node client.js $H");
    assert_eq!(finished.stdout, "100\n5000000 3000000 0\n64\nfirst last\n", "{}", finished.stderr);
    let sent = site.requests();
    assert!(
        sent.iter().all(|sent| sent.is_authorised && sent.head.contains("\r\ncookie: a=1; b=2\r\n")),
        "{}",
        sent[0].head
    );
}

/// Sends each case over a connection of its own, as it is, and prints what came back: the status and the text, or how it ended.
const RAW_CLIENT: &str = r#"
import json, os, socket, ssl, sys
import h2.config, h2.connection, h2.events
host, port = sys.argv[1].split(":")
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])

def connected():
    plain = socket.create_connection(("127.0.0.1", 3128), timeout=30)
    plain.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    assert b" 200 " in plain.recv(4096)
    stream = context.wrap_socket(plain, server_hostname=host)
    assert stream.selected_alpn_protocol() == "h2"
    lax = dict(validate_outbound_headers=False, normalize_outbound_headers=False, header_encoding=None)
    connection = h2.connection.H2Connection(h2.config.H2Configuration(**lax))
    connection.initiate_connection()
    return stream, connection

def outcome(stream, connection):
    status, text = None, b""
    while True:
        stream.sendall(connection.data_to_send())
        try:
            data = stream.recv(65536)
        except OSError:
            data = b""
        if not data:
            return "closed"
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                status = dict(event.headers)[b":status"].decode()
            elif isinstance(event, h2.events.DataReceived):
                text += event.data
            elif isinstance(event, h2.events.StreamReset):
                return f"reset {status or ''}"
            elif isinstance(event, h2.events.ConnectionTerminated):
                return "ended"
            elif isinstance(event, h2.events.StreamEnded):
                return status + " " + text.decode()

def filled(text):
    return text.replace("HOST", sys.argv[1]).replace("TOKEN", os.environ["TOKEN"]).encode("latin-1")

for case in json.load(open("cases.json")):
    stream, connection = connected()
    fields = {":method": ["POST"], ":scheme": ["https"], ":authority": ["HOST"], ":path": ["/length"], "authorization": ["Bearer TOKEN"]}
    for name, *values in case.get("fields", []):
        fields.pop(name, None)
        if values:
            fields[name] = values
    # Those with a colon come first.
    fields = sorted(((name, value) for name, values in fields.items() for value in values), key=lambda field: field[0][0] != ":")
    body, trailers = case.get("body"), case.get("trailers")
    connection.send_headers(1, [(filled(name), filled(value)) for name, value in fields], end_stream=body is None)
    if body is not None:
        connection.send_data(1, body.encode(), end_stream=not trailers)
    if trailers:
        connection.send_headers(1, [(b"x-trailer", b"y")], end_stream=True)
    print(json.dumps(outcome(stream, connection)), flush=True)
"#;

/// A case for the client, and parts of what comes back, of which one has to be there.
type Case = (Value, &'static str);

fn fields(fields: Value) -> Value {
    json!({ "fields": fields })
}

fn hosts_and_methods() -> Vec<Case> {
    vec![
        // What goes to another host.
        (fields(json!([[":authority", "other.test"]])), "names another host than the connection"),
        (fields(json!([[":authority"], ["host", "other.test"]])), "names another host than the connection"),
        (fields(json!([[":authority", "me@HOST"]])), "names another host than the connection"),
        (fields(json!([["host", "other.test"]])), "names another host than :authority"),
        (fields(json!([["host", "HOST", "other.test"]])), "names another host than :authority"),
        (fields(json!([[":authority"]])), "names another host than the connection"),
        (fields(json!([[":method", "CONNECT"], [":scheme"], [":path"]])), "a request to a proxy"),
        (fields(json!([[":scheme", "http"]])), "scheme is not https"),
        (fields(json!([[":path", "http://other.test/length"]])), "400|reset"),
        (fields(json!([[":path", "*"]])), "400|reset"),
        (fields(json!([[":path", "length"]])), "400|reset"),
        (fields(json!([[":path", ""]])), "reset"),
        (fields(json!([[":path", "/length", "/x"]])), "reset"),
        (fields(json!([[":method", "PUT"]])), "403 "),
        (fields(json!([["x-http-method-override", "DELETE"]])), "asks for another method or path"),
        (fields(json!([["x_forwarded", "y"], ["content_length", "1"]])), "servers read differently"),
    ]
}

fn lines_and_connections() -> Vec<Case> {
    vec![
        // What ends a line.
        (fields(json!([["x", "a\r\ntransfer-encoding: chunked"]])), "reset|ended|closed"),
        (fields(json!([["x", "a\nb"]])), "reset|ended|closed"),
        (fields(json!([["x", "a\u{0}b"]])), "reset|ended|closed"),
        (fields(json!([["x\r\nhost: other.test", "a"]])), "reset|ended|closed"),
        (fields(json!([["x: a\r\ny", "a"]])), "reset|ended|closed"),
        (fields(json!([[":path", "/length HTTP/1.1\r\nhost: other.test\r\n\r\n"]])), "reset|ended|closed"),
        (fields(json!([[":method", "GET /x HTTP/1.1\r\n"]])), "reset|ended|closed"),
        (fields(json!([["X-Upper", "a"]])), "reset|ended|closed"),
        // What belongs to a connection of HTTP/1.1.
        (fields(json!([["connection", "close"]])), "reset"),
        (fields(json!([["connection", "authorization"]])), "reset"),
        (fields(json!([["transfer-encoding", "chunked"]])), "reset"),
        (fields(json!([["upgrade", "websocket"]])), "reset"),
        (fields(json!([["te", "gzip"]])), "reset"),
        (fields(json!([["expect", "a-surprise"]])), "expects something"),
        (fields(json!([["trailer", "x"]])), "announces trailers"),
    ]
}

fn bodies() -> Vec<Case> {
    let long = "a".repeat(100_000);
    let many: Vec<Value> = (0..150).map(|number| json!([format!("x-{number}"), "y"])).collect();
    vec![
        // Bodies that are not what was said.
        (json!({ "fields": [["content-length", "5"]], "body": "abc" }), "reset"),
        (json!({ "fields": [["content-length", "2"]], "body": "abc" }), "reset"),
        (json!({ "fields": [["content-length", "3", "4"]], "body": "abc" }), "reset"),
        (json!({ "fields": [["content-length", "3", "3"]], "body": "abc" }), "two lengths"),
        (json!({ "fields": [["content-length", "+3"]], "body": "abc" }), "reset"),
        (json!({ "fields": [["content-length", "0"]], "body": "abc" }), "reset"),
        (json!({ "fields": [["content-length", "5"]] }), "reset"),
        (json!({ "fields": [[":method", "GET"]], "body": "abc" }), "have no body"),
        (json!({ "body": "abc", "trailers": true }), "trailers"),
        (json!({ "fields": [["content-length", "3"]], "body": "abc", "trailers": true }), "trailers"),
        // What is too much, and what could not work.
        (fields(json!([["x", long]])), "431|reset|ended|closed"),
        (json!({ "fields": many }), "too many fields"),
        (fields(json!([["content-type", "application/grpc+proto"], ["te", "trailers"]])), "it is gRPC"),
    ]
}

#[test]
fn requests_that_http1_could_not_write_or_servers_read_differently_are_refused() {
    if !has_h2() {
        return;
    }
    let cases = [hosts_and_methods(), lines_and_connections(), bodies()].concat();
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let only: Vec<&Value> = cases.iter().map(|(case, _)| case).collect();
    let call = || configured(&site, "methods = [\"GET\", \"POST\"]").file("client.py", RAW_CLIENT);
    let ask = |cases: &Value| {
        let call = call().file("cases.json", cases.to_string());
        exec_by(call, &site, "site", "/usr/bin/python3 client.py $H")
    };
    let finished = ask(&json!(only));
    let ends: Vec<String> =
        finished.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(ends.len(), cases.len(), "{}\n{}", finished.stdout, finished.stderr);
    for (end, (case, expected)) in ends.iter().zip(&cases) {
        let case: String = case.to_string().chars().take(200).collect();
        assert!(expected.split('|').any(|part| end.contains(part)), "{case}: {end}");
        assert!(!end.starts_with('2'), "{case}: {end}");
    }
    let heads: Vec<String> = site.requests().into_iter().map(|sent| sent.head).collect();
    assert!(heads.is_empty(), "the host read no whole request: {heads:?}");
    // The same client is answered where nothing is wrong.
    let good = json!([
        { "fields": [["te", "trailers"], ["content-length", "3"]], "body": "abc" },
        { "fields": [[":authority"], ["host", "HOST"]], "body": "abcd" },
        { "fields": [["content-length", "0"]] },
    ]);
    assert_eq!(ask(&good).stdout, "\"200 3\"\n\"200 4\"\n\"200 0\"\n");
    assert!(site.requests().iter().all(|sent| !sent.head.to_lowercase().contains("\r\nte:")));
}

/// Opens streams and takes each back at once, and headers that never end; prints what it could do.
const FLOOD: &str = r#"
exec(open("client.py").read().split("def filled")[0])
fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", sys.argv[1].encode()), (b":path", b"/stream"),
          (b"authorization", b"Bearer " + os.environ["TOKEN"].encode())]
stream, connection = connected()
opened = 0
try:
    while opened < 5000:
        # More of them in one write than may wait.
        for _ in range(50):
            connection.send_headers(2 * opened + 1, fields, end_stream=True)
            connection.reset_stream(2 * opened + 1)
            opened += 1
        stream.sendall(connection.data_to_send())
        stream.settimeout(0.01)
        try:
            events = connection.receive_data(stream.recv(65536))
        except TimeoutError:
            events = []
        if any(isinstance(event, h2.events.ConnectionTerminated) for event in events):
            break
except (OSError, h2.exceptions.ProtocolError):
    pass
print("reset", "all" if opened >= 5000 else "some")
stream, connection = connected()
stream.sendall(connection.data_to_send() + b"\0\0\0\x01\0\0\0\0\x01")
stream.settimeout(30)
try:
    for _ in range(20000):
        # An empty CONTINUATION, without the flag that ends the headers.
        stream.sendall(b"\0\0\0\x09\0\0\0\0\x01")
    while stream.recv(65536):
        pass
except TimeoutError:
    print("continued")
except OSError:
    pass
print("ended")
"#;

#[test]
fn streams_that_are_taken_back_and_headers_without_an_end_end_the_connection() {
    if !has_h2() {
        return;
    }
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let call = configured(&site, "").file("client.py", RAW_CLIENT).file("flood.py", FLOOD);
    let script = "/usr/bin/python3 flood.py $H; curl -sS -H \"Authorization: Bearer $TOKEN\" https://$H/x";
    let finished = exec_by(call, &site, "site", script);
    assert_eq!(finished.stdout, "reset some\nended\nx\n", "{}", finished.stderr);
    assert!(site.requests().len() < 200, "{}", site.requests().len());
}
