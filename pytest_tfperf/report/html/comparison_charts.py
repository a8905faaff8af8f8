"""Data of the charts of step times, from a profile and the comparison of its step time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_tfperf.report.html.history_chart import (
    HistoryChart,
    RecordedRuns,
    SmallHistory,
    history_chart,
    small_history,
)
from pytest_tfperf.report.html.ratio_chart import Decided, RatioChart, ratio_chart
from pytest_tfperf.results import Check, Profile
from pytest_tfperf.text import elide
from pytest_tfperf.values import Value

_REASON = 600  # characters


def levels(step_time: Value | None, timed: Check | None) -> dict[str, float]:
    """Seconds of a step without the profiler, and of one before, measured in the same way."""
    found = {}
    if timed and timed.kind == "against" and timed.detail.get("after") is not None:
        found["in turns"] = float(timed.detail["after"])
    elif step_time and step_time.number is not None:
        found["step_time"] = step_time.number
    if timed:
        before = "other version" if timed.kind == "against" else "baseline"
        found[before] = float(timed.detail["before"])
    return found


def samples(profile: Profile, timed: Check | None) -> dict[str, tuple[str, Sequence[float]]]:
    """
    Return timed blocks without those of a slow start, and the turns of both versions.

    The steps of a trace stand for the blocks where none was timed.
    """
    step_time = profile.metrics.get("step_time")
    n_dropped = int(step_time.detail.get("n_dropped", 0)) if step_time else 0
    slow = f", without {n_dropped} of a slow start" if n_dropped else ""
    found: dict[str, tuple[str, Sequence[float]]] = {
        f"timed blocks{slow}": ("own", profile.blocks_s[n_dropped:])
    }
    if profile.steps and not profile.blocks_s:
        found = {"traced steps": ("own", [step.period_s for step in profile.steps])}
    detail = _detail(timed)
    if detail.get("turns"):
        after, before = zip(*detail["turns"], strict=True)
        found["turns of this version"] = ("own", after)
        found["turns of the other version"] = ("other", before)
    return found


def why_untimed(profile: Profile) -> str:
    """Return why no step time of a profile is known one by one."""
    step_time = profile.metrics.get("step_time")
    why = step_time.why if step_time else None
    return elide(why or "no step was timed without the profiler", _REASON)


def history_of(timed: Check | None, named: bool) -> HistoryChart | None:
    """
    Return the chart of the recorded runs, or None if the step was not compared with any.

    Args:
        timed: The comparison of the step time.
        named: True to give each run its time and commit as a text.
    """
    recorded, detail = _recorded(timed), _detail(timed)
    if recorded is None:
        return None
    bounds = None
    if detail.get("low") is not None and detail.get("high") is not None:
        bounds = (detail["before"] * detail["low"], detail["before"] * detail["high"])
    tolerance = detail.get("tolerance")
    limit = None if tolerance is None else detail["before"] * (1 + tolerance)
    chart = history_chart(recorded, detail["after"], bounds, limit)
    return chart if named or chart is None else replace(chart, commits=())


def small_history_of(timed: Check | None) -> SmallHistory | None:
    """Return the recorded runs for a cell of a table, or None."""
    recorded = _recorded(timed)
    return small_history(recorded, _detail(timed)["after"]) if recorded else None


def ratios(timed: Check | None) -> RatioChart | None:
    """Return the chart of a comparison's turns, or None if there were none."""
    detail = _detail(timed)
    sizes = [int(pair["n"]) for pair in detail.get("process_pairs", ())]
    decided = Decided(
        low=detail.get("low"), high=detail.get("high"), tolerance=detail.get("tolerance")
    )
    return ratio_chart(detail.get("turns") or (), sizes, decided)


def _recorded(timed: Check | None) -> RecordedRuns | None:
    detail = _detail(timed)
    if not detail.get("runs"):
        return None
    commits = [str(commit) for commit in detail.get("commits", ())]
    return RecordedRuns(
        runs=detail["runs"],
        commits=commits if len(commits) == len(detail["runs"]) else (),
        anchor=detail.get("anchor"),
    )


def _detail(timed: Check | None) -> Mapping[str, Any]:
    return timed.detail if timed else {}
