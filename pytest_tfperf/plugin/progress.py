"""Show the window of a profile that runs: on a terminal, or as lines in the log of a CI job."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

_HEARTBEAT_S = {"ci": 20.0, "worker": 5.0}
"""Least seconds between two lines, in the log of a CI job and on the terminal of a worker's run."""


def announcer(item: pytest.Item, on_terminal: bool) -> Callable[[str], None]:
    """
    Return a function that shows a text behind pytest's line on a terminal, and removes the last.

    In a CI job it writes a line, at most every 20 s. So does a worker of pytest-xdist, every 5 s on
    a terminal. It does nothing elsewhere, or if the test itself may write there (`-s`).
    """
    capture = item.config.pluginmanager.get_plugin("capturemanager")
    if capture is None or item.config.option.capture != "fd":
        return lambda _: None
    in_worker = hasattr(item.config, "workerinput")
    if os.environ.get("CI"):
        return _heartbeat(item, capture, _HEARTBEAT_S["ci"], in_worker)
    if in_worker:
        with capture.global_and_fixture_disabled():
            on_terminal = os.isatty(_STDERR)
        if on_terminal:
            return _heartbeat(item, capture, _HEARTBEAT_S["worker"], in_worker)
    if not on_terminal:
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


def _heartbeat(
    item: pytest.Item, capture: Any, interval_s: float, in_worker: bool
) -> Callable[[str], None]:
    """Return a function that writes a line to the log, if the last one is old enough."""
    last = time.monotonic()

    def announce(text: str) -> None:
        nonlocal last
        if text and time.monotonic() - last >= interval_s:
            last = time.monotonic()
            with capture.global_and_fixture_disabled():
                # pytest-xdist closes the standard output of its workers.
                stream = sys.stderr if in_worker else sys.stdout
                stream.write(f"\ntfperf: {item.name}: {text}\n")
                stream.flush()

    return announce


_STDERR = 2


def _fitting(name: str, text: str, room: int) -> str:
    """Return the longest text that fits; backspaces work on one line of narrow letters only."""
    longest_first = (f" tfperf {name}: {text}", f" tfperf: {text}", f" {text}")
    return next((line for line in longest_first if len(line) <= room and line.isascii()), "")
