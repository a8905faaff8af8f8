"""The call of one worker's profiler server."""

from __future__ import annotations

from typing import Any

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.remote.addresses import Worker
from pytest_tfperf.remote.profiler_service import PROFILE, decode_response
from pytest_tfperf.text import elide, for_terminal, plain

_GRACE_S = 60.0
"""Longest wait beyond the duration: a large trace takes long to collect and to send."""
_ANOTHER_SESSION = "session active"
"""Part of what a server says while its process is being traced (profiler_session.cc of tsl)."""
_CONNECT_S = 10
"""Longest wait for the first answer of what listens at the address."""
_MOST_BYTES = 1 << 30
"""Bytes of an answer; they hold 40 million events, as 80 MB hold 3 million."""
_CHANNEL = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    # no profiler server compresses its answer, and gRPC 1.60 decompresses one before it looks at
    # the size; 1 is the bit of GRPC_COMPRESS_NONE (compression_types.h of gRPC)
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # traces are not encrypted, so none goes through another machine than the one that is named
    ("grpc.enable_http_proxy", 0),
    ("grpc.min_reconnect_backoff_ms", _CONNECT_S * 1000),  # also the limit of a handshake
)
_LONGEST = 400
"""Characters of a server's own words."""
_HINT = (
    "is the job running, are host, port and firewalls right, and did it call "
    "tf.profiler.experimental.server.start(port) or jax.profiler.start_server(port)?"
)
_NOT_CONNECTED = "last error: "
"""Part of what gRPC says if it found no server; the reason follows."""
_BROKEN = ("Socket closed", "Connection reset", "Broken pipe")
"""Parts of what gRPC says of a connection that was there, and has ended."""

__tracebackhide__ = True


class NothingTracedError(CaptureError):
    """A worker gave no trace, and may give one later."""


class BeingTracedError(NothingTracedError):
    """Another client traces the worker."""


def load_grpc() -> Any:
    """
    Import gRPC.

    Raises:
        CaptureError: If it is not installed.
    """
    try:
        import grpc  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise CaptureError(
            "gRPC, which profiler servers speak, is not installed; "
            "pip install 'pytest-tfperf[capture]'"
        ) from None
    return grpc


class Call:
    """A call that goes on until it is closed, beside those of other workers."""

    def __init__(self, worker: Worker, request: bytes, duration_ms: int) -> None:
        """
        Start the call.

        Args:
            worker: The worker.
            request: Bytes of the ProfileRequest.
            duration_ms: Duration of the trace in milliseconds.
        """
        self._grpc = load_grpc()
        self._worker, self._duration_ms = worker, duration_ms
        self._longest_s = duration_ms / 1e3 + _GRACE_S
        self._channel = self._grpc.insecure_channel(worker.target, options=_CHANNEL)
        self._call = self._channel.unary_unary(PROFILE).future(request, timeout=self._longest_s)

    def close(self) -> None:
        """End the call; the server sees that, and is free for others."""
        self._call.cancel()
        self._channel.close()

    def trace(self) -> bytes | None:
        """
        Wait for the trace; None if the server wrote it on its own machine.

        Raises:
            NothingTracedError: If there is none, and there may be one later.
            CaptureError: If there is none.
        """
        try:
            raw = self._call.result()
        except self._grpc.RpcError as error:
            raise self._explained(error.code(), _shown(error.details() or "")) from None
        try:
            response = decode_response(raw, self._worker.address)
        except TraceError as error:
            raise CaptureError(f"its answer is no trace: {error}") from None
        if response.is_empty:
            raise NothingTracedError(
                f"nothing ran in {self._duration_ms:,} ms; wait until its steps run, or trace "
                "longer with --ms"
            )
        return response.trace

    def _explained(self, code: Any, details: str) -> CaptureError:
        """Return the error of a failed call in the user's terms."""
        codes = self._grpc.StatusCode
        if code is codes.UNAVAILABLE:
            return _unavailable(details)
        if code is codes.DEADLINE_EXCEEDED:
            return CaptureError(
                f"did not answer within {self._longest_s:.0f} s; trace it for a shorter time, or "
                "see whether the process hangs"
            )
        if code is codes.UNIMPLEMENTED:
            return CaptureError("serves something else than the profiler; check its port")
        if _ANOTHER_SESSION in details:
            return BeingTracedError(
                "is being traced already, and has one profiler; wait until that trace has ended"
            )
        return CaptureError(f"failed: {code.name.lower()}: {details}")


def _shown(details: str) -> str:
    """Return what a server says on one line, as pytest may show it in a terminal or a job's log."""
    return elide(for_terminal(" ".join(plain(details).split())), _LONGEST)


def _unavailable(details: str) -> CaptureError:
    """Return the error of a call that reached no server, or lost it."""
    if _NOT_CONNECTED not in details and any(part in details for part in _BROKEN):
        return CaptureError(
            f"ended the connection while it was traced ({details}); see whether the process has "
            "crashed, or a tunnel to it has ended"
        )
    reason = details.rpartition(_NOT_CONNECTED)[2]
    return NothingTracedError(f"cannot be reached: {reason}; {_HINT}")
