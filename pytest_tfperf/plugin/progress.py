"""Show the window of a profile that runs, on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest


def announcer(item: pytest.Item, on_terminal: bool) -> Callable[[str], None]:
    """
    Return a function that shows a text behind pytest's line on a terminal, and removes the last.

    The function does nothing without a terminal, or if the test itself may write there (`-s`).
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
    """Return the longest text that fits; backspaces work on one line of narrow letters only."""
    longest_first = (f" tfperf {name}: {text}", f" tfperf: {text}", f" {text}")
    return next((line for line in longest_first if len(line) <= room and line.isascii()), "")
