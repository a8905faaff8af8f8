"""
Geometry of the HTML report's charts, from seconds to places in a picture; the template draws them.

Each chart is also described by text. Its `label` is for screen readers, its parts and samples have
names, and no two differ by colour alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.report.html.axis import (
    HISTORY_HEIGHT,
    LEFT,
    PLOT,
    ROW_HEIGHT,
    STEPS_HEIGHT,
    TOP,
    Chart,
    Mark,
    marks,
    range_text,
    seconds_text,
    short,
    ticks_between,
)
from pytest_tfperf.text import plural
from pytest_tfperf.values import PARTS, Step

MOST_STEPS, MOST_DOTS = 100, 40
_WIDEST_BAR = 40.0
_FAR = 5  # interquartile ranges above the upper quartile
_DOT, _PILE = 5.0, 22.0  # the size of a dot, and how high dots pile up


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChart(Chart):
    """Steps side by side, each stacked by part from the bottom up."""

    bars: tuple[tuple[str, str], ...]
    """Parts, and their SVG paths of one upright stroke a step."""
    thick: float
    """Width of a stroke."""
    lines: tuple[Mark, ...]
    """Times to compare with."""
    n_more: int
    """Number of steps that are not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One row of dots, piled up where samples are alike."""

    name: str
    """Name of the row."""
    kind: str
    """`dot`, `square` or `tick`."""
    base: float
    """Place of the lowest dots."""
    path: str
    """SVG path of the dots."""
    middle: Mark
    """Median of the samples."""
    n: int
    """Number of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadChart(Chart):
    """Rows of samples over one axis of seconds."""

    rows: tuple[Samples, ...]
    """Rows from top to bottom."""
    beyond: str
    """Description of outliers, which are not drawn; beside them the others would be one dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChart(Chart):
    """Recorded runs from old to new, and this run."""

    path: str
    """SVG path of the line through the recorded runs."""
    dots: str
    """SVG path of the recorded runs' dots."""
    commits: tuple[tuple[float, float, str], ...]
    """Place, time and commit of each recorded run whose commit is known."""
    now: tuple[float, float]
    """Place of this run."""
    span: str
    """SVG path of the interval of its time."""
    anchor: Mark | None
    """Line of the anchor, or None."""
    limit: Mark | None
    """Line of the longest time that is tolerated, or None."""


def step_chart(steps: Sequence[Step], lines: Mapping[str, float]) -> StepChart | None:
    """
    Draw the first `MOST_STEPS` steps by part; None if no step took any time.

    Args:
        steps: The traced steps.
        lines: Seconds of a step to compare with, by name.
    """
    shown = steps[:MOST_STEPS]
    highest = max((_stacked(step)[-1] for step in shown), default=0.0)
    if not highest > 0:
        return None
    ticks = ticks_between(0.0, max(highest, *lines.values(), 0.0))
    bottom, per_second = TOP + STEPS_HEIGHT, STEPS_HEIGHT / ticks[-1]
    slot = PLOT / len(shown)
    paths: dict[str, list[str]] = {}
    for n, step in enumerate(shown):
        edges = [round(bottom - seconds * per_second, 1) for seconds in (0.0, *_stacked(step))]
        for part, low, high in zip(PARTS, edges, edges[1:], strict=False):
            if low > high:
                box = f"M{short(LEFT + (n + 0.5) * slot)},{short(low)}v{short(high - low)}"
                paths.setdefault(part, []).append(box)
    periods = [step.period_s for step in steps]
    return StepChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=marks(ticks, lambda seconds: bottom - seconds * per_second),
        bars=tuple((part, "".join(boxes)) for part, boxes in paths.items()),
        thick=min(0.84 * slot, _WIDEST_BAR),
        lines=tuple(
            Mark(round(bottom - seconds * per_second, 1), f"{name} {seconds_text(seconds)}")
            for name, seconds in lines.items()
        ),
        n_more=len(steps) - len(shown),
        label=f"{plural(len(steps), 'traced step')} by part, {range_text(periods)}",
    )


def spread_chart(
    samples: Mapping[str, tuple[str, Sequence[float]]], most: int = MOST_DOTS
) -> SpreadChart | None:
    """
    Draw samples over one axis; None if there are none.

    Args:
        samples: Kind (`dot`, `square`, `tick`) and seconds of each row, by its name.
        most: Largest number of samples that are drawn of a row, at even distances.
    """
    known = {name: (kind, values) for name, (kind, values) in samples.items() if values}
    if not known:
        return None
    near = {
        name: sorted(value for value in values if value <= _far(values))
        for name, (_, values) in known.items()
    }
    every = [value for values in near.values() for value in values]
    ticks = ticks_between(min(every), max(every))
    per_second = PLOT / (ticks[-1] - ticks[0])

    def place(seconds: float) -> float:
        return round(LEFT + (seconds - ticks[0]) * per_second, 1)

    rows = tuple(
        _samples(
            name,
            kind,
            near[name][:: math.ceil(len(near[name]) / most)],
            values,
            place,
            TOP + (n + 1) * ROW_HEIGHT - 4,
        )
        for n, (name, (kind, values)) in enumerate(known.items())
    )
    bottom = TOP + len(known) * ROW_HEIGHT + 4
    label = "; ".join(
        f"{name}: {len(values)} of {range_text(values)}" for name, (_, values) in known.items()
    )
    far = [value for _, values in known.values() for value in values if value > _far(values)]
    beyond = ""
    if far:
        are = "is" if len(far) == 1 else "are"
        beyond = f"{len(far)} far slower, up to {seconds_text(max(far))}, {are} not drawn"
    return SpreadChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=marks(ticks, place),
        rows=rows,
        beyond=beyond,
        label=label,
    )


def history_chart(
    runs: Sequence[float],
    now: float,
    anchor: float | None,
    bounds: tuple[float, float] | None,
    limit: float | None = None,
    commits: Sequence[str] = (),
) -> HistoryChart | None:
    """
    Draw the step times of recorded runs and of this run; None if no run is recorded.

    Args:
        runs: Recorded step times in seconds, the latest last.
        now: Step time of this run.
        anchor: Step time of the first runs, if it is known.
        bounds: Interval of this run's step time, if it is known.
        limit: Longest step time that is tolerated, if it is known.
        commits: Commit of each run, if they are known.
    """
    if not runs:
        return None
    shown = [*runs, now, *(bounds or ()), *(one for one in (anchor, limit) if one is not None)]
    ticks = ticks_between(min(shown), max(shown))
    bottom, per_second = TOP + HISTORY_HEIGHT, HISTORY_HEIGHT / (ticks[-1] - ticks[0])

    def level(seconds: float) -> float:
        return round(bottom - (seconds - ticks[0]) * per_second, 1)

    apart = PLOT / (len(runs) + 1)
    places = [
        (round(LEFT + (n + 0.5) * apart, 1), level(seconds))
        for n, seconds in enumerate([*runs, now])
    ]
    path = "M" + "L".join(f"{short(x)},{short(y)}" for x, y in places[:-1])
    dots = "".join(f"M{short(x)},{short(y)}h0" for x, y in places[:-1])
    known = commits if len(commits) == len(runs) else ()
    named = tuple(
        (x, y, f"{seconds_text(seconds)}, commit {commit}")
        for (x, y), seconds, commit in zip(places, runs, known, strict=False)
        if commit
    )
    span = (
        f"M{short(places[-1][0])},{short(level(bounds[0]))}V{short(level(bounds[1]))}"
        if bounds
        else ""
    )
    return HistoryChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=marks(ticks, level),
        path=path,
        dots=dots,
        commits=named,
        now=places[-1],
        span=span,
        anchor=None if anchor is None else Mark(level(anchor), f"anchor {seconds_text(anchor)}"),
        limit=None if limit is None else Mark(level(limit), f"limit {seconds_text(limit)}"),
        label=f"{plural(len(runs), 'recorded run')} of {range_text(runs)}, now {seconds_text(now)}"
        + (f", anchor {seconds_text(anchor)}" if anchor is not None else ""),
    )


def _far(values: Sequence[float]) -> float:
    """Return the seconds above which a sample is an outlier; few samples have none."""
    if len(values) < 8:
        return math.inf
    low, middle, high = statistics.quantiles(values, n=4)
    return max(high + _FAR * (high - low), 2 * middle)


def _stacked(step: Step) -> list[float]:
    """Seconds up to the end of each part, in the order of `PARTS`."""
    total, edges = 0.0, []
    for part in PARTS:
        total += max(step.parts_s.get(part, 0.0), 0.0)
        edges.append(total)
    return edges


def _samples(
    name: str,
    kind: str,
    drawn: Sequence[float],
    values: Sequence[float],
    place: Callable[[float], float],
    base: float,
) -> Samples:
    """
    Draw a row of dots, each on top of those that it would cover.

    Args:
        name: Name of the row.
        kind: `dot`, `square` or `tick`.
        drawn: Sorted values that are drawn.
        values: All values.
        place: From a value to its place along the axis.
        base: Place of the lowest dots.
    """
    piles: dict[int, list[int]] = {}
    for value in drawn:
        piles.setdefault(int(place(value) / _DOT), []).append(round(place(value)))
    up = min(_DOT, _PILE / max(len(pile) for pile in piles.values()))
    dot = "v-14" if kind == "tick" else "h0"
    path = "".join(
        f"M{x},{short(base - n * up)}{dot}" for pile in piles.values() for n, x in enumerate(pile)
    )
    middle = statistics.median(values)
    return Samples(
        name=name,
        kind=kind,
        base=base,
        path=path,
        middle=Mark(place(middle), seconds_text(middle)),
        n=len(values),
    )
