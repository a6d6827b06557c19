"""How fast `agent serve` is through E2B's own SDK, and what of that is the SDK.

In one shell: `agent serve`; in another: `eval "$(agent serve --print-env)"`, then
`PYTHONPATH=target/sdks/e2b python3 benches/serve.py` (`.ci/sdks` installs the SDK). The last rows send the same request as the SDK
over one connection, without it.
"""

import http.client
import json
import os
import statistics
import struct
import time
import urllib.parse

from e2b import Sandbox

STARTS, COMMANDS = 20, 1000


def measure(count, work):
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
    return times


def report(name, times):
    quantiles = statistics.quantiles(times, n=10)
    print(f"{name:<44} median {statistics.median(times):8.2f} ms   9 of 10 below {quantiles[8]:8.2f} ms   {len(times)} runs")


def start_and_run():
    sandbox = Sandbox.create(timeout=600)
    sandbox.commands.run("true")
    sandboxes.append(sandbox)


def run_without_sdk():
    message = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"]}, "stdin": False}
    payload = json.dumps(message).encode()
    connection.request("POST", "/process.Process/Start", b"\0" + struct.pack(">I", len(payload)) + payload, headers)
    assert b'"exited":true' in connection.getresponse().read()


sandboxes = []
starts = []
for _ in range(STARTS):
    starts += measure(1, start_and_run)
    sandboxes.pop().kill()
report("create a sandbox and run its first command", starts)
with Sandbox.create(timeout=3600) as sandbox:
    report('commands.run("true") through the SDK', measure(COMMANDS, lambda: sandbox.commands.run("true")))
    url = urllib.parse.urlsplit(os.environ["E2B_SANDBOX_URL"])
    connection = http.client.HTTPConnection(url.hostname, url.port)
    headers = {
        "Content-Type": "application/connect+json",
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "X-Access-Token": sandbox._envd_access_token,
    }
    report("the same request without the SDK", measure(COMMANDS, run_without_sdk))
