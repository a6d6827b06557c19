"""Devboxes with Runloop's own SDK, against the provider that the tests of `--sandbox runloop` have made up."""

from runloop_api_client import NotFoundError, Runloop

runloop = Runloop()
policy = runloop.network_policies.create(name="by-the-sdk")
assert policy.id in [found.id for found in runloop.network_policies.list()]
devbox = runloop.devboxes.create_and_await_running(
    name="by-the-sdk",
    metadata={"made": "by-the-sdk"},
    launch_parameters={"network_policy_id": policy.id},
    tunnel={"auth_mode": "authenticated"},
)
assert devbox.status == "running" and devbox.tunnel.auth_mode == "authenticated", devbox
ran = runloop.devboxes.execute_sync(devbox.id, command="echo out; echo err >&2; exit 3")
assert (ran.exit_status, ran.stdout, ran.stderr) == (3, "out\n", "err\n"), ran
runloop.devboxes.upload_file(devbox.id, path="/workspace/a.bin", file=b"\x00\xff content")
assert runloop.devboxes.download_file(devbox.id, path="/workspace/a.bin").read() == b"\x00\xff content"
assert devbox.id in [found.id for found in runloop.devboxes.list(status="running")]
runloop.devboxes.keep_alive(devbox.id)
runloop.devboxes.suspend(devbox.id)
assert runloop.devboxes.await_suspended(devbox.id).status == "suspended"
runloop.devboxes.resume(devbox.id)
runloop.devboxes.await_running(devbox.id)
ran = runloop.devboxes.execute_sync(devbox.id, command="wc -c < /workspace/a.bin")
assert ran.stdout.strip() == "10", ran
runloop.devboxes.shutdown(devbox.id)
assert devbox.id not in [found.id for found in runloop.devboxes.list(status="running")]
try:
    runloop.devboxes.retrieve("dbx_none")
    raise AssertionError("there is such a devbox")
except NotFoundError:
    pass
print("passed")
