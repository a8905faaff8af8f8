"""Tables of the commands: numbers, tables of profiles, the tree of an input pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from pytest_tfperf.report.text_table import TextTable, fitted, grid, text_table
from pytest_tfperf.text import BOUNDLESS
from pytest_tfperf.values import Cell, Table

FEW = 5
"""Rows of a table without -v."""
SERIES = frozenset({"memory_over_step"})
"""Keys of tables that are a quantity over time."""
TIMELINES = frozenset({"median_step"})
"""Keys of tables that only a picture shows well; -vv prints them."""
_STAGES = "stages"


def laid_out(table: TextTable, width: int) -> Iterator[RenderableType]:
    """Yield a table that fits a width; one with too many columns is continued below."""
    for place, part in enumerate(fitted(table, width)):
        titles, lines = grid(part)
        if place:
            yield ""
        styled = [(line, "bold") for line in titles[:-1]]
        styled += [(line, "") for line in (titles[-1], *lines)]
        # a console joins texts that it prints itself, and forgets how they wrap
        yield Group(*(Text(line, style, no_wrap=True, overflow="ignore") for line, style in styled))


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
    return laid_out(TextTable(titles, rows, [n > 0 for n in range(len(titles))]), width)


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
    shown = replace(table, rows=_extremes(table)) if is_series else table
    found = text_table(key, shown, None if verbosity or is_series else FEW)
    if key == _STAGES:
        names = _tree_lines([row[0] for row in found.rows], console)
        found = replace(
            found,
            rows=[[name, *row[1:]] for name, row in zip(names, found.rows, strict=True)],
        )
    if is_series:
        names = ["smallest", "largest", "last"]
        rows = [[name, *row] for name, row in zip(names, found.rows, strict=True)]
        found = TextTable(["", *found.columns], rows, [False, *found.numbers])
    yield Text(table.title, style="bold")
    yield from laid_out(found, console.width)
    left = table.n_more + len(table.rows) - len(found.rows)
    if left:
        flag = " (-vv shows all)" if is_series else "" if verbosity else " (-v shows more)"
        yield Text(f"and {left} more{flag}", style="dim")


def _extremes(table: Table) -> tuple[tuple[Cell, ...], ...]:
    """Return the rows of the smallest and largest last column, and the last row."""
    known = [row for row in table.rows if isinstance(row[-1], (int, float))]
    if not known:
        return table.rows[0], table.rows[0], table.rows[-1]
    return min(known, key=_last), max(known, key=_last), known[-1]


def _last(row: Sequence[object]) -> float:
    value = row[-1]
    assert isinstance(value, (int, float))
    return value


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
