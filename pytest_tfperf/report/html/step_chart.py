"""Geometry of the traced steps, each stacked by part; no two parts differ by colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.report.html.axis import (
    LEFT,
    PLOT,
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

MOST_STEPS = 100
_WIDEST_BAR = 40.0


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


def _stacked(step: Step) -> list[float]:
    """Seconds up to the end of each part, in the order of `PARTS`."""
    total, edges = 0.0, []
    for part in PARTS:
        total += max(step.parts_s.get(part, 0.0), 0.0)
        edges.append(total)
    return edges
