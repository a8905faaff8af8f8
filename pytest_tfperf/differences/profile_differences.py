"""Differences between two profiles of one step, with the time of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pytest_tfperf.differences.call_differences import (
    call_differences,
    called_functions,
    host_time_grew,
)
from pytest_tfperf.differences.compiler_differences import (
    executable_differences,
    graph_differences,
    outside_differences,
)
from pytest_tfperf.differences.difference import (
    LEAST_SHARE,
    Difference,
    change_of_time,
    most_telling,
)
from pytest_tfperf.differences.op_differences import op_differences
from pytest_tfperf.differences.stage_differences import (
    python_differences,
    stage_differences,
)
from pytest_tfperf.differences.work_differences import op_counts, work_differences
from pytest_tfperf.metrics.op_work import TABLE
from pytest_tfperf.quantities import SHARE, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict, part_title
from pytest_tfperf.text import Labelled, and_more
from pytest_tfperf.values import PARTS, Table

LOOK_FURTHER = ("try", "look at the other metrics that differ")
"""Advice on a slower step for which no difference is known."""
CAST = "cast them where the data are made or loaded"
"""Advice on inputs of another dtype."""
_IN_MESSAGES, _IN_REPORTS = 5, 20  # differences that are shown
_NAMED_INPUTS = 4
_Comparison = Callable[[Mapping[str, Table], Mapping[str, Table]], Iterator[Difference]]
_COUNTED: dict[str, _Comparison] = {
    "fusions": executable_differences,
    "xla_clusters": executable_differences,
    "xla_launches": executable_differences,
    "xla_coverage": outside_differences,
}
"""Comparison that explains a change of a metric that counts something."""


def differences(before: Profile, after: Profile) -> tuple[Difference, ...]:
    """
    Find all differences between two profiles of one step.

    A time differs if it changed by at least 2 % of the step, and by more than the middle half of
    the steps of either profile spans. Ops, stages and executables that came or went differ however
    short they are, except host ops that a trace may lack.

    Returns:
        Differences with a time, the largest first, then the others; empty without two traces.
    """
    if not before.steps or not after.steps:
        return ()
    mean_s = statistics.fmean(step.period_s for step in before.steps)
    least_s = max(LEAST_SHARE * mean_s, _middle_half_s(before), _middle_half_s(after))
    timed = [
        *_part_differences(before, after, least_s),
        *op_differences(before.tables, after.tables, least_s),
        *stage_differences(before.tables, after.tables, least_s),
    ]
    timed.sort(key=lambda one: -abs(one.seconds or 0.0))
    return (
        *timed,
        *python_differences(before.tables, after.tables),
        *work_differences(op_counts(before.tables.get(TABLE)), after.tables.get(TABLE)),
        *function_differences(
            [_numbers(before)], called_functions(before.tables.get("python_calls")), after
        ),
        *executable_differences(before.tables, after.tables),
        *graph_differences(before.tables, after.tables),
        *outside_differences(before.tables, after.tables),
    )


def function_differences(
    runs: Sequence[Mapping[str, float]], called: Mapping[str, float] | None, after: Profile
) -> Iterator[Difference]:
    """
    Compare the Python functions that a step calls, unless the host's own time did not grow.

    Args:
        runs: Metrics of each earlier run.
        called: The calls a step in these, by function.
        after: The profile now.
    """
    if host_time_grew(runs, _numbers(after)):
        yield from call_differences(called, after.tables.get("python_calls"))


def _numbers(profile: Profile) -> dict[str, float]:
    """Return those known metrics that tell the host's own time."""
    values = {name: profile.metrics.get(name) for name in ("host_overhead", "step_time")}
    return {name: one.number for name, one in values.items() if one and one.number is not None}


def _middle_half_s(profile: Profile) -> float:
    """Span of the middle half of the periods: parts and ops differ by as much without a change."""
    periods = sorted(step.period_s for step in profile.steps)
    return periods[(3 * len(periods) - 1) // 4] - periods[len(periods) // 4]


def _part_differences(before: Profile, after: Profile, least_s: float) -> Iterator[Difference]:
    """Compare the parts of the mean step."""
    old, new = mean_parts_s(before), mean_parts_s(after)
    for part in PARTS:
        change_s = new[part] - old[part]
        if abs(change_s) >= least_s:
            title, change = part_title(part, after), change_of_time(old[part], new[part])
            yield Difference(
                what=f"{title}, of the traced step {change}",
                seconds=change_s,
            )


def mean_parts_s(profile: Profile) -> dict[str, float]:
    """Return the seconds of each part of the mean step; the profile must have steps."""
    n_steps = len(profile.steps)
    return {part: sum(step.parts_s[part] for step in profile.steps) / n_steps for part in PARTS}


def setting_differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Compare versions, precision policy, flags and all else that both settings hold."""
    return tuple(
        Difference(what=f"{name} {before[name] or 'none'} → {after[name] or 'none'}")
        for name in sorted(after)
        if name in before and before[name] != after[name]
    )


def workload_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], ref: str | None = None
) -> str:
    """
    Name the fields of two workloads that differ.

    Args:
        before: The workload before.
        after: The workload now.
        ref: Git ref of the workload before; None if it is the stored one.
    """
    texts = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            shown = f"stored {old}" if ref is None else f"{old} on {ref}"
            texts.append(f"{name}: {shown}, now {new}")
    return "; ".join(texts)


def dtype_change(before: Mapping[str, Any], after: Mapping[str, Any], reference: str) -> str:
    """
    Return `inputs are float64 now, float32 in the baseline (float32[8] → float64[8])`.

    Args:
        before: The workload before.
        after: The workload now.
        reference: Words for where the workload before was, such as `in the baseline`.

    Returns:
        The sentence; empty if no input changed its dtype alone.
    """
    old, new = before.get("inputs", ()), after.get("inputs", ())
    if len(old) != len(new):
        return ""
    changed = [
        (was, now)
        for was, now in zip(old, new, strict=True)
        if was != now and was.partition("[")[2] == now.partition("[")[2] != ""
    ]
    if not changed:
        return ""
    dtypes = (
        " and ".join(dict.fromkeys(one.partition("[")[0] for one in side))
        for side in zip(*changed, strict=True)
    )
    of_before, of_now = dtypes
    subject = "an input is" if len(changed) == 1 < len(new) else "inputs are"
    shown = and_more([f"{was} → {now}" for was, now in changed], _NAMED_INPUTS)
    return f"{subject} {of_now} now, {of_before} {reference} ({shown})"


def metric_differences(runs: Sequence[Mapping[str, Any]], after: Profile) -> tuple[Difference, ...]:
    """
    Compare shares of a step with those of stored runs, for which there is no trace.

    Args:
        runs: Metrics of each stored run.
        after: The profile now.

    Returns:
        Shares outside the range of all runs and at least 2 % from their median, the largest first.
    """
    changes = []
    for name, value in after.metrics.items():
        stored = [run[name] for run in runs if name in run]
        if value.number is None or not stored or after.registry[name].unit != SHARE:
            continue
        median = statistics.median(stored)
        is_outside = not min(stored) <= value.number <= max(stored)
        if is_outside and abs(value.number - median) >= LEAST_SHARE:
            changes.append((name, median, value.number))
    changes.sort(key=lambda change: -abs(change[2] - change[1]))
    return tuple(
        Difference(what=f"{name} {format_quantity(old, SHARE)} → {format_quantity(new, SHARE)}")
        for name, old, new in changes
    )


def with_differences(
    check: Check,
    found: Sequence[Difference],
    before: Profile | None = None,
    lead: tuple[tuple[Labelled, ...], tuple[Labelled, ...]] = ((), ()),
) -> Check:
    """
    Add differences to a check's detail, for reports.

    The message of a regression begins with the most telling ones.

    Args:
        check: The check of a step time.
        found: The differences, the largest first.
        before: The profile before, whose parts of a step are added, if there is one.
        lead: Lines on a cause that goes before all differences in time, and on its remedy.
    """
    if before is not None and before.steps:
        parts = {part: seconds for part, seconds in mean_parts_s(before).items() if seconds > 0}
        check = replace(check, detail={**check.detail, "parts_before": parts})
    first, remedy = lead
    if check.verdict is Verdict.REGRESSION and (found or first):
        causes = tuple(("", one.line) for one in most_telling(found, _IN_MESSAGES))
        advice = tuple(one for one in check.advice if one != LOOK_FURTHER)
        lines = (*first, *causes, *check.details)
        check = replace(check, details=lines, advice=(*remedy, *advice))
    if not found:
        return check
    kept = [asdict(one) for one in most_telling(found, _IN_REPORTS)]
    return replace(check, detail={**check.detail, "differences": kept})


def with_reasons(check: Check, before: Profile, after: Profile) -> Check:
    """
    Add the changes behind a regression of a metric that counts something.

    Args:
        check: The check.
        before: The profile before.
        after: The profile after.
    """
    find = _COUNTED.get(check.metric)
    if find is None or check.verdict is not Verdict.REGRESSION:
        return check
    found = find(before.tables, after.tables)
    return check.with_details(*(("", one.line) for one in found))
