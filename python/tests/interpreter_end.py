"""Programs that do not close their sandboxes. Each scenario runs in an interpreter of its own: `interpreter_end.py NAME`.

Without a name, all of them run on this Python; AGENT_BINARY names the program.
"""

import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from agentsandbox import Sandbox

#: What a scenario prints before its end, which nothing may follow.
LAST_LINE = "the last line"


def used() -> Sandbox:
    sandbox = Sandbox(tempfile.mkdtemp(dir=os.environ.get("SCENARIO_DIR")))
    assert sandbox.run("echo hello").output == "hello\n"
    print(sandbox._shared.child._process.pid, flush=True)
    return sandbox


def a_sandbox_of_the_module() -> None:
    globals()["kept"] = used()


def a_sandbox_with_a_fork() -> None:
    globals()["kept"] = used()
    globals()["fork"] = globals()["kept"].fork()


def two_sandboxes_and_an_exception() -> None:
    globals()["kept"] = [used(), used()]
    print(LAST_LINE, flush=True)
    raise SystemExit(0)


def a_sandbox_that_is_garbage() -> None:
    used()
    gc.collect()


def a_sandbox_in_a_cycle_that_is_never_collected() -> None:
    gc.disable()
    used()


def a_sandbox_of_a_thread_that_still_waits() -> None:
    sandbox = used()

    def wait() -> None:
        try:
            sandbox.run("sleep 600")
        except Exception:
            pass

    threading.Thread(target=wait, daemon=True).start()


def a_program_that_prints_all_the_time() -> None:
    globals()["kept"] = used()

    def follow() -> None:
        while True:
            globals()["kept"].run("seq 100000")

    threading.excepthook = lambda _: None
    threading.Thread(target=follow, daemon=True).start()


def a_forked_process_that_ends_first() -> None:
    globals()["kept"] = used()
    if os.fork() == 0:
        sys.exit(0)
    assert os.wait()[1] == 0
    assert globals()["kept"].run("echo still there").output == "still there\n"


SCENARIOS: list[Callable[[], None]] = [
    a_sandbox_of_the_module,
    a_sandbox_with_a_fork,
    two_sandboxes_and_an_exception,
    a_sandbox_that_is_garbage,
    a_sandbox_in_a_cycle_that_is_never_collected,
    a_sandbox_of_a_thread_that_still_waits,
    a_program_that_prints_all_the_time,
    a_forked_process_that_ends_first,
]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def check(scenario: Callable[[], None]) -> None:
    """The interpreter ends with 0, says nothing about it, and leaves no program behind."""
    name = scenario.__name__
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", __file__, name],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "SCENARIO_DIR": directory},
        )
    *pids, last = ended.stdout.split("\n")[:-1]
    assert (ended.returncode, ended.stderr, last) == (0, "", LAST_LINE), (name, ended)
    assert pids and not any(is_running(int(pid)) for pid in pids), (name, ended)


if __name__ == "__main__":
    if sys.argv[1:]:
        next(scenario for scenario in SCENARIOS if scenario.__name__ == sys.argv[1])()
        print(LAST_LINE, flush=True)
    else:
        for scenario in SCENARIOS:
            check(scenario)
            print(scenario.__name__)
