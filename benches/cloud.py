"""The same work as `benches/cloud.rs` with E2B's own SDK; prints the seconds that it took. Started by that bench."""

import statistics
import sys
import time

from e2b import Sandbox


def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ready():
    times = []
    for _ in range(5):
        made = []
        times.append(timed(lambda: (made.append(Sandbox.create(timeout=300)), made[0].commands.run("true"))))
        made[0].kill()
    return statistics.median(times)


def commands(sandbox):
    for _ in range(20):
        sandbox.commands.run("true")


def files(sandbox):
    sandbox.files.write_files([{"path": f"many/file-{n}", "data": "x" * 1000} for n in range(500)])


def output(sandbox):
    assert len(sandbox.commands.run("head -c 10000000 /dev/zero | tr '\\0' x", timeout=0).stdout) == 10_000_000


if sys.argv[1] == "ready":
    print(ready())
else:
    with Sandbox.create(timeout=600) as sandbox:
        print(timed(lambda: globals()[sys.argv[1]](sandbox)))
