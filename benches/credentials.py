"""What it costs that TLS of a bound host ends in `agent`, against the same proxy without that.

    cargo build --profile dist && python3 benches/credentials.py target/dist/agent

Requests of a program in a local sandbox to a server on this machine that answers at once, after 5 ms and after 50 ms: over a connection that is
kept, and each over one of its own. The three ways take turns. Then the memory of `agent` with 100 connections.
"""

import asyncio
import json
import os
import pathlib
import ssl
import statistics
import sys
import tempfile

ADDRESS, TOKEN = "127.0.0.2", "ghp_aTokenForMeasuring0123456789abcd"
ROUNDS, DELAYS = 6, {0: 400, 5: 150, 50: 30}
TLS = pathlib.Path(__file__).parent.parent / "crates/testing/src/tls"

CLIENT = r"""
import http.client, json, os, ssl, sys, time
port, delay, count, connections, authority = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
context = ssl.create_default_context()
if authority != "-":
    context.load_verify_locations(authority)
def connect():
    connection = http.client.HTTPSConnection("127.0.0.1", 3128, context=context)
    connection.set_tunnel("127.0.0.2", port)
    return connection
def ask(connection):
    begun = time.perf_counter()
    connection.request("GET", "/" + delay, headers={"Authorization": "Bearer " + os.environ.get("TOKEN", "none")})
    assert connection.getresponse().read().startswith(b"{")
    return (time.perf_counter() - begun) * 1e6
if connections:
    all = [connect() for _ in range(connections)]
    for connection in all:
        ask(connection)
    print("there", flush=True)
    sys.stdin.readline()
else:
    kept = connect()
    ask(kept)
    times = [ask(kept) for _ in range(count)]
    print(json.dumps({"kept": times, "new": [ask(connect()) for _ in range(count // 5)]}))
"""


async def serve(ready):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "leaf.pem", TLS / "leaf-key.pem")
    body = json.dumps({"items": ["x" * 50] * 20}).encode()

    async def one(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(int(head.split(b" ")[1][1:]) / 1000)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(one, ADDRESS, 0, ssl=context)
    ready.set_result(server.sockets[0].getsockname()[1])


class Agent:
    def __init__(self, program, directory, port):
        self.program, self.directory, self.port = program, directory, port
        (directory / "workspace").mkdir()
        (directory / "workspace/client.py").write_text(CLIENT)
        (directory / "workspace/authority.pem").write_bytes((TLS / "authority.pem").read_bytes())
        (directory / "home/config").mkdir(parents=True)
        credential = '[credentials.{0}]\nhosts = ["{1}:{2}"]\nenv = "BENCH_TOKEN"\nvariables = ["TOKEN"]\nca = "{3}"\n'
        text = credential.format("here", ADDRESS, port, TLS / "authority.pem") + credential.format("elsewhere", ADDRESS, 9, TLS / "authority.pem")
        (directory / "home/config/config.toml").write_text(text)

    def command(self, way, *arguments):
        host = f"{ADDRESS}:{self.port}"
        options = {
            "ended": ["--credential", "here"],
            "passed": ["--network", host],
            "passed, another host is bound": ["--network", host, "--credential", "elsewhere"],
        }[way]
        authority = "-" if way == "ended" else "authority.pem"
        return [self.program, "exec", "--sandbox", "local", *options, "--", "python3", "client.py", str(self.port), *map(str, arguments), authority]

    def environment(self):
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.directory), "AGENT_HOME": str(self.directory / "home"), "BENCH_TOKEN": TOKEN}

    async def start(self, way, *arguments):
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *self.command(way, *arguments), cwd=self.directory / "workspace", env=self.environment(), stdin=pipe, stdout=pipe, limit=1 << 20
        )

    async def times(self, way, delay, count):
        process = await self.start(way, delay, count, 0)
        output, _ = await process.communicate()
        return json.loads(output)

    async def memory(self, way, connections):
        """Of the process, in MB, with so many connections."""
        process = await self.start(way, 0, 0, connections)
        await process.stdout.readline()
        rollup = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        process.stdin.write(b"\n")
        process.stdin.close()
        await process.wait()
        return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1000


WAYS = ["passed", "ended", "passed, another host is bound"]


async def main():
    ready = asyncio.get_running_loop().create_future()
    await serve(ready)
    with tempfile.TemporaryDirectory() as directory:
        agent = Agent(os.path.abspath(sys.argv[1]), pathlib.Path(directory), await ready)
        for delay, count in DELAYS.items():
            all = {(way, kind): [] for way in WAYS for kind in ("kept", "new")}
            for _ in range(ROUNDS):
                for way in WAYS:
                    for kind, times in (await agent.times(way, delay, count)).items():
                        all[way, kind] += times
            for (way, kind), times in all.items():
                base = all["passed", kind]
                median, last = statistics.median(times), statistics.quantiles(times, n=100)[98]
                ratios = median / statistics.median(base), last / statistics.quantiles(base, n=100)[98]
                print(f"{delay:2} ms, {kind:4}: {median:8.0f} µs, p99 {last:8.0f} µs; {ratios[0]:.2f} and {ratios[1]:.2f} times   {way} ({len(times)})")
        for way in WAYS[:2]:
            one, many = await agent.memory(way, 1), await agent.memory(way, 101)
            print(f"memory: {one:.1f} MB with one connection, {many - one:.1f} MB for 100 more   {way}")


asyncio.run(main())
