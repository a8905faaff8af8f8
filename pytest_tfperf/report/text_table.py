"""Tables as rows of text, which the terminal, Markdown and pages write."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import format_quantity, format_ratio
from pytest_tfperf.results import Check
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


@dataclass(frozen=True, slots=True)
class TextTable:
    """Titles of columns, and cells of rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[bool]
    """True for columns of numbers, which are aligned to the right."""
    title: str = ""
    n_more: int = 0
    """Number of rows left out."""
    is_tree: bool = False
    """Whether indentation shows a tree, so that the rows must not be sorted."""

    @classmethod
    def of(
        cls,
        titles: Sequence[str],
        rows: Sequence[Sequence[str]],
        numbers: Collection[str] = (),
        **more: Any,
    ) -> TextTable:
        """Make a table, of numbers in some columns; only the first column may be empty."""
        kept = [n for n in range(len(titles)) if not n or any(row[n] for row in rows)]
        cells = [[row[n] for n in kept] for row in rows]
        return cls([titles[n] for n in kept], cells, [titles[n] in numbers for n in kept], **more)


def text_table(key: str, table: Table, n_rows: int | None = None) -> TextTable:
    """Return the first rows of a table, or all, as text without columns that are empty in them."""
    rows = [
        [cell(value, column.unit) for value, column in zip(row, table.columns, strict=True)]
        for row in table.rows[:n_rows]
    ]
    titles = [_title(key, column) for column in table.columns]
    return TextTable.of(
        titles,
        rows,
        [title for title, column in zip(titles, table.columns, strict=True) if column.unit],
        title=table.title,
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


def compared_cells(check: Check, unit: str) -> tuple[str, str, str, str]:
    """Return the values before and after of a comparison, their ratio, and its interval."""
    detail = check.detail
    before, low, high = (detail.get(name) for name in ("before", "low", "high"))
    after = cell(detail.get("after"), unit) or ("unknown" if before is not None else "")
    ratio = "" if check.ratio is None else format_ratio(check.ratio)
    interval = "" if low is None or high is None else f"{format_ratio(low)} to {format_ratio(high)}"
    return cell(before, unit), after, ratio, interval


def grid(table: TextTable) -> tuple[list[str], list[str]]:
    """Return the lines of titles with the rule below them, and those of rows."""
    from tabulate import tabulate  # takes as long to import as all of this package's reports

    columns = zip(table.columns, *table.rows, strict=True)
    rule = [
        "-" * max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns
    ]
    text = tabulate(  # it widens a column whose title it knows
        [[cell.replace(" ", _SPACE) for cell in row] for row in (table.columns, rule, *table.rows)],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if is_number else "left" for is_number in table.numbers],
    )
    lines = [line.replace(_SPACE, " ").rstrip() for line in text.split("\n")]
    n_titles = max(title.count("\n") for title in table.columns) + 2
    return lines[:n_titles], lines[n_titles:]


def fitted(table: TextTable, width: int) -> list[TextTable]:
    """
    Return a table that fits a width, by columns that are folded; more where it has too many.

    Each further table repeats the column that tells most rows apart.
    """
    least = [_least_width(table, n, width) for n in range(len(table.columns))]
    n_texts = next((n for n, number in enumerate(table.numbers) if number), len(table.numbers))
    name = max(range(max(n_texts, 1)), key=lambda n: len({row[n] for row in table.rows}))
    return [
        _part(table, columns, _widths(table, columns, least, width), name if place else None)
        for place, columns in enumerate(_chunks(least, name, width))
    ]


_SPACE = "\ue000"  # tabulate strips spaces, which may draw a tree
_TEXT_WIDTH = 24
"""Columns that a column of text gets at least, in a wide terminal."""
_GAP = 2


def _part(
    table: TextTable, columns: Sequence[int], widths: Sequence[int], name: int | None
) -> TextTable:
    """Return some columns, folded; the cells of `name` name the rows, so none is empty."""
    titles = [_folded(table.columns[n], width) for n, width in zip(columns, widths, strict=True)]
    named = [[_name(row, n) if n == name else row[n] for n in columns] for row in table.rows]
    rows = [[*map(_folded, row, widths)] for row in named]
    return TextTable(titles, rows, [table.numbers[n] for n in columns])


def _folded(cell: str, width: int) -> str:
    """Break a cell between words, and where a word is longer than the width."""
    if len(cell) <= width:
        return cell
    return "\n".join(textwrap.wrap(cell, max(width, 1), break_on_hyphens=False))


def _name(row: Sequence[str], n: int) -> str:
    """Return the n-th cell, or the last one before it that is not empty."""
    return next((cell for cell in reversed(row[: n + 1]) if cell), "")


def _chunks(least: Sequence[int], name: int, width: int) -> Iterator[list[int]]:
    """Yield the columns of the table and of its continuations, by the width that each needs."""
    columns, repeated = list[int](), list[int]()
    for n, needed in enumerate(least):
        if n in columns:
            continue
        used = sum(least[one] + _GAP for one in columns)
        if columns != repeated and used + needed > width:
            yield columns
            repeated = [name] if n != name else []
            columns = [*repeated]
        columns.append(n)
    yield columns


def _least_width(table: TextTable, n: int, width: int) -> int:
    """Return the columns that the n-th column needs to be readable in a terminal of a width."""
    words = max((len(word) for word in table.columns[n].split()), default=0)
    texts = max((len(row[n]) for row in table.rows), default=0)
    return max(words, texts if table.numbers[n] else min(texts, _TEXT_WIDTH, width // 3))


def _widths(
    table: TextTable, columns: Sequence[int], least: Sequence[int], width: int
) -> list[int]:
    """Return the widths of columns: what each needs, and what is left over, to numbers first."""
    widths = {n: least[n] for n in columns}
    room = width - sum(widths.values()) - _GAP * (len(columns) - 1)
    for n in sorted(columns, key=lambda n: not table.numbers[n]):
        texts = [table.columns[n], *(row[n] for row in table.rows)]
        more = max(min(max(map(len, texts)) - widths[n], room), 0)
        widths[n] += more
        room -= more
    return [widths[n] for n in columns]
