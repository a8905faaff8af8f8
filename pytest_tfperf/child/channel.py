"""Messages between two processes that share a pair of sockets."""

from __future__ import annotations

import socket
import struct
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import msgspec

Received = TypeVar("Received")


class Channel(Generic[Received]):
    """
    One end of the pair. Nobody else can connect to it, and it leaves nothing behind.

    Args:
        end: The socket.
        receives: The messages that the other end sends.
        patience_s: Longest wait until the other end takes a message, in seconds; None for any.
    """

    def __init__(self, end: socket.socket, receives: Any, patience_s: float | None = None) -> None:
        if patience_s is not None:
            limit = struct.pack("ll", int(patience_s), int(patience_s % 1 * 1e6))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._connection = Connection(end.detach())
        self._decoder = msgspec.msgpack.Decoder(receives)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_plain)

    def send(self, message: msgspec.Struct) -> None:
        """
        Send a message.

        Raises:
            EOFError: If the other end is closed.
            TimeoutError: If the other end does not take it in time.
        """
        try:
            self._connection.send_bytes(self._encoder.encode(message))
        except BlockingIOError as error:
            raise TimeoutError(str(error)) from error
        except OSError as error:
            raise EOFError(str(error)) from error

    def receive(self, seconds: float | None = None) -> Received:
        """
        Receive a message.

        Raises:
            EOFError: If the other end is closed.
            TimeoutError: If none begins to arrive within `seconds`.
        """
        try:
            if not self._connection.poll(seconds):
                raise TimeoutError(f"no answer within {seconds:g} s")
            message: Received = self._decoder.decode(self._connection.recv_bytes())
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError(str(error)) from error
        return message

    def close(self) -> None:
        """Close this end, which tells the other one that nothing more comes."""
        self._connection.close()


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and what else MessagePack has not as text."""
    return value.item() if hasattr(value, "item") else str(value)
