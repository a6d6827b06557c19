"""What programs do with E2B's own SDK, against `agent serve`."""

import time
import urllib.error
import urllib.request

from e2b import (
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    RateLimitException,
    Sandbox,
    SandboxQuery,
    SandboxState,
)
from e2b.sandbox.commands.command_handle import PtySize


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def until(condition):
    for _ in range(600):
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("the condition did not come true in a minute")


def commands(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2; exit 0")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0), result
    failed = fails(CommandExitException, lambda: sandbox.commands.run("echo no; exit 7"))
    assert (failed.exit_code, failed.stdout) == (7, "no\n"), failed
    assert sandbox.commands.run("echo $A-$B", envs={"B": "2"}).stdout == "1-2\n"
    assert sandbox.commands.run("pwd; echo ~; whoami").stdout.startswith("/home/user\n/home/user\n")
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    fails(InvalidArgumentException, lambda: sandbox.commands.run("pwd", cwd="/not/there"))
    pieces = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=pieces.append)
    assert "".join(pieces) == "1\n2\n3\n", pieces
    large = sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(large.stdout) == 3_000_000


def background(sandbox):
    handle = sandbox.commands.run("cat; echo done", background=True, stdin=True)
    assert [process.pid for process in sandbox.commands.list()] == [handle.pid]
    sandbox.commands.send_stdin(handle.pid, "one\n")
    sandbox.commands.stream_input(handle.pid, ["two\n", "three\n"])
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "one\ntwo\nthree\ndone\n"
    sleeper = sandbox.commands.run("sleep 1000", background=True)
    follower = sandbox.commands.connect(sleeper.pid)
    assert sleeper.kill()
    assert fails(CommandExitException, follower.wait).exit_code == -1
    assert not sandbox.commands.kill(4_000_000)
    until(lambda: not sandbox.commands.list())


def terminal(sandbox):
    output = bytearray()
    pty = sandbox.pty.create(PtySize(rows=30, cols=90), timeout=0)
    sandbox.pty.resize(pty.pid, PtySize(rows=40, cols=100))
    sandbox.pty.send_stdin(pty.pid, b"stty size; exit\n")
    pty.wait(on_pty=output.extend)
    assert b"40 100" in output, bytes(output)


def files(sandbox):
    info = sandbox.files.write("a/b.txt", "hello")
    assert (info.path, info.name, info.type) == ("/home/user/a/b.txt", "b.txt", FileType.FILE), info
    assert sandbox.files.read("a/b.txt") == "hello"
    assert sandbox.commands.run("cat ~/a/b.txt /home/user/a/b.txt").stdout == "hellohello"
    sandbox.files.write_files([{"path": "x", "data": "1"}, {"path": "/tmp/y", "data": b"\x00\xff"}])
    assert sandbox.files.read("/tmp/y", format="bytes") == b"\x00\xff"
    large = bytes(range(256)) * 20_000
    sandbox.files.write("large", large, gzip=True)
    assert sandbox.files.read("large", format="bytes") == large
    assert b"".join(sandbox.files.read("large", format="stream")) == large
    # A shell at a terminal leaves its history.
    found = {entry.name: entry.type for entry in sandbox.files.list(".") if not entry.name.startswith(".")}
    assert found == {
        "a": FileType.DIR,
        "large": FileType.FILE,
        "x": FileType.FILE,
    }
    assert "/home/user/a/b.txt" in [entry.path for entry in sandbox.files.list(".", depth=2)]
    assert sandbox.files.get_info("large").size == len(large)
    assert sandbox.files.exists("x") and not sandbox.files.exists("not/there")
    assert sandbox.files.make_dir("d/e") and not sandbox.files.make_dir("d/e")
    assert sandbox.files.rename("x", "new/x").path == "/home/user/new/x"
    sandbox.files.remove("d")
    assert not sandbox.files.exists("d")
    fails(FileNotFoundException, lambda: sandbox.files.read("not/there"))
    fails(FileNotFoundException, lambda: sandbox.files.list("not/there"))
    fails(InvalidArgumentException, lambda: sandbox.files.read("a"))


def metadata(sandbox):
    kept = {"author": "mish", "purpose": "an upload"}
    assert sandbox.files.write("m/kept", "1", metadata=kept).metadata == kept
    assert sandbox.files.write("m/streamed", "1", metadata=kept, use_octet_stream=True).metadata == kept
    sandbox.files.write_files([{"path": "m/one", "data": "1"}, {"path": "m/two", "data": "2"}], metadata={"n": "1"})
    sandbox.files.write("m/none", "1")
    found = {entry.name: entry.metadata for entry in sandbox.files.list("m")}
    assert found == {"kept": kept, "streamed": kept, "one": {"n": "1"}, "two": {"n": "1"}, "none": None}, found
    assert sandbox.files.rename("m/kept", "m/renamed").metadata == kept
    # Those of programs inside are the same ones; others stay theirs.
    sandbox.commands.run("""python3 -c "import os
os.setxattr('/home/user/m/none', 'user.e2b.by', b'a program'); os.setxattr('/home/user/m/none', 'user.other', b'x')
print(os.getxattr('/home/user/m/renamed', 'user.e2b.author'))" """)
    assert sandbox.files.get_info("m/none").metadata == {"by": "a program"}
    # An upload replaces all of it.
    assert sandbox.files.write("m/renamed", "2").metadata is None
    assert sandbox.files.get_info("m/renamed").metadata is None
    fails(InvalidArgumentException, lambda: sandbox.files.write("m/much", "1", metadata={"much": "x" * 5000}))
    assert not sandbox.files.exists("m/much")


def watching(sandbox):
    sandbox.files.make_dir("watched")
    watch = sandbox.files.watch_dir("watched", include_entry=True, allow_network_mounts=True)
    sandbox.files.write("watched/new", "1", metadata={"a": "b"})
    seen = []
    until(lambda: seen.extend(watch.get_new_events()) or any(event.name == "new" for event in seen))
    entry = next(event.entry for event in seen if event.name == "new")
    assert (entry.path, entry.metadata) == ("/home/user/watched/new", {"a": "b"}), entry
    until(lambda: not watch.get_new_events())
    # No event said that a mode had changed.
    sandbox.commands.run("chmod 600 watched/new")
    until(lambda: [event.type for event in watch.get_new_events()] == [FilesystemEventType.CHMOD])
    watch.stop()


def signed(sandbox):
    url = sandbox.download_url("a/b.txt", use_signature_expiration=600)
    assert urllib.request.urlopen(url, timeout=60).read() == b"hello"
    for bad in (url.replace("b.txt", "c.txt"), sandbox.download_url("a/b.txt", use_signature_expiration=-600)):
        error = fails(urllib.error.HTTPError, lambda: urllib.request.urlopen(bad, timeout=60))
        assert error.code == 401, error


def lifecycle():
    with Sandbox.create(timeout=600, metadata={"name": "one two", "n": "1"}, envs={"A": "1"}) as sandbox:
        commands(sandbox)
        background(sandbox)
        terminal(sandbox)
        files(sandbox)
        metadata(sandbox)
        watching(sandbox)
        signed(sandbox)
        info = sandbox.get_info()
        assert info.metadata == {"name": "one two", "n": "1"} and info.state == SandboxState.RUNNING
        sandbox.set_timeout(1200)
        assert sandbox.get_info().end_at > info.end_at
        assert sandbox.get_metrics()[0].mem_total > 0
        other = Sandbox.create(timeout=600)
        assert "No such file" in fails(CommandExitException, lambda: other.commands.run("cat /home/user/a/b.txt")).stderr
        fails(RateLimitException, lambda: Sandbox.create())
        found = Sandbox.list(query=SandboxQuery(metadata={"name": "one two"})).next_items()
        assert [item.sandbox_id for item in found] == [sandbox.sandbox_id], found
        pages = Sandbox.list(limit=1)
        assert len(pages.next_items()) == 1 and pages.has_next
        assert len(pages.next_items()) == 1 and not pages.has_next
        again = Sandbox.connect(sandbox.sandbox_id)
        assert again.files.read("a/b.txt") == "hello"
        assert other.kill() and not other.kill()
        assert not other.is_running() and sandbox.is_running()
    assert Sandbox.list().next_items() == []


lifecycle()
short = Sandbox.create(timeout=1)
until(lambda: not short.is_running())
print("passed")
