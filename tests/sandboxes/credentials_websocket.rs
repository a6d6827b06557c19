//! WebSockets to hosts that a credential is bound to, between a server and a client of the library `websockets`.

use crate::credentials::{TOKEN, configured_for, exec_at};
use agent_testing::private_site::AUTHORITY;
use agent_testing::site::ADDRESS;
use agent_testing::skip::missing;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Repeats what it gets, and says the token where it is asked to. Prints its port, and then what it refuses.
const SERVER: &str = r#"
import asyncio, ssl, sys
import websockets
address, token, certificate, key = sys.argv[1:]

async def repeat(socket):
    async for message in socket:
        if message == "token":
            await socket.send("it is " + token)
        elif message == "bytes":
            await socket.send(b"\0" + token.encode() + b"\0")
        elif message == "pieces":
            await socket.send([token[:9], token[9:]])
        elif message == "bye":
            await socket.close(4001, "as asked")
        else:
            await socket.send(message)

async def check(path, headers):
    if headers.get("Authorization") != "Bearer " + token or "Sec-WebSocket-Extensions" in headers:
        return 401, [], b"no"

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with websockets.serve(repeat, address, 0, ssl=context, process_request=check, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()

asyncio.run(main())
"#;

const CLIENT: &str = r#"
import asyncio, os, socket, ssl, sys
import websockets
host, port = sys.argv[1].split(":")
placeholder = os.environ["TOKEN"]

async def main():
    plain = socket.create_connection(("127.0.0.1", 3128), timeout=30)
    plain.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    assert b" 200 " in plain.recv(4096)
    plain.setblocking(False)
    where = dict(sock=plain, ssl=ssl.create_default_context(), server_hostname=host, max_size=None)
    async with websockets.connect(f"wss://{host}:{port}/socket", extra_headers={"Authorization": "Bearer " + placeholder}, **where) as to:
        async def ask(message):
            await to.send(message)
            return await to.recv()

        for number in range(200):
            assert await ask(f"message {number}") == f"message {number}"
        large = os.urandom(3_000_000)
        assert await ask(large) == large
        await asyncio.wait_for(await to.ping(), 20)
        assert await ask("token") == "it is " + placeholder
        assert await ask("bytes") == b"\0" + placeholder.encode() + b"\0"
        assert await ask("as " + placeholder) == "as " + placeholder
        # Together: what is held back of one message comes with the next.
        await asyncio.gather(*(to.send(message) for message in ("token", "x", placeholder[:8])))
        assert [await to.recv() for _ in range(3)] == ["it is " + placeholder, "x", placeholder[:8]]
        await to.send("bye")
        try:
            await to.recv()
        except websockets.ConnectionClosed as closed:
            print(closed.code, closed.reason)

asyncio.run(main())
"#;

/// The server, which ends with the test.
struct Server(Child, String);

impl Server {
    fn start() -> Option<Self> {
        let there = Command::new("/usr/bin/python3").args(["-c", "import websockets"]).status();
        if !there.is_ok_and(|there| there.success()) {
            missing("python3-websockets");
            return None;
        }
        let tls = Path::new(AUTHORITY).parent().expect("a directory");
        let address = ADDRESS.to_string();
        let mut server = Command::new("/usr/bin/python3")
            .args(["-c", SERVER, &address, TOKEN])
            .args([tls.join("leaf.pem"), tls.join("leaf-key.pem")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let mut port = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut port).expect("a port");
        Some(Self(server, format!("{address}:{}", port.trim())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn messages_pass_in_both_directions_and_those_of_the_host_are_searched() {
    let Some(server) = Server::start() else { return };
    let call = || configured_for(&server.1, "websockets = true").file("client.py", CLIENT);
    let finished = exec_at(call(), &server.1, "site", "/usr/bin/python3 client.py $H");
    assert_eq!(finished.stdout, "4001 as asked\n", "{}", finished.stderr);
    let refused = configured_for(&server.1, "").file("client.py", CLIENT);
    let finished = exec_at(refused, &server.1, "site", "/usr/bin/python3 client.py $H");
    assert!(
        finished.stderr.contains("HTTP 403") && finished.stderr.contains("websockets is not set"),
        "{}",
        finished.stderr
    );
}
