"""A coding agent in a page: an OpenAI client, four tools, and a sandbox of Novita's SDK.

    agent serve &                       # the sandboxes, on this machine
    eval "$(agent serve --print-env)"
    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python novita_loop.py "write and run hello.py"
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from novita_sandbox.core import CommandExitException, Sandbox
from openai import OpenAI

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
MAX_TURNS = 30
MAX_RESULT = 30_000
PROMPT = "You work in a sandbox with the tools that you have. Run what you write. Answer in one sentence when it is done."


def tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT = {"type": "string"}
FILES = {"type": "array", "items": {"type": "object", "properties": {"path": TEXT, "data": TEXT}, "required": ["path", "data"]}}
TOOLS = [
    tool("read_file", "Reads a text file.", path=TEXT),
    tool("write_file", "Writes a text file.", path=TEXT, data=TEXT),
    tool("write_files", "Writes several text files.", files=FILES),
    tool("run_commands", "Runs a shell command.", command=TEXT),
]


def run(sandbox: Sandbox, command: str) -> str:
    """Runs a command. One that fails is a result, and not an exception."""
    try:
        result = sandbox.commands.run(command, timeout=300)
    except CommandExitException as failed:
        result = failed
    return f"exit code {result.exit_code}\n{result.stdout}{result.stderr}"[:MAX_RESULT]


def call(sandbox: Sandbox, name: str, arguments: dict[str, Any]) -> str:
    """What the model reads of a call."""
    tools: dict[str, Callable[[], object]] = {
        "read_file": lambda: sandbox.files.read(arguments["path"]),
        "write_file": lambda: sandbox.files.write(arguments["path"], arguments["data"]),
        "write_files": lambda: sandbox.files.write_files(arguments["files"]),
        "run_commands": lambda: run(sandbox, arguments["command"]),
    }
    try:
        result = tools[name]()
    except Exception as error:  # Whatever fails, the model can do something about it.
        return f"error: {type(error).__name__}: {error}"[:MAX_RESULT]
    return result[:MAX_RESULT] if isinstance(result, str) else "written"


def turns(client: OpenAI, sandbox: Sandbox, messages: list[Any]) -> Iterator[tuple[str, str]]:
    """Works on the conversation until the model answers: each call with its result, and then the answer."""
    for _ in range(MAX_TURNS):
        reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            yield "answer", reply.content or ""
            return
        for asked in reply.tool_calls:
            name, given = asked.function.name, asked.function.arguments
            try:
                result = call(sandbox, name, json.loads(given))
            except json.JSONDecodeError as error:
                result = f"error: the arguments are not JSON: {error}"
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": result})
            yield f"{name} {given}", result
    yield "answer", f"stopped after {MAX_TURNS} turns"


def main() -> None:
    messages: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": " ".join(sys.argv[1:])}]
    with Sandbox.create(timeout=3600) as sandbox:
        for what, text in turns(OpenAI(), sandbox, messages):
            print(f"[{what}]\n{text}\n" if what != "answer" else text)


if __name__ == "__main__":
    main()
