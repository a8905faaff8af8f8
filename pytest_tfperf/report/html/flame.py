"""Geometry of the flame graph of ops: the whole, its groups, and their ops, by self time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import SHARE, format_quantity
from pytest_tfperf.report.html.axis import seconds_text
from pytest_tfperf.text import elide
from pytest_tfperf.values import Table

_ROW_HEIGHT, _NAME_WIDTH = 22, 50
_LEAST = 0.5  # percent: narrower boxes are not drawn
_SOURCES = (
    ("device_ops", ("where", "type", "op"), "ops on the devices"),
    ("host_ops", ("where", "type", "op"), "ops on the host"),
)
"""Tables of ops, the columns of their levels, and the title of the picture."""


@dataclass(frozen=True, slots=True)
class FlameBox:
    """A group of ops, or an op, in percent of the picture's width."""

    left: float
    """Left end."""
    width: float
    """Width."""
    level: int
    """Level, 0 at the top."""
    name: str
    """Name in the box."""
    text: str
    """Name, time and share, for the pointer and for screen readers."""


@dataclass(frozen=True, slots=True)
class Flame:
    """The picture."""

    title: str
    """Title of the picture."""
    boxes: tuple[FlameBox, ...]
    """Boxes, level by level."""
    height: int
    """Height in pixels."""
    label: str
    """Description for screen readers."""


def flame(tables: Mapping[str, Table], most: int = 100) -> Flame | None:
    """
    Draw the ops of the devices, or of the host without devices; None without any time.

    Args:
        tables: Tables of the profile.
        most: Largest number of boxes in a level.
    """
    for key, levels, title in _SOURCES:
        picture = _flame(tables.get(key), levels, title, most)
        if picture is not None:
            return picture
    return None


def _flame(table: Table | None, levels: Sequence[str], title: str, most: int) -> Flame | None:
    """
    Draw a table of ops.

    Args:
        table: The table, if there is one.
        levels: Keys of the columns that the levels show.
        title: Title of the picture.
        most: Largest number of boxes in a level.
    """
    if table is None or not {*levels, "self_s"} <= {column.key for column in table.columns}:
        return None
    timed = [
        (tuple(str(record[level] or "other") for level in levels), record["self_s"])
        for record in table.records()
        if _is_time(record.get("self_s"))
    ]
    whole = sum(seconds for _, seconds in timed)
    if not whole > 0:
        return None
    boxes: list[FlameBox] = []
    for level in range(len(levels)):
        boxes += sorted(_level(timed, level, whole), key=lambda box: -box.width)[:most]
    largest = sorted((box for box in boxes if box.level == len(levels) - 1), key=lambda b: -b.width)
    shown = "; ".join(box.text for box in largest[:5])
    more = f", without {table.n_more} short ones" if table.n_more else ""
    return Flame(
        title=f"{title} by self time a step{more}",
        boxes=tuple(boxes),
        height=len(levels) * _ROW_HEIGHT,
        label=f"{title}, {seconds_text(whole)} a step; the longest: {shown}",
    )


def _level(
    timed: Iterable[tuple[tuple[str, ...], float]], level: int, whole: float
) -> list[FlameBox]:
    """Return the boxes of a level; those of a group stand below it, the longest first."""
    sums: dict[tuple[str, ...], float] = {}
    for path, seconds in timed:
        for depth in range(level + 1):
            key = path[: depth + 1]
            sums[key] = sums.get(key, 0.0) + seconds
    # sort by the time of each group from the top down, so that children stay below their parents
    keys = [key for key in sums if len(key) == level + 1]
    keys.sort(key=lambda key: [(-sums[key[: n + 1]], key[n]) for n in range(level + 1)])
    boxes, left = [], 0.0
    for key in keys:
        width = 100 * sums[key] / whole
        if width >= _LEAST:
            name = elide(key[-1], _NAME_WIDTH)
            text = f"{name}: {seconds_text(sums[key])}, {format_quantity(width / 100, SHARE)}"
            boxes.append(FlameBox(round(left, 3), round(width, 3), level, name, text))
        left += width
    return boxes


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and value > 0
