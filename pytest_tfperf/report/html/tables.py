"""Tables as the HTML report shows them: grouped by what they tell, cut to the rows that the page has room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from pytest_tfperf.metrics import format_quantity
from pytest_tfperf.report.html.charts import MemoryChart, memory_chart
from pytest_tfperf.text import elide
from pytest_tfperf.values import Table

WIDEST = 60  # characters of a cell
_TAGS, _CHART = 5, 1200  # bytes around a cell, and of a chart
_ROWS = (50, 30, 20, 12, 8, 5, 3)
_OVER_STEP = "memory_over_step"
_GROUPS = (
    ("Variants", ("comparison",)),
    ("Input pipeline", ("stages",)),
    ("Ops", ("host_ops", "device_ops", "functions", "kernels")),
    ("Op profile", ("op_profile", "roofline", "devices")),
    ("XLA: executables, and what stayed outside", ("executables", "outside_xla")),
    ("Grappler: the graph before and after", ("graph", "optimizers", "surviving")),
    ("Padding and op guide", ("padding", "batch_padding", "alignment", "op_guide")),
    ("Memory", ("memory", _OVER_STEP, "memory_at_peak")),
)
TREES = frozenset({"stages", "op_profile"})
"""Tables whose rows stand below what they are part of, and are not to be sorted."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and the whole of it where that is longer."""

    shown: str
    whole: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """The rows that are shown, without columns that are empty in all of them; `numeric` are the columns of numbers, from 1."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[int, ...]
    rows: tuple[tuple[Cell, ...], ...]
    n_more: int
    is_tree: bool
    chart: MemoryChart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesView:
    """Tables in groups with a title, and the titles of those that there is no room for."""

    groups: tuple[tuple[str, tuple[TableView, ...]], ...]
    left_out: tuple[str, ...]


def cell(value: object, unit: str = "") -> Cell:
    """A cell of a table: quantities by their unit, text cut in the middle."""
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, (int, float)):
        return Cell(quantity(value, unit) if unit else f"{value:.3g}")
    return cut(str(value), WIDEST)


def cut(text: str, width: int) -> Cell:
    """Both ends of a text that is longer, with the whole of it."""
    return Cell(text) if len(text) <= width else Cell(elide(text, width), text)


def quantity(number: float, unit: str) -> str:
    """As everywhere; in a unit that only a newer version knows as it is."""
    try:
        return format_quantity(number, unit)
    except KeyError:
        return f"{number:.4g} {unit}"


def tables_view(tables: Mapping[str, Table], room: float) -> TablesView:
    """
    The tables by what they tell, each with as many rows as there is room for, in bytes of the page.

    Where there is not even room for a few rows of each, tables are left out.
    """
    grouped = {key for _, keys in _GROUPS for key in keys}
    groups = (*_GROUPS, ("More", tuple(key for key in tables if key not in grouped)))
    keys = [key for _, some in groups for key in some if key in tables]
    kept: dict[str, TableView] = {}
    if room > 0:
        sizes = {key: _sizes(tables[key], _CHART if key == _OVER_STEP else 0) for key in keys}
        n_rows = next(
            (
                n
                for n in _ROWS
                if sum(size[min(n, len(size) - 1)] for size in sizes.values()) <= room
            ),
            _ROWS[-1],
        )
        for key, size in sizes.items():
            needed = size[min(n_rows, len(size) - 1)]
            if needed <= room:
                room, kept[key] = room - needed, _table(key, tables[key], n_rows)
    shown = [(title, tuple(kept[key] for key in some if key in kept)) for title, some in groups]
    return TablesView(
        groups=tuple((title, views) for title, views in shown if views),
        left_out=tuple(tables[key].title for key in keys if key not in kept),
    )


def _table(key: str, table: Table, n_rows: int) -> TableView:
    rows = [
        [cell(value, column.unit) for value, column in zip(row, table.columns, strict=True)]
        for row in table.rows[:n_rows]
    ]
    kept = [n for n in range(len(table.columns)) if not rows or any(row[n].shown for row in rows)]
    return TableView(
        title=table.title,
        columns=tuple(table.columns[n].title for n in kept),
        numeric=tuple(place for place, n in enumerate(kept, 1) if table.columns[n].unit),
        rows=tuple(tuple(row[n] for n in kept) for row in rows),
        n_more=table.n_more + len(table.rows) - len(rows),
        is_tree=key in TREES,
        chart=_chart(table) if key == _OVER_STEP else None,
    )


def _chart(table: Table) -> MemoryChart | None:
    return memory_chart([(row.get("into_step_s", 0.0), row.get("held")) for row in table.records()])


def _sizes(table: Table, chart: int) -> list[int]:
    """About how many bytes the table takes on the page with no row, one, two and so on, and its chart if it has one."""
    head = chart + 120 + 2 * len(table.title) + 20 * len(table.columns)
    return list(
        accumulate(
            (_TAGS + sum(map(_cell_bytes, row)) for row in table.rows[: _ROWS[0]]), initial=head
        )
    )


def _cell_bytes(value: object) -> int:
    if not isinstance(value, str):
        return _TAGS if value is None else _TAGS + 7
    size = _TAGS + (len(value) if value.isascii() else len(value.encode("utf-8", "replace")))
    return size if len(value) <= WIDEST else size + 4 * WIDEST
