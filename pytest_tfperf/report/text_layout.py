"""Text that fits a terminal: wrapped lines whose continuations are indented."""

from __future__ import annotations

import textwrap

BOUNDLESS = 1_000_000
"""Columns of a file or a pipe, whose text is searched and so not cut."""

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


def _parts(line: str, width: int, deeper: int) -> list[str]:
    if len(line) <= width:
        return [line]
    n = min(len(line) - len(line.lstrip()) + deeper, width // 2)
    # a label stays on the line of what it introduces, and a number beside its percent sign
    kept = f"{'x' * n}{line[n:]}".replace(" %", "\u00a0%")
    first, *rest = textwrap.wrap(
        kept, width, subsequent_indent=" " * n, break_long_words=False, break_on_hyphens=False
    )
    return [part.replace("\u00a0%", " %") for part in (line[:n] + first[n:], *rest)]
