"""Pausing and resuming with E2B's own SDK, against `agent serve`."""

from e2b import Sandbox, SandboxState

with Sandbox.create(timeout=600) as sandbox:
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True, timeout=0)
    sandbox.files.write("a.txt", "kept")
    sandbox.pause()
    assert Sandbox.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED
    assert not sandbox.is_running()
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    assert again.get_info().state == SandboxState.RUNNING
    assert again.files.read("a.txt") == "kept"
    again.commands.send_stdin(handle.pid, "it\n")
    assert handle.wait().stdout == "got it\n"
print("passed")
