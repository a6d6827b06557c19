"""For programs written for llm-sandbox: `with SandboxSession(lang="python") as session: session.run(code).stdout`."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from ._sandbox import CommandResult, Sandbox


class SandboxBackend(StrEnum):
    """Where a sandbox is."""

    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"


class SupportedLanguage(StrEnum):
    """What the code of a session is written in."""

    PYTHON = "python"
    JAVA = "java"
    JAVASCRIPT = "javascript"
    CPP = "cpp"
    GO = "go"
    RUBY = "ruby"
    R = "r"


@dataclass(frozen=True)
class _Language:
    """A language's file, the command that runs it, and the one that installs libraries; both are shell text."""

    file: str
    run: str
    install: str | None = None


#: For the user where there is no virtual environment; older versions of pip do not know the variable, and need it not.
_PIP = (
    "user=--user; [ \"$(python3 -c 'import sys; print(sys.prefix != sys.base_prefix)')\" = True ] && user=; "
    "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet $user"
)

_LANGUAGES = {
    SupportedLanguage.PYTHON: _Language("code.py", "python3 code.py", _PIP),
    SupportedLanguage.JAVA: _Language("Main.java", "java Main.java"),
    SupportedLanguage.JAVASCRIPT: _Language("code.js", "node code.js", "npm install --no-audit --no-fund --loglevel=error"),
    SupportedLanguage.CPP: _Language("code.cpp", "g++ -o code code.cpp && ./code"),
    SupportedLanguage.GO: _Language("code.go", "go run code.go", "[ -e go.mod ] || go mod init code; go get"),
    SupportedLanguage.RUBY: _Language("code.rb", "ruby code.rb", "gem install --silent --user-install"),
    SupportedLanguage.R: _Language("code.R", "Rscript code.R"),
}

#: Names of backends there, and here.
_BACKENDS = {"podman": "docker"}

#: What changes nothing here: output is always collected, a template is nothing that is made.
_WITHOUT_EFFECT = {"keep_template", "stream", "skip_environment_setup", "commit_container", "session_timeout"}


@dataclass(frozen=True)
class ConsoleOutput:
    """What a run came to."""

    exit_code: int = 0
    stderr: str = ""
    stdout: str = ""

    def success(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


class SandboxSession:
    """A sandbox for one language. It has an empty workspace unless `workspace` names a directory to copy.

    An option of llm-sandbox that has no counterpart is named in a warning and has no effect.
    """

    def __init__(
        self,
        lang: str = SupportedLanguage.PYTHON,
        *,
        backend: SandboxBackend | str | None = None,
        image: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        network: str | None = "registries",
        verbose: bool = False,
        workdir: str | None = None,
        kube_namespace: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        default_timeout: float | None = None,
        execution_timeout: float | None = None,
        runtime_configs: Mapping[str, Any] | None = None,
        libraries: Iterable[str] | None = None,
        **options: Any,
    ) -> None:
        self._language = _LANGUAGES[SupportedLanguage(str(lang).lower())]
        self._verbose = verbose
        self._workdir = workdir
        self._timeout = execution_timeout or default_timeout
        self._libraries = list(libraries or ())
        # For a session, llm-sandbox takes these of Docker's names.
        limits = dict(runtime_configs or {})
        further = []
        for name, option in (("mem_limit", "--memory"), ("cpu_count", "--cpus"), ("pids_limit", "--pids")):
            if name in limits:
                further += [option, str(limits.pop(name))]
        if kube_namespace is not None:
            further += ["--kube-namespace", kube_namespace]
        unknown = [name for name, value in options.items() if value and name not in _WITHOUT_EFFECT]
        for name in sorted([*unknown, *(f"runtime_configs[{name!r}]" for name in limits)]):
            warnings.warn(f"{name} of llm-sandbox has no counterpart here and no effect", stacklevel=2)
        self._empty = TemporaryDirectory(prefix="agentsandbox-") if workspace is None else None
        if backend is not None:
            backend = _BACKENDS.get(str(backend), str(backend))
        self.sandbox = Sandbox(
            workspace if self._empty is None else self._empty.name,
            backend=backend,
            image=image,
            network=network,
            env=env_vars,
            options=further,
        )

    def open(self) -> None:
        """Starts the sandbox, which the first run does too."""
        self._log(f"sandbox of session {self.sandbox.id}")
        if self._workdir is not None:
            self.sandbox.run(f"mkdir -p -- {shlex.quote(self._workdir)}")
        self.install(self._libraries)

    def close(self) -> None:
        """Ends it."""
        self.sandbox.close()
        if self._empty is not None:
            self._empty.cleanup()

    def install(self, libraries: Iterable[str] | None = None) -> ConsoleOutput:
        """Installs libraries with the language's own package manager."""
        wanted = list(libraries or ())
        if not wanted:
            return ConsoleOutput()
        if self._language.install is None:
            return ConsoleOutput(1, f"libraries are not installed for {self._language.file}")
        words = " ".join(shlex.quote(library) for library in wanted)
        return self._execute(f"{self._language.install} {words}", self._workdir, None)

    def run(
        self,
        code: str,
        libraries: list[str] | None = None,
        timeout: float | None = None,
        on_stdout: Callable[[str], None] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> ConsoleOutput:
        """Runs code in a process of its own, after libraries were installed. The outputs are passed on at its end."""
        installed = self.install(libraries)
        if not installed.success():
            return installed
        self.sandbox.files.write(os.path.join(self._workdir or "", self._language.file), code)
        result = self._execute(self._language.run, self._workdir, timeout or self._timeout)
        for text, listener in ((result.stdout, on_stdout), (result.stderr, on_stderr)):
            if text and listener is not None:
                listener(text)
        return result

    def execute_command(self, command: str, workdir: str | None = None) -> ConsoleOutput:
        """Runs a shell command."""
        return self._execute(command, workdir or self._workdir, self._timeout)

    def copy_to_runtime(self, src: str, dest: str) -> None:
        """Copies a file into the sandbox."""
        self.sandbox.files.write(dest, Path(src).read_bytes())

    def copy_from_runtime(self, src: str, dest: str) -> None:
        """Copies a file out of it."""
        Path(dest).write_bytes(self.sandbox.files.read_bytes(src))

    def _execute(self, command: str, workdir: str | None, timeout: float | None) -> ConsoleOutput:
        self._log(f"$ {command}")
        result: CommandResult = self.sandbox.run(command, cwd=workdir, timeout=timeout, separate=True)
        code = -1 if result.exit_code is None else result.exit_code
        self._log(f"exit code {code}")
        return ConsoleOutput(code, result.stderr or "", result.stdout or "")

    def _log(self, text: str) -> None:
        if self._verbose:
            print(text, file=sys.stderr)

    def __enter__(self) -> SandboxSession:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
