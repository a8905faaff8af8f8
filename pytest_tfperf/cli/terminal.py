"""What commands write: lines in colours that wrap at the terminal's width, and tables that fit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TextIO, cast

from pytest_tfperf.report.run_text import TextLine
from pytest_tfperf.report.text_table import TextTable, fitted, grid, text_table
from pytest_tfperf.text import (
    BOUNDLESS,
    in_ascii,
    plain,
    shows_pictures,
    without_commands,
    wrapped,
)
from pytest_tfperf.values import Cell, Table

FEW = 5
"""Rows of a table without -v."""
SERIES = frozenset({"memory_over_step"})
"""Keys of tables that are a quantity over time."""
TIMELINES = frozenset({"median_step"})
"""Keys of tables that only a picture shows well; -vv prints them."""
_STAGES = "stages"
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES = {"bold": 1, "dim": 2} | {
    f"{bright}{name}": first + n
    for bright, first in (("", 30), ("bright_", 90))
    for n, name in enumerate(_COLOURS)
}
"""Parameters of SGR (ECMA-48; those from 90 on are of aixterm)."""
_RESET = "\x1b[0m"
_FORK, _END, _BAR = "├── ", "└── ", "│   "

Span = tuple[str, str]
"""A text and its style: words such as `bold` and `red`, or none."""


class Screen(NamedTuple):
    """What commands write to."""

    width: int = BOUNDLESS
    """Columns; `BOUNDLESS` for a file or a pipe."""
    ascii_only: bool = False
    """True if pictures must be drawn with ASCII characters."""
    has_colours: bool = False


class Line(NamedTuple):
    """A line of text in one or more styles."""

    spans: Sequence[Span]
    deeper: int | None = 0
    """Columns by which its continuation is indented further; None if it does not wrap."""


def line(*parts: str | Span, deeper: int | None = 0) -> Line:
    """Make a line of texts with a style and of plain ones."""
    return Line([(part, "") if isinstance(part, str) else part for part in parts], deeper)


def width() -> int:
    """Return the columns of the terminal or of COLUMNS."""
    return shutil.get_terminal_size((BOUNDLESS, 24)).columns


def this_screen() -> Screen:
    """Return standard output as it is now."""
    return Screen(width(), not shows_pictures(sys.stdout.encoding), has_colours(sys.stdout))


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream shows colours: NO_COLOR, being a terminal, and FORCE_COLOR say."""
    if os.environ.get("NO_COLOR"):
        return False
    if stream.isatty():
        return os.environ.get("TERM") != "dumb"
    return bool(os.environ.get("FORCE_COLOR"))


def write_out(*lines: str | Line) -> None:
    """Write lines to standard output."""
    sys.stdout.write(shown(lines, this_screen()))


def shown(lines: Iterable[str | Line], screen: Screen) -> str:
    """Return lines as text that controls no terminal, and in which no CI system finds a command."""
    texts = []
    for one in lines:
        spans, deeper = one if isinstance(one, Line) else ([(one, "")], 0)
        spans = [(plain(part), style) for part, style in spans]
        if screen.ascii_only:
            spans = [(in_ascii(part), style) for part, style in spans]
        text = "".join(part for part, _ in spans)
        if deeper is not None:
            text = wrapped(text, screen.width, deeper)
        text = without_commands("\n".join(part.rstrip(" ") for part in text.split("\n")))
        texts.append(_coloured(text, spans) if screen.has_colours else text)
    return "".join(f"{text}\n" for text in texts)


def _coloured(text: str, spans: Sequence[Span]) -> str:
    """Give a text, which has the characters of the spans and other spaces, their styles."""
    styles = (style for part, style in spans for char in part if not char.isspace())
    found, now = [], ""
    for char in text:
        style = now if char.isspace() else next(styles)
        if now and (style != now or char == "\n"):
            found.append(_RESET)
            now = ""
        if style != now and not char.isspace():
            found.append(f"\x1b[{';'.join(str(_CODES[word]) for word in style.split())}m")
            now = style
        found.append(char)
    return "".join([*found, _RESET] if now else found)


def styled_lines(lines: Iterable[TextLine]) -> Iterator[Line]:
    """Yield lines of a run, each in its colour."""
    return (Line([(one.text, one.colour or "")], one.deeper) for one in lines)


def labelled(rows: Sequence[tuple[str, str | Span]]) -> Iterator[Line]:
    """Yield texts behind their labels; lines that wrap begin where the texts do."""
    columns = max(len(label) for label, _ in rows) + 1
    for label, text in rows:
        indent = len(label) - len(label.lstrip(" "))
        yield line(f"{label:<{columns}}", text, deeper=columns - indent)


def laid_out(table: TextTable, columns: int) -> Iterator[str | Line]:
    """Yield a table that fits a number of columns; one with too many is continued below."""
    for place, part in enumerate(fitted(table, columns)):
        titles, rows = grid(part)
        if place:
            yield ""
        yield from (line((title, "bold"), deeper=None) for title in titles[:-1])
        yield from (line(row, deeper=None) for row in (titles[-1], *rows))


def number_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], columns: int
) -> Iterator[str | Line]:
    """Yield a table whose first column has names, and the others quantities."""
    return laid_out(TextTable(titles, rows, [n > 0 for n in range(len(titles))]), columns)


def profile_table(key: str, table: Table, verbosity: int, screen: Screen) -> Iterator[str | Line]:
    """
    Yield the title of a table, its rows, and the number of rows that are not shown.

    Args:
        key: Key of the table in its profile.
        table: The table.
        verbosity: 0 for the first rows, 1 for all but those of a quantity over time, 2 for all.
        screen: What the lines are for.
    """
    is_series = key in SERIES and verbosity < 2 and len(table.rows) > FEW
    kept = replace(table, rows=_extremes(table)) if is_series else table
    found = text_table(key, kept, None if verbosity or is_series else FEW)
    names: Sequence[str]
    if key == _STAGES:
        names = _tree_lines([row[0] for row in found.rows])
        rows = [[name, *row[1:]] for name, row in zip(names, found.rows, strict=True)]
        found = replace(found, rows=rows)
    if is_series:
        names = ("smallest", "largest", "last")
        rows = [[name, *row] for name, row in zip(names, found.rows, strict=True)]
        found = TextTable(["", *found.columns], rows, [False, *found.numbers])
    yield line((table.title, "bold"))
    yield from laid_out(found, screen.width)
    left = table.n_more + len(table.rows) - len(found.rows)
    if left:
        flag = " (-vv shows all)" if is_series else "" if verbosity else " (-v shows more)"
        yield line((f"and {left} more{flag}", "dim"))


def _extremes(table: Table) -> tuple[tuple[Cell, ...], ...]:
    """Return the rows of the smallest and largest last column, and the last row."""
    known = [row for row in table.rows if isinstance(row[-1], (int, float))]
    if not known:
        return table.rows[0], table.rows[0], table.rows[-1]
    return min(known, key=_last), max(known, key=_last), known[-1]


def _last(row: Sequence[Cell]) -> float:
    return cast("float", row[-1])


def _tree_lines(names: Sequence[str]) -> list[str]:
    """Draw the lines of a tree whose names are indented by two spaces a level."""
    depths: list[int] = []
    for name in names:
        above = depths[-1] + 1 if depths else 0
        depths.append(min((len(name) - len(name.lstrip(" "))) // 2, above))
    lines: list[str] = []
    below: set[int] = set()  # depths at which the tree goes on
    for name, depth in zip(reversed(names), reversed(depths), strict=True):
        guides = [_BAR if level in below else "    " for level in range(1, depth)]
        guides += [_FORK if depth in below else _END] if depth else []
        lines.append("".join([*guides, name.strip()]))
        below = {level for level in below if level < depth} | {depth}
    return lines[::-1]
