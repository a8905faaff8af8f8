"""The page of a history: the values of one metric over the runs of each profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_tfperf.baseline.level_changes import LevelChanges
from pytest_tfperf.report.html.history_chart import RecordedRuns, history_chart
from pytest_tfperf.report.html.page import MOST_LETTERS, Head, TrendView, render_page
from pytest_tfperf.text import elide, plural

_BAND = (5.0, 95.0)  # percentiles of the runs since the last change of level


def render_trends(
    metric: str,
    trends: Sequence[tuple[str, str, RecordedRuns, LevelChanges]],
    facts: Sequence[str],
) -> str:
    """
    Render series of a metric.

    Args:
        metric: Name of the metric.
        trends: Title, facts, runs, and changes of level of each series.
        facts: Lines at the top of the page.
    """
    changed = [
        f"{title}: {changes.sentences[-1]}" for title, _, _, changes in trends if changes.points
    ]
    verdict = (
        changed[0]
        if changed
        else f"No change of level in the {metric} of {plural(len(trends), 'profile')}."
    )
    head = Head(
        title=f"tfperf: history of {metric}",
        heading=f"History of {metric}",
        verdict=elide(verdict, MOST_LETTERS),
        tone="open" if changed else "none",
        lines=tuple(elide(line, MOST_LETTERS) for line in facts),
        noun="profile",
    )
    views = [
        TrendView(
            title=title,
            facts=about,
            chart=history_chart(_before_last(runs), runs.runs[-1]),
        )
        for title, about, runs, _ in trends
    ]
    return render_page(head, (), trends=views)


def band_of(values: Sequence[float], changes: LevelChanges) -> tuple[float, float]:
    """Return the range of nine in ten values since the last change of level."""
    first = changes.points[-1].index if changes.points else 0
    low, high = np.percentile(values[first:], _BAND)
    return float(low), float(high)


def _before_last(runs: RecordedRuns) -> RecordedRuns:
    """Return all runs but the last one, which a chart shows as this run."""
    return RecordedRuns(
        runs=runs.runs[:-1],
        commits=runs.commits,
        metric=runs.metric,
        unit=runs.unit,
        band=runs.band,
    )
