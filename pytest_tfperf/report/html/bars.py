"""Lists of bars: the input pipeline from the step down, and the arrays that cost most padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.report.html.axis import seconds_text
from pytest_tfperf.text import elide
from pytest_tfperf.values import Table

_MOST_ROWS, _NAME_WIDTH = 50, 100
_PER_INDENT = 2  # spaces before a stage


@dataclass(frozen=True, slots=True)
class BarRow:
    """One row."""

    name: str
    """Name of the row."""
    text: str
    """Facts behind the name."""
    indent: int
    """Depth in a tree."""
    width: float
    """Width of the bar, in percent."""
    dark: float
    """Width of its dark part, in percent."""
    marked: bool
    """True on the critical path."""


@dataclass(frozen=True, slots=True)
class Bars:
    """The picture."""

    title: str
    """Title of the picture."""
    rows: tuple[BarRow, ...]
    """Rows from top to bottom."""
    kind: str
    """`stages` or `padding`."""


def pipeline_bars(table: Table | None) -> Bars | None:
    """
    Draw the stages of the input pipeline; None without one.

    A bar is the own work of a stage for a step; its dark part is the time that the step waited for
    it. The critical path leads to the stage for which the step waited longest.
    """
    records = _records(table, "stage", "self_s", "blocking_s")
    if not records:
        return None
    longest = max(max(_number(one, "self_s"), _number(one, "blocking_s")) for one in records)
    depths = [_depth(one) for one in records]
    critical = _critical(records, depths)
    rows = tuple(
        BarRow(
            name=elide(str(one["stage"]).strip(), _NAME_WIDTH),
            text=_facts(one),
            indent=depth,
            width=_percent(max(_number(one, "self_s"), _number(one, "blocking_s")), longest),
            dark=_percent(_number(one, "blocking_s"), longest),
            marked=place in critical,
        )
        for place, (one, depth) in enumerate(zip(records, depths, strict=True))
    )
    return Bars("input pipeline, from the step down", rows, "stages")


def padding_bars(table: Table | None) -> Bars | None:
    """Draw the arrays that cost most padding; None without any. The dark part is the padding."""
    records = _records(table, "array", "bytes", "padded_bytes")
    costs = [_number(one, "padded_bytes") - _number(one, "bytes") for one in records]
    order = sorted(range(len(records)), key=lambda place: -costs[place])
    order = [place for place in order if costs[place] > 0][:10]
    if not order:
        return None
    longest = max(_number(records[place], "padded_bytes") for place in order)
    rows = tuple(
        BarRow(
            name=elide(f"{records[place]['array']} {records[place].get('shape') or ''}", 60),
            text=f"{format_quantity(costs[place], BYTES)} of padding, padded to "
            f"{records[place].get('padded') or 'whole tiles'}",
            indent=0,
            width=_percent(_number(records[place], "padded_bytes"), longest),
            dark=_percent(costs[place], longest),
            marked=False,
        )
        for place in order
    )
    return Bars("arrays that cost most padding", rows, "padding")


def _records(table: Table | None, *keys: str) -> list[Mapping[str, Any]]:
    """Return the rows of a table that has these columns; another version's may lack one."""
    if table is None or not set(keys) <= {column.key for column in table.columns}:
        return []
    return list(table.records()[:_MOST_ROWS])


def _number(record: Mapping[str, Any], key: str) -> float:
    value = record.get(key)
    return max(float(value), 0.0) if isinstance(value, (int, float)) else 0.0


def _percent(value: float, longest: float) -> float:
    return round(100 * value / longest, 2) if longest > 0 else 0.0


def _depth(record: Mapping[str, Any]) -> int:
    text = str(record["stage"])
    return (len(text) - len(text.lstrip(" "))) // _PER_INDENT


def _critical(records: Sequence[Mapping[str, Any]], depths: Sequence[int]) -> set[int]:
    """Return the rows from the root to the stage for which the step waited longest."""
    waits = [_number(one, "blocking_s") for one in records]
    if not max(waits) > 0:
        return set()
    place = waits.index(max(waits))
    path, depth = {place}, depths[place]
    for above in range(place - 1, -1, -1):
        if depths[above] < depth:
            path.add(above)
            depth = depths[above]
    return path


def _facts(record: Mapping[str, Any]) -> str:
    """Describe a stage: its times, parallelism, buffer and kind."""
    facts = [str(record["name"])] if record.get("name") else []
    work = f"{seconds_text(_number(record, 'self_s'))} of work a step"
    facts.append("work not known" if record.get("self_s") is None else work)
    if record.get("blocking_s") is None:
        facts.append("wait of the step not known")
    if _number(record, "blocking_s") > 0:
        facts.append(f"the step waits {seconds_text(_number(record, 'blocking_s'))} for it")
    if _number(record, "parallelism") > 1:
        facts.append(f"× {_number(record, 'parallelism'):g} parallel")
    if _number(record, "buffer_limit") > 0:
        buffered, limit = _number(record, "buffered"), _number(record, "buffer_limit")
        facts.append(f"buffer {buffered:.3g} of {limit:g}")
    if record.get("kind"):
        facts.append(str(record["kind"]))
    return elide(", ".join(facts), 2 * _NAME_WIDTH)
