"""One sandbox."""

from __future__ import annotations

import base64
import os
import threading
import uuid
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ._child import AgentError, Child

#: Bytes of files in one message.
_BATCH = 8 << 20


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    output: str
    """Both outputs, as they came."""
    exit_code: int | None
    """124 after the time limit, 128 and the signal for a killed one; `None` if it is not known."""
    timed_out: bool = False
    truncated: bool = False
    duration_ms: int = 0
    stdout: str | None = None
    """The standard output alone, and `stderr` the other, if they were asked for apart."""
    stderr: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class CodeResult:
    """What code came to."""

    ok: bool
    text: str
    """What it printed and showed, with how it ended in the first line."""
    exit_code: int | None = None
    truncated: bool = False
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def stdout(self) -> str:
        """The text without its first line."""
        return self.text.partition("\n")[2]


@dataclass(frozen=True)
class Diff:
    """What is changed in the sandbox and not written yet."""

    session: str
    files: list[dict[str, Any]]
    patch: str
    """For `git apply`."""
    truncated: bool = False

    def __bool__(self) -> bool:
        return bool(self.files)


@dataclass(frozen=True)
class Applied:
    """What was written to your own files."""

    files: list[str]


@dataclass(frozen=True)
class FileResult:
    """One file of several: its bytes, or why there are none."""

    path: str
    data: bytes | None = None
    error: str | None = None


class Files:
    """The files of a sandbox. Relative paths are in its workspace."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def read(self, path: str) -> str:
        """The text of a file."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """The bytes of a file."""
        result = self.read_many([path])[0]
        if result.data is None:
            raise AgentError(result.error or f"{path} could not be read")
        return result.data

    def write(self, path: str, data: str | bytes) -> None:
        """Writes a file and the directories above it."""
        error = self.write_many([(path, data.encode() if isinstance(data, str) else data)])[0].error
        if error is not None:
            raise AgentError(error)

    def write_many(self, files: Iterable[tuple[str, bytes]]) -> list[FileResult]:
        """Writes several files; one result each, in order."""
        results: list[FileResult] = []
        batch: list[tuple[str, bytes]] = []
        size = 0
        for path, data in files:
            if batch and size + len(data) > _BATCH:
                results += self._write_batch(batch)
                batch, size = [], 0
            batch.append((path, data))
            size += len(data)
        return results + self._write_batch(batch)

    def _write_batch(self, batch: list[tuple[str, bytes]]) -> list[FileResult]:
        if not batch:
            return []
        files = [{"path": path, "data": base64.b64encode(data).decode()} for path, data in batch]
        answers = self._sandbox._call("upload", {"files": files})["files"]
        return [FileResult(path, error=answer["error"]) for (path, _), answer in zip(batch, answers, strict=True)]

    def read_many(self, paths: Iterable[str]) -> list[FileResult]:
        """Reads several files; one result each, in order."""
        results = []
        for path in paths:
            answer = self._sandbox._call("download", {"paths": [path]})["files"][0]
            data = answer["data"]
            results.append(FileResult(path, None if data is None else base64.b64decode(data), answer["error"]))
        return results


class Sandbox:
    """A sandbox with a copy of `workspace`. It starts with its first use and ends with :meth:`close`.

    `key` finds the same sandbox's workspace again later, also from another process after this one has ended.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        backend: str | None = None,
        image: str | None = None,
        network: str | None = None,
        key: str | None = None,
        allow_apply: bool = False,
        env: Mapping[str, str] | None = None,
        options: Iterable[str] = (),
        program: str | None = None,
    ) -> None:
        directory = Path(workspace or ".").expanduser()
        arguments = ["-C", str(directory)]
        for name, value in (("--sandbox", backend), ("--image", image), ("--network", network), ("--session-key", key)):
            if value is not None:
                arguments += [name, value]
        for name, value in (env or {}).items():
            arguments += ["--env", f"{name}={value}"]
        if allow_apply:
            arguments.append("--allow-apply")
        self._shared = _Shared(Child([*arguments, *options], program))
        self._id: str | None = None
        self._begin(None)

    def _begin(self, name: str | None) -> None:
        self._name = name
        self.files = Files(self)
        self._release = weakref.finalize(self, _forget, self._shared, name)
        # When the interpreter ends, so do all children.
        self._release.atexit = False  # type: ignore[misc]

    @property
    def id(self) -> str:
        """The id of its session: `agent diff ID` and `agent sessions report ID` show it."""
        if self._id is None:
            self._id = str(self._call("session", {})["session"])
        return self._id

    def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        separate: bool = False,
    ) -> CommandResult:
        """Runs a shell command. One that fails is a result, and no error. `separate`: both outputs apart, too."""
        arguments: dict[str, Any] = {"command": command}
        if separate:
            arguments["separate"] = True
        if timeout is not None:
            arguments["timeout_s"] = timeout
        if cwd is not None:
            arguments["cwd"] = cwd
        if env:
            arguments["env"] = dict(env)
        return CommandResult(**self._call("execute", arguments))

    def run_code(
        self,
        language: str,
        code: str,
        *,
        libraries: Iterable[str] = (),
        timeout: float | None = None,
    ) -> CodeResult:
        """Runs code in an interpreter that keeps its state between calls."""
        arguments: dict[str, Any] = {"language": language, "code": code}
        wanted = list(libraries)
        if wanted:
            arguments["libraries"] = wanted
        if timeout is not None:
            arguments["timeout_s"] = timeout
        result = self._shared.child.request("tools/call", {"name": "run_code", "arguments": self._named(arguments)})
        data = result.get("structuredContent")
        if not isinstance(data, dict):
            raise AgentError("\n".join(part.get("text", "") for part in result.get("content", [])))
        return CodeResult(**data)

    def diff(self, paths: Iterable[str] = ()) -> Diff:
        """What is changed and not applied."""
        wanted = list(paths)
        data = self._call("diff", {"paths": wanted} if wanted else {})
        return Diff(data["session"], data["files"], data["patch"], data["truncated"])

    def apply(self, paths: Iterable[str] = ()) -> Applied:
        """Writes changes to your own files, all or nothing. Only with `allow_apply=True`."""
        wanted = list(paths)
        data = self._call("apply", {"paths": wanted} if wanted else {})
        return Applied(list(data.get("files", [])))

    def undo_apply(self) -> None:
        """Puts your own files back as they were before the last apply."""
        self._call("undo_apply", {})

    def checkpoint(self) -> int:
        """Records the workspace, so that :meth:`undo` can go back to it."""
        return int(self._call("checkpoint", {})["checkpoint"])

    def undo(self, steps: int = 1) -> list[str]:
        """Restores the workspace as it was `steps` checkpoints ago, or at the beginning. The files that changed."""
        return list(self._call("undo", {"steps": steps})["files"])

    def fork(self) -> Sandbox:
        """A second sandbox with the workspace and home of this one as they are now."""
        fork = object.__new__(Sandbox)
        name = f"fork-{uuid.uuid4().hex}"
        self._id = self.id
        fork._id = str(self._call("fork", {"name": name})["session"])
        fork._shared = self._shared.taken()
        fork._begin(name)
        return fork

    def close(self) -> None:
        """Ends the sandbox. Its session stays: `agent resume ID` continues it."""
        if self._release.detach() is not None:
            self._shared.give_back(self._name)

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._shared.child.call(tool, self._named(arguments))

    def _named(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments if self._name is None else {**arguments, "sandbox": self._name}

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _forget(shared: _Shared, name: str | None) -> None:
    """Ends a sandbox that nobody can use any more.

    In a thread of its own: garbage is collected in whichever thread is running, also in one that the end waits for.
    """
    try:
        threading.Thread(target=shared.give_back, args=[name], daemon=True).start()
    except RuntimeError:
        # The interpreter is ending, and so are all children.
        pass


class _Shared:
    """One child, which a sandbox shares with its forks."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._users = 1
        self._lock = threading.Lock()

    def taken(self) -> _Shared:
        with self._lock:
            self._users += 1
        return self

    def give_back(self, name: str | None) -> None:
        """One user less: `name` is the sandbox of a fork. The last one ends the child."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self.child.close()
        elif name is not None:
            try:
                self.child.call("close", {"sandbox": name})
            except AgentError:
                pass
