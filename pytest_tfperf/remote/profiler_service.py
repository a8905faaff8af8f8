"""
Messages of the profiler server that TensorFlow, JAX and TensorFlow Serving have.

Field numbers are those of tsl/profiler/protobuf (openxla/xla), in profiler_service.proto and
profiler_options.proto. TensorFlow 2.21 returns the trace in its response (`emit_xspace`). An older
server ignores that wish, and writes the trace on its own machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.protobuf import Message, Record, number_field, sized_field, text_field

__tracebackhide__ = True

PROFILE = "/tensorflow.ProfilerService/Profile"
"""Full name of the method that traces for some time."""
LONGEST_MS = 600_000
"""Longest trace: a message of Protobuf holds 2 GB, which busy jobs fill sooner."""
_VERSION = 1  # of ProfileOptions: the levels are meant as they are, also 0
_EMPTY_TRACE, _XSPACE = 7, 8  # fields of ProfileResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Duration and detail of a trace."""

    duration_ms: int
    """Duration in milliseconds."""
    host_tracer_level: int = 2
    """Detail of the host: 0 off, 1 marked by users, 2 and ops, 3 and cheap ops."""
    device_tracer_level: int = 1
    """1 to trace accelerators, 0 not to."""
    python_tracer_level: int = 0
    """1 to trace calls of Python functions, 0 not to."""


def check_duration(duration_ms: int) -> int:
    """
    Return the duration of a trace.

    Raises:
        CaptureError: If a trace cannot be that long.
    """
    if not 1 <= duration_ms <= LONGEST_MS:
        longer = "" if duration_ms < 1 else ", and trace a longer time in several captures"
        raise CaptureError(
            f"a trace of {duration_ms:,} ms is not possible; choose 1 to {LONGEST_MS:,} ms"
        )
    return duration_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The file that an older server writes on its own machine."""

    repository: str
    """Folder of all runs."""
    run: str
    """Name of the run."""
    host: str
    """Name of the file, without its ending."""


def encode_request(options: TraceOptions, destination: Destination) -> bytes:
    """Return the bytes of a ProfileRequest."""
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
            text_field(5, destination.repository),
            text_field(6, destination.run),
            text_field(7, destination.host),
            number_field(9, 1),  # emit_xspace
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer of a profiler server."""

    trace: bytes | None
    """The trace as an XSpace message; None if the server wrote it on its own machine."""
    is_empty: bool
    """True if nothing happened while it traced."""


def decode_response(raw: bytes, worker: str) -> Response:
    """
    Return the answer in the bytes of a ProfileResponse.

    Raises:
        TraceError: If they are not a message.
    """
    message = Message(raw, worker)
    found = Record(message, 0, len(raw), "ProfileResponse")
    traces = found.spans(_XSPACE)
    return Response(
        trace=message.slice(*traces[-1]) if traces else None,
        is_empty=bool(found.integer(_EMPTY_TRACE)),
    )
