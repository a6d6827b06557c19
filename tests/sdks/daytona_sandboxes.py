"""Sandboxes with Daytona's own SDK, against the provider that the tests of `--sandbox daytona` have made up."""

from daytona import CreateSandboxFromSnapshotParams, Daytona

daytona = Daytona()
sandbox = daytona.create(CreateSandboxFromSnapshotParams(labels={"made": "by-the-sdk"}, network_block_all=True))
ran = sandbox.process.exec("echo out; echo err >&2; exit 3")
assert ran.exit_code == 3 and "out" in ran.result and "err" in ran.result, ran
sandbox.fs.upload_file(b"\x00\xff content", "/workspace/a.bin")
assert sandbox.fs.download_file("/workspace/a.bin") == b"\x00\xff content"
assert sandbox.id in [found.id for found in daytona.list()]
assert daytona.get(sandbox.id).labels["made"] == "by-the-sdk"
sandbox.stop()
assert daytona.get(sandbox.id).state == "stopped"
sandbox.start()
assert sandbox.process.exec("wc -c < /workspace/a.bin").result.strip() == "10"
sandbox.refresh_activity()
sandbox.delete()
assert sandbox.id not in [found.id for found in daytona.list()]
print("passed")
