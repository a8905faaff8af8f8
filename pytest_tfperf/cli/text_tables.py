"""Tables of the commands: numbers, tables of profiles, the tree of an input pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import rich.table
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.text import Text
from rich.tree import Tree

from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.text_layout import BOUNDLESS
from pytest_tfperf.text import one_line
from pytest_tfperf.values import Column, Table

FEW = 5
"""Rows of a table without -v."""
SERIES = frozenset({"memory_over_step"})
"""Keys of tables that are a quantity over time."""
TIMELINES = frozenset({"median_step"})
"""Keys of tables that only a picture shows well; -vv prints them."""
_STAGES = "stages"
_SHARES = {
    "device_ops": "share of op time",
    "functions": "share of the step",
    "host_ops": "share of its side",
    "memory_at_peak": "share of the peak",
    "op_profile": "share of device time",
}
"""Titles of a column `share` by table, since each is of another whole."""
_TEXT_WIDTH = 24
"""Columns that a column of text gets at least, in a wide terminal."""
_GAP = 2


class Cells(NamedTuple):
    """A table as text."""

    titles: Sequence[str]
    """Titles of the columns."""
    rows: Sequence[Sequence[str]]
    """Cells of each row."""
    numbers: Sequence[bool]
    """True for columns of numbers, which are aligned to the right."""


def laid_out(cells: Cells, width: int) -> Iterator[RenderableType]:
    """
    Yield a table that fits a width; one with too many columns is continued below.

    Each continuation repeats the column that tells most rows apart.
    """
    least = [_least_width(cells, n, width) for n in range(len(cells.titles))]
    name = _telling_column(cells)
    for part, columns in enumerate(_chunks(least, name, width)):
        table = rich.table.Table.grid()
        widths = _widths(cells, columns, least, width)
        for n, column in zip(columns, widths, strict=True):
            side: JustifyMethod = "right" if cells.numbers[n] else "left"
            if table.columns:
                table.add_column(width=_GAP)  # rich before 15 takes padding off the last column
            table.add_column(justify=side, width=column, overflow="fold")
        table.add_row(*_spaced([Text(cells.titles[n], style="bold") for n in columns]))
        table.add_row(*_spaced([Text("-" * column) for column in widths]))
        for row in cells.rows:
            shown_row = [_name(row, n) if part and n == name else row[n] for n in columns]
            table.add_row(*_spaced(list(map(Text, shown_row))))
        if part:
            yield ""
        yield table


def number_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Iterator[RenderableType]:
    """
    Yield a table of names and quantities.

    Args:
        titles: Titles of the columns; the first is of the names.
        rows: Cells of each row.
        width: Columns of the terminal.
    """
    return laid_out(Cells(titles, rows, [n > 0 for n in range(len(titles))]), width)


def profile_table(
    key: str, table: Table, verbosity: int, console: Console
) -> Iterator[RenderableType]:
    """
    Yield the title of a table, its rows, and the number of rows that are not shown.

    Args:
        key: Key of the table in its profile.
        table: The table.
        verbosity: 0 for the first rows, 1 for all but those of a quantity over time, 2 for all.
        console: The terminal.
    """
    is_series = key in SERIES and verbosity < 2 and len(table.rows) > FEW
    shown_rows = _extremes(table) if is_series else table.rows[: None if verbosity else FEW]
    numbers = [bool(column.unit) for column in table.columns]
    rows = [
        [_cell(value, column) for value, column in zip(row, table.columns, strict=True)]
        for row in shown_rows
    ]
    titles = [_title(key, column) for column in table.columns]
    if key == _STAGES:
        names = _tree_lines([row[0] for row in rows], console)
        rows = [[name, *row[1:]] for name, row in zip(names, rows, strict=True)]
    if is_series:
        titles, numbers = ["", *titles], [False, *numbers]
        rows = [
            [name, *row] for name, row in zip(("smallest", "largest", "last"), rows, strict=True)
        ]
    yield Text(table.title, style="bold")
    yield from laid_out(_without_empty(Cells(titles, rows, numbers)), console.width)
    left = table.n_more + len(table.rows) - len(shown_rows)
    if left:
        flag = " (-vv shows all)" if is_series else "" if verbosity else " (-v shows more)"
        yield Text(f"and {left} more{flag}", style="dim")


def _extremes(table: Table) -> list[tuple[object, ...]]:
    """Return the rows of the smallest and largest last column, and the last row."""
    known = [row for row in table.rows if isinstance(row[-1], (int, float))]
    if not known:
        return [table.rows[0], table.rows[0], table.rows[-1]]
    return [min(known, key=_last), max(known, key=_last), known[-1]]


def _last(row: Sequence[object]) -> float:
    value = row[-1]
    assert isinstance(value, (int, float))
    return value


def _title(key: str, column: Column) -> str:
    return _SHARES.get(key, column.title) if column.key == "share" else column.title


def _cell(value: object, column: Column) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        format_quantity(value, column.unit)
        if isinstance(value, (int, float))
        else one_line(str(value))
    )


def _without_empty(cells: Cells) -> Cells:
    """Leave out columns without any cell, but the first."""
    kept = [n for n in range(len(cells.titles)) if not n or any(row[n] for row in cells.rows)]
    return Cells(
        [cells.titles[n] for n in kept],
        [[row[n] for n in kept] for row in cells.rows],
        [cells.numbers[n] for n in kept],
    )


def _spaced(cells: Sequence[Text]) -> list[Text]:
    """Return the cells with an empty one between two."""
    return [part for cell in cells for part in (cell, Text())][:-1]


def _name(row: Sequence[str], n: int) -> str:
    """Return the n-th cell, or the last one before it that is not empty."""
    return next((cell for cell in reversed(row[: n + 1]) if cell), "")


def _chunks(least: Sequence[int], name: int, width: int) -> Iterator[list[int]]:
    """
    Yield the columns of the table and of its continuations.

    Args:
        least: Columns of the terminal that each needs.
        name: Column that continuations repeat.
        width: Columns of the terminal.
    """
    columns: list[int] = []
    n_own = 0
    for n in range(len(least)):
        if n in columns:
            continue
        needed = sum(least[one] + _GAP for one in (*columns, n)) - _GAP
        if n_own and needed > width:
            yield columns
            columns, n_own = [name] if n != name else [], 0
        columns.append(n)
        n_own += 1
    yield columns


def _least_width(cells: Cells, n: int, width: int) -> int:
    """Return the columns that the n-th column needs to be readable in a terminal of a width."""
    words = max((cell_len(word) for word in cells.titles[n].split()), default=0)
    texts = max((cell_len(row[n]) for row in cells.rows), default=0)
    return max(words, texts if cells.numbers[n] else min(texts, _TEXT_WIDTH, width // 3))


def _widths(cells: Cells, columns: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """
    Return the widths of columns: what each needs, and what is left over, to numbers first.

    Args:
        cells: The table.
        columns: Its columns that are shown side by side.
        least: Columns of the terminal that each needs.
        width: Columns of the terminal.
    """
    widths = {n: least[n] for n in columns}
    room = width - sum(widths.values()) - _GAP * (len(columns) - 1)
    for n in sorted(columns, key=lambda n: not cells.numbers[n]):
        texts = [cells.titles[n], *(row[n] for row in cells.rows)]
        more = max(min(max(map(cell_len, texts)) - widths[n], room), 0)
        widths[n] += more
        room -= more
    return [widths[n] for n in columns]


def _telling_column(cells: Cells) -> int:
    """Return the column, of the first columns of text, with the most different cells."""
    texts = next((n for n, number in enumerate(cells.numbers) if number), len(cells.numbers))
    return max(range(max(texts, 1)), key=lambda n: len({row[n] for row in cells.rows}))


def _tree_lines(names: Sequence[str], console: Console) -> list[str]:
    """Draw the lines of a tree whose names are indented by two spaces a level."""
    root = Tree("", hide_root=True)
    branches = [root]
    for name in names:
        depth = min((len(name) - len(name.lstrip(" "))) // 2, len(branches) - 1)
        del branches[depth + 1 :]
        branches.append(branches[-1].add(Text(name.strip())))
    lines = console.render_lines(root, console.options.update(width=BOUNDLESS), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]
