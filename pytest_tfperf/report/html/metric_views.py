"""Views of metrics and compared values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import SHARE, format_quantity, format_ratio
from pytest_tfperf.report.html.tables import cell
from pytest_tfperf.results import Check, Profile, worst_first
from pytest_tfperf.summary import shown_value
from pytest_tfperf.text import elide
from pytest_tfperf.values import Value

MOST_LETTERS, _REMARK = 2000, 180  # characters

Reason = tuple[str, tuple[str, ...]]
"""Reason for which something is unknown, and the metrics that are unknown for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A metric that is known."""

    name: str
    """Name of the metric."""
    value: str
    """Value, as text."""
    source: str
    """Source of the number."""
    check: Check | None
    """The worst check of it."""
    where: str
    """Where its time goes, and what to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A value compared with one from before."""

    metric: str
    """Name of the metric."""
    before: str
    """Value before, as text."""
    after: str
    """Value after, as text."""
    ratio: str
    """Ratio, as text."""
    interval: str
    """Interval of the ratio, as text."""
    check: Check
    """Check of the comparison."""


def change_view(profile: Profile, check: Check) -> ValueChange:
    """Return the view of a comparison, as texts in the metric's unit."""
    value, detail = profile.metrics.get(check.metric), check.detail
    unit = value.unit if value else ""
    before, after = detail["before"], detail.get("after")
    return ValueChange(
        metric=check.metric,
        before=cell(before, unit).shown,
        after=cell(after, unit).shown or "unknown",
        ratio="" if check.ratio is None else f"× {format_ratio(check.ratio)}",
        interval=_interval(detail),
        check=check,
    )


def _interval(detail: Mapping[str, Any]) -> str:
    if detail.get("low") is None or detail.get("high") is None:
        return ""
    level = (
        f", {format_quantity(detail['confidence'], SHARE)} interval"
        if detail.get("confidence")
        else ""
    )
    return f"{format_ratio(detail['low'])} to {format_ratio(detail['high'])}{level}"


def metric_views(known: Mapping[str, Value], checks: Sequence[Check]) -> tuple[MetricView, ...]:
    """
    Return the views of known metrics.

    Args:
        known: Their values, by name.
        checks: Checks of the profile.
    """
    views: list[MetricView] = []
    first: dict[str, str] = {}  # metrics of one cause often have the same text
    for name, value in known.items():
        worst = worst_first([check for check in checks if check.metric == name])
        found = [str(value.detail[key]) for key in ("where", "try") if value.detail.get(key)]
        where = elide("; ".join(found), _REMARK)
        views.append(
            MetricView(
                name=name,
                value=shown_value(value, value.unit),
                source=value.source.value if value.source else "",
                check=worst[0] if worst else None,
                where=f"as for {first[where]}" if where in first else where,
            )
        )
        if where:
            first.setdefault(where, name)
    return tuple(views)


def unknown_reasons(profile: Profile) -> tuple[Reason, ...]:
    """Group the unknown metrics of a profile by their reason."""
    reasons: dict[str, list[str]] = {}
    for name, value in profile.metrics.items():
        if value.number is None:
            reasons.setdefault(elide(value.why or "", _REMARK), []).append(name)
    return tuple((why, tuple(names)) for why, names in reasons.items())
