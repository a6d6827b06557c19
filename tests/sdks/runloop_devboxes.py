"""Devboxes with Runloop's own SDK, against the provider that the tests of `--sandbox runloop` have made up."""

from runloop_api_client import BadRequestError, NotFoundError, Runloop

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
ran = runloop.devboxes.execute(devbox.id, command="echo out; echo err >&2; exit 3", optimistic_timeout=20)
assert (ran.status, ran.exit_status, ran.stdout, ran.stderr) == ("completed", 3, "out\n", "err\n"), ran
waited = runloop.devboxes.wait_for_command(ran.execution_id, devbox_id=devbox.id, statuses=["completed"])
assert waited.stdout == "out\n", waited
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
idle = runloop.devboxes.create_and_await_running(tunnel={"auth_mode": "authenticated"})

def refused(call, **arguments):
    try:
        call(**arguments)
    except BadRequestError:
        return
    raise AssertionError(f"{arguments} are accepted")


refused(runloop.devboxes.create, extra_body={"image": "debian"})
refused(runloop.devboxes.create, launch_parameters={"custom_cpu_cores": 2})
refused(runloop.devboxes.create, metadata={"number": 1})
refused(runloop.network_policies.create, name="by-the-sdk")
refused(runloop.devboxes.list, extra_query={"status": "elsewhere"})
refused(runloop.devboxes.execute, id=idle.id, command="true", command_id="1")
refused(runloop.devboxes.enable_tunnel, id=idle.id)
runloop.devboxes.shutdown(idle.id)
print("passed")
