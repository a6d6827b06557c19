"""Lists of addresses of E2B's own SDK, against `agent serve --network HOST:PORT`. The argument is a site of that host."""

import sys

from e2b import CommandExitException, Sandbox, SandboxException

SITE = sys.argv[1]
HOST = SITE.split("/")[2].split(":")[0]
RANGE = HOST.rsplit(".", 1)[0] + ".0/24"
ALL = "0.0.0.0/0"


def reaches(sandbox):
    try:
        return sandbox.commands.run(f"curl --fail --silent --max-time 20 {SITE}").stdout == "from the site\n"
    except CommandExitException:
        return False


for network, expected in [
    ({}, True),
    ({"allow_out": [HOST]}, True),
    ({"deny_out": [HOST]}, False),
    ({"deny_out": [RANGE]}, False),
    ({"deny_out": ["192.0.2.1"]}, True),
    ({"deny_out": [ALL]}, False),
    ({"deny_out": [ALL], "allow_out": ["192.0.2.1"]}, False),
    ({"deny_out": [ALL], "allow_out": [RANGE]}, True),
    # What the server does not allow is not allowed by a client.
    ({"allow_out": ["192.0.2.1"]}, True),
]:
    with Sandbox.create(timeout=600, network=network) as sandbox:
        assert reaches(sandbox) == expected, network
        assert not network or sandbox.get_info().allow_internet_access == (network != {"deny_out": [ALL]}), network

with Sandbox.create(timeout=600, allow_internet_access=False) as sandbox:
    assert not reaches(sandbox)
    for network, expected in [({}, True), ({"deny_out": [HOST]}, False), ({"allow_internet_access": False}, False), ({}, True)]:
        sandbox.update_network(network)
        assert reaches(sandbox) == expected, network
    try:
        sandbox.update_network({"deny_out": ["example.com"]})
    except SandboxException:
        pass
    else:
        raise AssertionError("a name was denied")
print("passed")
