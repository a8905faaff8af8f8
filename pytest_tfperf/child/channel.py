"""JSON objects, one per line, between two processes that share a pair of sockets."""

from __future__ import annotations

import json
import selectors
import socket
import time
from typing import Any

PROTOCOL = 2
"""
Version of the messages between a run and its child processes.

Both ends of a paired run with two Pythons must have the same; count it up with each change of
messages or options, since a child gets the options of the run.
"""
_CHUNK = 1 << 16


class Channel:
    """One end of the pair. Nobody else can connect to it, and it leaves nothing behind."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._rest = b""

    def send(self, seconds: float | None = None, /, **message: Any) -> None:
        """
        Send one object.

        Raises:
            EOFError: If the other end is closed.
            TimeoutError: If the other end does not take all of it within `seconds`.
        """
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(json.dumps(message, default=str).encode() + b"\n")
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError(str(error)) from error

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """
        Receive one object.

        Raises:
            EOFError: If the other end is closed.
            TimeoutError: If none arrives within `seconds`.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._can_read(left):
                raise TimeoutError(f"no answer within {seconds:g} s")
            self._rest += self._read()
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end, which tells the other one that nothing more comes."""
        self._socket.close()

    def _can_read(self, seconds: float | None) -> bool:
        """Wait at most `seconds`; select.select fails in a process with over 1,000 open files."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_CHUNK)
        except OSError as error:
            raise EOFError(str(error)) from error
        if not data:
            raise EOFError("the other end is closed")
        return data
