"""
Limits on the planes and devices of a trace, since each costs time however few bytes it has.

The profiler writes one trace for each host, with a plane for each device and some ten others. The
largest hosts have 16 devices; a trace with all hosts of a pod would have thousands of planes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_tfperf.errors import TraceError

MOST_PLANES = 10_000
"""Planes of a trace, empty ones too: a second of decoding."""
MOST_DEVICES = 1024
"""GPUs and TPU cores with events in a trace; each costs some 3 ms."""
_DEVICE = re.compile(r"/device:(GPU|TPU):\d+\Z")


def refuse_many_planes(path: str, n_planes: int) -> None:
    """
    Refuse a trace of too many planes.

    Raises:
        TraceError: If there are more than `MOST_PLANES`.
    """
    if n_planes > MOST_PLANES:
        raise TraceError(
            f"trace {path}: {n_planes:,} planes, and at most {MOST_PLANES:,} are read; a host's"
            " trace has some twenty, and that of a whole pod thousands"
        )


def refuse_many_devices(path: str, names: Iterable[str]) -> None:
    """
    Refuse a trace of too many devices; `names` are those of the planes with events.

    Raises:
        TraceError: If there are more than `MOST_DEVICES`.
    """
    n_devices = sum(_DEVICE.match(name) is not None for name in names)
    if n_devices > MOST_DEVICES:
        raise TraceError(
            f"trace {path}: {n_devices:,} GPUs and TPU cores with events, and at most"
            f" {MOST_DEVICES:,} are read; a trace is of one host, which has at most 16"
        )
