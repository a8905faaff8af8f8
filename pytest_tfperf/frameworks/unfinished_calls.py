"""Waiting for the calls of a step that devices have not finished."""

from __future__ import annotations

from typing import Any

from pytest_tfperf.frameworks.in_use import fetch, in_use, synchronise


class UnfinishedCalls:
    """
    The calls of a step that run behind Python, which are waited for where too many would abort.

    Args:
        fetches: True to wait for each call, and to fetch its output.
    """

    def __init__(self, fetches: bool = False) -> None:
        self._fetches = fetches
        self._left: int | None = 1  # calls before the next wait; a framework may start in the first

    def ended(self, output: Any = None) -> None:
        """Wait after a call if that is due."""
        if self._fetches:
            fetch(output)
            return
        if self._left is None:
            return
        self._left -= 1
        if not self._left:
            synchronise()
            bounds = [framework.most_unfinished() for framework in in_use()]
            self._left = min((bound for bound in bounds if bound is not None), default=None)
