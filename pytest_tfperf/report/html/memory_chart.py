"""Geometry of the memory in use over a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.report.html.axis import (
    HISTORY_HEIGHT,
    LEFT,
    PLOT,
    TOP,
    Chart,
    Mark,
    seconds_text,
    short,
    ticks_between,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChart(Chart):
    """Memory in use over the time of a step, from zero."""

    path: str
    """SVG path of the line."""
    end: str
    """Time at the right end."""
    has_gaps: bool
    """True if some sizes are not known."""


def memory_chart(parts: Sequence[tuple[float, float | None]]) -> MemoryChart | None:
    """
    Draw memory over a step; None if no size is known.

    Args:
        parts: Equal parts of a step: seconds at which each begins, and its bytes, if known.
    """
    known = [size for _, size in parts if size is not None]
    if len(parts) < 2 or not known or not max(known) > 0:
        return None
    scale = 1024.0 ** math.floor(math.log(max(known), 1024))
    ticks = [tick * scale for tick in ticks_between(0.0, max(known) / scale)]
    bottom, per_byte, wide = TOP + HISTORY_HEIGHT, HISTORY_HEIGHT / ticks[-1], PLOT / len(parts)
    path, before = "", None
    for n, (_, size) in enumerate(parts):
        if size is not None:
            y = short(bottom - size * per_byte)
            path += f"M{short(LEFT + n * wide)},{y}" if before is None else f"V{y}"
            path += f"H{short(LEFT + (n + 1) * wide)}"
        before = size
    most, duration = (
        format_quantity(max(known), BYTES),
        seconds_text((parts[1][0] - parts[0][0]) * len(parts)),
    )
    return MemoryChart(
        height=bottom + 16,
        bottom=bottom,
        path=path,
        end=duration,
        has_gaps=len(known) < len(parts),
        label=f"memory over the {duration} of a step, at most {most}",
        ticks=tuple(
            Mark(round(bottom - tick * per_byte, 1), format_quantity(tick, BYTES)) for tick in ticks
        ),
    )
