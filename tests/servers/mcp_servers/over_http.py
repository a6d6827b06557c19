"""A scripted MCP server over HTTP on this machine: `over_http.py MODE`. It prints its address, and the requests that it got."""
import http.server
import json
import sys
import time

MODE = sys.argv[1]
SESSIONS = set()


def result(message):
    method, params = message["method"], message.get("params") or {}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}} if MODE == "modern" else None
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "h"}}
    if method == "tools/list":
        names = ["echo", "huge", "hang", "cut", "forget"]
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, what):
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    def answer(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        message = json.loads(body)
        self.say({"method": message.get("method"), "headers": {name.lower(): value for name, value in self.headers.items()}})
        if MODE == "locked":
            return self.answer(401, b"{}")
        if MODE == "redirect":
            return self.answer(307, Location="http://127.0.0.2:9/")
        if "id" not in message:
            return self.answer(202)
        session = self.headers.get("Mcp-Session-Id")
        if MODE == "legacy" and message["method"] not in ("initialize", "server/discover") and session not in SESSIONS:
            return self.answer(404, b"{}")
        name = (message.get("params") or {}).get("name")
        if message["method"] == "tools/call" and name != "echo":
            if name == "hang":
                time.sleep(600)
            if name == "forget":
                SESSIONS.clear()
                return self.answer(404, b"{}")
            if name == "cut":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"jsonrpc"')
                self.close_connection = True
                return None
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"data: " + b"x" * 1_000_000 + b"\n\n")
            except OSError:
                self.close_connection = True
            return None
        found = result(message)
        more = {}
        if message["method"] == "initialize":
            SESSIONS.add("the-session")
            more = {"Mcp_Session_Id": "the-session"}
        if found is None:
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "not known"}}
            return self.answer(404 if MODE == "modern" else 400, json.dumps(answer).encode())
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {**found, "resultType": "complete"}}
        if MODE == "modern":
            return self.answer(200, json.dumps(answer).encode())
        token = ((message.get("params") or {}).get("_meta") or {}).get("progressToken")
        news = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "message": "on it"}}
        lines = f": hello\n\ndata: {json.dumps(news)}\n\nevent: message\ndata: {json.dumps(answer)}\n\n"
        return self.answer(200, lines.encode(), "text/event-stream", **more)

    def do_DELETE(self):
        self.say({"method": "DELETE", "headers": {}})
        self.answer(204)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
