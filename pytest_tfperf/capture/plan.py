"""Lengths of the windows of a profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_tfperf.quantities import SECONDS, format_quantity

_MIN_BLOCKS = 10  # fewer do not show the spread
_DEFAULT_STEPS, _DEFAULT_TRACED = 50, 20
_NEVER_S = 1e9
_LEAST_TRACED = 2
_MOST_EVENTS = 1_000_000
"""
Events of a traced window: some 10 s of analysis, and 2 GB of memory.

A loop in a program on a CPU has an event for each op and iteration.
"""
_LONGEST_EPOCH = 4
"""
Times as many steps as a window has otherwise, for it to hold whole epochs.

A window that holds the start of an epoch by chance has more or less of the wait there than it has
on average: 1.7 or 45 % were seen for 54 %.
"""
_COUNTED_SHARE = 0.1  # of a short loop, and of the time limit if nobody asks for the calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Number of steps in each window; a step is one call of the step or one Keras execution."""

    warmup: int = 10
    steps: int | None = None
    """Steps of the timed window, None for the default."""
    trace_steps: int | None = None
    """Steps of the traced window, None for the default."""
    max_seconds: float = 30.0
    """Time limit for all windows after the first step."""
    counted_steps: int = 3
    """Steps in which Python's calls are counted."""
    counts_slow_steps: bool = False
    """Whether they are counted however long a step takes."""
    latency: bool = False
    """Whether each step is timed alone, with its output fetched."""
    least_blocks: int = 1
    """Blocks that a requested number of steps is divided into at least, if they are as many."""
    steps_per_call: int = 1
    """Steps that one call holds."""
    available: int | None = None
    """Number of steps that the data hold, None if unknown."""
    default_steps: int = _DEFAULT_STEPS
    default_traced: int = _DEFAULT_TRACED
    most_traced: int = _MOST_EVENTS
    """Most steps of the traced window."""

    @property
    def timed_steps(self) -> int:
        """
        Least steps of the timed window.

        By default these are 50 or whole epochs, and more if ten blocks need them.
        """
        return self.default_steps if self.steps is None else self.steps

    @property
    def traced_steps(self) -> int:
        """Steps of the traced window."""
        return self.default_traced if self.trace_steps is None else self.trace_steps

    @property
    def total(self) -> int:
        """Steps of all windows: the cold one, warm-up, timed, traced, a probe, and counted."""
        return 1 + self.warmup + self.timed_steps + self.traced_steps + self.last_steps

    @property
    def last_steps(self) -> int:
        """Steps after the times are known: a probe at most, and those whose calls are counted."""
        return 1 + self.counted_steps

    def in_step(self) -> Plan:
        """Return the plan whose windows have the same steps in every process: no time ends them."""
        return replace(self, steps=self.timed_steps, max_seconds=_NEVER_S)

    def timed_at_most(self, n_steps: int) -> int:
        """Return the most steps of a timed window after `n_steps`; later windows keep theirs."""
        if self.available is None:
            left = 10**9
        else:
            left = max(1, self.available - n_steps - self.traced_steps - self.last_steps)
        return left if self.steps is None else min(left, self.steps)

    def turns_at_most(self, n_steps: int) -> int | None:
        """Return the most steps for turns after `n_steps`; later windows keep theirs."""
        if self.available is None:
            return None
        return max(0, self.available - n_steps - self.last_steps)

    def wants_more(self, n_steps: int, n_blocks: int) -> bool:
        """Return whether a timed window of `n_steps` in `n_blocks` is too short."""
        if self.steps is not None:
            return n_steps < self.steps
        return n_steps < self.timed_steps or (n_blocks < _MIN_BLOCKS and not self.latency)

    def block_size(self, target_s: float, period_s: float, epoch: int | None = None) -> int:
        """
        Return the steps of a block that takes about `target_s`, with steps of `period_s`.

        Requested steps are divided into equal blocks. Others, of several steps, hold whole short
        epochs, of `epoch` steps.
        """
        if self.latency:
            return 1
        size = max(1, min(math.ceil(target_s / max(period_s, 1e-6)), 10_000))
        if self.steps is None:
            whole = math.ceil(size / epoch) * epoch if epoch and size > 1 else size
            return whole if whole <= _LONGEST_EPOCH * size else size
        equal = math.ceil(self.steps / max(1, self.steps // size))
        return max(1, min(equal, self.steps // self.least_blocks))

    def has(self, n_steps: int) -> bool:
        """Return whether the data hold `n_steps`, or may do so."""
        return self.available is None or n_steps <= self.available

    def why_not_counted(self, n_steps: int, call_s: float) -> str | None:
        """
        Return why Python's calls are not counted after `n_steps` of `call_s`, or None if they are.
        """
        n_counted = self.counted_steps
        if not n_counted or not self.has(n_steps + n_counted):
            return "the loop had no steps left in which to count them; give it more data or epochs"
        if n_counted * call_s > _COUNTED_SHARE * self.max_seconds and not self.counts_slow_steps:
            shown = format_quantity(call_s, SECONDS)
            return f"a step takes {shown}, and no limit, report or baseline asks for it"
        return None

    def cut_note(self, window: str, n_steps: int, wanted: int) -> dict[str, str]:
        """Return a note that the time limit cut a window, by the window; none if it is complete."""
        if n_steps >= wanted:
            return {}
        limit = f"{self.max_seconds:g} s a profile (tfperf_max_seconds)"
        return {window: f"{window} window: {n_steps} of {wanted} steps, cut by {limit}"}

    def of_events(self, n_events: int) -> tuple[Plan, dict[str, str]]:
        """Return the plan after a first step of n events, with a note if it traces fewer steps."""
        most = max(_LEAST_TRACED, _MOST_EVENTS // max(n_events, 1))
        if self.max_seconds == _NEVER_S:  # alike in every process
            return self, {}
        plan = replace(self, most_traced=most)
        if self.traced_steps <= most:
            return plan, {}
        why = f"since the first has {n_events:,} events"
        note = f"traced window: {most} of {self.traced_steps} steps, {why}"
        return plan._tracing(most), {"traced": note}

    def in_epochs(self, epoch: int | None, period_s: float) -> Plan:
        """
        Return the plan whose windows hold whole epochs, where these are short and nobody set steps.
        """
        if not epoch or self.max_seconds == _NEVER_S:
            return self
        in_time = 0.1 * self.max_seconds / max(period_s, 1e-9)
        room = math.inf if self.available is None else self.available // 3

        def whole(n_steps: int, most: float) -> int:
            longer = math.ceil(n_steps / epoch) * epoch
            fits = longer <= min(most, _LONGEST_EPOCH * n_steps, in_time, room)
            return longer if fits else n_steps

        return replace(
            self,
            default_steps=whole(self.default_steps, math.inf),
            default_traced=whole(self.default_traced, self.most_traced),
        )

    def _tracing(self, n_steps: int) -> Plan:
        if self.trace_steps is None:
            return replace(self, default_traced=n_steps)
        return replace(self, trace_steps=n_steps)

    def cut_to(self, available: int, goes_on: bool = False) -> Plan:
        """Return the plan for a loop of `available` steps; too few shorten all windows alike."""
        if goes_on:
            return replace(self.cut_to(available), available=None)
        if available >= self.total:
            return replace(self, available=available)
        fits = self.counted_steps <= _COUNTED_SHARE * available
        counted = self.counted_steps if fits else 0
        n_ends = 2 + counted
        share = min(max(available - n_ends, 0) / (self.total - 2 - self.counted_steps), 1.0)
        warmup = math.floor(self.warmup * share)
        traced = max(2, math.floor(self.traced_steps * share))
        return replace(
            self._tracing(traced),
            warmup=warmup,
            counted_steps=counted,
            steps=max(1, available - n_ends - warmup - traced),
            available=available,
        )
