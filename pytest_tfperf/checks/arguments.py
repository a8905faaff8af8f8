"""Marker arguments and ini limits, parsed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_tfperf.checks.limits import _OPTIONS, Limit, _limit, _option
from pytest_tfperf.errors import LimitError
from pytest_tfperf.metrics import COUNT, METRICS, Metric, parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a test asks for: limits, and how its steps are profiled; None where nothing was said."""

    limits: tuple[Limit, ...] = ()
    max_regression: float | None = None
    warmup: int | None = None
    steps: int | None = None
    trace_steps: int | None = None
    latency: bool | None = None
    target_step_time: float | None = None
    tpu: str | None = None
    autocluster: bool = False
    findings: tuple[str, ...] = ()
    ignore_findings: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, arguments: Mapping[str, Any], metrics: Mapping[str, Metric] = METRICS) -> Wanted:
        """
        The meaning of marker arguments, where these are all metrics.

        Raises:
            LimitError: If a name is not known or a value cannot be understood.
        """
        limits, options = [], {}
        for name, value in arguments.items():
            if name in _OPTIONS:
                options[name] = _option(name, value)
            else:
                limits.append(_limit(name, value, metrics))
        return cls(limits=tuple(limits), given=dict(arguments), **options)

    def asks_for(self, metrics: Collection[str]) -> bool:
        """Whether a limit is on one of these."""
        return any(limit.metric.name in metrics for limit in self.limits)


def argument_names(metrics: Mapping[str, Metric] = METRICS) -> list[str]:
    """Every argument that the marker takes."""
    bounds = [f"{relation}_{name}" for name in metrics for relation in ("max", "min")]
    return (
        bounds + [name for name, metric in metrics.items() if metric.unit == COUNT] + list(_OPTIONS)
    )


def parse_limit_lines(
    lines: Iterable[str], where: str, metrics: Mapping[str, Metric] = METRICS
) -> dict[str, str]:
    """
    Marker arguments from lines such as `max_input_bound = 5%`; several may stand on a line, separated by commas.

    Raises:
        LimitError: If a line is not of that form, names an option that is no limit, or cannot be understood.
    """
    arguments = {}
    for line in filter(None, (part.strip() for text in lines for part in text.split(","))):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not value:
            raise LimitError(f"{where}: {line!r} is not of the form max_input_bound = 5%")
        if name in _OPTIONS:
            raise LimitError(
                f"{where}: {name} is no limit; set it on the marker, or as tfperf_{name} where there is such an ini"
            )
        try:
            _limit(name, value, metrics)
        except LimitError as error:
            raise LimitError(f"{where}: {error}") from error
        arguments[name] = value
    return arguments


def parse_steps(value: object, least: int = 1) -> int:
    """
    A number of steps.

    Raises:
        ValueError: If it is no whole number, or below the least.
    """
    number = parse_quantity(value, COUNT)
    if number != int(number) or number < least:
        raise ValueError(f"{value!r} is not a {'positive ' if least else ''}whole number")
    return int(number)


OPTION_NAMES = frozenset(_OPTIONS)
