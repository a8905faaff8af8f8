"""Show what of a profile runs, and how long it will about take: on a terminal, or in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_tfperf.plugin.workers import is_worker
from pytest_tfperf.turns.pytest_child import is_child

_INTERVAL_S = 10.0
"""Least seconds between two lines in a log, and from the first profiled test to the first line."""
_LAST: pytest.StashKey[float] = pytest.StashKey()


def announcer(item: pytest.Item, on_terminal: bool) -> Callable[[str], None]:
    """
    Return a function that shows a text: behind pytest's line on a terminal, else as a line. A
    terminal shows the last text, and none at the end. A log, and a run of pytest-xdist, get a line
    every ten seconds at most; with `-q` only the log of a CI job does. Nothing is shown where the
    test itself may write (`-s`).
    """
    config = item.config
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is None or config.option.capture != "fd" or is_child(config):
        return lambda _: None
    in_ci = bool(os.environ.get("CI"))
    if in_ci or is_worker(config) or not on_terminal:
        is_silent = config.get_verbosity() < 0 and not in_ci
        return (lambda _: None) if is_silent else _in_log(config, item.name, capture)
    writer = config.get_terminal_writer()
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


def _in_log(config: pytest.Config, name: str, capture: Any) -> Callable[[str], None]:
    """Return a function that writes a line, if the last one of the run is old enough."""
    config.stash.setdefault(_LAST, time.monotonic())
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if is_worker(config):  # pytest-xdist closes the standard output of its workers
        reporter = None

    def announce(text: str) -> None:
        if not text or time.monotonic() - config.stash[_LAST] < _INTERVAL_S:
            return
        config.stash[_LAST] = time.monotonic()
        line = f"tfperf: {name}: {text}"
        with capture.global_and_fixture_disabled():
            if reporter is None:
                sys.stderr.write(f"\n{line}\n")
                sys.stderr.flush()
            else:
                reporter.write_line(line)  # pytest goes on with a line of its own
                reporter.flush()

    return announce


def _fitting(name: str, text: str, room: int) -> str:
    """Return the longest text that fits; backspaces work on one line of narrow letters only."""
    longest_first = (f" tfperf {name}: {text}", f" tfperf: {text}", f" {text}")
    return next((line for line in longest_first if len(line) <= room and line.isascii()), "")
