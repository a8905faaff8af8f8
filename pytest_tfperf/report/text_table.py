"""Tables as rows of text, which the terminal, Markdown and pages write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.text import one_line
from pytest_tfperf.values import Column, Table

_TREES = frozenset({"stages", "op_profile"})
_SHARES = {
    "device_ops": "share of op time",
    "functions": "share of the step",
    "host_ops": "share of its side",
    "memory_at_peak": "share of the peak",
    "op_profile": "share of device time",
}
"""Titles of a column `share` by table, since each is of another whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table without columns that are empty in all of its rows."""

    title: str = ""
    columns: Sequence[str]
    """Titles of the columns."""
    numbers: Sequence[bool]
    """True for columns of numbers, which are aligned to the right."""
    rows: Sequence[Sequence[str]]
    """Cells of each row."""
    n_more: int = 0
    """Number of rows left out."""
    is_tree: bool = False
    """Whether indentation shows a tree, so that the rows must not be sorted."""


def text_table(key: str, table: Table, n_rows: int | None = None) -> TextTable:
    """
    Return the first rows of a table as text.

    Args:
        key: Key of the table in its profile.
        table: The table.
        n_rows: Largest number of rows, None for all.
    """
    rows = [
        [cell(value, column.unit) for value, column in zip(row, table.columns, strict=True)]
        for row in table.rows[:n_rows]
    ]
    kept = [n for n in range(len(table.columns)) if not rows or any(row[n] for row in rows)]
    return TextTable(
        title=table.title,
        columns=[_title(key, table.columns[n]) for n in kept],
        numbers=[bool(table.columns[n].unit) for n in kept],
        rows=[[row[n] for n in kept] for row in rows],
        n_more=table.n_more + len(table.rows) - len(rows),
        is_tree=key in _TREES,
    )


def cell(value: object, unit: str = "") -> str:
    """Write a cell: a quantity in its unit, yes or no, or text on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_quantity(value, unit) if isinstance(value, (int, float)) else one_line(str(value))


def _title(key: str, column: Column) -> str:
    return _SHARES.get(key, column.title) if column.key == "share" else column.title
