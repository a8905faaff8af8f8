"""Text that fits a terminal: wrapped lines, and tables that are cut to its width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from pytest_tfperf.text import aligned, elide

BOUNDLESS = 1_000_000
"""Columns of a file or a pipe, whose text is searched and so not cut."""

_CELL_WIDTHS = (60, 40, 28, 20)  # characters, tried before a column is left out
_DEEPER = 2


def wrapped(text: str, width: int, deeper: int = _DEEPER) -> str:
    """
    Wrap the lines of a text.

    Args:
        text: The text.
        width: Columns of the terminal.
        deeper: Columns by which a line's continuation is indented further than the line.
    """
    return "\n".join(part for line in text.splitlines() for part in _parts(line, width, deeper))


def fitted_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], sides: Sequence[str], width: int
) -> list[str]:
    """
    Lay a table out in at most `width` columns, if it can be.

    A table that is wider loses, step by step: long titles and empty columns, the middle of long
    cells, and the last columns, which a line below names.

    Args:
        titles: Titles of the columns.
        rows: Cells of each row.
        sides: `left` or `right` for each column.
        width: Columns of the terminal.
    """
    lines = _lines([[title] for title in titles], rows, sides, _CELL_WIDTHS[0])
    if _width(lines) <= width:
        return lines
    kept = [n for n in range(len(titles)) if any(row[n] for row in rows)]
    tries = [(len(kept), cell_width) for cell_width in _CELL_WIDTHS]
    tries += [(n, _CELL_WIDTHS[-1]) for n in range(len(kept) - 1, 0, -1)]
    for n_kept, cell_width in tries:
        shown = kept[:n_kept]
        cells = [[row[n] for n in shown] for row in rows]
        broken = [_broken(titles[n], [row[n] for row in rows], cell_width) for n in shown]
        lines = _lines(broken, cells, [sides[n] for n in shown], cell_width)
        if _width(lines) <= width:
            break
    left_out = ", ".join(titles[n] for n in kept[n_kept:])
    return [*lines, f"no room for: {left_out}"] if left_out else lines


def _parts(line: str, width: int, deeper: int) -> list[str]:
    if len(line) <= width:
        return [line]
    n = min(len(line) - len(line.lstrip()) + deeper, width // 2)
    kept = f"{'x' * n}{line[n:]}"  # a label stays on the line of what it introduces
    first, *rest = textwrap.wrap(
        kept, width, subsequent_indent=" " * n, break_long_words=False, break_on_hyphens=False
    )
    return [line[:n] + first[n:], *rest]


def _broken(title: str, cells: Sequence[str], cell_width: int) -> list[str]:
    """Break a title into lines no wider than its column's cells, or its longest word."""
    lengths = [min(len(cell), cell_width) for cell in cells]
    widest = max((*lengths, *map(len, title.split())), default=0)
    return textwrap.wrap(title, max(widest, 1), break_long_words=False, break_on_hyphens=False)


def _lines(
    titles: Sequence[Sequence[str]],
    rows: Sequence[Sequence[str]],
    sides: Sequence[str],
    cell_width: int,
) -> list[str]:
    heads = list(zip_longest(*titles, fillvalue=""))
    cells = [[elide(cell, cell_width) for cell in row] for row in rows]
    return aligned([*heads, *cells], sides, len(heads))


def _width(lines: Sequence[str]) -> int:
    return max(map(len, lines), default=0)
