"""Short summary of a profile: its most telling metrics, with a title for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_tfperf.metric_registry import shown_unit
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.text import aligned
from pytest_tfperf.values import Value

UNKNOWN_CELL = "?"
"""Cell of a metric without a number."""
_COLUMNS = (
    ("step_time", "step"),
    ("input_bound", "input"),
    ("xla_compiles", "compiles"),
    ("retraces", "retraces"),
    ("eager_ops", "eager ops"),
    ("host_overhead", "overhead"),
    ("first_step_time", "first step"),
    ("xla_launches", "XLA launches"),
    ("peak_memory", "memory"),
    ("throughput", "examples"),
    ("epoch_gap", "epoch gap"),
)
"""Metrics and their titles, the most telling first."""
_BEFORE_CUSTOM = 2
_MOST_TELLING = 5


def summary_columns(custom: Iterable[str]) -> list[tuple[str, str]]:
    """Names and titles of the metrics of a summary; custom metrics are among the first."""
    titles = ((name, name.replace("_", " ")) for name in dict.fromkeys(custom))
    return [*_COLUMNS[:_BEFORE_CUSTOM], *titles, *_COLUMNS[_BEFORE_CUSTOM:]]


def summary_metrics() -> tuple[str, ...]:
    """Names of the metrics that tell most of any step."""
    return tuple(name for name, _ in _COLUMNS[:_MOST_TELLING])


def shown_value(value: Value | None, unit: str) -> str:
    """
    Write a number with its unit, its range where steps differ, or `?` if it is unknown.

    Of a number that is known within bounds, only those that say something: `≤ 671 MiB`.
    """
    if value is None or value.number is None:
        return UNKNOWN_CELL
    low, high = value.low(), value.high()
    if low == high:
        return format_quantity(value.number, unit)
    if value.detail.get("at_least"):
        return f"≥ {format_quantity(low, unit)}"
    if low == 0 and value.detail.get("bounds"):
        return f"≤ {format_quantity(high, unit)}"
    return f"{format_quantity(low, unit)}…{format_quantity(high, unit)}"


def summary(title: str, metrics: Mapping[str, Value], custom: Iterable[str]) -> str:
    """Summarise a profile in about ten lines; values without a number are left out."""
    rows = [
        (f"  {name_shown}", shown_value(metrics[name], shown_unit(name, metrics[name].unit)))
        for name, name_shown in summary_columns(custom)
        if name in metrics and metrics[name].number is not None
    ]
    return "\n".join([title, *(aligned(rows, ["left", "right"]) if rows else [])])
