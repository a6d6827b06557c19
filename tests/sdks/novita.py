"""What programs do with Novita's own SDK, against `agent serve`."""

from novita_sandbox.core import Sandbox

with Sandbox.create(timeout=600, metadata={"name": "one"}) as sandbox:
    sandbox.files.write("a.txt", "hello")
    assert sandbox.files.read("a.txt") == "hello"
    assert [entry.name for entry in sandbox.files.list("/home/user")] == ["a.txt"]
    result = sandbox.commands.run("cat a.txt; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("hello", "err\n", 0), result
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "it\n")
    assert handle.wait().stdout == "got it\n"
    sleeper = sandbox.commands.run("sleep 1000", background=True)
    assert sleeper.kill()
    assert Sandbox.connect(sandbox.sandbox_id).files.exists("a.txt")
assert not sandbox.is_running()
print("passed")
