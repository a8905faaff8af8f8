"""Geometry of the roofline: the FLOP rate of each op over its FLOPs per byte, both logarithmic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from pytest_tfperf.quantities import FLOP_RATE, format_quantity
from pytest_tfperf.report.html.axis import LEFT, PLOT, STEPS_HEIGHT, TOP, Chart, Mark, short
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import Table

_MOST_OPS, _NAME_WIDTH = 30, 60
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_LARGEST, _SMALLEST = 7.0, 2.0  # radii of dots


@dataclass(frozen=True, slots=True)
class Dot:
    """An op."""

    x: float
    """Place along the axis of FLOPs per byte."""
    y: float
    """Place along the axis of rates."""
    radius: float
    """Radius; its square is proportional to the op's time."""
    text: str
    """Name and figures, for the pointer and for screen readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineChart(Chart):
    """The picture."""

    dots: tuple[Dot, ...]
    """Ops with known FLOPs and bytes, the longest first."""
    roof: str
    """SVG path of the roof, empty if no peak is known."""
    across: tuple[Mark, ...]
    """Ticks of FLOPs per byte."""


@dataclass(frozen=True, slots=True)
class _Peaks:
    """Peaks of the device, None if unknown."""

    flop_rate: float | None
    bandwidth: float | None

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> _Peaks:
        """Return the peaks that the shares of the roof imply: rate ÷ share."""
        found: dict[str, list[float]] = {"compute": [], "memory": []}
        for record in records:
            share, bound = record.get("share_of_the_roof"), record.get("bound_by")
            rate = record.get("flop_rate") if bound == "compute" else record.get("bandwidth")
            if bound in found and _is_positive(share) and _is_positive(rate):
                found[bound].append(rate / share)
        compute, memory = (
            statistics.median(one) if one else None for one in (found["compute"], found["memory"])
        )
        return cls(compute, memory)

    def at(self, intensity: float) -> float | None:
        """Return the highest rate at this many FLOPs per byte, None without any peak."""
        slope = None if self.bandwidth is None else self.bandwidth * intensity
        known = [one for one in (slope, self.flop_rate) if one is not None]
        return min(known, default=None)


def roofline_chart(table: Table | None) -> RooflineChart | None:
    """Draw the roofline; None without an op whose FLOPs and bytes are known."""
    keys = {"op", "self_s", "flop_rate", "flop_per_byte"}
    if table is None or not keys <= {column.key for column in table.columns}:
        return None
    ops = [
        record
        for record in table.records()[:_MOST_OPS]
        if all(_is_positive(record.get(key)) for key in ("self_s", "flop_rate", "flop_per_byte"))
    ]
    if not ops:
        return None
    peaks = _Peaks.of(table.records())
    intensities = [one["flop_per_byte"] for one in ops]
    low_x, high_x = _decades(intensities)
    roofs = [peaks.at(10**low_x), peaks.at(10**high_x)]
    rates = [one["flop_rate"] for one in ops] + [one for one in roofs if one is not None]
    low_y, high_y = _decades(rates)
    bottom = TOP + STEPS_HEIGHT

    def across(intensity: float) -> float:
        return round(LEFT + PLOT * (math.log10(intensity) - low_x) / (high_x - low_x), 1)

    def up(rate: float) -> float:
        return round(bottom - STEPS_HEIGHT * (math.log10(rate) - low_y) / (high_y - low_y), 1)

    places = [10 ** (low_x + (high_x - low_x) * n / 60) for n in range(61)]
    heights = [(place, peaks.at(place)) for place in places]
    line = [f"{short(across(place))},{short(up(top))}" for place, top in heights if top is not None]
    longest = max(one["self_s"] for one in ops)
    return RooflineChart(
        height=bottom + 30,
        bottom=bottom,
        ticks=tuple(
            Mark(up(10.0**n), _power_text(n))
            for n in range(low_y, high_y + 1, -(-(high_y - low_y) // 5))
        ),
        across=tuple(
            Mark(across(10.0**n), f"{10.0**n:g}")
            for n in range(low_x, high_x + 1, -(-(high_x - low_x) // 5))
        ),
        dots=tuple(_dot(one, across, up, longest) for one in ops),
        roof=f"M{'L'.join(line)}" if line else "",
        label=f"roofline of {plural(len(ops), 'op')}: " + "; ".join(_text(one) for one in ops[:5]),
    )


_Place = Callable[[float], float]


def _dot(record: Mapping[str, Any], across: _Place, up: _Place, longest: float) -> Dot:
    """
    Return the dot of an op.

    Args:
        record: Row of the op.
        across: From FLOPs per byte to a place.
        up: From a rate to a place.
        longest: Seconds of the longest op.
    """
    size = math.sqrt(record["self_s"] / longest)
    return Dot(
        x=across(record["flop_per_byte"]),
        y=up(record["flop_rate"]),
        radius=round(max(_LARGEST * size, _SMALLEST), 1),
        text=_text(record),
    )


def _power_text(power: int) -> str:
    """Write a power of ten with the prefix of its unit: `100 G`."""
    place = min(max(power // 3, 0), len(_PREFIXES) - 1)
    return f"{10.0 ** (power - 3 * place):g} {_PREFIXES[place]}".rstrip()


def _text(record: Mapping[str, Any]) -> str:
    rate = format_quantity(record["flop_rate"], FLOP_RATE)
    bound = f", bound by {record['bound_by']}" if record.get("bound_by") else ""
    name = elide(str(record["op"]), _NAME_WIDTH)
    return f"{name}: {rate} at {record['flop_per_byte']:.3g} FLOP per byte{bound}"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten below and above all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _is_positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and 0 < value < math.inf
