"""
Bars in percent of the longest one: parts of steps and devices, changes, stages, padding, ops.

Parts of the step have a hatching each, so that no two differ by their colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from markupsafe import Markup

from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.quantities import BYTES, SHARE, format_quantity
from pytest_tfperf.report.html.svg import (
    BOX_HEIGHT,
    NAME_WIDTH,
    NAMED,
    WHOLE_WIDTH,
    across,
    box,
    element,
    figure,
    hatched,
    hatching,
    path,
    readable,
    short,
    text,
    time_text,
)
from pytest_tfperf.report.remedies import (
    cells,
    conclusion,
    faster,
    is_fair,
    measured,
    remarks,
)
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import PARTS, Table

OF_JOB = "job_device_parts"
"""Key of the table of the devices of all hosts."""
_REMARK_WIDTH = 200  # characters
_Record = Mapping[str, Any]


# stacked bars


def _stack(
    seconds: Mapping[str, float], longest: float, titles: Mapping[str, str], top: int = 0
) -> tuple[str, Markup]:
    """Return the parts of a bar that take time in words, and their boxes."""
    words, boxes, left = [], [], 0.0
    for part, took in seconds.items():
        width = 100 * took / longest
        if width > 0:
            words.append(f"{titles[part]} {time_text(took)}")
            name = words[-1] if width > NAMED else ""
            boxes.append(box(left, width, top, readable(part), words[-1], name))
        left += width
    return ", ".join(words), Markup().join(boxes)


def mini_bar(parts: Mapping[str, float]) -> Markup | None:
    """Draw the mean seconds of a step by part for a cell of a table; None without any time."""
    longest = sum(parts.values())
    if not longest > 0:
        return None
    widths = {part: 100 * took / longest for part, took in parts.items()}
    lefts = accumulate(widths.values(), initial=0.0)
    boxes = (
        element("rect", fill=hatching(part), x=f"{left:.3g}%", width=f"{width:.3g}%")
        for (part, width), left in zip(widths.items(), lefts, strict=False)
        if width > NAMED
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
    titles: Mapping[str, str],
) -> Markup | None:
    """Draw the mean step before and after, by part if that is known, and what differs."""
    longest = max(sum(before.values()), sum(after.values()))
    drawn, words, rows = Markup(), [], []
    if before and after and longest > 0:
        for top, name, step in (0, "before", before), (_STEP_HEIGHT, "after", after):
            parts = {part: step.get(part, 0.0) for part in PARTS}
            said = f"{name}, mean {time_text(sum(parts.values()))}"
            described, boxes = _stack(parts, longest, titles, top + 18)
            words.append(f"{said}: {described}")
            rows.append(text(said, 0, top + 12) + boxes)
        picture = across("bars", 2 * _STEP_HEIGHT, "; ".join(words), *rows)
        drawn = figure(("mean step by part",), picture, class_="change")
    if not drawn and not differences:
        return None
    unknown = element("p", "Not known: the parts of the step before.", class_="faint")
    ends = [0.0, *(one.seconds or 0.0 for one in differences)]
    listed = [_change(one.line, one.seconds or 0.0, min(ends), max(ends)) for one in differences]
    return (drawn or unknown) + (element("ul", *listed, class_="changes") if listed else "")


_STEP_HEIGHT = 40


def _change(words: str, seconds: float, low: float, high: float) -> Markup:
    """Return a difference, with a bar from zero to what it adds or saves."""
    bar = element("span", class_="bar")
    if seconds:
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
    words, boxes = _stack(seconds, longest, _DEVICE_PARTS)
    bar, whole = across("bars", BOX_HEIGHT, f"{name}: {words}", boxes), sum(seconds.values())
    return element("li", element("span", name), bar, element("span", time_text(whole)))


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
        name = elide(str(one["stage"]).strip(), NAME_WIDTH)
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
        f"{time_text(record['self_s'])} of work a step",
        f"the step waits {time_text(wait)} for it" if wait else "",
        f"× {format_quantity(parallel)} parallel" if parallel > 1 else "",
        f"buffer {format_quantity(buffered)} of {format_quantity(limit)}" if limit else "",
        record.get("kind"),
    )
    return elide(", ".join(str(fact) for fact in facts if fact), 2 * NAME_WIDTH)


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
            f"{elide(str(one.get('padded') or 'whole tiles'), NAME_WIDTH)}",
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
    """Draw ops by self time below their groups, at most `most` of each level."""
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
    groups = list(_groups(timed, 0, 0.0, whole))
    boxes: list[Markup] = []
    for level in range(len(_LEVELS)):
        placed = sorted((one for one in groups if one.level == level), key=lambda one: -one.width)
        for group in placed[:most]:
            share = format_quantity(group.width / 100, SHARE)
            named = elide(f"{group.name} {share}", NAME_WIDTH) if group.width > NAMED else ""
            fill = _SHORTER_COLOUR if group.name == _SHORTER else _COLOURS[level]
            top = level * _FLAME_HEIGHT
            boxes.append(box(group.left, group.width, top, fill, group.words, named))
    longest = "; ".join([group.words for group in placed if group.name != _SHORTER][:5])
    short = f"{table.n_more} shorter ones together" if table.n_more else ""
    label = f"{name}, {time_text(whole)} a step; the longest: {longest}"
    return figure(
        (f"{name} by self time a step", short),
        across("fall", len(_LEVELS) * _FLAME_HEIGHT, label, *boxes),
        class_="flame",
    )


class _Group(NamedTuple):
    level: int
    name: str
    left: float
    width: float
    words: str


def _groups(timed: _Timed, level: int, left: float, whole: float) -> Iterator[_Group]:
    """Yield the groups of a level, the longest first, and below each the groups in it."""
    found: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for one in timed:
        found.setdefault(one[0][level], []).append(one)
    sums = {name: sum(seconds for _, seconds in inside) for name, inside in found.items()}
    for name in sorted(sums, key=lambda name: (name == _SHORTER, -sums[name], name)):
        width = 100 * sums[name] / whole
        if width >= _LEAST:
            times = f"{time_text(sums[name])}, {format_quantity(width / 100, SHARE)}"
            yield _Group(level, name, left, width, f"{elide(name, WHOLE_WIDTH)}: {times}")
            if level + 1 < len(_LEVELS):
                yield from _groups(found[name], level + 1, left, whole)
        left += width


# remedies that were tried


def remedy_bars(table: Table | None) -> Markup | None:
    """
    Draw how many times as fast each remedy is, from 1x on a logarithmic scale; None without any.

    Bars go right where a remedy is faster. Those of remedies that cannot be typed, or that do
    other work than the step, are hollow. Below stand the code to type and the remarks.
    """
    if table is None:
        return None
    found = measured(table)
    ends = [one[key] or one["speedup"] for one in found for key in ("low", "high", "speedup")]
    low, high = (math.log(max(end, _SLOWEST)) for end in (min([1.0, *ends]), max([1.0, *ends])))
    rows = [_remedy(one, low, high) for one in found]
    written, said = conclusion(table).strip(), remarks(table)
    code = written.removeprefix("write: ")
    shown = [written] if code == written else ["write: ", element("code", code)]
    return figure(
        (
            "remedies that were tried: times as fast as the unchanged step, on a logarithmic scale",
            "line: 99 % interval",
            "hollow: cannot be typed, or does other work",
        ),
        element("ul", *rows, class_="changes") if rows else Markup(),
        element("p", *shown),
        *(element("p", elide(one.strip(), _REMARK_WIDTH), class_="faint") for one in said),
        class_="tried",
    )


_SLOWEST = 1e-3  # times as fast, below which a bar does not grow


def _remedy(one: _Record, low: float, high: float) -> Markup:
    """Return the row of a remedy: its bar from 1x, its interval, and what is known of it."""

    def place(ratio: float) -> float:
        return 100 * (math.log(max(ratio, _SLOWEST)) - low) / (high - low or 1.0)

    zero, end = place(1.0), place(one["speedup"])
    ends = [place(one[key]) for key in ("low", "high") if one[key] is not None]
    is_own = is_fair(one["outputs"], one["is_bound"], one["dropped"])
    kind = "hollow" if not is_own else "faster" if one["speedup"] > 1 else "slower"
    bar = _small(
        f"bar {kind}",
        element("rect", x=min(zero, end), width=abs(end - zero), y=1, height=8),
        path("zero", f"M{short(zero)},0V10"),
        path("span", f"M{short(ends[0])},5H{short(ends[1])}") if len(ends) == 2 else Markup(),
    )
    _, step, waits, outputs, name = cells(one)
    facts = (
        f"{step} a step" if step else "",
        f"waits {waits} for input" if waits else "",
        "" if one["is_bound"] else f"outputs {outputs}",
        "leaves work out" if one["dropped"] else "",
    )
    words = ", ".join(filter(None, facts))
    label = element("b", faster(one).partition(" ")[0])
    interval = faster(one).partition(" ")[2]
    return element(
        "li",
        bar,
        element(
            "span",
            label,
            f" {interval} " if interval else " ",
            elide(name, NAME_WIDTH),
            " ",
            element("span", words, class_="faint"),
        ),
    )
