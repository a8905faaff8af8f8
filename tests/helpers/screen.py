"""What commands show, as text of a terminal of any width, without colours."""

import io

from rich.console import Console


def screen(width=1_000_000, encoding="utf-8"):
    """A terminal without colours."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    return Console(
        file=file, width=width, color_system=None, markup=False, emoji=False, highlight=False
    )


def text_of(parts, console):
    """The lines that a console shows of these parts, without spaces at their ends."""
    with console.capture() as captured:
        for part in parts:
            console.print(part, crop=False)
    return [line.rstrip() for line in captured.get().split("\n")[:-1]]
