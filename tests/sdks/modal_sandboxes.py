"""Sandboxes with Modal's own SDK, against the provider that the tests of `--sandbox modal` have made up."""

import modal

app = modal.App.lookup("by-the-sdk", create_if_missing=True)
image = modal.Image.from_registry("debian:12-slim")
sandbox = modal.Sandbox.create(
    "sleep", "infinity", app=app, image=image, block_network=True, timeout=600, idle_timeout=60, tags={"made": "by-the-sdk"}
)
ran = sandbox.exec("sh", "-c", "echo out; echo err >&2; exit 3")
assert (ran.stdout.read(), ran.stderr.read(), ran.wait()) == ("out\n", "err\n", 3)

echo = sandbox.exec("sh", "-c", "cat >/workspace/a.bin; wc -c </workspace/a.bin", text=False)
content = bytes(range(256)) * 4096
echo.stdin.write(content)
echo.stdin.write_eof()
echo.stdin.drain()
assert echo.stdout.read().strip() == str(len(content)).encode()
assert sandbox.exec("cat", "/workspace/a.bin", text=False).stdout.read() == content

assert sandbox.object_id in [found.object_id for found in modal.Sandbox.list(app_id=app.app_id)]
assert sandbox.object_id in [found.object_id for found in modal.Sandbox.list(tags={"made": "by-the-sdk"})]
assert sandbox.object_id not in [found.object_id for found in modal.Sandbox.list(tags={"made": "by-nobody"})]
assert sandbox.poll() is None
copied = sandbox.snapshot_filesystem(ttl=600)
copy = modal.Sandbox.create("sleep", "infinity", app=app, image=copied, block_network=True, timeout=600)
assert copy.exec("cat", "/workspace/a.bin", text=False).stdout.read() == content
copy.terminate()
sandbox.terminate()
assert sandbox.object_id not in [found.object_id for found in modal.Sandbox.list(app_id=app.app_id)]
print("passed")
