"""Geometry of a history of step times: the recorded runs, this run, and changes of their level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_tfperf.baseline.level_changes import LevelChanges, level_changes, run_name
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.report.html.axis import (
    HISTORY_HEIGHT,
    LEFT,
    PLOT,
    TOP,
    Chart,
    Mark,
    marks,
    range_text,
    short,
    ticks_between,
)
from pytest_tfperf.text import plural

_LEAST_RANGE = 0.04  # of the axis, as a share; its ticks need three digits then
_BESIDE = 0.4  # slots that a level reaches to both sides of its first and last run
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_EDGE = 100, 10, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRuns:
    """A history of step times, or of the values of another metric."""

    runs: Sequence[float]
    """Step times in seconds, or values in the unit, the latest last."""
    commits: Sequence[str] = ()
    """Commit of each run, empty for one that is not known; or nothing if no commit is known."""
    anchor: float | None = None
    """Step time of the first runs, if it is known."""
    metric: str = "step time"
    """Name of the values."""
    unit: str = SECONDS
    """Unit of the values."""
    band: tuple[float, float] | None = None
    """Range of the values to expect, if it is known."""

    def text(self, value: float) -> str:
        """Format a value."""
        return format_quantity(value, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChart(Chart):
    """Recorded runs from old to new, and this run."""

    metric: str
    """Name of the values."""
    band: tuple[float, float] | None
    """Upper end and height of the range of the values to expect, or None."""
    path: str
    """SVG path of the line through the recorded runs."""
    dots: str
    """SVG path of the recorded runs' dots."""
    commits: tuple[tuple[float, float, str], ...]
    """Place, time and commit of each recorded run."""
    now: tuple[float, float]
    """Place of this run."""
    span: str
    """SVG path of the interval of its time."""
    anchor: Mark | None
    """Line of the anchor, or None."""
    limit: Mark | None
    """Line of the longest time that is tolerated, or None."""
    unknown: str
    """Names of the lines that are not known."""
    changes: tuple[Mark, ...]
    """Runs from which on the level is another one."""
    levels: str
    """SVG path of the levels; empty without a change."""
    sentences: tuple[str, ...]
    """Sentences on the changes of level; one that says so if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallHistory:
    """A history in a cell of a table: a line of 100 by 10, the dot of this run at its end."""

    path: str
    """SVG path of the line."""
    dot: str
    """SVG path of the dot."""
    rise: float
    """This run's time ÷ that of the first one."""
    label: str
    """Description for screen readers and the pointer."""


def history_chart(
    recorded: RecordedRuns,
    now: float,
    bounds: tuple[float, float] | None = None,
    limit: float | None = None,
) -> HistoryChart | None:
    """
    Draw the step times of recorded runs and of this run; None if no run is recorded.

    Args:
        recorded: The recorded runs.
        now: Step time of this run.
        bounds: Interval of this run's step time, if it is known.
        limit: Longest step time that is tolerated, if it is known.
    """
    if not recorded.runs:
        return None
    anchor, every = recorded.anchor, [*recorded.runs, now]
    lines = [*(bounds or ()), *(one for one in (anchor, limit) if one is not None)]
    lines += recorded.band or ()
    ticks = _ticks([*every, *lines])
    bottom, per_second = TOP + HISTORY_HEIGHT, HISTORY_HEIGHT / (ticks[-1] - ticks[0])

    def level(seconds: float) -> float:
        return round(bottom - (seconds - ticks[0]) * per_second, 1)

    places = [(_across(n + 0.5, len(every)), level(time)) for n, time in enumerate(every)]
    changes = level_changes(every, recorded.commits, recorded.unit)
    text, band = recorded.text, _band(recorded, level)
    low, high = (short(level(end)) for end in bounds) if bounds else ("", "")
    unknown = {"anchor": anchor, "limit": limit, "interval of this run": bounds}
    return HistoryChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=marks(ticks, level, recorded.unit),
        metric=recorded.metric,
        band=band,
        path="M" + "L".join(f"{short(x)},{short(y)}" for x, y in places[:-1]),
        dots="".join(f"M{short(x)},{short(y)}h0" for x, y in places[:-1]),
        commits=tuple(
            (x, y, f"{text(every[n])}, {run_name(n, recorded.commits)}")
            for n, (x, y) in enumerate(places[:-1])
        ),
        now=places[-1],
        span=f"M{short(places[-1][0])},{low}V{high}" if bounds else "",
        anchor=None if anchor is None else Mark(level(anchor), f"anchor {text(anchor)}"),
        limit=None if limit is None else Mark(level(limit), f"limit {text(limit)}"),
        unknown=", ".join(name for name, line in unknown.items() if line is None and not band),
        changes=tuple(
            Mark(places[point.index][0], text)
            for point, text in zip(changes.points, changes.texts, strict=True)
        ),
        levels=_levels(changes, len(every), level),
        sentences=changes.sentences,
        label="; ".join((_label(recorded, now), *changes.texts)),
    )


def small_history(recorded: RecordedRuns, now: float) -> SmallHistory | None:
    """Draw the recorded runs and this run as a line; None if no run is recorded."""
    if not recorded.runs:
        return None
    every = [*recorded.runs, now]
    low, high = min(every), max(every)
    apart = (_SMALL_WIDTH - 2 * _SMALL_EDGE) / (len(every) - 1)
    inner = _SMALL_HEIGHT - 2 * _SMALL_EDGE
    shares = [(time - low) / (high - low) if high > low else 0.5 for time in every]
    places = [
        f"{short(_SMALL_EDGE + n * apart)},{short(_SMALL_EDGE + inner * (1 - share))}"
        for n, share in enumerate(shares)
    ]
    return SmallHistory(
        path="M" + "L".join(places),
        dot=f"M{places[-1]}h0",
        rise=now / every[0] if every[0] else 1.0,
        label=_label(recorded, now),
    )


def _band(recorded: RecordedRuns, level: Callable[[float], float]) -> tuple[float, float] | None:
    """Return the upper end and the height of the band; `level` maps a value to its height."""
    if recorded.band is None:
        return None
    low, high = recorded.band
    return level(high), round(level(low) - level(high), 1)


def _ticks(times: Sequence[float]) -> list[float]:
    """Return the ticks of the axis; it shows noise of less than a few percent as small."""
    low, high = min(times), max(times)
    more = max(_LEAST_RANGE * high - (high - low), 0.0) / 2
    return ticks_between(low - more, high + more)


def _across(slot: float, n: int) -> float:
    """Return the place of a slot, one of n, from left to right."""
    return round(LEFT + slot * PLOT / n, 1)


def _levels(changes: LevelChanges, n: int, level: Callable[[float], float]) -> str:
    """
    Return the SVG path of the levels between changes.

    Args:
        changes: The changes.
        n: Number of runs.
        level: From seconds to a height.
    """
    if not changes.points:
        return ""
    times = [changes.points[0].before, *(point.after for point in changes.points)]
    edges = [changes.first, *(point.index for point in changes.points), n]
    return "".join(
        f"M{short(_across(first + 0.5 - _BESIDE, n))},{short(level(time))}"
        f"H{short(_across(end - 0.5 + _BESIDE, n))}"
        for time, first, end in zip(times, edges, edges[1:], strict=False)
    )


def _label(recorded: RecordedRuns, now: float) -> str:
    anchor = "" if recorded.anchor is None else f", anchor {recorded.text(recorded.anchor)}"
    values = range_text(recorded.runs, recorded.unit)
    runs = f"{plural(len(recorded.runs), 'recorded run')} of {values}"
    return f"{runs}, now {recorded.text(now)}{anchor}"
