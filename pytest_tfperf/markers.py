"""Recognise profiled tests, and runs that have all of them."""

from __future__ import annotations

import pytest


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
    """Return whether a run selects all tests."""
    option = config.option
    left_out = (
        option.keyword,
        option.markexpr,
        getattr(option, "lf", False),
        getattr(option, "deselect", None),
    )
    return not any(left_out) and not any("::" in argument for argument in config.args)
