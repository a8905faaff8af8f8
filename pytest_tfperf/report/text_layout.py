"""Text that fits a terminal: tables give up width where it costs least, and lines go on below themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from pytest_tfperf.text import elide

BOUNDLESS = 1_000_000
"""Columns of what is no terminal, such as a file or a pipe: what is written there is searched, and not cut."""

_WIDEST = 60  # characters of a cell
_NARROWER = (60, 40, 28, 20)  # before a column is left out
_DEEPER = 2


def wrapped(text: str, width: int, deeper: int = _DEEPER) -> str:
    """Return the text with its lines ended where the terminal does; they go on `deeper` columns to the right of where they began."""
    return "\n".join(part for line in text.splitlines() for part in _parts(line, width, deeper))


def _parts(line: str, width: int, deeper: int) -> list[str]:
    if len(line) <= width:
        return [line]
    n = min(len(line) - len(line.lstrip()) + deeper, width // 2)
    kept = f"{'x' * n}{line[n:]}"  # what stands first stays on the line of what it introduces
    first, *rest = textwrap.wrap(
        kept, width, subsequent_indent=" " * n, break_long_words=False, break_on_hyphens=False
    )
    return [line[:n] + first[n:], *rest]


def fitted_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], sides: Sequence[str], width: int
) -> list[str]:
    """
    Return the lines of a table of that width.

    Where it is wider, titles go over several lines and columns without any value are left out, then long cells lose their middle, and
    then columns are left out from the end, which a line below says.
    """
    lines = _lines(titles, [[elide(cell, _WIDEST) for cell in row] for row in rows], sides)
    if _width(lines) <= width:
        return lines
    kept = [n for n in range(len(titles)) if any(row[n] for row in rows)]
    for n_kept, widest in [
        *((len(kept), widest) for widest in _NARROWER),
        *((n, _NARROWER[-1]) for n in range(len(kept) - 1, 0, -1)),
    ]:
        shown = kept[:n_kept]
        cells = [[elide(row[n], widest) for n in shown] for row in rows]
        broken = [_broken(titles[n], [row[at] for row in cells]) for at, n in enumerate(shown)]
        lines = _lines(broken, cells, [sides[n] for n in shown])
        if _width(lines) <= width:
            break
    left_out = ", ".join(titles[n] for n in kept[n_kept:])
    return [*lines, *([f"no room for: {left_out}"] if left_out else [])]


def _broken(title: str, cells: Sequence[str]) -> str:
    """Return a title over as many lines as its column is narrower."""
    widest = max(map(len, (*cells, *title.split())), default=len(title))
    return "\n".join(
        textwrap.wrap(title, max(widest, 1), break_long_words=False, break_on_hyphens=False)
    )


def _lines(titles: Sequence[str], rows: Sequence[Sequence[str]], sides: Sequence[str]) -> list[str]:
    """Titles of one or more lines, a rule, and the rows, their cells with the spaces that they begin with: a tree's do."""
    heads = list(zip_longest(*(title.split("\n") for title in titles), fillvalue=""))
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    return [
        _line(cells, widths, sides) for cells in (*heads, ["-" * width for width in widths], *rows)
    ]


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[str]) -> str:
    placed = (
        cell.rjust(width) if side == "right" else cell.ljust(width)
        for cell, width, side in zip(cells, widths, sides, strict=True)
    )
    return "  ".join(placed).rstrip()


def _width(lines: Sequence[str]) -> int:
    return max(map(len, lines), default=0)
