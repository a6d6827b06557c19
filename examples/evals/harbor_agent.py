"""Harbor, the harness of Terminal-Bench, with `agent` as its agent. From this directory:

    PYTHONPATH=. harbor run --dataset terminal-bench@2.0 --agent harbor_agent:Agent --model MODEL \
        --extra-docker-compose harbor-compose.yaml --ae AGENT_BASE_URL=URL --ae AGENT_API_KEY=KEY
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

_PROGRAM = "/usr/local/bin/agent"
# What the endpoint needs; `--ae NAME=VALUE` or the environment of `harbor` sets them.
_VARIABLES = ("AGENT_BASE_URL", "AGENT_API_KEY", "AGENT_PROVIDER", "AGENT_PROTOCOL")
# A limit was reached: what has been done counts.
_LIMIT = 5


class Agent(BaseInstalledAgent):
    """Runs `agent` inside of the task's container, on its working directory.

    The container has to allow namespaces, which the sandbox for commands is made of: `harbor-compose.yaml` beside this file lets
    it; `sandbox` names another backend. The change is written into the directory when the model has finished, or has reached a limit. What a task asks for outside of
    that directory, such as installed packages, is not there for its tests.
    """

    def __init__(
        self,
        *args: Any,
        program: str | None = None,
        sandbox: str = "local",
        network: str = "full",
        max_turns: int | None = None,
        max_time: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._program = program
        self._call = ["--sandbox", sandbox, "--network", network]
        self._call += ["--max-turns", str(max_turns)] if max_turns else []
        self._call += ["--max-time", max_time] if max_time else []

    @staticmethod
    def name() -> str:
        """The name of the agent."""
        return "agent"

    def get_version_command(self) -> str | None:
        """The command that prints the version."""
        return f"{_PROGRAM} --version"

    def parse_version(self, stdout: str) -> str:
        """The version in what that prints."""
        return stdout.strip().removeprefix("agent ")

    async def install(self, environment: BaseEnvironment) -> None:
        """Copies the program, which is linked statically, into the container."""
        program = self._program or os.environ.get("AGENT_BINARY") or shutil.which("agent")
        if program is None:
            raise RuntimeError("the program agent is not on PATH: install it, or set AGENT_BINARY to where it is")
        await environment.upload_file(program, _PROGRAM)
        await self.exec_as_root(environment, f"chmod 755 {_PROGRAM}")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Works on the instruction."""
        if not self.model_name:
            raise ValueError("a model is required: harbor run --model NAME")
        logs = self.environment_logs_dir
        prompt = self.logs_dir / "prompt.txt"
        prompt.write_text(self.render_instruction(instruction))
        await environment.upload_file(prompt, "/tmp/agent-prompt.txt")
        variables = {name: value for name in _VARIABLES if (value := self._get_env(name))}
        home = str(logs / "agent-home")
        env = {**variables, "AGENT_MODEL": self.model_name, "AGENT_HOME": home, "AGENT_LOG": str(logs)}
        call = shlex.join([_PROGRAM, "run", "-", "-C", ".", "--apply", "--json", *self._call])
        await self.exec_as_agent(
            environment,
            f'mkdir -p "$AGENT_LOG"; {call} </tmp/agent-prompt.txt >"$AGENT_LOG/events.jsonl" 2>"$AGENT_LOG/trace.txt"; code=$?; '
            f'if [ $code = {_LIMIT} ]; then {_PROGRAM} apply --yes -C . && code=0; fi; tail -n 5 "$AGENT_LOG/trace.txt"; exit $code',
            env=env,
        )

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Takes tokens and cost from the events of the session."""
        last = last_event(self.logs_dir / "events.jsonl")
        usage = last.get("usage", {})
        context.n_input_tokens = usage.get("input", 0)
        context.n_cache_tokens = usage.get("cached", 0)
        context.n_output_tokens = usage.get("output", 0)
        context.cost_usd = last.get("cost")
        context.metadata = {"turns": last.get("turns"), "status": last.get("status"), "exit_code": last.get("exit_code")}


def last_event(path: Path) -> dict[str, Any]:
    """The event `session_finished` of a file of events; empty where the session did not come to an end."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    try:
        event = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        # It was killed while it wrote.
        return {}
    return event if event.get("type") == "session_finished" else {}
