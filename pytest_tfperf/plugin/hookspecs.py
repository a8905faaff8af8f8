"""The hooks that this plugin calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_tfperf.plugin.registry import Registry


@pytest.hookspec(historic=True)
def pytest_tfperf_metrics(registry: Registry) -> None:
    """
    Add metrics of the project with `registry.add(name, function, unit=, better=, scope=, meaning=)`.

    They get limits, baselines and report rows like the built-in ones. Called once for each conftest.py and plugin, before the
    tests below it are collected.
    """
