"""Snapshots and forks with E2B's own SDK, against `agent serve --max-sandboxes 4`."""

from e2b import RateLimitException, Sandbox, SandboxException


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def listed(**filters):
    pages, found = Sandbox.list_snapshots(**filters), []
    while pages.has_next:
        found += [snapshot.snapshot_id for snapshot in pages.next_items()]
    return found


with Sandbox.create(timeout=600, metadata={"name": "source"}, envs={"A": "1"}) as sandbox:
    sandbox.commands.run("echo home > kept; chmod 700 kept; ln -s kept link; mkdir -p d/e; echo 1 > /tmp/t; echo 2 > /workspace/w")
    sandbox.commands.run("sleep 1000", background=True)
    first = sandbox.create_snapshot()
    named = sandbox.create_snapshot(name="my-snapshot")
    assert named.names and named.names[0].endswith("/my-snapshot"), named
    sandbox.files.write("kept", "changed")
    other = Sandbox.create(first.snapshot_id, timeout=600, metadata={"name": "copy"})
    ran = other.commands.run("cat kept link /tmp/t /workspace/w; stat -c %a kept; ls -d d/e; echo $A.")
    assert ran.stdout == "home\nhome\n1\n2\n700\nd/e\n.\n", ran
    # Processes are not copied.
    assert other.commands.list() == [] and other.get_info().metadata == {"name": "copy"}
    assert other.get_info().template_id == first.snapshot_id
    assert other.sandbox_id != sandbox.sandbox_id

    assert listed() == [first.snapshot_id, named.snapshot_id]
    assert listed(limit=1) == [first.snapshot_id, named.snapshot_id]
    assert listed(sandbox_id=sandbox.sandbox_id) == listed() and listed(sandbox_id=other.sandbox_id) == []
    assert listed(name="my-snapshot") == [named.snapshot_id]
    # The same name again is the same snapshot, with another content.
    again = sandbox.create_snapshot(name="my-snapshot")
    assert again.snapshot_id == named.snapshot_id and len(listed()) == 2
    for template in ("my-snapshot", named.snapshot_id):
        with Sandbox.create(template, timeout=600) as copy:
            assert copy.files.read("kept") == "changed"
    fails(SandboxException, lambda: sandbox.create_snapshot(name="Not Valid"))

    # Two of three fit, and each succeeds or fails by itself.
    forks = sandbox.fork(count=3, timeout=600)
    assert [type(fork) for fork in forks if not isinstance(fork, Sandbox)] == [RateLimitException], forks
    forks = [fork for fork in forks if isinstance(fork, Sandbox)]
    assert [fork.files.read("kept") for fork in forks] == ["changed", "changed"]
    assert [fork.get_info().metadata for fork in forks] == [{"name": "source"}] * 2
    assert forks[0].commands.run("echo $A").stdout == "1\n"
    forks[0].files.write("kept", "of the fork")
    assert sandbox.files.read("kept") == "changed"
    assert all(fork.kill() for fork in forks) and len(listed()) == 2

    sandbox.pause()
    fails(SandboxException, sandbox.create_snapshot)
    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=600)

    # What began as a snapshot does not need it any more.
    assert Sandbox.delete_snapshot(first.snapshot_id) and not Sandbox.delete_snapshot(first.snapshot_id)
    assert other.files.read("kept") == "home\n"
    fails(SandboxException, lambda: Sandbox.create(first.snapshot_id))
    assert other.kill()
    assert Sandbox.delete_snapshot("my-snapshot") and listed() == []
print("passed")
