"""Read the profiler's own reports of errors and dropped events."""

from __future__ import annotations

from pytest_tfperf.trace.events import Events, plane_stats
from pytest_tfperf.trace.xspace import Trace

_DROPPED = "dropped_traces"  # xla/tsl/profiler/utils/xplane_schema.h, StatType::kDroppedTraces


def faults(trace: Trace) -> tuple[str, ...]:
    """Return why the trace is incomplete, in the profiler's words; empty without a report."""
    reported = [
        f"the profiler reports an error: {' '.join(text.split())}"
        for text in dict.fromkeys(trace.errors)
    ]
    dropped = sum(_dropped(trace))
    return tuple([*reported, f"the profiler dropped {dropped:,} events"] if dropped else reported)


def remarks(trace: Trace) -> tuple[str, ...]:
    """Return the profiler's warnings."""
    return tuple(
        f"the profiler warns: {' '.join(text.split())}" for text in dict.fromkeys(trace.warnings)
    )


def _dropped(trace: Trace) -> list[int]:
    """Return the numbers of dropped events, of whole planes and of single events."""
    planes = [plane for plane in trace.planes if _DROPPED in plane.stat_names.values()]
    of_planes = [plane_stats(plane).get(_DROPPED, 0) for plane in planes]
    of_events = [
        int(Events.of(plane).having(_DROPPED).integers(_DROPPED).clip(0).sum()) for plane in planes
    ]
    return [
        max(int(number), 0) for number in of_planes if isinstance(number, (int, float))
    ] + of_events
