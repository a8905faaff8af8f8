"""The XLA executables that are alive in the process, read from the metadata that every profiler session writes."""

from __future__ import annotations

from pytest_tfperf.trace.xspace import Trace


def live_modules(trace: Trace) -> frozenset[str]:
    """
    The names of all executables alive when the session of a trace ended, each ending in its unique `(program_id)`.

    They are the event metadata of the plane `/host:metadata`, also for executables compiled while no profiler ran.
    """
    plane = trace.plane("/host:metadata")
    return frozenset(plane.metadata_stats) if plane else frozenset()
