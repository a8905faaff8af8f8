"""
Axes of the HTML report's charts: sizes of the pictures, round ticks, and texts of quantities.

A module of a chart finds the places in its picture, and the template draws them. Each chart is also
described by text, its `label` for screen readers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_tfperf.quantities import SECONDS, format_quantity

WIDTH, LEFT, RIGHT = 360, 48, 8
PLOT = WIDTH - LEFT - RIGHT
STEPS_HEIGHT, HISTORY_HEIGHT = 160, 100
TOP = 10
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A tick or a line with its text."""

    at: float
    """Place along the axis."""
    text: str
    """Text of the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture with an axis."""

    height: int
    """Height in SVG units."""
    bottom: float
    """Place of the axis."""
    ticks: tuple[Mark, ...]
    """Ticks of the axis."""
    label: str
    """Description for screen readers."""


def ticks_between(low: float, high: float, n: int = 4) -> list[float]:
    """
    Choose about `n` + 1 round numbers from below `low` to above `high`.

    They are 1, 2 or 5 times a power of ten apart.

    Args:
        low: Lower end of the data.
        high: Upper end of the data.
        n: Number of intervals.
    """
    wide = high - low or abs(high) or 1.0
    rough = wide / n
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / apart + 1e-9), math.ceil(high / apart - 1e-9)
    return [number * apart for number in range(first, max(last, first + 1) + 1)]


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Format evenly spaced seconds in one unit, with the digits that tell them apart."""
    largest = max(map(abs, ticks))
    scale, unit = next((row for row in _UNITS if largest >= row[0]), _UNITS[-1])
    apart = (ticks[1] - ticks[0]) / scale
    digits = max(0, math.ceil(-math.log10(apart) - 1e-6))
    return [f"{tick / scale:.{digits}f} {unit}" for tick in ticks]


def marks(
    ticks: Sequence[float], place: Callable[[float], float], unit: str = SECONDS
) -> tuple[Mark, ...]:
    """
    Return the ticks of an axis.

    Args:
        ticks: Values, evenly spaced.
        place: Maps a value to its place.
        unit: Unit of the values.
    """
    texts = (
        tick_texts(ticks) if unit == SECONDS else [format_quantity(tick, unit) for tick in ticks]
    )
    return tuple(Mark(round(place(tick), 1), text) for tick, text in zip(ticks, texts, strict=True))


def range_text(values: Sequence[float], unit: str = SECONDS) -> str:
    """Describe values by their range and median."""
    low, middle, high = (
        format_quantity(value, unit)
        for value in (min(values), statistics.median(values), max(values))
    )
    return low if low == high else f"{low} to {high}, median {middle}"


def seconds_text(value: float) -> str:
    """Format seconds."""
    return format_quantity(value, SECONDS)


def short(number: float) -> str:
    """With one digit behind the point, if any is needed."""
    return f"{number:.1f}".removesuffix(".0") if abs(number) >= 0.05 else "0"
