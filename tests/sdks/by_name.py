"""What programs do with SDKs that reach a sandbox's ports by name alone: `PORT-ID.DOMAIN`, over TLS. Their calls went to the vendor."""

import socket
import sys

if sys.argv[1:] == ["novita"]:
    from novita_sandbox.code_interpreter import Sandbox
else:
    from e2b_code_interpreter import Sandbox

# Not every resolver knows that names below localhost are this machine.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve(
    "127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more
)

with Sandbox.create(timeout=600) as sandbox:
    host = sandbox.get_host(3000)
    assert host.startswith(f"3000-{sandbox.sandbox_id}.") and ("localhost" in host or "127.0.0.1" in host), host
    assert sandbox.run_code("1 + 1").text == "2"
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
print("passed")
