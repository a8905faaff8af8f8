"""Geometry of a step before and after a change: two stacked bars, and what each change adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.report.html.axis import seconds_text
from pytest_tfperf.values import PARTS, Step

_HALF = 50.0  # percent: changes start in the middle


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar, in percent of the longer bar."""

    part: str
    """Part of the step."""
    left: float
    """Left end."""
    width: float
    """Width."""
    text: str
    """Part and time."""


@dataclass(frozen=True, slots=True)
class StepBar:
    """The mean step of one version."""

    title: str
    """Version, with the time of its step."""
    segments: tuple[Segment, ...]
    """Its parts, in the order of `PARTS`."""


@dataclass(frozen=True, slots=True)
class ChangeBar:
    """One difference, with the time that it adds or saves."""

    text: str
    """The difference in words."""
    left: float
    """Left end in percent; changes start at 50."""
    width: float
    """Width in percent, 0 for a change without a time."""
    tone: str
    """`slower` or `faster`."""


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """The picture."""

    bars: tuple[StepBar, ...]
    """The step before and after; empty if its parts before are unknown."""
    changes: tuple[ChangeBar, ...]
    """Differences, the largest first."""
    label: str
    """Description of the bars for screen readers."""


def before_after(
    parts_before: Mapping[str, float],
    steps: Sequence[Step],
    differences: Sequence[tuple[str, float | None]],
) -> BeforeAfter | None:
    """
    Draw what changed; None without any difference or parts.

    Args:
        parts_before: Mean seconds of a step by part, empty if unknown.
        steps: The traced steps after the change.
        differences: Each difference in words, and the seconds that it adds to a step, if known.
    """
    bars: tuple[StepBar, ...] = ()
    if parts_before and steps:
        after = _mean_parts_s(steps)
        longest = max(sum(parts_before.values()), sum(after.values()))
        if longest > 0:
            bars = (_bar("before", parts_before, longest), _bar("after", after, longest))
    largest = max((abs(seconds or 0.0) for _, seconds in differences), default=0.0)
    changes = tuple(_change(text, seconds or 0.0, largest) for text, seconds in differences)
    if not bars and not changes:
        return None
    label = "; ".join(f"{bar.title}: {', '.join(one.text for one in bar.segments)}" for bar in bars)
    return BeforeAfter(bars, changes, label)


def mean_bar(steps: Sequence[Step]) -> StepBar | None:
    """Draw the mean step alone; None without any time."""
    parts = _mean_parts_s(steps) if steps else {}
    longest = sum(parts.values())
    return _bar("the step", parts, longest) if longest > 0 else None


def _mean_parts_s(steps: Sequence[Step]) -> dict[str, float]:
    return {part: sum(step.parts_s.get(part, 0.0) for step in steps) / len(steps) for part in PARTS}


def _bar(title: str, parts: Mapping[str, float], longest: float) -> StepBar:
    segments, left = [], 0.0
    for part in PARTS:
        seconds = max(parts.get(part, 0.0), 0.0)
        width = 100 * seconds / longest
        if width > 0:
            text = f"{part.replace('_', ' ')} {seconds_text(seconds)}"
            segments.append(Segment(part, round(left, 3), round(width, 3), text))
        left += width
    return StepBar(f"{title}, mean {seconds_text(left * longest / 100)}", tuple(segments))


def _change(text: str, seconds: float, largest: float) -> ChangeBar:
    width = _HALF * abs(seconds) / largest if largest > 0 else 0.0
    left = _HALF if seconds >= 0 else _HALF - width
    return ChangeBar(text, round(left, 2), round(width, 2), "slower" if seconds >= 0 else "faster")


def parts_of_detail(detail: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean seconds of a step before by part, from the detail of its check."""
    stored = detail.get("parts_before") or {}
    return {part: float(stored[part]) for part in PARTS if part in stored}
