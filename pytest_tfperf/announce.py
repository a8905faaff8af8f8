"""Which window of a profile runs, on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest


def announcer(item: pytest.Item, on_terminal: bool) -> Callable[[str], None]:
    """Shows which window of a test's profile runs, on one line of a terminal; nowhere else."""
    reporter = item.config.pluginmanager.get_plugin("terminalreporter")
    capture = item.config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or capture is None or not on_terminal or os.environ.get("CI"):
        return lambda _: None

    def announce(text: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.rewrite(f"tfperf {item.name}: {text}" if text else "", erase=True)
            if not text:
                reporter.rewrite("")  # back to the start of the line, for what pytest writes next

    return announce
