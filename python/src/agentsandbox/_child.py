"""The program as a child of this process: `agent mcp`, one JSON-RPC message a line."""

from __future__ import annotations

import collections
import itertools
import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import Future
from typing import Any

_VERSION = "2025-11-25"
#: How long the program may take to end when it is asked to.
_END_TIMEOUT = 5.0
#: Lines of its messages that are kept for an error.
_MESSAGES = 20


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
        self._messages: collections.deque[str] = collections.deque(maxlen=_MESSAGES)
        self._ended = False
        try:
            self._process = subprocess.Popen(
                [found, "mcp", "--tools", "all", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
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
        client = {"name": "agentsandbox", "version": "0.1.0"}
        self.request("initialize", {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

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
        with self._lock:
            self._ended = True
        if self._process.poll() is None:
            try:
                if self._process.stdin is not None:
                    self._process.stdin.close()
            except OSError:
                pass
            try:
                self._process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for thread in self._threads:
            thread.join(_END_TIMEOUT)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _cancel(self, number: int) -> None:
        try:
            self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        except AgentError:
            pass

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        stdin = self._process.stdin
        assert stdin is not None
        try:
            with self._lock:
                stdin.write(line)
                stdin.flush()
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
            for line in stdout:
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
            for line in stderr:
                self._messages.append(line.decode(errors="replace").rstrip())
        except (OSError, ValueError):
            pass
