"""Drives `examples/evals/harbor_agent.py` as a trial of Harbor's does, with this machine in place of a container. Prints what Harbor would note.

    harbor_run.py DIRECTORY INSTRUCTION
"""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext
from harbor_agent import Agent


class Here(BaseEnvironment):
    """Runs commands in a directory of this machine; files for places elsewhere go below `root`, and so do their names in commands."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root / "elsewhere", root / "work"

    def inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        for place in ("/usr/local/bin/agent", "/tmp/agent-prompt.txt", "/installed-agent", "/logs/agent"):
            command = command.replace(place, str(self.inside(place)))
        env = {name: value.replace("/logs/agent", str(self.inside("/logs/agent"))) for name, value in (env or {}).items()}
        path = {"PATH": "/usr/bin:/bin", "HOME": str(self.root / "home"), "AGENT_SANDBOX": "local"}
        done = subprocess.run(["bash", "-c", command], cwd=self.work, env={**path, **env}, capture_output=True, text=True)
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)

    async def upload_file(self, source_path, target_path) -> None:
        target = self.inside(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source_path, target)

    def not_used(self, *arguments, **named):
        raise NotImplementedError

    type = staticmethod(lambda: "here")
    start = stop = upload_dir = download_file = download_dir = _validate_definition = not_used


async def main(root: Path, instruction: str) -> None:
    logs = root / "logs"
    logs.mkdir()
    assert issubclass(Agent, BaseAgent)
    assert Agent.import_path() == "harbor_agent:Agent"
    agent = Agent(logs_dir=logs, model_name="test-model", environment_logs_dir=PurePosixPath("/logs/agent"), network="none", max_turns=3)
    environment, context = Here(root), AgentContext()
    await agent.setup(environment)
    await agent.run(instruction, environment, context)
    # Harbor copies the logs out of the container.
    shutil.copyfile(environment.inside("/logs/agent/events.jsonl"), logs / "events.jsonl")
    agent.populate_context_post_run(context)
    info = agent.to_agent_info()
    print(json.dumps({"name": info.name, "version": info.version, "context": context.model_dump(exclude_none=True)}))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
