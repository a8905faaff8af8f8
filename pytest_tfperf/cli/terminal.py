"""What commands write: lines in colours that wrap at the terminal's width, and tables that fit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

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
from pytest_tfperf.values import Table

FEW = 5
"""Rows of a table without -v."""
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES = {"bold": 1, "dim": 2} | {
    f"{bright}{name}": first + n
    for bright, first in (("", 30), ("bright_", 90))
    for n, name in enumerate(_COLOURS)
}
"""Parameters of SGR (ECMA-48; those from 90 on are of aixterm)."""
_RESET = "\x1b[0m"

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


AnyLine = str | Line | TextLine
"""A line of a command; one of text alone, or of a run, has one style."""


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


def write_out(*lines: AnyLine) -> None:
    """Write lines to standard output."""
    sys.stdout.write(shown(lines, this_screen()))


def shown(lines: Iterable[AnyLine], screen: Screen) -> str:
    """Return lines as text that controls no terminal, and in which no CI system finds a command."""
    texts = []
    for one in lines:
        if isinstance(one, TextLine):
            given, deeper = Line([(one.text, one.colour or "")], one.deeper)
        else:
            given, deeper = one if isinstance(one, Line) else Line([(one, "")])
        spans = [(plain(part), style) for part, style in given]
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
    """Yield the title of a table, its rows, without verbosity the first ones, and their rest."""
    found = text_table(key, table, None if verbosity else FEW)
    yield line((table.title, "bold"))
    yield from laid_out(found, screen.width)
    if found.n_more:
        yield line((f"and {found.n_more} more{'' if verbosity else ' (-v shows more)'}", "dim"))
