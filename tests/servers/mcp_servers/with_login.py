"""An MCP server over HTTP that wants a login, and its authorization server: `with_login.py`. It prints its address, and the forms that it got."""
import base64
import hashlib
import http.server
import json
import sys
import threading
import urllib.parse

CODES = {}
TOKENS = {"access": None, "refresh": None, "count": 0}
DEVICE = {"asked": 0}
# While it is clear, refreshed tokens are on their way.
ARRIVES = threading.Event()
ARRIVES.set()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, what):
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    def answer(self, status, value=None, **headers):
        body = json.dumps(value).encode() if value is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def here(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def locked(self):
        where = f'Bearer resource_metadata="{self.here()}/metadata", scope="read"'
        self.answer(401, {}, WWW_Authenticate=where)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/metadata":
            return self.answer(200, {"resource": self.here() + "/mcp", "authorization_servers": [self.here() + "/as"]})
        if url.path == "/.well-known/oauth-authorization-server/as":
            return self.answer(200, {
                "issuer": self.here() + "/as", "authorization_endpoint": self.here() + "/authorize",
                "token_endpoint": self.here() + "/token", "registration_endpoint": self.here() + "/register",
                "device_authorization_endpoint": self.here() + "/device", "code_challenge_methods_supported": ["S256"],
            })
        if url.path == "/authorize":
            assert query["resource"] == self.here() + "/mcp" and query["code_challenge_method"] == "S256", query
            CODES["the-code"] = query
            back = query["redirect_uri"] + "?" + urllib.parse.urlencode({"code": "the-code", "state": query["state"], "iss": self.here() + "/as"})
            return self.answer(302, Location=back)
        if url.path == "/mcp":
            return self.locked()
        return self.answer(404)

    def renew(self):
        TOKENS["count"] += 1
        TOKENS["access"] = f"access-token-number-{TOKENS['count']}"
        TOKENS["refresh"] = f"refresh-token-number-{TOKENS['count']}"

    def give(self):
        given = {"access_token": TOKENS["access"], "token_type": "Bearer", "refresh_token": TOKENS["refresh"], "expires_in": 3600}
        return self.answer(200, given)

    def tokens(self):
        self.renew()
        return self.give()

    def form(self, form):
        self.say({"form": form})
        if self.path == "/device":
            return self.answer(200, {"device_code": "d", "user_code": "WXYZ-1234", "verification_uri": self.here() + "/type", "interval": 1})
        if form["grant_type"] == "authorization_code":
            asked = CODES.pop(form["code"])
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            is_it = challenge == asked["code_challenge"] and form["redirect_uri"] == asked["redirect_uri"]
            return self.tokens() if is_it else self.answer(400, {"error": "invalid_grant"})
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != TOKENS["refresh"]:
                return self.answer(400, {"error": "invalid_grant"})
            self.renew()
            ARRIVES.wait(60)
            return self.give()
        DEVICE["asked"] += 1
        return self.tokens() if DEVICE["asked"] > 1 else self.answer(400, {"error": "authorization_pending"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path in ("/token", "/device"):
            return self.form(dict(urllib.parse.parse_qsl(body.decode())))
        message = json.loads(body)
        if self.path == "/register":
            self.say({"registered": message})
            return self.answer(201, {"client_id": "client-1", **message})
        if self.path in ("/hold", "/release"):
            (ARRIVES.clear if self.path == "/hold" else ARRIVES.set)()
            return self.answer(200, {})
        if self.path == "/forget":
            # The token ends, as far as the server is concerned.
            TOKENS["access"] = "another"
            return self.answer(200, {})
        if self.headers.get("Authorization") != f"Bearer {TOKENS['access']}":
            return self.locked()
        method = message["method"]
        self.say({"method": method, "authorization": self.headers["Authorization"]})
        if "id" not in message:
            return self.answer(202)
        results = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "h"}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "echoed"}]},
        }
        if method not in results:
            return self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        return self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": results[method]})


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
