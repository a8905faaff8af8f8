"""Custom metrics of a project: check their declarations, and compute their values."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path
from typing import Any

from pytest_tfperf.baseline.store import RUN_WORDS
from pytest_tfperf.checks.arguments import OPTION_NAMES
from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.metric_registry import HIGHER, LOWER, MACHINE, PLATFORM, PROGRAM, Metric
from pytest_tfperf.metrics.profile import extended
from pytest_tfperf.quantities import RATIO, SHARE, UNITS, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Source, Value

_SCOPES = (PROGRAM, PLATFORM, MACHINE)
_BETTER = (LOWER, HIGHER, None)
_ROUNDING = 1e-9


def invalid_name(name: object, rows: Mapping[str, Metric]) -> str | None:
    """Return why a metric cannot have this name besides these metrics, or None if it can."""
    if not isinstance(name, str) or not name.isidentifier():
        return "the name must be a valid Python identifier, e.g. tokens_per_second"
    if iskeyword(name) or name.startswith("_"):
        return "the name must be neither a keyword nor begin with _, e.g. tokens_per_second"
    if name.startswith(("max_", "min_")):
        return "a name that begins with max_ or min_ would be read as a limit"
    if name in rows:
        return f"the name is taken: {rows[name].meaning}"
    if hasattr(Profile, name):
        return f"the name is taken: profile.{name} is something else"
    if name in OPTION_NAMES:
        return f"the name is taken: {name}= is an argument of the marker"
    return f"the name is taken: baselines keep the {name} of a run" if name in RUN_WORDS else None


def invalid_argument(
    function: object, unit: object, better: object, scope: object, meaning: object
) -> str | None:
    """Return what is wrong with the declaration of a metric, or None if nothing is."""
    if not callable(function):
        return (
            "its function must be a callable that takes a profile and returns a number, "
            f"not {type(function).__name__}"
        )
    for argument, passed, valid in (
        ("unit", unit, UNITS),
        ("better", better, _BETTER),
        ("scope", scope, _SCOPES),
    ):
        if passed not in valid:
            return f"{argument} {passed!r} is not one of {', '.join(map(repr, valid))}"
    if not isinstance(meaning, str) or not meaning.strip():
        return "it needs a meaning, in a few words"
    return None


def with_values(
    profile: Profile,
    metrics: Mapping[str, Metric],
    functions: Mapping[str, Callable[[Profile], Any]],
) -> Profile:
    """Return the profile with values of custom metrics, which may read those before them."""
    for name, function in functions.items():
        value = _value(metrics[name], function, profile)
        profile = replace(profile, metrics=extended(profile.metrics, {name: value}))
    return replace(profile, own=dict(metrics))


def _value(metric: Metric, function: Callable[[Profile], Any], profile: Profile) -> Value:
    """Return what the function returned for a profile; unknown if that is not such a quantity."""
    try:
        result = function(profile)
    except UnknownMetric as error:
        return Value(number=None, unit=metric.unit, why=str(error))
    except Exception as error:
        why = f"its function raised {type(error).__name__}: {error}{_line_of(error)}"
        return Value(number=None, unit=metric.unit, why=why)
    number = _number(result, metric.unit)
    if number is None:
        why = f"its function returned {result!r:.80}, which is not a number"
        return Value(number=None, unit=metric.unit, why=why)
    if problem := _problem(number, metric.unit):
        return Value(number=None, unit=metric.unit, why=problem)
    return Value(number=number, unit=metric.unit, source=Source.OWN)


def _number(result: Any, unit: str) -> float | None:
    """
    Return the number, of NumPy and TensorFlow too, or None; a share just outside of 0 to 1, by
    rounding, is 0 or 1.
    """
    if isinstance(result, (bool, str, bytes)):
        return None
    try:
        number = float(result)
    except (TypeError, ValueError, OverflowError):
        return None
    clipped = min(max(number, 0.0), 1.0)
    return clipped if unit == SHARE and abs(number - clipped) < _ROUNDING else number


def _problem(number: float, unit: str) -> str | None:
    """Return why a quantity of this unit cannot have this number, or None if it can."""
    if not math.isfinite(number):
        return f"its function returned {number}"
    if unit == SHARE and not 0 <= number <= 1:
        return f"its function returned {number:.6g}, and a share is from 0 to 1"
    if unit != RATIO and number < 0:
        return f"its function returned {format_quantity(number, unit)}, which is below zero"
    return None


def _line_of(error: BaseException) -> str:
    """Return the line of the function that raised an error, as ` (conftest.py:12)`."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the call here
    return f" ({Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
