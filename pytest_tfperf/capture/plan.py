"""How long the windows of a profile are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_MIN_BLOCKS = 10  # fewer say nothing about the spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    How many steps each window has (a step is one call or Keras execution), and how long all may take after step 0.

    `available` is how many there are at most, None where that is not known.
    """

    warmup: int = 10
    steps: int | None = None
    trace_steps: int = 20
    max_seconds: float = 30.0
    latency: bool = False
    steps_per_call: int = 1
    available: int | None = None

    @property
    def timed_steps(self) -> int:
        """Steps of the timed window; without a wish 50, and then more where they are too short for ten blocks."""
        return 50 if self.steps is None else self.steps

    @property
    def total(self) -> int:
        """Steps of all windows: the cold one, those of the others, and the probe."""
        return 1 + self.warmup + self.timed_steps + self.trace_steps + 1

    def timed_at_most(self, n_steps: int) -> int:
        """How many calls the timed window may take after so many: what was wished for, and what leaves the later windows their own."""
        room = (
            10**9
            if self.available is None
            else max(1, self.available - n_steps - self.trace_steps - 1)
        )
        return room if self.steps is None else min(room, self.steps)

    def wants_more(self, n_steps: int, n_blocks: int) -> bool:
        """Whether a timed window of so many calls, in so many blocks, is too short."""
        if self.steps is not None:
            return n_steps < self.steps
        return n_steps < self.timed_steps or (n_blocks < _MIN_BLOCKS and not self.latency)

    def block_size(self, target: float, period: float) -> int:
        """Steps of a block that is to take `target` seconds; a wished number of steps is divided into equal blocks."""
        if self.latency:
            return 1
        size = max(1, min(math.ceil(target / max(period, 1e-6)), 10_000))
        return size if self.steps is None else math.ceil(self.steps / max(1, self.steps // size))

    def has(self, n_steps: int) -> bool:
        """Whether there are so many calls, as far as that is known."""
        return self.available is None or n_steps <= self.available

    def cut_note(self, window: str, n_steps: int, wanted: int) -> tuple[str, ...]:
        """A note that the time ended a window after so many steps, if they are fewer than wanted."""
        limit = f"{self.max_seconds:g} s a profile (tfperf_max_seconds)"
        return (
            (f"{window} window: {n_steps} of {wanted} steps, cut by {limit}",)
            if n_steps < wanted
            else ()
        )

    def cut_to(self, available: int) -> Plan:
        """The plan for a loop that has only so many steps: where they are too few, every window is shorter by the same factor."""
        if available >= self.total:
            return replace(self, available=available)
        share = max(available - 2, 0) / (self.total - 2)
        warmup, traced = (
            math.floor(self.warmup * share),
            max(2, math.floor(self.trace_steps * share)),
        )
        return replace(
            self,
            warmup=warmup,
            trace_steps=traced,
            steps=max(1, available - 2 - warmup - traced),
            available=available,
        )
