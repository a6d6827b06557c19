"""Pausing and resuming with E2B's own SDK, against `agent serve`."""

from e2b import Sandbox, SandboxException, SandboxState

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

# Without its memory, it has its files and none of its processes.
with Sandbox.create(timeout=600) as sandbox:
    sandbox.commands.run("sleep 1000", background=True, timeout=0)
    sandbox.files.write("a.txt", "kept")
    sandbox.pause(keep_memory=False)
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    assert again.files.read("a.txt") == "kept"
    assert again.commands.run("pgrep -c sleep || true").stdout == "0\n"

# A request resumes one that was created so, and no other.
for auto_resume in (True, False):
    lifecycle = {"on_timeout": "pause", "auto_resume": auto_resume}
    with Sandbox.create(timeout=600, lifecycle=lifecycle) as sandbox:
        sandbox.files.write("a.txt", "kept")
        sandbox.pause()
        assert not sandbox.is_running()
        try:
            assert sandbox.files.read("a.txt") == "kept" and auto_resume
        except SandboxException:
            assert not auto_resume
        assert sandbox.is_running() == auto_resume
print("passed")
