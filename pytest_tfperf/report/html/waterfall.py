"""Geometry of the waterfall: lanes of the median step's events, over the parts of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import SHARE, format_quantity
from pytest_tfperf.report.html.axis import Mark, seconds_text, tick_texts, ticks_between
from pytest_tfperf.text import elide
from pytest_tfperf.values import PARTS, Table

WATERFALL = "median_step"
"""Key of the table that is drawn."""
Record = Mapping[str, Any]
"""Row of the table."""
_STEP = "step"
_AXIS_HEIGHT, _TITLE_HEIGHT, _ROW_HEIGHT, _LANE_GAP = 22, 15, 18, 5  # pixels
_MOST_ROWS, _NAME_WIDTH = 4, 50
_PIECES_PER_BOX = 10  # of the strip of parts, for each box that a lane may have


@dataclass(frozen=True, slots=True)
class Box:
    """An event, in percent of the step's width."""

    left: float
    """Left end."""
    width: float
    """Width."""
    top: int
    """Upper end, in pixels."""
    part: str
    """Part of the step that the event is of."""
    name: str
    """Name of the event."""
    text: str
    """Name and times, for the pointer and for screen readers."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane with its boxes."""

    title: str
    """Title of the lane."""
    top: int
    """Upper end, in pixels."""
    boxes: tuple[Box, ...]
    """Its boxes by their left ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The picture."""

    title: str
    """Title of the picture."""
    seconds: float
    """Length of the step."""
    shades: tuple[Box, ...]
    """Times without work of a device or an op, over all lanes."""
    lanes: tuple[LaneView, ...]
    """Lanes from top to bottom."""
    parts: tuple[tuple[str, str], ...]
    """Parts in the picture with their titles, in the order of `PARTS`."""
    ticks: tuple[Mark, ...]
    """Ticks of the axis, in percent."""
    height: int
    """Height in pixels."""
    label: str
    """Description for screen readers."""
    n_more: int
    """Number of events that are not drawn."""


def waterfall(table: Table | None, most: int, title_of: Callable[[str], str]) -> Waterfall | None:
    """
    Draw the table of the median step; None without one.

    Args:
        table: The table.
        most: Largest number of boxes in a lane.
        title_of: Gives the title of a part of the step.
    """
    records = list(filter(_is_whole, table.records())) if table is not None else []
    strip = [record for record in records if record["lane"] == _STEP]
    seconds = max((record["start_s"] + record["length_s"] for record in strip), default=0.0)
    if table is None or not seconds > 0:
        return None
    lanes, top, n_more = [], _AXIS_HEIGHT, 0
    for title in dict.fromkeys(record["lane"] for record in records):
        own = [record for record in records if record["lane"] == title]
        kept = (
            _coarse(own, seconds, _PIECES_PER_BOX * most) if title == _STEP else _longest(own, most)
        )
        rows = _rows(kept)
        drawn = [(record, row) for record, row in zip(kept, rows, strict=True) if row < _MOST_ROWS]
        n_more += len(own) - len(drawn) if title != _STEP else 0
        first = top + _TITLE_HEIGHT
        boxes = tuple(
            _box(record, seconds, first + row * _ROW_HEIGHT, title_of) for record, row in drawn
        )
        lanes.append(LaneView(title, top, boxes))
        top = first + (max((row for _, row in drawn), default=0) + 1) * _ROW_HEIGHT + _LANE_GAP
    shades = tuple(box for box in lanes[0].boxes if box.part in ("input", "other"))
    ticks = [tick for tick in ticks_between(0.0, seconds, 8) if tick <= seconds * 1.001]
    marks = zip(ticks, tick_texts(ticks), strict=True)
    shown = {record["part"] for record in records}
    return Waterfall(
        title=table.title,
        seconds=seconds,
        shades=shades,
        lanes=tuple(lanes),
        parts=tuple((part, title_of(part)) for part in PARTS if part in shown),
        ticks=tuple(Mark(round(100 * tick / seconds, 2), text) for tick, text in marks),
        height=top,
        label=f"{table.title}: {seconds_text(seconds)}, {_shares(strip, seconds, title_of)}",
        n_more=n_more,
    )


def _is_whole(record: Record) -> bool:
    """Return whether a row has a place; run files may come from another version, or be damaged."""
    times = record.get("start_s"), record.get("length_s")
    known = [time for time in times if isinstance(time, (int, float)) and time >= 0]
    return len(known) == len(times) and {"lane", "name", "part"} <= record.keys()


def _longest(records: Sequence[Record], most: int) -> list[Record]:
    """Return the time that all events of a lane cover, and the longest events by start."""
    covered = [record for record in records if not record["name"]]
    events = [record for record in records if record["name"]]
    kept = sorted(events, key=lambda record: -record["length_s"])[:most]
    return covered + sorted(kept, key=lambda record: (record["start_s"], -record["length_s"]))


def _coarse(strip: Sequence[Record], seconds: float, most: int) -> Sequence[Record]:
    """
    Return a strip of at most `most` pieces: the part that fills most of each equal time.

    Args:
        strip: The pieces, one part each.
        seconds: Length of the step.
        most: Largest number of pieces.
    """
    if len(strip) <= most:
        return strip
    long = seconds / most
    pieces: list[Record] = []
    for n in range(most):
        inside = dict.fromkeys(PARTS, 0.0)
        for one in strip:
            begin, end = one["start_s"], one["start_s"] + one["length_s"]
            shared = min(end, (n + 1) * long) - max(begin, n * long)
            inside[one["part"]] = inside.get(one["part"], 0.0) + max(shared, 0.0)
        part, start = max(inside, key=inside.__getitem__), n * long
        if pieces and pieces[-1]["part"] == part:
            start = pieces.pop()["start_s"]
        pieces.append(
            {**strip[0], "part": part, "start_s": start, "length_s": (n + 1) * long - start}
        )
    return pieces


def _rows(records: Iterable[Record]) -> list[int]:
    """Return the row of each event: the first in which no event before reaches it."""
    ends: list[float] = []
    rows = []
    for record in records:
        start, end = record["start_s"], record["start_s"] + record["length_s"]
        row = next((n for n, busy in enumerate(ends) if busy <= start * (1 + 1e-9)), len(ends))
        ends[row : row + 1] = [end]
        rows.append(row)
    return rows


def _box(record: Record, seconds: float, top: int, title_of: Callable[[str], str]) -> Box:
    """
    Return the box of an event.

    Args:
        record: Row of the event.
        seconds: Length of the step.
        top: Upper end of the box.
        title_of: Gives the title of a part of the step.
    """
    start, length, part = record["start_s"], record["length_s"], str(record["part"])
    is_part = record["lane"] == _STEP
    whole = title_of(part) if is_part else "all events"
    name = elide(str(record["name"] or whole), _NAME_WIDTH)
    return Box(
        left=round(100 * start / seconds, 3),
        width=round(100 * length / seconds, 3),
        top=top,
        part=part if part in PARTS else "other",
        name=name if record["name"] or is_part else "",
        text=f"{name}: {seconds_text(length)}, from {seconds_text(start)}",
    )


def _shares(strip: Iterable[Record], seconds: float, title_of: Callable[[str], str]) -> str:
    """
    Describe the shares of the parts, the largest first.

    Args:
        strip: Rows of the step's parts.
        seconds: Length of the step.
        title_of: Gives the title of a part.
    """
    sums: dict[str, float] = {}
    for record in strip:
        sums[record["part"]] = sums.get(record["part"], 0.0) + record["length_s"]
    largest = sorted(sums.items(), key=lambda one: -one[1])
    return ", ".join(
        f"{title_of(part)} {format_quantity(s / seconds, SHARE)}" for part, s in largest
    )
