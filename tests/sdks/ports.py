"""A server in a sandbox, reached from outside, against `agent serve`."""

import os
import time
import urllib.error
import urllib.request

from e2b import Sandbox

SERVER = (
    "import http.server as h\n"
    "class H(h.BaseHTTPRequestHandler):\n"
    "  def do_POST(self):\n"
    "    body = self.rfile.read(int(self.headers['content-length']))\n"
    "    names = ','.join(sorted(n.lower() for n in self.headers if n.lower().startswith(('e2b', 'x-'))))\n"
    "    self.send_response(201); self.end_headers()\n"
    "    self.wfile.write(self.path.encode() + b' ' + body[::-1] + b' ' + names.encode())\n"
    "h.HTTPServer(('127.0.0.1', 8080), H).serve_forever()\n"
)


def ask(sandbox, port, headers=(), body=b"abc"):
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/some/path?x=1", data=body, method="POST")
    request.add_header("E2b-Sandbox-Id", sandbox.sandbox_id)
    request.add_header("E2b-Sandbox-Port", str(port))
    for name, value in headers:
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def serve(sandbox):
    sandbox.files.write("/tmp/server.py", SERVER)
    sandbox.commands.run("python3 /tmp/server.py", background=True)


with Sandbox.create(timeout=600) as public:
    status, said = ask(public, 8080)
    assert status == 502 and b"port is not open" in said, (status, said)
    serve(public)
    for _ in range(300):
        if ask(public, 8080)[0] == 201:
            break
        time.sleep(0.1)
    assert ask(public, 8080, [("X-Own", "1")]) == (201, b"/some/path?x=1 cba x-own")
    large = bytes(range(256)) * 10_000
    assert ask(public, 8080, body=large)[1].startswith(b"/some/path?x=1 " + large[::-1])

with Sandbox.create(timeout=600, network={"allow_public_traffic": False}) as private:
    serve(private)
    token = ("e2b-traffic-access-token", private.traffic_access_token)
    for _ in range(300):
        if ask(private, 8080, [token])[0] == 201:
            break
        time.sleep(0.1)
    assert ask(private, 8080, [token]) == (201, b"/some/path?x=1 cba ")
    for wrong in ([], [("e2b-traffic-access-token", "wrong")]):
        assert ask(private, 8080, wrong)[0] == 403
with Sandbox.create(timeout=600, network={"mask_request_host": "masked.example:${PORT}"}) as masked:
    masked.files.write("/tmp/server.py", SERVER.replace("n.lower().startswith(('e2b', 'x-'))", "False").replace("names.encode()", "self.headers['host'].encode()"))
    masked.commands.run("python3 /tmp/server.py", background=True)
    for _ in range(300):
        if ask(masked, 8080)[0] == 201:
            break
        time.sleep(0.1)
    assert ask(masked, 8080) == (201, b"/some/path?x=1 cba masked.example:8080")
print("passed")
