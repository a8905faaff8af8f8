"""
Measure how long the steps of the timed window waited in `next()`.

The profiler does not run there. It slows pipelines down that run many small ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.input.waits import waited_in
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Fetches
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON

_SMALL = 0.05  # a share, or a difference of shares, that says nothing of the buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWaits:
    """Shares of the timed window that waited in `next()`."""

    share: float
    """Share of the window."""
    halves: tuple[float, float]
    """Shares of its halves."""

    @property
    def emptied(self) -> bool:
        """True if the buffers ran empty: steps of the second half waited."""
        return self.halves[1] > _SMALL

    def draining(self, most: float) -> bool:
        """
        Return whether the second half waited more than the first, since the buffers ran empty.

        An element from a full buffer saves the time to make it, which is that of a step with empty
        buffers. So buffers of few elements cannot make long halves differ.

        Args:
            most: Elements that full buffers hold ÷ steps of a half.
        """
        return min(self.halves[1] - self.halves[0], most) > _SMALL


def shows_fetches(trace: Trace) -> bool:
    """Return whether the trace shows the `next()` of the steps."""
    return bool(len(Events.of(trace.plane(HOST)).called(FETCH, FETCH_PYTHON)))


def taken_ns(fetches: Fetches | None) -> Ints:
    """
    Return when the timed calls took their elements, which is at their begin.

    Returns:
        Nanoseconds since 1970, ascending, shape (n_calls,), empty without fetches.
    """
    if fetches is None:
        return np.zeros(0, np.int64)
    next_s, call_s, pause_s = map(np.array, (fetches.next_s, fetches.call_s, fetches.pause_s))
    passed_s = np.r_[0.0, np.cumsum(call_s[:-1] + pause_s[1:])] + next_s
    before_ns: Ints = np.rint(1e9 * (passed_s[-1] - passed_s)).astype(np.int64)
    return fetches.last_ns - before_ns


def ready_s(trace: Trace) -> float:
    """
    Return the seconds of a `next()` besides its waits, the median over the traced steps.

    A `next()` on a Python iterator makes its element, so nothing of it would be left.
    """
    fetches, _, waited = waited_in(trace)
    return float(np.median(fetches.end - fetches.start - waited)) / 1e12 if len(fetches) else 0.0


def runs_on(trace: Trace) -> bool:
    """Return whether the pipeline makes elements between steps, as a Python iterator does not."""
    return not len(Events.of(trace.plane(HOST)).called(FETCH_PYTHON))


def timed_waits(
    fetches: Fetches, ready: float, visible: float = 1.0, pauses: bool = True
) -> TimedWaits:
    """
    Measure the waits in `next()`.

    A `next()` counts as in a trace (`input_waits`): whole, if it waited for more than a third of
    its time. Then the pause before its block counts too, since the pipeline ran on meanwhile: the
    steps would have waited for as much longer.

    Args:
        fetches: The fetches.
        ready: Seconds of a `next()` besides its waits.
        visible: Share of the waits in which nothing else runs.
        pauses: Whether the pipeline runs on between blocks.
    """
    fetched, paused = np.array(fetches.next_s), np.array(fetches.pause_s) * pauses
    whole = fetched > 1.5 * ready
    block = np.cumsum(paused > 0)
    paused = np.where(np.bincount(block, whole)[block] > 0, paused, 0.0)
    waited = visible * (np.where(whole, fetched, np.maximum(fetched - ready, 0.0)) + paused)
    period = np.array(fetches.call_s) + paused
    half = len(fetched) // 2

    def share(part: slice) -> float:
        return float(waited[part].sum() / max(period[part].sum(), 1e-12))

    return TimedWaits(
        share=share(slice(None)), halves=(share(slice(half)), share(slice(half, None)))
    )
