"""Parsing of marker arguments and limits in ini files."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_tfperf.checks.limits import Limit
from pytest_tfperf.errors import LimitError
from pytest_tfperf.metric_registry import HIGHER, METRICS, Metric
from pytest_tfperf.quantities import COUNT, RATIO, SECONDS, SHARE, format_quantity, parse_quantity
from pytest_tfperf.tpu.op_guide import ALL, parse_codes
from pytest_tfperf.tpu.tiles import generation

__tracebackhide__ = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Arguments of the marker: limits, and settings of the profile; None by default."""

    limits: tuple[Limit, ...] = ()
    max_regression: float | None = None
    """Tolerated slow-down as a share."""
    max_python_calls_regression: float | None = None
    """Tolerated rise of python_calls as a share."""
    warmup: int | None = None
    steps: int | None = None
    trace_steps: int | None = None
    latency: bool | None = None
    """True to synchronise and fetch after every call."""
    target_step_time: float | None = None
    """Seconds of a step on a faster device."""
    tpu: str | None = None
    """TPU generation that padding is predicted for."""
    autocluster: bool = False
    """True to let XLA compile what it can."""
    findings: tuple[str, ...] = ()
    """Codes of the op guide that are switched on."""
    ignore_findings: tuple[str, ...] = ()
    """Codes of the op guide that are suppressed."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The arguments as they were passed."""

    def most(self, metric: str) -> float:
        """Return the largest value of a metric that the limits allow."""
        bounds = [
            limit.bound
            for limit in self.limits
            if limit.metric.name == metric and limit.relation != "min"
        ]
        return min(bounds, default=math.inf)

    @classmethod
    def read(cls, arguments: Mapping[str, Any], metrics: Mapping[str, Metric] = METRICS) -> Wanted:
        """Parse marker arguments; raises LimitError for an unknown name or a wrong value."""
        limits, options = [], {}
        for name, value in arguments.items():
            if name in _OPTIONS:
                options[name] = _option(name, value)
            else:
                limits.append(_limit(name, value, metrics))
        return cls(limits=tuple(limits), given=dict(arguments), **options)

    def asks_for(self, metrics: Collection[str]) -> bool:
        """Return whether a limit is on one of these."""
        return any(limit.metric.name in metrics for limit in self.limits)


def argument_names(metrics: Mapping[str, Metric] = METRICS) -> list[str]:
    """Return the names of all arguments of the marker."""
    bounds = [f"{relation}_{name}" for name in metrics for relation in ("max", "min")]
    counts = [name for name, metric in metrics.items() if metric.unit == COUNT]
    return [*bounds, *counts, *_OPTIONS]


def parse_limit_lines(
    lines: Iterable[str], where: str, metrics: Mapping[str, Metric] = METRICS
) -> dict[str, str]:
    """
    Read marker arguments from lines such as `max_input_bound = 5%, …`; raises LimitError, which
    names `where`, for another form, an option, a limit twice, or what cannot be understood.
    """
    arguments: dict[str, str] = {}
    for line in filter(None, (part.strip() for text in lines for part in text.split(","))):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not value:
            raise LimitError(f"{where}: {line!r} is not of the form max_input_bound = 5%")
        if name in _OPTIONS:
            raise LimitError(
                f"{where}: {name} is not a limit; set it on the marker, or as tfperf_{name} if "
                "there is such an ini option"
            )
        try:
            _limit(name, value, metrics)
        except LimitError as error:
            raise LimitError(f"{where}: {error}") from None
        if name in arguments:
            raise LimitError(f"{where}: {name} is set twice, to {arguments[name]} and {value}")
        arguments[name] = value
    return arguments


def parse_steps(value: object, least: int = 1) -> int:
    """Parse a number of steps; raises ValueError if it is not a whole number, or below `least`."""
    try:
        number = parse_quantity(value, COUNT)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None
    if number != int(number) or number < least:
        raise ValueError(f"{value!r} is not a {'positive ' if least else ''}whole number")
    return int(number)


def _limit(name: str, value: object, metrics: Mapping[str, Metric]) -> Limit:
    match = re.match(r"(max|min)_(.+)", name)
    relation, metric = (match[1], match[2]) if match else ("equal", name)
    row = metrics.get(metric)
    if row is None or (relation == "equal" and row.unit != COUNT):
        raise LimitError(_unknown_argument(name, metrics))
    try:
        bound = parse_quantity(value, row.unit)
    except ValueError as error:
        raise LimitError(f"{name}: {error}") from None
    if bound < 0 and row.unit != RATIO:
        raise LimitError(f"{name}: {value!r} is below zero, and {metric} never is")
    if row.unit == SHARE and bound > 1:
        raise LimitError(
            f"{name}: {value!r} is above the whole; a share is from 0 to 1: "
            f"write {_as_share(value)}"
        )
    return Limit(metric=row, relation=relation, bound=bound, argument=f"{name}={_written(value)}")


def _as_share(value: object) -> str:
    """Return a share that was meant by a number above 1, as in code: `0.05 or '5%'`."""
    number = parse_quantity(value, SHARE)
    if number > 100 or str(value).rstrip().endswith("%"):
        return "0.05 or '5%'"
    return f"{number / 100:g} or '{number:g}%'"


def _written(value: object) -> str:
    """Write a value as in code; floats that code computed have at most four digits."""
    return min(repr(value), f"{value:.4g}", key=len) if isinstance(value, float) else repr(value)


def _unknown_argument(name: str, metrics: Mapping[str, Metric]) -> str:
    """Describe an unknown argument: the nearest name, or all valid ones in short."""
    if name in metrics:
        close = [f"{'min' if metrics[name].better == HIGHER else 'max'}_{name}"]
    else:
        close = difflib.get_close_matches(name, argument_names(metrics), 1)
    if close:
        return f"unknown argument {name!r}; did you mean {close[0]!r}? `tfperf metrics` lists all"
    counts = ", ".join(metric.name for metric in metrics.values() if metric.unit == COUNT)
    return (
        f"unknown argument {name!r}; valid: max_ or min_ before a metric "
        f"({', '.join(metrics)}); a count by its name ({counts}); {', '.join(_OPTIONS)}"
    )


def _option(name: str, value: Any) -> Any:
    try:
        return _OPTIONS[name](value)
    except (LimitError, TypeError, ValueError) as error:
        raise LimitError(f"{name}: {error}") from None


def _positive(value: object, unit: str) -> float:
    number = parse_quantity(value, unit)
    if number <= 0:
        raise ValueError(f"{value!r} is not above zero")
    return number


def _not_negative(value: object, unit: str) -> float:
    number = parse_quantity(value, unit)
    if number < 0:
        raise ValueError(f"{value!r} is below zero")
    return number


def parse_tolerance(value: object, parse: Callable[[object, str], float] = _positive) -> float:
    """
    Read a tolerated increase, 0.05 or "5%"; raises ValueError, also for one above 100 % without a
    percent sign, since 5 may mean 5 %.
    """
    number = parse(value, RATIO)
    if number > 1 and not str(value).rstrip().endswith("%"):
        raise ValueError(
            f"{value!r} is {format_quantity(number, RATIO)}: write {_as_share(value)}, "
            f"or '{number * 100:g}%' if you mean that"
        )
    return number


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither True nor False")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


REGRESSIONS = ("max_regression", "max_python_calls_regression")
"""Arguments that limit a change, of all profiles of a test."""
_OPTIONS: dict[str, Any] = {
    "max_regression": parse_tolerance,
    "max_python_calls_regression": lambda value: parse_tolerance(value, _not_negative),
    "warmup": lambda value: parse_steps(value, least=0),
    "steps": parse_steps,
    "trace_steps": parse_steps,
    "latency": _flag,
    "target_step_time": lambda value: _positive(value, SECONDS),
    "tpu": lambda value: generation(_text(value)).name,
    "autocluster": _flag,
    "findings": lambda value: (ALL,) if value in (ALL, [ALL], (ALL,)) else parse_codes(value),
    "ignore_findings": parse_codes,
}
OPTION_NAMES = frozenset(_OPTIONS)
