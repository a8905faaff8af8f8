"""Common time of the traces of several hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.on_devices import on_the_device
from pytest_tfperf.facts.steps import Steps, find_steps
from pytest_tfperf.trace.xspace import Trace


@dataclass(frozen=True, slots=True)
class TraceClock:
    """Times of one trace that align it with others."""

    origin_ns: int
    """Nanoseconds since 1970 of the trace's origin."""
    first_ps: int
    """Start of the earliest event."""
    steps: dict[str, int]
    """Start of each step in picoseconds, by the step's name."""

    @classmethod
    def of(cls, trace: Trace) -> TraceClock:
        """Read the clock of a trace; one without steps has none."""
        steps = steps_of(trace)
        starts = dict(zip(steps.names, steps.start_ps.tolist(), strict=True)) if steps else {}
        first_ps = min(
            (int(plane.start_ps.min()) for plane in trace.planes if plane.start_ps.size), default=0
        )
        return cls(trace.origin_ns, first_ps, starts)


def steps_of(trace: Trace) -> Steps | None:
    """Find the steps as the devices ran them, None if the trace has no step."""
    try:
        return on_the_device(trace, find_steps(trace))
    except TraceError:
        return None


def clock_shifts(clocks: Sequence[TraceClock]) -> list[int]:
    """
    Align traces.

    Returns:
        Picoseconds to add to the times of each trace. The first step that all traces have begins
        at one time, and no time is negative. Without such a step the hosts' clocks decide.
    """
    first = clocks[0]
    common = [name for name in first.steps if all(name in clock.steps for clock in clocks)]
    if common:
        shifts = [first.steps[common[0]] - clock.steps[common[0]] for clock in clocks]
    else:
        shifts = [(clock.origin_ns - first.origin_ns) * 1000 for clock in clocks]
    earliest = min(clock.first_ps + shift for clock, shift in zip(clocks, shifts, strict=True))
    return [shift - min(earliest, 0) for shift in shifts]
