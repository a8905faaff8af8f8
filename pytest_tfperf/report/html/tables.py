"""Tables of the HTML report: grouped by subject, each with its first rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.html.memory_chart import MemoryChart, memory_chart
from pytest_tfperf.text import elide
from pytest_tfperf.values import Table

CELL_WIDTH = 60
"""Characters of a cell."""
_OVER_STEP, _TIMELINE = "memory_over_step", "median_step"
_MANY_ROWS = 50  # from which on a timeline is a table too, and not only a picture
_GROUPS = (
    ("Variants", ("comparison",)),
    ("Events of the median step", (_TIMELINE,)),
    ("Input pipeline", ("stages", "pipeline")),
    ("Ops", ("op_work", "host_ops", "device_ops", "functions", "kernels")),
    ("Op profile", ("op_profile", "roofline")),
    (
        "Devices and collectives",
        ("job_device_parts", "job_collectives", "device_parts", "collectives"),
    ),
    ("XLA: executables, and what stayed outside", ("executables", "outside_xla")),
    ("Grappler: the graph before and after", ("graph", "optimizers")),
    ("Python", ("python_calls",)),
    ("Padding and op guide", ("padding", "batch_padding", "alignment", "op_guide")),
    ("Memory", ("memory", _OVER_STEP, "memory_at_peak")),
)
TREES = frozenset({"stages", "op_profile"})
"""Tables whose rows form a tree, so that they must not be sorted."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, cut to its width."""

    shown: str
    """Text in the cell."""
    whole: str = ""
    """The whole text if it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table without columns that are empty in all of its rows."""

    title: str
    """Title of the table."""
    columns: tuple[str, ...]
    """Titles of the columns."""
    numeric: tuple[int, ...]
    """Columns of numbers, counted from 1."""
    rows: tuple[tuple[Cell, ...], ...]
    """Rows of cells."""
    n_more: int
    """Number of rows left out."""
    is_tree: bool
    """True if indentation shows a tree."""
    chart: MemoryChart | None = None
    """Chart beside the table, or None."""


TableGroups = tuple[tuple[str, tuple[TableView, ...]], ...]
"""Titles of groups, and their tables."""


def cell(value: object, unit: str = "") -> Cell:
    """Return a cell of a table: a quantity in its unit, or text."""
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, (int, float)):
        return Cell(format_quantity(value, unit))
    return cut(str(value), CELL_WIDTH)


def cut(text: str, width: int) -> Cell:
    """Both ends of a text that is longer than the width."""
    return Cell(text) if len(text) <= width else Cell(elide(text, width), text)


def table_groups(tables: Mapping[str, Table], n_rows: int) -> TableGroups:
    """Return the tables by subject, at most `n_rows` rows of each."""
    grouped = {key for _, keys in _GROUPS for key in keys}
    groups = (*_GROUPS, ("More", tuple(key for key in tables if key not in grouped)))
    left_out = {_TIMELINE} if n_rows < _MANY_ROWS else set()
    shown = [
        (
            title,
            tuple(
                _table(key, tables[key], n_rows) for key in keys if key in tables.keys() - left_out
            ),
        )
        for title, keys in groups
    ]
    return tuple((title, views) for title, views in shown if views)


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
