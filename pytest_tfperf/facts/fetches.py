"""
Measure how long the steps of the timed window waited in `next()`.

The profiler does not run there. It slows pipelines down that run many small ops.

A `next()` waits while its thread stands still, and while its thread runs stages of the pipeline.
The rest is what a `next()` costs with a ready element: 0.3 ms of Python and of an op's call on the
machine of these tests, and 1.5 times as much when other code has filled the caches. So no share of
a fast step's waits can come from a comparison of its `next()` with a fixed time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.waits import has_threads, next_calls
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Fetches
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON

_SMALL = 0.05  # a share, or a difference of shares, that says nothing of the buffers
_RARE_SHARE, _RARE_TIMES = 0.25, 4.0  # of all calls, and of their median `next()`
_LATE = 0.02  # of a step, that a `next()` waits at least whose element was not ready


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RareWaits:
    """A few calls that hold most of the wait in `next()`."""

    n: int
    """Their number."""
    n_calls: int
    """Number of all calls."""
    longest_s: float
    """Seconds of the longest `next()`."""
    usual_s: float
    """Median seconds of the `next()` of the others."""
    begin_epochs: bool
    """True if they begin epochs."""
    first: bool
    """True if they are the first calls."""


def rare_waits(
    fetches: Fetches, epoch_starts: Sequence[int], n_dropped: int = 0
) -> RareWaits | None:
    """
    Return the calls that hold most of the wait, if these are at most a quarter of all.

    Args:
        fetches: The fetches.
        epoch_starts: Index of each call that begins an epoch.
        n_dropped: Blocks at the start that do not count.
    """
    block = np.cumsum(np.array(fetches.pause_s) > 0)
    counted = block >= block[0] + n_dropped
    next_s = np.array(fetches.next_s)[counted]
    begins = np.isin(np.flatnonzero(counted), epoch_starts)
    long = next_s > _RARE_TIMES * np.median(next_s)
    for rare, begin_epochs in ((begins, True), (long, False)):
        is_few = 0 < rare.sum() <= _RARE_SHARE * len(rare)
        if is_few and 2 * next_s[rare].sum() > next_s.sum():
            return RareWaits(
                n=int(rare.sum()),
                n_calls=len(rare),
                longest_s=float(next_s[rare].max()),
                usual_s=float(np.median(next_s[~rare])),
                begin_epochs=begin_epochs,
                first=bool(np.flatnonzero(rare)[-1] < len(rare) // 2 and rare[0]),
            )
    return None


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


def pipeline_share(trace: Trace) -> float:
    """
    Return the share of what a `next()` runs in its own thread that stages of the pipeline run.

    It is that of the traced steps. A `next()` on a Python iterator makes its element.
    """
    calls = next_calls(trace)
    if not len(calls.events):
        return 1.0
    ran = np.maximum(calls.events.duration - calls.stood_ps, 1)
    return min(float(calls.in_stages_ps.sum() / ran.sum()), 1.0)


def runs_on(trace: Trace) -> bool:
    """Return whether stages make elements in threads of their own, also between steps."""
    return bool(len(Events.of(trace.plane(HOST)).named(has_threads)))


def timed_waits(
    fetches: Fetches,
    pipeline: float = 0.0,
    *,
    visible: float = 1.0,
    runs_on: bool = True,
    n_dropped: int = 0,
    epoch_calls: int | None = None,
) -> TimedWaits:
    """
    Measure the waits in `next()`.

    Where a block waits to its end, the pause before it counts too if the pipeline ran on meanwhile:
    the steps would have waited for as much longer.

    Args:
        fetches: The fetches.
        pipeline: Share of what a `next()` runs itself that stages of the pipeline run.
        visible: Share of the waits in which nothing else runs.
        runs_on: Whether the pipeline runs on between blocks.
        n_dropped: Blocks at the start that do not count.
        epoch_calls: Calls of an epoch. The share is that of as many whole epochs as there are,
            since the first call of each may wait for longer.
    """
    paused = np.array(fetches.pause_s)
    block = np.cumsum(paused > 0)
    counted = block >= block[0] + n_dropped
    block, paused = block[counted], paused[counted]
    fetched, stood, period = (
        np.array(seconds)[counted] for seconds in (fetches.next_s, fetches.stood_s, fetches.call_s)
    )
    waited = stood + pipeline * (fetched - stood)
    late = np.bincount(block, stood > _LATE * period) > np.bincount(block) / 2
    paused = np.where(runs_on & late[block], paused, 0.0)
    waited, period = visible * (waited + paused), period + paused
    n_calls = len(fetched)
    in_epochs = n_calls // epoch_calls * epoch_calls if epoch_calls else 0

    def share(part: slice) -> float:
        return float(waited[part].sum() / max(period[part].sum(), 1e-12))

    halves = share(slice(n_calls // 2)), share(slice(n_calls // 2, None))
    return TimedWaits(share=share(slice(-(in_epochs or n_calls), None)), halves=halves)
