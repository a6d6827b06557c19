"""For programs written for llm-sandbox: `with SandboxSession(lang="python") as session: session.run(code).stdout`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from ._sandbox import Sandbox



class SandboxBackend(StrEnum):
    """Where a sandbox is."""

    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"


#: Names of backends there, and here.
_BACKENDS = {"podman": "docker"}


@dataclass(frozen=True)
class ConsoleOutput:
    """What a run came to."""

    exit_code: int
    stdout: str
    stderr: str = ""
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    def success(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


class SandboxSession:
    """A sandbox for one language. It has an empty workspace unless `workspace` names a directory to copy."""

    def __init__(
        self,
        lang: str = "python",
        *,
        backend: SandboxBackend | str | None = None,
        image: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        network: str | None = None,
        verbose: bool = False,
        keep_template: bool = False,
        **options: Any,
    ) -> None:
        if options:
            raise TypeError(f"these options of llm-sandbox have no counterpart: {', '.join(sorted(options))}")
        self._lang = lang
        self._empty = TemporaryDirectory(prefix="agentsandbox-") if workspace is None else None
        directory = workspace if self._empty is None else self._empty.name
        if backend is not None:
            backend = _BACKENDS.get(str(backend), str(backend))
        self.sandbox = Sandbox(directory, backend=backend, image=image, network=network)

    def open(self) -> None:
        """Starts the sandbox, which the first run does too."""
        _ = self.sandbox.id

    def close(self) -> None:
        """Ends it."""
        self.sandbox.close()
        if self._empty is not None:
            self._empty.cleanup()

    def run(self, code: str, libraries: list[str] | None = None, timeout: float | None = None) -> ConsoleOutput:
        """Runs code after libraries were installed."""
        result = self.sandbox.run_code(self._lang, code, libraries=libraries or (), timeout=timeout)
        code_of = result.exit_code if result.exit_code is not None else (0 if result.ok else 1)
        # What went wrong is in the text too, in the place where it was printed.
        text = result.stdout if result.stdout or result.ok else result.text
        return ConsoleOutput(code_of, text if result.ok else "", "" if result.ok else text, result.artifacts)

    def execute_command(self, command: str, workdir: str | None = None) -> ConsoleOutput:
        """Runs a shell command."""
        result = self.sandbox.run(command, cwd=workdir)
        return ConsoleOutput(-1 if result.exit_code is None else result.exit_code, result.output)

    def copy_to_runtime(self, src: str, dest: str) -> None:
        """Copies a file into the sandbox."""
        self.sandbox.files.write(dest, Path(src).read_bytes())

    def copy_from_runtime(self, src: str, dest: str) -> None:
        """Copies a file out of it."""
        Path(dest).write_bytes(self.sandbox.files.read_bytes(src))

    def __enter__(self) -> SandboxSession:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
