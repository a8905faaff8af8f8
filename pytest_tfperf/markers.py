"""Recognise profiled tests, and runs that have all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

_LEFT_OUT: pytest.StashKey[bool] = pytest.StashKey()
_LEFT_OUT_KEY = "tfperf_left_out"
"""Name in the output of a worker of pytest-xdist."""


def is_profiled(item: pytest.Item) -> bool:
    """Return whether a test is profiled, by its fixture or its own marker."""
    return is_marked(item) or "tf_profile" in getattr(item, "fixturenames", ())


def is_marked(item: pytest.Item) -> bool:
    """
    Return whether a test carries the marker itself.

    A marker on a module or class only sets limits.
    """
    return any(mark.name == "tfperf" for mark in item.own_markers)


def is_whole(config: pytest.Config) -> bool:
    """Return whether a run selects all tests of its files."""
    left_out = config.stash.get(_LEFT_OUT, False) or getattr(config.option, "lf", False)
    return not left_out and not any("::" in argument for argument in config.args)


def note_deselected(items: Sequence[pytest.Item]) -> None:
    """Note that tests are left out, also for the process whose worker of pytest-xdist this is."""
    for item in items[:1]:
        item.config.stash[_LEFT_OUT] = True
        getattr(item.config, "workeroutput", {})[_LEFT_OUT_KEY] = True


def note_worker(config: pytest.Config, node: Any) -> None:
    """Note what a worker of pytest-xdist left out; one that died tells nothing."""
    if getattr(node, "workeroutput", {}).get(_LEFT_OUT_KEY):
        config.stash[_LEFT_OUT] = True
