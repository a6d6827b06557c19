"""Drives `agent mcp` with the Python SDK of the Model Context Protocol."""

import asyncio
import os
import sys
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

TIMEOUT = 90
AGENT = os.environ["AGENT_BINARY"]
ERAS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


def server(*arguments):
    return stdio_client(StdioServerParameters(command=AGENT, args=["mcp", *arguments], env=dict(os.environ)))


async def tools(mode):
    """Commands, code, files, diff, checkpoints and jobs, in a sandbox."""
    async with Client(server(), mode=mode) as client:
        assert client.protocol_version == ERAS[mode], client.protocol_version
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"run_commands", "run_code", "read_file", "job_output", "diff", "apply", "undo"} <= set(names), names
        assert "execute" not in names
        ran = await client.call_tool("run_commands", {"command": "echo hi > new.txt; cat old.txt; exit 3"})
        assert not ran.is_error and ran.structured_content["exit_code"] == 3, ran
        assert "before" in ran.content[0].text, ran
        assert (await client.call_tool("checkpoint", {})).structured_content["checkpoint"] >= 1
        await client.call_tool("write_file", {"path": "later.txt", "data": "later\n"})
        diff = (await client.call_tool("diff", {})).structured_content
        assert [file["path"] for file in diff["files"]] == ["later.txt", "new.txt"], diff
        await client.call_tool("undo", {})
        diff = (await client.call_tool("diff", {})).structured_content
        assert [file["path"] for file in diff["files"]] == ["new.txt"], diff
        missing = await client.call_tool("read_file", {"path": "missing.txt"})
        assert missing.is_error, missing
        network = await client.call_tool("network", {})
        assert network.structured_content == {"hosts": []}, network
        refused = await client.call_tool("apply", {})
        assert refused.is_error and "agent apply" in refused.content[0].text, refused
        assert not Path("new.txt").exists()


async def elicitation(mode):
    """`apply` asks the client's user, in the way of each era."""
    from mcp.types import ElicitResult

    asked = []

    async def answer(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"agree": len(asked) > 1})

    async with Client(server(), mode=mode, elicitation_callback=answer) as client:
        await client.call_tool("write_file", {"path": "new.txt", "data": "hello\n"})
        refused = await client.call_tool("apply", {})
        assert refused.is_error and not Path("new.txt").exists(), refused
        applied = await client.call_tool("apply", {})
        assert not applied.is_error and Path("new.txt").read_text() == "hello\n", applied
        assert len(asked) == 2 and "new.txt" in asked[0], asked


asyncio.run(asyncio.wait_for(globals()[sys.argv[1]](sys.argv[2]), TIMEOUT))
