"""The result of a comparison of variants: times in turns, ratios with intervals, and metrics."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from pytest_tfperf.errors import CaptureError, UnknownMetric
from pytest_tfperf.metric_evidence import STEP_TIMES
from pytest_tfperf.metric_registry import METRICS, nearest, shown_unit
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity, format_ratio
from pytest_tfperf.results import Profile
from pytest_tfperf.stats.signed_rank import (
    Interval,
    estimate,
    needed_pairs,
    ratio_interval,
)
from pytest_tfperf.values import Json, Table, Value, titled_columns
from pytest_tfperf.variants.outputs import Leaves, Tolerance

__tracebackhide__ = True

CONFIDENCE = 0.99
BARE = " bare"
"""End of the name of a variant that is another one without Keras' loop."""
NEEDED_ROUNDS = needed_pairs(CONFIDENCE)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ratio:
    """The time of one variant divided by the time of another; above 1 the other is faster."""

    ratio: float
    """Estimate of the ratio."""
    interval: Interval | None = None
    """Interval that holds the ratio with a confidence of 99 % or a little more."""
    why: str | None = None
    """Why there is no interval, where too few rounds were run."""

    @property
    def low(self) -> float:
        """
        Return the lower end of the interval.

        Raises:
            UnknownMetric: If there is no interval, with the reason.
        """
        return self._known().low

    @property
    def high(self) -> float:
        """Return the upper end of the interval; raises as `low`."""
        return self._known().high

    def to_json(self) -> Json:
        """Return `{"ratio", "low", "high", "confidence", "n", "why"}`, None without an interval."""
        known = (
            asdict(self.interval)
            if self.interval
            else dict.fromkeys(("low", "high", "confidence", "n"))
        )
        return {**known, "ratio": self.ratio, "why": self.why}

    def bounds(self) -> str:
        """Return the interval as text, or why there is none."""
        if self.interval is None:
            return str(self.why)
        low, high = format_ratio(self.interval.low), format_ratio(self.interval.high)
        confidence = 100 * self.interval.confidence
        return f"{low} to {high}, {confidence:.3g} % interval of {self.interval.n} rounds"

    def in_words(self, over: str = "") -> str:
        """
        Return the ratio as a sentence, with its interval.

        For example `1.240 times as fast (…)`, or `1.130 times slower than plain (…)`.
        """
        if self.ratio >= 1:
            compared = f" as {over}" if over else ""
            return f"{format_ratio(self.ratio)} times as fast{compared} ({self.bounds()})"
        compared = f" than {over}" if over else ""
        inverse = self._inverse()
        return f"{format_ratio(inverse.ratio)} times slower{compared} ({inverse.bounds()})"

    def _inverse(self) -> Ratio:
        found = self.interval
        interval = found and replace(
            found, ratio=1 / found.ratio, low=1 / found.high, high=1 / found.low
        )
        return Ratio(ratio=1 / self.ratio, interval=interval, why=self.why)

    def __repr__(self) -> str:
        return f"{format_ratio(self.ratio)} ({self.bounds()})"

    def _known(self) -> Interval:
        if self.interval is None:
            raise UnknownMetric(f"the ratio has no interval: {self.why}")
        return self.interval


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """
    Variants of a step that took turns: in one process, or each in its own where they have data.

    The intervals cover what differs from turn to turn. They do not cover what a process does to all
    its turns, such as the place of its memory or its cores: other processes may give a ratio
    beyond. There is no correction for the number of intervals.
    """

    turns: Mapping[str, tuple[float, ...]]
    """Seconds of a step in each round, by variant."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Profiles by variant."""
    notes: tuple[str, ...] = ()
    """Remarks on how they were measured."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The names, in the order of the call."""
        return tuple(self.turns)

    def step_time(self, name: str) -> float:
        """
        Return the seconds of a step.

        Of the first variant it is the median over the turns. Of another it is that ÷ its speed-up,
        so that times and ratios agree; medians of each variant may contradict the ratios of rounds.

        Raises:
            CaptureError: If there is no variant of that name.
        """
        self._turns_of(name)
        return statistics.median(self._turns_of(self.variants[0])) / self.speedup(name).ratio

    def speedup(self, name: str, over: str | None = None) -> Ratio:
        """
        Return how many times as fast a variant is as another, from the ratios of all rounds.

        Args:
            name: The variant.
            over: The other variant; the first one by default.

        Raises:
            CaptureError: If there is no variant of that name.
        """
        ours, theirs = (
            self._turns_of(name),
            self._turns_of(self.variants[0] if over is None else over),
        )
        logs = [math.log(their_s / our_s) for our_s, their_s in zip(ours, theirs, strict=True)]
        try:
            interval = ratio_interval(logs, CONFIDENCE)
        except UnknownMetric as error:
            return Ratio(ratio=estimate(logs), why=str(error))
        return Ratio(ratio=interval.ratio, interval=interval)

    def table(self) -> Table:
        """
        Return a table of the turns and of every known metric, with a column for each variant.

        The step time of a profile and what follows from it are left out: they were measured one
        variant after the other, and may contradict the turns.
        """
        rows: list[list[str | None]] = [
            [
                "step_time in turns",
                *(format_quantity(self.step_time(name), SECONDS) for name in self.variants),
            ],
            [
                f"against {self.variants[0]}",
                None,
                *(self.speedup(name).in_words() for name in self.variants[1:]),
            ],
        ]
        if any(name.endswith(BARE) for name in self.variants):
            rows.append(["Keras' loop adds", *(self._added(name) for name in self.variants)])
        names = [*METRICS, *(name for profile in self.profiles.values() for name in profile.own)]
        for metric in dict.fromkeys(name for name in names if name not in STEP_TIMES):
            cells = [
                _cell(metric, profile.metrics.get(metric)) if profile else None
                for profile in map(self.profiles.get, self.variants)
            ]
            if any(cells):
                rows.append([metric, *cells])
        return Table.of(
            "comparison",
            titled_columns((title, "") for title in ("metric", *self.variants)),
            rows,
            limit=len(rows),
        )

    def to_json(self) -> Json:
        """Return turns, step times, ratios over the first variant, notes and the table, as JSON."""
        return {
            "variants": list(self.variants),
            "turns": {name: list(seconds) for name, seconds in self.turns.items()},
            "step_time": {name: self.step_time(name) for name in self.variants},
            "speedup": {name: self.speedup(name).to_json() for name in self.variants[1:]},
            "notes": list(self.notes),
            "table": asdict(self.table()),
        }

    def __str__(self) -> str:
        first, *others = self.variants
        lines = [f"{first}: {format_quantity(self.step_time(first), SECONDS)} a step"]
        return "\n".join(lines + [f"{name}: {self._line(name, first)}" for name in others])

    def __repr__(self) -> str:
        return f"<Comparison {'; '.join(str(self).splitlines())}>"

    def _line(self, name: str, first: str) -> str:
        ratio = self.speedup(name).in_words(first)
        return f"{format_quantity(self.step_time(name), SECONDS)} a step, {ratio}"

    def _added(self, name: str) -> str | None:
        """Return the share of a step that is beyond the variant without Keras' loop."""
        if name + BARE not in self.turns:
            return None
        ratio = self.speedup(name + BARE, over=name)
        shown = format_quantity(ratio.ratio - 1, RATIO)
        if ratio.interval is None:
            return f"{shown} ({ratio.why})"
        low, high = (format_quantity(end - 1, RATIO) for end in (ratio.low, ratio.high))
        return f"{shown} ({low} to {high})"

    def _turns_of(self, name: str) -> tuple[float, ...]:
        if name not in self.turns:
            raise CaptureError(f"no variant {name!r} was compared; {nearest(name, self.turns)}")
        return self.turns[name]


def _cell(metric: str, value: Value | None) -> str | None:
    """Return a metric as in other tables, with its range over the steps; None if unknown."""
    if value is None or value.number is None:
        return None
    unit = shown_unit(metric, value.unit)
    ends = [format_quantity(end, unit) for end in (value.low(), value.high())]
    return format_quantity(value.number, unit) if ends[0] == ends[1] else "…".join(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonCall:
    """One call of `compare` with data."""

    profiles: Mapping[str, str]
    """Names of the profiles, by variant."""
    max_seconds: float
    """Time for all rounds of turns."""
    tolerance: Tolerance | None
    """Tolerance for the outputs of the first steps; None if they are not compared."""
    measure: Callable[[str], tuple[Profile, Leaves]]
    """Profiles a variant in this process, and returns the output of its first step if compared."""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Environment variables of the variants' processes, if they have their own."""
