"""
The metrics of a run: the built-in ones and those that a project adds by a hook.

pytest makes a registry in every run. So this module imports only pytest and the errors, and the
rest when a metric is added or the built-in ones are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.errors import MetricError

if TYPE_CHECKING:
    from pytest_tfperf.metric_registry import Metric
    from pytest_tfperf.results import Profile


class Registry:
    """Argument of the hook `pytest_tfperf_metrics`: all metrics of a run."""

    def __init__(self) -> None:
        self.own: dict[str, Metric] = {}
        self._functions: dict[str, Callable[[Profile], Any]] = {}

    @property
    def rows(self) -> Mapping[str, Metric]:
        """All metrics by name: the built-in ones, then those that projects added (`own`)."""
        from pytest_tfperf.metric_registry import METRICS

        return {**METRICS, **self.own}

    def add(
        self,
        name: str,
        function: Callable[[Profile], Any],
        *,
        unit: str,
        better: str | None,
        scope: str,
        meaning: str,
    ) -> None:
        """
        Add a metric.

        Args:
            name: Name as in `max_<name>` and `profile.<name>`.
            function: Takes a `Profile` and returns a number in the base unit. The profile has its
                metrics (custom ones that were added earlier too), `steps`, `tables`, `workload`
                and `result`, the return value of the last step or of Keras. The function raises
                `UnknownMetric` where it cannot know the number; reading an unknown metric does so.
            unit: "s", "1/s", "0..1" (a share), "ratio", "count", "bytes" or "FLOP".
            better: "lower", "higher", or None if neither is better.
            scope: Machines on which a value holds: "program" (every machine), "platform" (one
                device kind and version of the framework) or "machine" (one class of machines, as
                times).
            meaning: Description in a few words.

        Raises:
            MetricError: If the name is taken, or an argument is not valid.
        """
        from pytest_tfperf.metric_registry import Metric
        from pytest_tfperf.plugin.custom_metrics import invalid_argument, invalid_name

        wrong = invalid_name(name, self.rows) or invalid_argument(
            function, unit, better, scope, meaning
        )
        if wrong:
            raise MetricError(f"pytest_tfperf_metrics: metric {name!r}: {wrong}")
        self.own[name] = Metric(name, unit, better, scope, meaning)  # type: ignore[arg-type]
        self._functions[name] = function

    def measured(self, profile: Profile) -> Profile:
        """Return the profile with values of the added metrics, in the order of their addition."""
        if not self.own:
            return profile
        from pytest_tfperf.plugin.custom_metrics import with_values

        return with_values(profile, self.own, self._functions)


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


def new_registry(config: pytest.Config) -> Registry:
    """Make the run's registry, to which later conftest.py files add; UsageError if one is wrong."""
    registry = Registry()
    try:
        config.hook.pytest_tfperf_metrics.call_historic(kwargs={"registry": registry})
    except MetricError as error:
        raise pytest.UsageError(str(error)) from error
    return registry
