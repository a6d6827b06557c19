"""Sandboxes of the program `agent`: run anything beside your own files, review one diff, apply it."""

from ._child import AgentError
from ._sandbox import Applied, CodeResult, CommandResult, Diff, Files, FileResult, Sandbox

__all__ = ["AgentError", "Applied", "CodeResult", "CommandResult", "Diff", "FileResult", "Files", "Sandbox"]
