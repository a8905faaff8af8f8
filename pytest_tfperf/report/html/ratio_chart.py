"""Geometry of the ratios of a comparison's turns, by process pair, beside the decided interval."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.quantities import format_ratio
from pytest_tfperf.report.html.axis import (
    HISTORY_HEIGHT,
    LEFT,
    PLOT,
    TOP,
    Chart,
    Mark,
    short,
    ticks_between,
)
from pytest_tfperf.text import plural

_MOST_DOTS = 200
_FAR = 6  # interquartile ranges beyond which a ratio is not drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChart(Chart):
    """Ratios of turns in order; process pairs side by side."""

    dots: tuple[str, ...]
    """SVG path of the dots of each process pair."""
    bounds: tuple[float, ...]
    """Places between process pairs."""
    band: tuple[float, float] | None
    """Upper and lower end of the decided interval, or None."""
    lines: tuple[Mark, ...]
    """Ratios to compare with: 1, and the tolerance."""
    beyond: str
    """Description of ratios that are not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision of a comparison."""

    low: float | None
    """Lower end of the ratio's interval, if there is one."""
    high: float | None
    """Upper end."""
    tolerance: float | None
    """Tolerated slow-down as a share, if it is known."""


def ratio_chart(
    turns: Sequence[Sequence[float]], sizes: Sequence[int], decided: Decided
) -> RatioChart | None:
    """
    Draw the ratio of each pair of turns; None without turns.

    Args:
        turns: Seconds of a step in this and in the other version, a pair for each two turns.
        sizes: Number of turns of each process pair.
        decided: The decision.
    """
    ratios = [after / before for after, before in turns if before > 0 and after > 0]
    if not ratios or len(ratios) != len(turns):
        return None
    ends = _ends(sizes, len(ratios))
    limit = None if decided.tolerance is None else 1 + decided.tolerance
    wanted = [one for one in (1.0, limit, decided.low, decided.high) if one is not None]
    low, high = _near(ratios)
    ticks = ticks_between(min([low, *wanted]), max([high, *wanted]))
    bottom, per_one = TOP + HISTORY_HEIGHT, HISTORY_HEIGHT / (ticks[-1] - ticks[0])

    def level(ratio: float) -> float:
        return round(bottom - (ratio - ticks[0]) * per_one, 1)

    apart, step = PLOT / len(ratios), -(-len(ratios) // _MOST_DOTS)
    dots, first = [], 0
    for end in ends:
        dots.append(
            "".join(
                f"M{short(LEFT + (n + 0.5) * apart)},{short(level(ratios[n]))}h0"
                for n in range(first, end, step)
                if low <= ratios[n] <= high
            )
        )
        first = end
    band = None
    if decided.low is not None and decided.high is not None:
        band = (level(decided.high), level(decided.low))
    lines = [Mark(level(1.0), "equal")]
    if limit is not None:
        lines.append(Mark(level(limit), f"limit {format_ratio(limit)}"))
    n_far = sum(not low <= one <= high for one in ratios)
    return RatioChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=tuple(Mark(level(tick), f"{tick:.4g}") for tick in ticks),
        dots=tuple(dots),
        bounds=tuple(round(LEFT + end * apart, 1) for end in ends[:-1]),
        band=band,
        lines=tuple(lines),
        beyond=f"{n_far} far away not drawn" if n_far else "",
        label=_label(ratios, len(ends), decided),
    )


def _ends(sizes: Sequence[int], n_turns: int) -> list[int]:
    """Return the number of turns up to the end of each process pair."""
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return ends if ends and ends[-1] == n_turns and min(sizes) > 0 else [n_turns]


def _near(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the range of the ratios that are drawn."""
    if len(ratios) < 4:
        return min(ratios), max(ratios)
    low, _, high = statistics.quantiles(ratios, n=4)
    reach = _FAR * (high - low)
    near = [one for one in ratios if low - reach <= one <= high + reach]
    return min(near), max(near)


def _label(ratios: Sequence[float], n_pairs: int, decided: Decided) -> str:
    text = (
        f"ratios of {plural(len(ratios), 'pair')} of turns in {plural(n_pairs, 'pair')} of "
        f"processes, median {format_ratio(statistics.median(ratios))}"
    )
    if decided.low is None or decided.high is None:
        return f"{text}; no interval"
    return f"{text}; interval {format_ratio(decided.low)} to {format_ratio(decided.high)}"
