"""The program as a child of this process: `agent mcp`, one JSON-RPC message a line.

Its streams have no buffers of their own: a thread that reads from one holds the buffer's lock, and an interpreter that
ends meanwhile aborts when it closes the stream.
"""

from __future__ import annotations

import atexit
import collections
import itertools
import json
import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import IO, Any

_VERSION = "2025-11-25"
#: How long the program may take to end when it is asked to.
_END_TIMEOUT = 5.0
#: Lines of its messages that are kept for an error.
_MESSAGES = 20
#: The most that is read at once.
_CHUNK = 1 << 20


class AgentError(Exception):
    """`agent` could not do what was asked; the message says why and what to do."""


class Child:
    """One child process. Its calls may come from several threads at once."""

    def __init__(self, arguments: list[str], program: str | None = None) -> None:
        found = program or os.environ.get("AGENT_BINARY") or shutil.which("agent")
        if found is None:
            raise AgentError("the program agent is not on PATH: install it, or set AGENT_BINARY to where it is")
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._owner = os.getpid()
        self._messages: collections.deque[str] = collections.deque(maxlen=_MESSAGES)
        self._ended = False
        try:
            self._process = subprocess.Popen(
                [found, "mcp", "--tools", "all", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # A Ctrl-C in the terminal is for this program, which then ends the child.
                start_new_session=True,
            )
        except OSError as error:
            raise AgentError(f"{found} could not be started: {error}") from error
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_messages, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        _children.add(self)
        client = {"name": "agentsandbox", "version": "0.1.0"}
        try:
            self.request("initialize", {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": client})
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            self.close()
            raise

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its result."""
        number = next(self._ids)
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._ended:
                raise self._gone()
            self._waiting[number] = future
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            answer = future.result()
        except BaseException:
            # A caller that does not wait any more, because of Ctrl-C for example, does not want the work to be done.
            if not future.done():
                self._cancel(number)
            raise
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if "error" in answer:
            raise AgentError(str(answer["error"].get("message", "the request failed")))
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool. Its data; a failure of the tool itself is an error."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise AgentError("\n".join(part.get("text", "") for part in result.get("content", [])))
        data = result.get("structuredContent")
        return data if isinstance(data, dict) else {}

    def close(self) -> None:
        """Ends the program, and with it the sandbox."""
        self.ask_to_end()
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(_END_TIMEOUT)
        # One that is still read from is closed with this process: its number could become another file's.
        for thread, stream in zip(self._threads, (self._process.stdout, self._process.stderr), strict=True):
            if stream is not None and not thread.is_alive():
                stream.close()
        _children.discard(self)

    def ask_to_end(self) -> None:
        """Closes the program's input, which ends it, and does not wait for that."""
        with self._lock:
            self._ended = True
        # A message that is never read is not waited for: then the program is killed.
        if self._writing.acquire(timeout=_END_TIMEOUT):
            try:
                if self._process.stdin is not None:
                    self._process.stdin.close()
            except OSError:
                pass
            finally:
                self._writing.release()

    @property
    def is_own(self) -> bool:
        """Whether this process started it, and is not a fork of the one that did."""
        return self._owner == os.getpid()

    def _cancel(self, number: int) -> None:
        try:
            self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        except AgentError:
            pass

    def _send(self, message: dict[str, Any]) -> None:
        line = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        stdin = self._process.stdin
        assert stdin is not None
        try:
            with self._writing:
                while line:
                    line = line[stdin.write(line) :]
        except (OSError, ValueError) as error:
            raise self._gone() from error

    def _gone(self) -> AgentError:
        self._threads[1].join(1.0)
        said = "\n".join(self._messages)
        return AgentError(f"agent has ended{': ' + said if said else ''}")

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            for line in _lines(stdout):
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                with self._lock:
                    future = self._waiting.pop(message.get("id"), None)
                if future is not None:
                    future.set_result(message)
        except (OSError, ValueError):
            pass
        with self._lock:
            self._ended = True
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            if not future.done():
                future.set_exception(self._gone())

    def _read_messages(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        try:
            for line in _lines(stderr):
                self._messages.append(line.decode(errors="replace").rstrip())
        except (OSError, ValueError):
            pass


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a stream without a buffer."""
    parts: list[bytes] = []
    while chunk := stream.read(_CHUNK):
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        for line in rest:
            yield b"".join(parts)
            parts = [line]
    if parts[-1:] not in ([], [b""]):
        yield b"".join(parts)


#: The programs that have not been ended yet. The threads that read from one keep it in memory anyway.
_children: weakref.WeakSet[Child] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Ends what was not closed, while threads can still be waited for."""
    children = [child for child in _children if child.is_own]
    for child in children:
        child.ask_to_end()
    for child in children:
        child.close()
