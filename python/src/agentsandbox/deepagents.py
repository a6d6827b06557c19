"""deepagents: a backend, one for each thread, and the provider for `dcode --sandbox agent`."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from ._child import AgentError
from ._sandbox import Sandbox

#: What the other providers take as the time limit of a command, in seconds.
DEFAULT_TIMEOUT = 1800


class AgentSandbox(BaseSandbox):
    """A sandbox of `agent` as a backend. `diff`, `apply` and `undo` of :attr:`sandbox` work beside it."""

    def __init__(self, *, sandbox: Sandbox, timeout: int = DEFAULT_TIMEOUT) -> None:
        self.sandbox = sandbox
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else timeout
        # 0 asks for no limit: this is the longest that there is.
        result = self.sandbox.run(command, timeout=seconds or 86_400)
        output = result.output
        if result.timed_out:
            output = f"Command timed out after {seconds} seconds\n{output}"
        return ExecuteResponse(output=output, exit_code=result.exit_code, truncated=result.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        absolute = [(path, data) for path, data in files if path.startswith("/")]
        written = iter(self.sandbox.files.write_many(absolute))
        results = []
        for path, _ in files:
            error = _named(next(written).error) if path.startswith("/") else "invalid_path"
            results.append(FileUploadResponse(path=path, error=error))
        return results

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        results = []
        for path in paths:
            if not path.startswith("/"):
                results.append(FileDownloadResponse(path=path, content=None, error="invalid_path"))
                continue
            try:
                read = self.sandbox.files.read_many([path])[0]
            except AgentError as error:
                results.append(FileDownloadResponse(path=path, content=None, error=str(error)))
                continue
            results.append(
                FileDownloadResponse(path=path, content=read.data, error=_named(read.error))
            )
        return results

    def close(self) -> None:
        """Ends the sandbox."""
        self.sandbox.close()


def _named(error: str | None) -> str | None:
    """The protocol's word for a failure of one file."""
    if error is None:
        return None
    text = error.lower()
    for words, name in (
        ("no such file", "file_not_found"),
        ("permission denied", "permission_denied"),
        ("is a directory", "is_directory"),
        ("not a regular file", "is_directory"),
        ("not a directory", "invalid_path"),
    ):
        if words in text:
            return name
    return error


class ThreadSandboxes(BaseSandbox):
    """A sandbox for each thread of a graph: `create_deep_agent(backend=ThreadSandboxes(workspace="."))`.

    Threads are distinguished by `configurable.thread_id`. The first call for a thread starts its sandbox; calls at the same time
    meet in one. With `persistent=True` a later process finds the thread's workspace again.
    """

    def __init__(self, *, persistent: bool = False, timeout: int = DEFAULT_TIMEOUT, **options: Any) -> None:
        self._options = options
        self._persistent = persistent
        self._timeout = timeout
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._backends: dict[str, AgentSandbox] = {}

    def __call__(self, runtime: Any) -> AgentSandbox:
        """The backend of a runtime's thread, for versions that take a function."""
        return self.get(_thread_of(runtime))

    @property
    def id(self) -> str:
        return self._current().id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._current().execute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._current().upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._current().download_files(paths)

    def _current(self) -> AgentSandbox:
        """The backend of the thread that runs now."""
        return self.get(_thread_of(None))

    def get(self, thread: str) -> AgentSandbox:
        """The backend of a thread."""
        with self._lock:
            lock = self._locks.setdefault(thread, threading.Lock())
        with lock:
            backend = self._backends.get(thread)
            if backend is None:
                key = f"thread {thread}" if self._persistent else None
                backend = AgentSandbox(sandbox=Sandbox(key=key, **self._options), timeout=self._timeout)
                self._backends[thread] = backend
            return backend

    def close(self, thread: str | None = None) -> None:
        """Ends the sandbox of a thread, or all of them."""
        names = list(self._backends) if thread is None else [thread]
        for name in names:
            backend = self._backends.pop(name, None)
            if backend is not None:
                backend.close()


def _thread_of(runtime: Any) -> str:
    config = getattr(runtime, "config", None)
    if not isinstance(config, dict):
        try:
            from langgraph.config import get_config

            config = dict(get_config())
        except (ImportError, RuntimeError):
            config = {}
    return str(config.get("configurable", {}).get("thread_id", "default"))


def _deepagents_code() -> Any:
    """The package that has the providers' types; a program that uses backends alone need not have it."""
    try:
        return importlib.import_module("deepagents_code.integrations.sandbox_provider")
    except ImportError:
        return None


def _metadata() -> Any:
    module = _deepagents_code()
    if module is None:
        return None
    return module.SandboxProviderMetadata(name="agent", working_dir="/workspace", backend_module="agentsandbox")


def _provider_base() -> Any:
    return getattr(_deepagents_code(), "SandboxProvider", object)


class AgentProvider(_provider_base()):  # type: ignore[misc]
    """The entry point `deepagents_code.sandbox_providers`: a sandbox's id is its key."""

    def __init__(self, make: Callable[..., Sandbox] = Sandbox) -> None:
        self._make = make
        self._open: dict[str, AgentSandbox] = {}
        self._lock = threading.Lock()

    @property
    def metadata(self) -> Any:
        return _metadata()

    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> AgentSandbox:
        """The sandbox of this id, or a new one. An id that is not known is a `KeyError`."""
        with self._lock:
            if sandbox_id is not None:
                if sandbox_id not in self._open:
                    raise KeyError(f"there is no sandbox {sandbox_id}")
                return self._open[sandbox_id]
            backend = AgentSandbox(sandbox=self._make(**kwargs))
            self._open[backend.id] = backend
            return backend

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Ends a sandbox."""
        with self._lock:
            backend = self._open.pop(sandbox_id, None)
        if backend is not None:
            backend.close()
