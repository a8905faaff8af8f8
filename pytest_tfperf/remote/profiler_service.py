"""
The profiler server of a process: its address, its messages, and a call.

TensorFlow, JAX and TensorFlow Serving have one. Field numbers are those of tsl/profiler/protobuf
(openxla/xla), in profiler_service.proto and profiler_options.proto. TensorFlow 2.21 returns the
trace in its response (`emit_xspace`). An older server ignores that wish, and writes the trace on
its own machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.protobuf import Message, Record, number_field, sized_field, text_field
from pytest_tfperf.text import elide, for_terminal, plain

__tracebackhide__ = True

_SCHEME = "grpc"
_EXAMPLE = "write it as grpc://HOST:PORT, such as grpc://localhost:6009"
PROFILE = "/tensorflow.ProfilerService/Profile"
"""Full name of the method that traces for some time."""
LONGEST_MS = 600_000
"""Longest trace: a message of Protobuf holds 2 GB, which busy jobs fill sooner."""
_VERSION = 1  # of ProfileOptions: the levels are meant as they are, also 0
_EMPTY_TRACE, _XSPACE = 7, 8  # fields of ProfileResponse
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


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that serves the profiler."""

    host: str
    """Name or address of its machine; an IPv6 address without brackets."""
    port: int

    @property
    def address(self) -> str:
        """Host and port, as messages name the worker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """
        The address as a URI of gRPC, whose scheme says that it has a host and a port.

        Without a scheme gRPC takes some names of machines for one, such as unix, dns and ipv4.
        """
        return f"dns:///{quote(self.address, safe='[]:')}"

    @property
    def file_stem(self) -> str:
        """Name of its trace file without the ending, as XProf's own capture has it."""
        return re.sub(r"[^\w.-]", "_", f"{self.host}_{self.port}")


def read_workers(text: str) -> tuple[Worker, ...]:
    """Read addresses that commas separate; no address, or one named twice, raises CaptureError."""
    workers = tuple(_read_worker(part.strip()) for part in text.split(","))
    for n, worker in enumerate(workers):
        if worker in workers[:n]:
            raise CaptureError(f"{worker.address} is named twice; name each worker once")
    return workers


def _read_worker(text: str) -> Worker:
    """Read one address, with or without its scheme."""
    scheme, separator, _ = text.partition("://")
    if separator and scheme != _SCHEME:
        raise CaptureError(f"{text} is no address of a profiler server; {_EXAMPLE}")
    try:
        parts = urlsplit(text if separator else f"{_SCHEME}://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise CaptureError(f"{text!r} lacks a host or a port from 1 to 65535; {_EXAMPLE}")
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise CaptureError(f"{text} has more than a host and a port; {_EXAMPLE}")
    return Worker(host, port)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Duration and detail of a trace."""

    duration_ms: int
    host_tracer_level: int = 2
    """Detail of the host: 0 off, 1 marked by users, 2 and ops, 3 and cheap ops."""
    device_tracer_level: int = 1
    """1 to trace accelerators, 0 not to."""
    python_tracer_level: int = 0
    """1 to trace calls of Python functions, 0 not to."""


def check_duration(duration_ms: int) -> int:
    """Return the duration of a trace, or raise CaptureError if none can be that long."""
    if not 1 <= duration_ms <= LONGEST_MS:
        raise CaptureError(
            f"a trace of {duration_ms:,} ms is not possible; choose 1 to {LONGEST_MS:,} ms"
        )
    return duration_ms


def encode_request(options: TraceOptions, repository: str, run: str, host: str) -> bytes:
    """
    Return the bytes of a ProfileRequest.

    `repository` is the folder of all runs, in which an older server writes on its own machine, and
    `host` the name of the file without its ending.
    """
    profile_options = b"".join(
        [
            number_field(5, _VERSION),
            number_field(1, 1),  # include_dataset_ops
            number_field(2, options.host_tracer_level),
            number_field(3, options.device_tracer_level),
            number_field(4, options.python_tracer_level),
            number_field(7, 1),  # enable_hlo_proto
            number_field(9, options.duration_ms),
        ]
    )
    return b"".join(
        [
            number_field(1, options.duration_ms),
            sized_field(4, profile_options),
            text_field(5, repository),
            text_field(6, run),
            text_field(7, host),
            number_field(9, 1),  # emit_xspace
        ]
    )


def decode_response(raw: bytes, worker: str) -> tuple[bytes | None, bool]:
    """
    Return the XSpace in a ProfileResponse, and whether nothing happened meanwhile.

    It is None if the server wrote it on its own machine. What is no message raises TraceError.
    """
    message = Message(raw, worker)
    found = Record(message, 0, len(raw), "ProfileResponse")
    traces = found.spans(_XSPACE)
    trace = message.slice(*traces[-1]) if traces else None
    return trace, bool(found.integer(_EMPTY_TRACE))


class NothingTracedError(CaptureError):
    """A worker gave no trace, and may give one later."""


class BeingTracedError(NothingTracedError):
    """Another client traces the worker."""


def load_grpc() -> Any:
    """Import gRPC, or raise CaptureError if it is not installed."""
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
        """Start the call; a trace lasts `duration_ms` milliseconds."""
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

        Raises NothingTracedError if there may be one later, CaptureError if there is none.
        """
        try:
            raw = self._call.result()
        except self._grpc.RpcError as error:
            raise self._explained(error.code(), _shown(error.details() or "")) from None
        try:
            trace, is_empty = decode_response(raw, self._worker.address)
        except TraceError as error:
            raise CaptureError(f"its answer is no trace: {error}") from None
        if is_empty:
            raise NothingTracedError(
                f"nothing ran in {self._duration_ms:,} ms; wait until its steps run, or trace "
                "longer with --ms"
            )
        return trace

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
