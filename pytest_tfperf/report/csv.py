"""A run as CSV (RFC 4180), for spreadsheets: one row for each metric, in base units."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from pytest_tfperf.results import Check, Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import plain

_FORMULA = ("=", "+", "-", "@", "\t")
COLUMNS = (
    *("created", "commit", "platform", "file", "test", "profile", "outcome"),
    *("metric", "value", "unit", "scope", "better", "source", "low", "high", "why"),
    *("limit", "limit_verdict", "before", "ratio", "ratio_low", "ratio_high"),
    "comparison_verdict",
)
"""
Titles of the columns; unknown cells are empty.

`low` and `high` are over the steps, `before` to `ratio_high` are those of a comparison.
"""


def render_csv(run: Run) -> str:
    """Render a run; of several limits on a metric it has the first one that did not pass."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for test in run.tests:
        of_run = run.created, run.commit, test.environment.get("platform", "")
        for profile in test.profiles:
            of_test = test.file, test.key, profile.name, test.outcome
            for row in _metrics(test, profile):
                writer.writerow([csv_cell(one) for one in (*of_run, *of_test, *row)])
    return text.getvalue()


def csv_cell(content: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula (OWASP, CSV Injection)."""
    if not isinstance(content, str):
        return content
    text = plain(content)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _metrics(test: ProfiledTest, profile: Profile) -> Iterator[list[Any]]:
    for name, value in profile.metrics.items():
        # a run file of another version may have metrics that are unknown here
        metric = profile.registry.get(name)
        limit, comparison = (_check(test, profile, name, is_limit) for is_limit in (True, False))
        detail = comparison.detail if comparison else {}
        yield [
            name,
            value.number,
            value.unit,
            metric.scope if metric else "",
            metric.better or "" if metric else "",
            value.source.value if value.source else "",
            *((None, None) if value.number is None else (value.low(), value.high())),
            value.why or "",
            limit.wanted if limit else "",
            limit.verdict.value if limit else "",
            detail.get("before"),
            comparison.ratio if comparison else None,
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
