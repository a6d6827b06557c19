"""mini-swe-agent: `environment_class: agentsandbox.minisweagent.AgentEnvironment`."""

from __future__ import annotations

import platform
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from ._child import AgentError
from ._sandbox import Sandbox

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class AgentEnvironmentConfig(BaseModel):
    """The settings of the environment."""

    workspace: str = "."
    """The directory that the sandbox has a copy of."""
    cwd: str = "/workspace"
    env: dict[str, str] = {}
    timeout: int = 30
    backend: str | None = None
    image: str | None = None
    network: str | None = None


class AgentEnvironment:
    """Runs commands in a sandbox of `agent`. `sandbox.diff().patch` is what they have changed."""

    def __init__(self, *, config_class: type = AgentEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)
        config = self.config
        self.sandbox = Sandbox(config.workspace, backend=config.backend, image=config.image, network=config.network)

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs the command of an action."""
        seconds = timeout or self.config.timeout
        try:
            result = self.sandbox.run(
                action.get("command", ""), timeout=seconds, cwd=cwd or self.config.cwd, env=self.config.env
            )
        except AgentError as error:
            return _failed("", f"An error occurred while executing the command: {error}", error)
        if result.timed_out:
            limit = TimeoutError(f"timed out after {seconds} seconds")
            return _failed(result.output, f"An error occurred while executing the command: {limit}", limit)
        code = -1 if result.exit_code is None else result.exit_code
        output = {"output": result.output, "returncode": code, "exception_info": ""}
        lines = result.output.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _SUBMIT and code == 0:
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """What templates may use."""
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """The settings, for a trajectory."""
        kind = f"{self.__class__.__module__}.{self.__class__.__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}

    def cleanup(self) -> None:
        """Ends the sandbox."""
        self.sandbox.close()


def _failed(output: str, info: str, error: Exception) -> dict[str, Any]:
    extra = {"exception_type": type(error).__name__, "exception": str(error)}
    return {"output": output, "returncode": -1, "exception_info": info, "extra": extra}
