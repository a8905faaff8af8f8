"""Which window of a profile runs, on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest


def announcer(item: pytest.Item, on_terminal: bool) -> Callable[[str], None]:
    """
    Shows which window of a test's profile runs behind what pytest wrote on the line of a terminal, and takes it away again.

    Nowhere else, and not where the test itself may write on that line (`-s`).
    """
    capture = item.config.pluginmanager.get_plugin("capturemanager")
    if (
        capture is None
        or not on_terminal
        or os.environ.get("CI")
        or item.config.option.capture != "fd"
    ):
        return lambda _: None
    writer = item.config.get_terminal_writer()
    shown = ""

    def announce(text: str) -> None:
        nonlocal shown
        back, blank = "\b" * len(shown), " " * len(shown)
        shown = (
            _fitting(
                item.name,
                text,
                writer.fullwidth - writer.width_of_current_line % writer.fullwidth - 1,
            )
            if text
            else ""
        )
        with capture.global_and_fixture_disabled():
            sys.stdout.write(
                f"{back}{blank}{back}{shown}"
            )  # pytest counts what goes through its writer
            sys.stdout.flush()

    return announce


def _fitting(name: str, text: str, room: int) -> str:
    """As much as one line holds: what goes back over it knows of no other, and of no letters of two columns."""
    longest_first = (f" tfperf {name}: {text}", f" tfperf: {text}", f" {text}")
    return next((line for line in longest_first if len(line) <= room and line.isascii()), "")
