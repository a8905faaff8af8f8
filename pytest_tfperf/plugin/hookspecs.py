"""Hooks that this plugin calls, for projects to implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_tfperf.plugin.registry import Registry


@pytest.hookspec(historic=True)
def pytest_tfperf_metrics(registry: Registry) -> None:
    """
    Add custom metrics of the project.

    They get limits, baselines and report rows like the built-in metrics.
    pytest calls the hook once for each conftest.py and plugin that implements it, before it
    collects the tests below.

    Args:
        registry: All metrics of the run; `registry.add(name, function, unit=, better=, scope=,
            meaning=)` adds one.
    """
