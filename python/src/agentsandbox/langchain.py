"""LangChain: the tool `run_code`."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import StructuredTool

from ._child import AgentError
from ._sandbox import Sandbox

_ABOUT = (
    "Runs code in a sandbox and returns what it prints and shows. `lang` is python, javascript, typescript, ruby, r, bash, go, "
    "rust, c, cpp or java. Variables stay from one call to the next. `libraries` are installed first."
)


def run_code_tool(sandbox: Sandbox, *, timeout: float | None = None) -> StructuredTool:
    """The tool `run_code(lang, code, libraries)` of a sandbox, for `create_agent(tools=[…])`."""

    def run_code(lang: str, code: str, libraries: list[str] | None = None) -> str:
        try:
            return sandbox.run_code(lang, code, libraries=libraries or (), timeout=timeout).text
        except AgentError as error:
            return f"error: {error}"

    tool: Any = StructuredTool.from_function(run_code, name="run_code", description=_ABOUT)
    return tool  # type: ignore[no-any-return]
