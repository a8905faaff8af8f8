"""
A project's own metrics: rows besides the built-in ones, each with a function from what was measured of a step to a number.

pytest makes a registry in every run, so this module imports pytest and the words alone until a metric is added.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.errors import MetricError, UnknownMetric
from pytest_tfperf.metrics import (
    HIGHER,
    LOWER,
    MACHINE,
    METRICS,
    PLATFORM,
    PROGRAM,
    RATIO,
    SHARE,
    UNITS,
    Metric,
    format_quantity,
)

if TYPE_CHECKING:
    from pytest_tfperf.results import Profile
    from pytest_tfperf.values import Value

_SCOPES = (PROGRAM, PLATFORM, MACHINE)
_BETTER = (LOWER, HIGHER, None)
_ROUNDING = 1e-9


class Registry:
    """What the hook `pytest_tfperf_metrics` is given: all metrics of a run are in `rows`, those that projects added in `own`."""

    def __init__(self) -> None:
        self.own: dict[str, Metric] = {}
        self._functions: dict[str, Callable[[Profile], Any]] = {}

    @property
    def rows(self) -> Mapping[str, Metric]:
        """The built-in metrics, then the others."""
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
            name: As in `max_<name>` and `profile.<name>`.
            function: Takes a `Profile` (its metrics, also own ones that were added before; `steps`, `tables`, `workload`, and
                `result`, what the last step or Keras returned) and gives a number in the base unit. What it cannot know it
                raises as `UnknownMetric`, which reading an unknown metric does by itself.
            unit: "s", "1/s", "0..1" (a share), "ratio", "count", "bytes" or "FLOP".
            better: "lower", "higher", or None where neither is.
            scope: Where a value holds, as in the table of metrics: "program" on every machine, "platform" for a device kind and
                TensorFlow version, "machine" on one class of machines, as times do.
            meaning: In a few words.

        Raises:
            MetricError: If the name is taken, or one of these is none.
        """
        wrong = _wrong_name(name, self.rows) or _wrong_row(function, unit, better, scope, meaning)
        if wrong:
            raise MetricError(f"pytest_tfperf_metrics: metric {name!r}: {wrong}")
        self.own[name] = Metric(name, unit, better, scope, meaning)
        self._functions[name] = function

    def measured(self, profile: Profile) -> Profile:
        """The profile with the values of the metrics that were added; one whose function gives no number is unknown."""
        if not self.own:
            return profile
        from dataclasses import replace

        from pytest_tfperf.analysis.on_demand import extended

        for name, function in self._functions.items():
            profile = replace(
                profile,
                metrics=extended(
                    profile.metrics, {name: _value(self.own[name], function, profile)}
                ),
            )
        return replace(profile, own=dict(self.own))


def new_registry(config: pytest.Config) -> Registry:
    """
    The registry of a run, which each conftest.py that is found later may add to.

    Raises:
        pytest.UsageError: If one of the metrics that are known already cannot be added.
    """
    registry = Registry()
    try:
        config.hook.pytest_tfperf_metrics.call_historic(kwargs={"registry": registry})
    except MetricError as error:
        raise pytest.UsageError(str(error)) from error
    return registry


def _wrong_name(name: object, rows: Mapping[str, Metric]) -> str | None:
    from pytest_tfperf.baseline.store import RUN_WORDS
    from pytest_tfperf.checks.arguments import OPTION_NAMES
    from pytest_tfperf.results import Profile

    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or iskeyword(name)
        or name.startswith("_")
    ):
        return (
            "its name must be one of Python's, as in tokens_per_second, since limits are max_<name>"
        )
    if name.startswith(("max_", "min_")):
        return "a name that begins with max_ or min_ would be read as a limit"
    if name in rows:
        return f"the name is taken: {rows[name].meaning}"
    if hasattr(Profile, name):
        return f"the name is taken: profile.{name} is something else"
    if name in OPTION_NAMES:
        return f"the name is taken: {name}= is an argument of the marker"
    return f"the name is taken: baselines keep the {name} of a run" if name in RUN_WORDS else None


def _wrong_row(
    function: object, unit: object, better: object, scope: object, meaning: object
) -> str | None:
    if not callable(function):
        return f"its function must be a callable that takes a profile and gives a number, not {type(function).__name__}"
    for what, given, valid in (
        ("unit", unit, UNITS),
        ("better", better, _BETTER),
        ("scope", scope, _SCOPES),
    ):
        if given not in valid:
            return f"{what} {given!r} is none of {', '.join(map(repr, valid))}"
    return (
        None
        if isinstance(meaning, str) and meaning.strip()
        else "it needs a meaning, in a few words"
    )


def _value(metric: Metric, function: Callable[[Profile], Any], profile: Profile) -> Value:
    from pytest_tfperf.values import Source, Value

    try:
        given = function(profile)
    except UnknownMetric as error:
        return Value(number=None, unit=metric.unit, why=str(error))
    except Exception as error:
        return Value(
            number=None,
            unit=metric.unit,
            why=f"its function raised {type(error).__name__}: {error}{_line_of(error)}",
        )
    number = _number(given, metric.unit)
    why = (
        f"its function gave {given!r:.80}, which is no number"
        if number is None
        else _why_not(number, metric.unit)
    )
    return (
        Value(number=None, unit=metric.unit, why=why)
        if why
        else Value(number=number, unit=metric.unit, source=Source.OWN)
    )


def _number(given: Any, unit: str) -> float | None:
    """Also of NumPy's and TensorFlow's scalars; of a share without what adding others up may put beside its ends."""
    if isinstance(given, (bool, str, bytes)):
        return None
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    end = min(max(number, 0.0), 1.0)
    return end if unit == SHARE and abs(number - end) < _ROUNDING else number


def _why_not(number: float, unit: str) -> str | None:
    """Why there is no such quantity, if there is none."""
    if not math.isfinite(number):
        return f"its function gave {number}"
    if unit == SHARE and not 0 <= number <= 1:
        return f"its function gave {number:.6g}, and a share is from 0 to 1"
    return (
        f"its function gave {format_quantity(number, unit)}, which is below zero"
        if number < 0 and unit != RATIO
        else None
    )


def _line_of(error: BaseException) -> str:
    """Where the function raised it: ` (conftest.py:12)`."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the call here
    return f" ({Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
