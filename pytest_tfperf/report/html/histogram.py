"""Geometry of the distributions of step times: a histogram for each group of samples."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.report.html.axis import (
    LEFT,
    PLOT,
    TOP,
    Chart,
    Mark,
    marks,
    range_text,
    seconds_text,
    short,
    tick_texts,
    ticks_between,
)

_FAR = 5  # interquartile ranges above the upper quartile
_ROW_HEIGHT, _BAR_HEIGHT, _LEAST_HEIGHT = 66, 40, 1.0
_BINS_PER_TICK, _MOST_BINS = (1, 2, 5, 10, 20), 50
_ALIKE = 0.01  # how far the axis reaches on both sides of samples that are all the same
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramRow:
    """The histogram of one group of samples."""

    name: str
    """Name of the group."""
    kind: str
    """`own` or `other`."""
    base: float
    """Place of the ground line."""
    bars: tuple[tuple[str, str], ...]
    """SVG paths of upright strokes; the count and range of a stroke, or empty for all in one."""
    most: Mark
    """Height and count of the highest bar."""
    middle: Mark
    """Median of the samples."""
    n: int
    """Number of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms(Chart):
    """Histograms below one another, over one axis of seconds with the same bars."""

    rows: tuple[HistogramRow, ...]
    """Histograms from top to bottom."""
    thick: float
    """Width of a stroke."""
    beyond: str
    """Description of outliers, which are not drawn; beside them the others would be one bar."""
    unknown: str
    """Names of the groups without samples."""


def histograms(
    samples: Mapping[str, tuple[str, Sequence[float]]], named: bool = True
) -> Histograms | None:
    """
    Draw the distributions of samples; None if there are no samples.

    Args:
        samples: Kind (`own` or `other`) and seconds of each group, by its name.
        named: True to give each bar its count and range as a text.
    """
    known = {name: (kind, values) for name, (kind, values) in samples.items() if values}
    if not known:
        return None
    far = {name: _far(values) for name, (_, values) in known.items()}
    near = {
        name: [value for value in values if value <= far[name]]
        for name, (_, values) in known.items()
    }
    every = [value for values in near.values() for value in values]
    low, high = min(every), max(every)
    if low == high:
        low, high = low * (1 - _ALIKE), high * (1 + _ALIKE)
    ticks = ticks_between(low, high)
    n_bins = _n_bins(len(ticks) - 1, max(map(len, near.values())))
    edges = [ticks[0] + (ticks[-1] - ticks[0]) * n / n_bins for n in range(n_bins + 1)]

    def place(seconds: float) -> float:
        return round(LEFT + (seconds - ticks[0]) / (ticks[-1] - ticks[0]) * PLOT, 1)

    rows = tuple(
        HistogramRow(
            name=name,
            kind=kind,
            base=(base := TOP + (n + 1) * _ROW_HEIGHT - 8),
            bars=_bars(near[name], edges, base, named),
            most=Mark(base - _BAR_HEIGHT, str(max(_counts(near[name], edges).values()))),
            middle=_median(values, place),
            n=len(values),
        )
        for n, (name, (kind, values)) in enumerate(known.items())
    )
    beyond = [value for name, (_, values) in known.items() for value in values if value > far[name]]
    bottom = TOP + len(known) * _ROW_HEIGHT
    return Histograms(
        height=bottom + 16,
        bottom=bottom,
        ticks=marks(ticks, place),
        rows=rows,
        thick=max(PLOT / n_bins - 1, 1.0),
        beyond=_beyond(beyond),
        unknown=", ".join(name for name in samples if name not in known),
        label="; ".join(
            f"{name}: {len(values)} of {range_text(values)}" for name, (_, values) in known.items()
        ),
    )


def _far(values: Sequence[float]) -> float:
    """Return the seconds above which a sample is an outlier; few samples have none."""
    if len(values) < 8:
        return math.inf
    low, middle, high = statistics.quantiles(values, n=4)
    return max(high + _FAR * (high - low), 2 * middle)


def _beyond(far: Sequence[float]) -> str:
    if not far:
        return ""
    are = "is" if len(far) == 1 else "are"
    return f"{len(far)} far slower, up to {seconds_text(max(far))}, {are} not drawn"


def _n_bins(n_intervals: int, n_samples: int) -> int:
    """Return the number of bars: the square root of the samples or more, their edges round."""
    wanted = math.sqrt(n_samples)
    possible = [per * n_intervals for per in _BINS_PER_TICK if per * n_intervals <= _MOST_BINS]
    return next((n for n in possible if n >= wanted), max(possible, default=n_intervals))


def _counts(values: Sequence[float], edges: Sequence[float]) -> Counter[int]:
    """Count the values from each edge up to the next one; the last edge belongs to the last bar."""
    wide = (edges[-1] - edges[0]) / (len(edges) - 1)
    last = len(edges) - 2
    return Counter(min(int((value - edges[0]) / wide + _ROUNDING), last) for value in values)


def _bars(
    values: Sequence[float], edges: Sequence[float], base: float, named: bool
) -> tuple[tuple[str, str], ...]:
    """
    Draw the bars of one histogram.

    Args:
        values: The samples.
        edges: Edges of the bars, in seconds.
        base: Place of the ground line.
        named: True for a path and a text for each bar.
    """
    counts, wide, texts = _counts(values, edges), PLOT / (len(edges) - 1), tick_texts(edges)
    most = max(counts.values())
    found = []
    for n, count in sorted(counts.items()):
        high = max(_BAR_HEIGHT * count / most, _LEAST_HEIGHT)
        path = f"M{short(LEFT + (n + 0.5) * wide)},{short(base)}v{short(-high)}"
        found.append((path, f"{count} from {texts[n]} to {texts[n + 1]}"))
    return tuple(found) if named else (("".join(path for path, _ in found), ""),)


def _median(values: Sequence[float], place: Callable[[float], float]) -> Mark:
    middle = statistics.median(values)
    return Mark(place(middle), seconds_text(middle))
