"""
Bars in percent of a picture's width: the step's timeline and parts, devices, stages, ops.

Parts of the step have a hatching each, so that no two differ by their colour alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.quantities import BYTES, SECONDS, SHARE, format_quantity, scale_of
from pytest_tfperf.report.html.svg import (
    BOX_HEIGHT,
    ENDS,
    TAGS,
    across,
    box,
    digits_of,
    distance,
    element,
    figure,
    hatched,
    hatching,
    path,
    readable,
    short,
    text,
    tick_texts,
    ticks_between,
)
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import PARTS, Table

WATERFALL = "median_step"
"""Key of the table of the median step's events."""
OF_JOB = "job_device_parts"
"""Key of the table of the devices of all hosts."""
_NAME_WIDTH, _WHOLE_WIDTH, _REMARK_WIDTH = 100, 300, 200  # characters
_NAMED = 3  # percent, from which a box has a name without zoom
_Record = Mapping[str, Any]
_Titles = Mapping[str, str]
"""Titles of the parts of the step."""


def _time(seconds: float) -> str:
    return format_quantity(seconds, SECONDS)


# the timeline of the median step


def waterfall(table: Table | None, most: int, titles: _Titles) -> Markup | None:
    """
    Draw the median step: a strip of its parts, and lanes of events below it.

    Args:
        table: The table of its events; there is no picture without one.
        most: Largest number of boxes in a lane.
        titles: Titles of the parts of the step.
    """
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
        (elide(table.title, _NAME_WIDTH), more),
        across(
            "fall",
            top,
            f"{table.title}: {_time(seconds)}, {_shares(strip, seconds, titles)}",
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
    return json.dumps({**axis, "seconds": seconds, "named": _NAMED, "ends": ENDS, "tags": TAGS})


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


def _event(record: _Record, seconds: float, top: int, titles: _Titles) -> Markup:
    start, length, part = record["start_s"], record["length_s"], str(record["part"])
    unnamed = titles.get(part, part) if record["lane"] == _STEP else "all events"
    shown, width = str(record["name"] or unnamed), 100 * length / seconds
    return box(
        100 * start / seconds,
        width,
        top,
        readable(part if part in PARTS else "other"),
        f"{elide(shown, _WHOLE_WIDTH)}: {_time(length)}, from {_time(start)}",
        elide(shown, _NAME_WIDTH) if width > _NAMED else "",
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


def _shares(strip: Iterable[_Record], seconds: float, titles: _Titles) -> str:
    """Describe the shares of the parts, the largest first."""
    sums: dict[str, float] = {}
    for record in strip:
        sums[record["part"]] = sums.get(record["part"], 0.0) + record["length_s"]
    return ", ".join(
        f"{titles.get(part, part)} {format_quantity(took / seconds, SHARE)}"
        for part, took in sorted(sums.items(), key=lambda one: -one[1])
    )


# stacked bars


def _stacked(seconds: Mapping[str, float], longest: float) -> list[tuple[str, float, float]]:
    """Return part, left end and width, in percent of the longest bar, of each part with time."""
    placed, left = [], 0.0
    for part, took in seconds.items():
        width = 100 * took / longest
        if width > 0:
            placed.append((part, left, width))
        left += width
    return placed


def mini_bar(parts: Mapping[str, float]) -> Markup | None:
    """Draw the mean seconds of a step by part for a cell of a table; None without any time."""
    longest = sum(parts.values())
    if not longest > 0:
        return None
    boxes = (
        element("rect", fill=hatching(part), x=f"{left:.3g}%", width=f"{wide:.3g}%")
        for part, left, wide in _stacked(parts, longest)
        if wide > _NAMED
    )
    return element("svg", *boxes, class_="mini", aria_hidden="true")


def _small(kind: str, *content: Markup) -> Markup:
    """Return a picture of ten by a hundred units beside the text that says the same."""
    return element(
        "svg",
        *content,
        class_=kind,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def before_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    differences: Sequence[Difference],
    titles: _Titles,
) -> Markup | None:
    """
    Draw what changed: the mean step before and after, and what differs; None without either.

    Args:
        before: Mean seconds of a step by part, empty if unknown.
        after: The same after the change.
        differences: What differs, with the seconds that it adds to a step, if they are known.
        titles: Titles of the parts of the step.
    """
    longest = max(sum(before.values()), sum(after.values()))
    drawn = Markup()
    if before and after and longest > 0:
        labels, rows = zip(
            *(
                _step_bar(n, name, {part: parts.get(part, 0.0) for part in PARTS}, longest, titles)
                for n, (name, parts) in enumerate((("before", before), ("after", after)))
            ),
            strict=True,
        )
        drawn = figure(
            ("mean step by part",),
            across("bars", 2 * _STEP_HEIGHT, "; ".join(labels), *rows),
            class_="change",
        )
    if not drawn and not differences:
        return None
    unknown = element("p", "Not known: the parts of the step before.", class_="faint")
    added = [one.seconds or 0.0 for one in differences]
    ends = min(added, default=0.0), max(added, default=0.0)
    listed = (_change(one.line, one.seconds or 0.0, ends) for one in differences)
    return (drawn or unknown) + (
        element("ul", *listed, class_="changes") if differences else Markup()
    )


_STEP_HEIGHT = 40


def _step_bar(
    place: int, name: str, parts: Mapping[str, float], longest: float, titles: _Titles
) -> tuple[str, Markup]:
    """Return the description of a mean step, and its bar below its title."""
    texts = {part: f"{titles[part]} {_time(took)}" for part, took in parts.items()}
    placed, top = _stacked(parts, longest), place * _STEP_HEIGHT
    boxes = (
        box(left, wide, top + 18, readable(part), texts[part], texts[part] if wide > _NAMED else "")
        for part, left, wide in placed
    )
    said = f"{name}, mean {_time(sum(parts.values()))}"
    row = text(said, 0, top + 12) + Markup().join(boxes)
    return f"{said}: {', '.join(texts[part] for part, _, _ in placed)}", row


def _change(words: str, seconds: float, ends: tuple[float, float]) -> Markup:
    """Return a difference, with a bar from zero to what it adds or saves, between both `ends`."""
    bar = element("span", class_="bar")
    if seconds:
        low, high = min(ends[0], 0.0), max(ends[1], 0.0)
        zero, width = (100 * size / (high - low) for size in (-low, abs(seconds)))
        left = zero if seconds > 0 else zero - width
        bar = _small(
            f"bar {'slower' if seconds > 0 else 'faster'}",
            path("zero", f"M{short(zero)},0V10"),
            element("rect", x=left, width=width, y=1, height=8),
        )
    return element("li", bar, element("span", elide(words, 600)))


def device_bars(tables: Mapping[str, Table]) -> Markup | None:
    """
    Draw the mean step of each device by part, the worst first: those of the job, else of the host.

    None where only one is known. A part that the table does not know is not drawn, and the remark
    below says why.
    """
    table = tables.get(OF_JOB, tables.get("device_parts"))
    known = [(one, _device_parts(one)) for one in (table.records() if table else ())]
    known = [(record, seconds) for record, seconds in known if seconds]
    if table is None or len(known) < 2:
        return None
    drawn = known[:_MOST_DEVICES]
    longest = max(sum(seconds.values()) for _, seconds in drawn)
    used = {part for _, seconds in drawn for part in seconds}
    remarks = dict.fromkeys(str(record["remark"]) for record, _ in known if record.get("remark"))
    n_more = table.n_more + len(table.rows) - len(drawn)
    more = f"{plural(n_more, 'more is', 'more are')} not drawn" if n_more else ""
    return figure(
        (elide(table.title, _REMARK_WIDTH), more),
        element(
            "ul",
            *(_device(record, seconds, longest) for record, seconds in drawn),
            class_="changes devices",
        ),
        *(
            element("p", f"Not known of all: {elide(remark, _REMARK_WIDTH)}.", class_="faint")
            for remark in list(remarks)[:3]
        ),
        keys=((hatched(part), name) for part, name in _DEVICE_PARTS.items() if part in used),
    )


_MOST_DEVICES = 64
_NUMBERED = 8  # percent, from which a part of a device's bar has its time in it
_DEVICE_PARTS = {
    "device_compute": "compute",
    "output": "output",
    "device_to_device": "device to device",
    "input": "input",
    "collective": "collective",
    "waiting": "waiting in collectives",
    "other": "idle",
}
"""Parts with their titles, in the order in which they are drawn."""


def _device_parts(record: _Record) -> dict[str, float]:
    """Return the seconds of each part that takes any; waiting is a part of its own."""
    collective = record.get("collective") or 0.0
    waiting = min(record.get("waiting") or 0.0, collective)
    own = {"collective": collective - waiting, "waiting": waiting, "other": record.get("idle")}
    parts = {**record, **own}
    return {part: parts[part] for part in _DEVICE_PARTS if (parts.get(part) or 0.0) > 0}


def _device(record: _Record, seconds: Mapping[str, float], longest: float) -> Markup:
    name = elide(str(record.get("device") or "device"), 60)
    times = {part: _time(took) for part, took in seconds.items()}
    texts = {part: f"{_DEVICE_PARTS[part]}: {took}" for part, took in times.items()}
    boxes = (
        box(left, wide, 0, readable(part), texts[part], times[part] if wide > _NUMBERED else "")
        for part, left, wide in _stacked(seconds, longest)
    )
    bar = across("bars", BOX_HEIGHT, f"{name}: {', '.join(texts.values())}", *boxes)
    return element("li", element("span", name), bar, element("span", _time(sum(seconds.values()))))


# lists of bars with a dark part


def pipeline_bars(table: Table | None) -> Markup | None:
    """
    Draw the stages of the input pipeline from the step down; None without one.

    A bar is the own work of a stage for a step; its dark part is the time that the step waited for
    it. The critical path leads to the stage for which the step waited longest. Stages are indented
    where the pipeline branches.
    """
    records = table.records()[:_MOST_STAGES] if table else []
    if not records:
        return None
    waits = [one["blocking_s"] for one in records]
    works = [max(one["self_s"], wait) for one, wait in zip(records, waits, strict=True)]
    parents = _parents([str(one["stage"]) for one in records])
    critical, place = set[int](), waits.index(max(waits)) if max(waits) > 0 else None
    while place is not None:
        critical.add(place)
        place = parents[place]
    indents: list[int] = []
    for parent in parents:
        deeper = parents.count(parent) > 1
        indents.append(0 if parent is None else indents[parent] + deeper)
    longest = max(works) or 1.0
    rows = []
    for n, (one, work, wait) in enumerate(zip(records, works, waits, strict=True)):
        name = elide(str(one["stage"]).strip(), _NAME_WIDTH)
        shown = element("b", name) if n in critical else name
        indent = f"in{min(indents[n], _DEEPEST_INDENT)}" if indents[n] else None
        rows.append(_row(shown, _stage_facts(one), work / longest, wait / longest, indent))
    caption = (
        "input pipeline, from the step down; dark: the step waits for it; bold: the critical path"
    )
    return figure((caption,), element("ul", *rows, class_="changes"))


_MOST_STAGES, _DEEPEST_INDENT = 50, 4


def _parents(stages: Sequence[str]) -> list[int | None]:
    """Return the place of the stage that takes each one's elements, told by its indentation."""
    above: list[tuple[int, int]] = []  # indentation and place of the stages above
    found: list[int | None] = []
    for place, stage in enumerate(stages):
        indent = len(stage) - len(stage.lstrip(" "))
        above = [one for one in above if one[0] < indent]
        found.append(above[-1][1] if above else None)
        above.append((indent, place))
    return found


def _stage_facts(record: _Record) -> str:
    """Describe a stage: its times, parallelism, buffer and kind."""
    wait, parallel = record["blocking_s"], record.get("parallelism") or 0.0
    limit, buffered = record.get("buffer_limit"), record.get("buffered") or 0.0
    facts = (
        record["name"],
        f"{_time(record['self_s'])} of work a step",
        f"the step waits {_time(wait)} for it" if wait else "",
        f"× {format_quantity(parallel)} parallel" if parallel > 1 else "",
        f"buffer {format_quantity(buffered)} of {format_quantity(limit)}" if limit else "",
        record.get("kind"),
    )
    return elide(", ".join(str(fact) for fact in facts if fact), 2 * _NAME_WIDTH)


def padding_bars(table: Table | None) -> Markup | None:
    """Draw the arrays that cost most padding; None without any. The dark part is the padding."""
    costs = [
        (one["padded_bytes"] - one["bytes"], one) for one in (table.records() if table else ())
    ]
    most = sorted((row for row in costs if row[0] > 0), key=lambda row: -row[0])[:10]
    if not most:
        return None
    longest = max(one["padded_bytes"] for _, one in most)
    rows = (
        _row(
            elide(f"{one['array']} {one.get('shape') or ''}", 60),
            f"{format_quantity(cost, BYTES)} of padding, padded to "
            f"{elide(str(one.get('padded') or 'whole tiles'), _NAME_WIDTH)}",
            one["padded_bytes"] / longest,
            cost / longest,
        )
        for cost, one in most
    )
    caption = "arrays that cost most padding; dark: the padding"
    return figure((caption,), element("ul", *rows, class_="changes"))


def _row(name: str, facts: str, light: float, dark: float, indent: str | None = None) -> Markup:
    """Return a row: a bar whose parts are shares of the longest one, a name, and facts."""
    bar = _small(
        "bar",
        *(
            element("rect", class_=kind, width=f"{100 * share:.4g}", y=1, height=8)
            for kind, share in (("light", light), ("dark", dark))
        ),
    )
    words = element("span", name, " ", element("span", facts, class_="faint"), class_=indent)
    return element("li", bar, words)


# the flame graph of ops


def flame(tables: Mapping[str, Table], most: int = 100) -> Markup | None:
    """
    Draw ops by self time below their groups: of the devices, else of the host; None without any.

    Args:
        tables: Tables of the profile.
        most: Largest number of boxes in a level.
    """
    for key, name in (("device_ops", "ops on the devices"), ("host_ops", "ops on the host")):
        records = tables[key].records() if key in tables else ()
        timed = [
            (tuple(str(record.get(level) or "other") for level in _LEVELS), record["self_s"])
            for record in records
            if record["self_s"] > 0
        ]
        if timed:
            return _flame(tables[key], name, timed + _left_out(records), most)
    return None


def _left_out(records: Iterable[_Record]) -> list[tuple[tuple[str, ...], float]]:
    """Return the time of the ops of each side that a table leaves out, told by the shares in it."""
    listed: dict[str, float] = {}
    whole: dict[str, float] = {}
    for one in records:
        side = str(one.get("where") or "other")
        listed[side] = listed.get(side, 0.0) + one["self_s"]
        if one["self_s"] > 0 and one.get("share"):
            whole.setdefault(side, one["self_s"] / one["share"])
    return [
        ((side, _SHORTER, _SHORTER), whole[side] - seconds)
        for side, seconds in listed.items()
        if whole.get(side, seconds) > seconds * (1 + _ROUNDING)
    ]


_Timed = Sequence[tuple[tuple[str, ...], float]]
_LEVELS = ("where", "type", "op")
_COLOURS = ("#9cc9e8", "#f0c27a", "#f2a65e")
_FLAME_HEIGHT = 17
_LEAST = 0.5  # percent: narrower boxes are not drawn
_SHORTER, _SHORTER_COLOUR = "shorter ops", "#c9ced6"
_ROUNDING = 1e-6


def _flame(table: Table, name: str, timed: _Timed, most: int) -> Markup:
    whole = sum(seconds for _, seconds in timed)
    boxes: list[Markup] = []
    for level in range(len(_LEVELS)):
        placed = sorted(_groups(timed, level, whole), key=lambda one: -one[2])[:most]
        for group, left, width, words in placed:
            named = elide(f"{group} {format_quantity(width / 100, SHARE)}", _NAME_WIDTH)
            top = level * _FLAME_HEIGHT
            fill = _SHORTER_COLOUR if group == _SHORTER else _COLOURS[level]
            boxes.append(box(left, width, top, fill, words, named if width > _NAMED else ""))
    longest = "; ".join([words for group, *_, words in placed if group != _SHORTER][:5])
    short = f"{table.n_more} shorter ones together" if table.n_more else ""
    label = f"{name}, {_time(whole)} a step; the longest: {longest}"
    return figure(
        (f"{name} by self time a step", short),
        across("fall", len(_LEVELS) * _FLAME_HEIGHT, label, *boxes),
        class_="flame",
    )


def _groups(timed: _Timed, level: int, whole: float) -> list[tuple[str, float, float, str]]:
    """Return name, left end, width and text of each group of a level, below the groups above it."""
    sums: dict[tuple[str, ...], float] = {}
    for names, seconds in timed:
        for depth in range(level + 1):
            sums[names[: depth + 1]] = sums.get(names[: depth + 1], 0.0) + seconds
    # by the time of each group from the top down, so that children stay below their parents
    keys = [key for key in sums if len(key) == level + 1]
    keys.sort(
        key=lambda key: [
            (key[n] == _SHORTER, -sums[key[: n + 1]], key[n]) for n in range(level + 1)
        ]
    )
    found, left = [], 0.0
    for key in keys:
        width = 100 * sums[key] / whole
        if width >= _LEAST:
            share = format_quantity(width / 100, SHARE)
            words = f"{elide(key[-1], _WHOLE_WIDTH)}: {_time(sums[key])}, {share}"
            found.append((key[-1], left, width, words))
        left += width
    return found
