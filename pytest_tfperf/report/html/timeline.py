"""
The timeline of the median step: a strip of its parts, and lanes of events below it.

The script zooms it; without one it shows the whole step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity, scale_of
from pytest_tfperf.report.html.svg import (
    ENDS,
    NAME_WIDTH,
    NAMED,
    TAGS,
    WHOLE_WIDTH,
    across,
    box,
    digits_of,
    distance,
    element,
    figure,
    hatched,
    path,
    readable,
    text,
    tick_texts,
    ticks_between,
    time_text,
)
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import PARTS, Table

WATERFALL = "median_step"
"""Key of the table of the median step's events."""
_Record = Mapping[str, Any]


def waterfall(table: Table | None, most: int, titles: Mapping[str, str]) -> Markup | None:
    """Draw the median step: a strip of its parts, and lanes of at most `most` events below it."""
    records = table.records() if table is not None else []
    strip = [record for record in records if record["lane"] == _STEP]
    seconds = max((record["start_s"] + record["length_s"] for record in strip), default=0.0)
    if table is None or not seconds > 0:
        return None
    lanes: list[Markup] = []
    shades, top, n_more = Markup(), _AXIS_HEIGHT, 0
    for name in dict.fromkeys(record["lane"] for record in records):
        own = [record for record in records if record["lane"] == name]
        is_strip = name == _STEP
        kept = _coarse(own, seconds, _PIECES_PER_BOX * most) if is_strip else _longest(own, most)
        placed = list(zip(kept, _rows(kept), strict=True))
        drawn = [(record, row) for record, row in placed if row < _MOST_ROWS]
        n_more += 0 if is_strip else len(own) - len(drawn)
        first = top + _TITLE_HEIGHT
        lanes.append(text(elide(str(name), 40), 2, top + 11, "lane"))
        lanes += (_event(one, seconds, first + row * _ROW_HEIGHT, titles) for one, row in drawn)
        if is_strip:
            shades = _shades([record for record, _ in drawn], seconds)
        top = first + (max((row for _, row in drawn), default=0) + 1) * _ROW_HEIGHT + _LANE_GAP
    shown = {record["part"] for record in records}
    more = f"{plural(n_more, 'shorter event is', 'shorter events are')} not drawn" if n_more else ""
    return figure(
        (elide(table.title, NAME_WIDTH), more),
        across(
            "fall",
            top,
            f"{table.title}: {time_text(seconds)}, {_shares(strip, seconds, titles)}",
            shades,
            *_ticks(seconds, top),
            *lanes,
        ),
        element("p", class_="pointed faint", hidden=""),
        keys=((hatched(part), titles[part]) for part in PARTS if part in shown),
        class_="waterfall",
        data_zoom=_zoom(seconds),
    )


_STEP = "step"
_AXIS_HEIGHT, _TITLE_HEIGHT, _ROW_HEIGHT, _LANE_GAP = 22, 15, 18, 5  # pixels
_MOST_ROWS = 4
_PIECES_PER_BOX = 10  # of the strip of parts, for each box that a lane may have
_N_TICKS = 8
_DEEPEST = 1e-4  # share of the step that the deepest zoom shows


def _ticks(seconds: float, height: int) -> list[Markup]:
    ticks = [tick for tick in ticks_between(0.0, seconds, _N_TICKS) if tick <= seconds * 1.001]
    drawn = []
    for n, (tick, words) in enumerate(zip(ticks, tick_texts(ticks), strict=True)):
        x, kind = (2, None) if n == 0 else (-2, "end") if tick is ticks[-1] else (0, "middle")
        drawn.append(
            element(
                "svg",
                element("path", d=f"M.5,16V{height}"),
                text(words, x, 12, kind),
                class_="tick",
                x=f"{100 * tick / seconds:.5g}%",
                width=1,
                height=height,
            )
        )
    return drawn


def _zoom(seconds: float) -> str:
    """Return what the script needs for zoom: seconds between ticks, their digits, widths, names."""
    scale, unit = scale_of(seconds, SECONDS)
    choices, apart = [], distance(seconds * _DEEPEST / _N_TICKS)
    while apart < seconds:
        choices.append([float(f"{apart:.6g}"), digits_of(apart / scale)])
        apart = distance(apart * 1.5)
    axis = {"apart": choices, "scale": scale, "unit": unit, "n": _N_TICKS, "deepest": _DEEPEST}
    return json.dumps({**axis, "seconds": seconds, "named": NAMED, "ends": ENDS, "tags": TAGS})


def _longest(records: Sequence[_Record], most: int) -> list[_Record]:
    """Return the time that all events of a lane cover, and the longest events by start."""
    covered = [record for record in records if not record["name"]]
    events = [record for record in records if record["name"]]
    kept = sorted(events, key=lambda record: -record["length_s"])[:most]
    return covered + sorted(kept, key=lambda record: (record["start_s"], -record["length_s"]))


def _coarse(strip: Sequence[_Record], seconds: float, most: int) -> Sequence[_Record]:
    """Return at most `most` pieces of a strip: the part that fills most of each equal time."""
    if len(strip) <= most:
        return strip
    long = seconds / most
    pieces: list[_Record] = []
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


def _rows(records: Iterable[_Record]) -> list[int]:
    """Return the row of each event: the first in which no event before reaches it."""
    ends: list[float] = []
    rows = []
    for record in records:
        start, end = record["start_s"], record["start_s"] + record["length_s"]
        row = next((n for n, busy in enumerate(ends) if busy <= start * (1 + 1e-9)), len(ends))
        ends[row : row + 1] = [end]
        rows.append(row)
    return rows


def _event(record: _Record, seconds: float, top: int, titles: Mapping[str, str]) -> Markup:
    start, length, part = record["start_s"], record["length_s"], str(record["part"])
    unnamed = titles.get(part, part) if record["lane"] == _STEP else "all events"
    shown, width = str(record["name"] or unnamed), 100 * length / seconds
    return box(
        100 * start / seconds,
        width,
        top,
        readable(part if part in PARTS else "other"),
        f"{elide(shown, WHOLE_WIDTH)}: {time_text(length)}, from {time_text(start)}",
        elide(shown, NAME_WIDTH) if width > NAMED else "",
    )


def _shades(strip: Iterable[_Record], seconds: float) -> Markup:
    """Shade the times without work of a device or an op, over all lanes."""
    idle = [record for record in strip if record["part"] in ("input", "other")]
    areas = (
        f"M{one['start_s']:.6g},0h{one['length_s']:.6g}v1h-{one['length_s']:.6g}z" for one in idle
    )
    return element(
        "svg",
        path("gap", *areas),
        class_="shade",
        x="0%",
        width="100%",
        y=_AXIS_HEIGHT,
        height="100%",
        viewBox=f"0 0 {seconds:.6g} 1",
        preserveAspectRatio="none",
    )


def _shares(strip: Iterable[_Record], seconds: float, titles: Mapping[str, str]) -> str:
    """Describe the shares of the parts, the largest first."""
    sums = Counter[str]()
    for record in strip:
        sums[record["part"]] += record["length_s"]
    return ", ".join(
        f"{titles.get(part, part)} {format_quantity(took / seconds, SHARE)}"
        for part, took in sums.most_common()
    )
