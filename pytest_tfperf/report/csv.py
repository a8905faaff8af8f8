"""A run as CSV (RFC 4180): one row for each metric of each profile, in base units, as spreadsheets and data frames read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tfperf.results import Check, Profile, ProfiledTest, Run
from pytest_tfperf.values import Value

COLUMNS = (
    "created",
    "commit",
    "platform",
    "file",
    "test",
    "profile",
    "outcome",
    "metric",
    "value",
    "unit",
    "scope",
    "better",
    "source",
    "low",
    "high",
    "why",
    "limit",
    "limit_verdict",
    "before",
    "ratio",
    "ratio_low",
    "ratio_high",
    "comparison_verdict",
)
"""`low` and `high` are over the steps, `before` to `ratio_high` are those of a comparison; what is not known is empty."""


def render_csv(run: Run) -> str:
    """Return the table, with its titles on top; a metric that has several limits has the first one's that is not PASS, else the first one's."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(
        [
            run.created,
            run.commit,
            test.environment.get("platform", ""),
            test.file,
            test.key,
            profile.name,
            test.outcome,
            *row,
        ]
        for test in run.tests
        for profile in test.profiles
        for row in _metrics(test, profile)
    )
    return text.getvalue().encode(errors="replace").decode()  # halves of surrogate pairs


def _metrics(test: ProfiledTest, profile: Profile) -> Iterator[list[Any]]:
    for name, value in profile.metrics.items():
        metric = profile.registry.get(
            name
        )  # a run file of another version may have one that is not known here
        limit, comparison = (_check(test, profile, name, is_limit) for is_limit in (True, False))
        detail = comparison.detail if comparison else {}
        yield [
            name,
            value.number,
            value.unit,
            metric.scope if metric else "",
            metric.better or "" if metric else "",
            value.source.value if value.source else "",
            *_over_steps(value),
            value.why or "",
            limit.wanted if limit else "",
            limit.verdict.value if limit else "",
            detail.get("before"),
            _ratio(detail),
            detail.get("low"),
            detail.get("high"),
            comparison.verdict.value if comparison else "",
        ]


def _check(test: ProfiledTest, profile: Profile, metric: str, is_limit: bool) -> Check | None:
    found = [
        one
        for one in test.checks
        if (one.profile, one.metric, one.kind == "limit") == (profile.name, metric, is_limit)
    ]
    return next((one for one in found if one.verdict.value != "PASS"), found[0] if found else None)


def _over_steps(value: Value) -> tuple[float | None, float | None]:
    return (None, None) if value.number is None else (value.low(), value.high())


def _ratio(detail: Mapping[str, Any]) -> float | None:
    before, after, ratio = (detail.get(name) for name in ("before", "after", "ratio"))
    if ratio is not None:
        return float(ratio)
    return float(after / before) if before and after is not None else None
