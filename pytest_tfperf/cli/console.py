"""The terminal that commands write to: its width and colours, and text that wraps there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from pytest_tfperf.report.run_text import TextLine
from pytest_tfperf.text import BOUNDLESS, without_commands, wrapped


def width(otherwise: int = BOUNDLESS) -> int:
    """Return the columns of the terminal or of COLUMNS, and `otherwise` for a file or a pipe."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def new_console(stream: TextIO | None = None) -> Console:
    """
    Return a console for a stream, standard output by default.

    It has colours on a terminal, unless NO_COLOR is set, and elsewhere if FORCE_COLOR is set. Text
    is shown as it is: no markup, no emoji codes.
    """
    stream = sys.stdout if stream is None else stream
    on_terminal = stream.isatty()
    return Console(
        file=stream,
        width=width(),
        color_system=_colours(on_terminal),
        force_terminal=on_terminal,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def write_out(*parts: RenderableType) -> None:
    """Write to standard output, without spaces at the ends of lines."""
    console = new_console()
    with console.capture() as captured:
        for part in parts:
            console.print(part, crop=False)
    text = "\n".join(line.rstrip(" ") for line in captured.get().split("\n"))
    sys.stdout.write(without_commands(text))


def styled_lines(lines: Iterable[TextLine]) -> Group:
    """Join lines of a run, each in its colour; they wrap between words, and never in a name."""
    shown = (
        Text(wrapped(line.text, width(), line.deeper), style=line.colour or "") for line in lines
    )
    # a console joins texts that it prints itself, and forgets how they wrap
    return Group(Text("\n", no_wrap=True, overflow="ignore").join(shown))


def labelled(rows: Sequence[tuple[str, str | Text]]) -> Table:
    """Lay out texts behind their labels; lines that wrap begin where the texts do."""
    grid = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1))
    for label, text in rows:
        grid.add_row(Text(label), text if isinstance(text, Text) else Text(text))
    return grid


def _colours(on_terminal: bool) -> Literal["auto", "standard"] | None:
    """Return rich's name of the colours to use, or None for none."""
    if os.environ.get("NO_COLOR"):
        return None
    if on_terminal:
        return "auto"
    return "standard" if os.environ.get("FORCE_COLOR") else None
