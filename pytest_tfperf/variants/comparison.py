"""What a comparison of variants found: their times in turns, the ratio of any two with its interval, and all metrics side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from pytest_tfperf.errors import CaptureError, UnknownMetric
from pytest_tfperf.metrics import METRICS, SECONDS, format_quantity, nearest
from pytest_tfperf.results import Profile
from pytest_tfperf.stats.signed_rank import (
    Interval,
    estimate,
    format_ratio,
    needed_pairs,
    ratio_interval,
)
from pytest_tfperf.values import Json, Table, Value, titled_columns
from pytest_tfperf.variants.outputs import Leaves, Tolerance

__tracebackhide__ = True

CONFIDENCE = 0.99
NEEDED_ROUNDS = needed_pairs(CONFIDENCE)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ratio:
    """
    How many times as fast a variant is as another: above 1 it is faster.

    `interval` holds it with a confidence of 99 % or a little more; None, and `why`, where too few rounds were run for one.
    """

    ratio: float
    interval: Interval | None = None
    why: str | None = None

    @property
    def low(self) -> float:
        """
        The lower end of the interval.

        Raises:
            UnknownMetric: If there is no interval, with the reason.
        """
        return self._known().low

    @property
    def high(self) -> float:
        """The upper end of the interval; raises as `low`."""
        return self._known().high

    def to_json(self) -> Json:
        """`{"ratio", "low", "high", "confidence", "n", "why"}`, None where there is no interval."""
        known = (
            asdict(self.interval)
            if self.interval
            else dict.fromkeys(("low", "high", "confidence", "n"))
        )
        return {**known, "ratio": self.ratio, "why": self.why}

    def bounds(self) -> str:
        """The interval as text, or why there is none."""
        if self.interval is None:
            return str(self.why)
        low, high, confidence = (
            format_ratio(self.interval.low),
            format_ratio(self.interval.high),
            100 * self.interval.confidence,
        )
        return f"{low} to {high}, {confidence:.3g} % interval of {self.interval.n} rounds"

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

    `turns` are the seconds of a step of each variant in each round, by its name; `profiles` what was measured of each besides.
    The intervals hold what differs from turn to turn. What a process does to all its turns alike (where its memory lies, which
    cores it got) is not in them: other processes may give a ratio beyond. Each interval stands by itself, with no allowance for
    how many are looked at.
    """

    turns: Mapping[str, tuple[float, ...]]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """The names, in the order in which they were given."""
        return tuple(self.turns)

    def step_time(self, name: str) -> float:
        """
        Seconds of a step, the median over the turns.

        Raises:
            CaptureError: If there is no variant of that name.
        """
        return statistics.median(self._turns_of(name))

    def speedup(self, name: str, over: str | None = None) -> Ratio:
        """
        How many times as fast a variant is as another, or as the first: the time of that one ÷ its own, by rounds.

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
        """What the turns say, and every metric that is known of a variant, with a column for each."""
        rows: list[list[str | None]] = [
            [
                "step_time in turns",
                *(format_quantity(self.step_time(name), SECONDS) for name in self.variants),
            ],
            [
                f"times as fast as {self.variants[0]}",
                None,
                *(str(self.speedup(name)) for name in self.variants[1:]),
            ],
        ]
        for metric in dict.fromkeys(
            [*METRICS, *(name for profile in self.profiles.values() for name in profile.own)]
        ):
            cells = [
                _cell(profile.metrics.get(metric)) if profile else None
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
        """Turns, step times, ratios over the first variant, notes and the table, as plain JSON values."""
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
        ratio = self.speedup(name)
        faster = f"{format_ratio(ratio.ratio)} times as fast as {first} ({ratio.bounds()})"
        return f"{format_quantity(self.step_time(name), SECONDS)} a step, {faster}"

    def _turns_of(self, name: str) -> tuple[float, ...]:
        if name not in self.turns:
            raise CaptureError(f"no variant {name!r} was compared; {nearest(name, self.turns)}")
        return self.turns[name]


def _cell(value: Value | None) -> str | None:
    """A metric as in other tables, with its range where steps differ; None where it is unknown."""
    if value is None or value.number is None:
        return None
    ends = [format_quantity(end, value.unit) for end in (value.low(), value.high())]
    return format_quantity(value.number, value.unit) if ends[0] == ends[1] else "…".join(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonCall:
    """
    One call of `compare` with data.

    `profiles` are the names of the variants' profiles, by variant; `tolerance` is that of what the first steps return, None where
    that is not compared; `measure` profiles a variant in this process, and gives what its first step returned, where that is compared.
    """

    profiles: Mapping[str, str]
    max_seconds: float
    tolerance: Tolerance | None
    measure: Callable[[str], tuple[Profile, Leaves]]


CompareInProcesses = Callable[[ComparisonCall], Comparison]
