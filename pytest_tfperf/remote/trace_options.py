"""Duration and detail of the trace of a running job."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.errors import CaptureError

__tracebackhide__ = True

LONGEST_MS = 600_000
"""Longest trace: a message of Protobuf holds 2 GB, which busy jobs fill sooner."""


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
        longer = "" if duration_ms < 1 else ", and sample a longer time with tfperf capture --every"
        raise CaptureError(
            f"a trace of {duration_ms:,} ms is not possible; choose 1 to {LONGEST_MS:,} ms{longer}"
        )
    return duration_ms
