"""Explanations of the command `tfperf history` where nothing is stored for what was asked."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from pytest_tfperf.metric_registry import METRICS, nearest
from pytest_tfperf.run_history.rows import MetricRow
from pytest_tfperf.run_history.stores import HistoryStore, Selection
from pytest_tfperf.text import and_more, plural

_NAMED = 5


def absent_project(store: HistoryStore, project: str) -> str:
    """Say that a store has no run of a project, and whose runs it has; empty if it has one."""
    found = store.sql("SELECT DISTINCT project FROM runs", "").rows
    projects = sorted(str(name) for (name,) in found)
    if project in projects:
        return ""
    if not projects:
        return f"{store.name}: it has no runs"
    return f"{store.name}: no run of project {project!r}; {nearest(project, projects)}"


def why_none(
    store: HistoryStore,
    options: argparse.Namespace,
    found: Sequence[MetricRow],
    names: Sequence[str],
) -> str:
    """
    Explain that no run is stored for what was asked.

    Args:
        store: The store.
        options: The options.
        found: Rows of the project, branch, metric and time.
        names: Tests of these rows that have runs of a commit.
    """
    if names:
        return f"no run of {options.test!r}; {nearest(options.test, set(names))}"
    absent = absent_project(store, options.project)
    if absent:
        return absent
    unknown = "" if options.metric in METRICS else f"; {nearest(options.metric, METRICS)}"
    since = f" since {options.since}" if options.since else ""
    where = f"project {options.project}, branch {options.branch}{since}"
    changed = len({row.run for row in found if row.commit.endswith("+")})
    left_out = f"; {plural(changed, 'run')} of a changed work tree left out" if changed else ""
    rows = store.rows(Selection(project=options.project, metrics=(options.metric,)))
    return (
        f"no run with {options.metric} is stored for {where}{unknown}{left_out}"
        f"{_stored(row.branch for row in rows if row.value is not None)}"
    )


def _stored(branches: Iterable[str]) -> str:
    """Name the branches that have runs; the name is empty for runs without a branch."""
    names = sorted(set(branches))
    if not names:
        return ""
    known = [f"branch {name}" if name else "runs without a branch" for name in names]
    hint = "" if all(names) else " (git or a variable of CI names the branch of a run)"
    return f"; stored: {and_more(known, _NAMED)}{hint}"
