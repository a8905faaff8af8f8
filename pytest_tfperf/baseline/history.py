"""
The history of step times in a timing file: its latest runs, quiet and busy, and its anchor.

A run is busy if others used the machine in its timed window. Its own step time is then known by
bounds: it is at most what the clock showed.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.json_file import LARGEST_INTEGER
from pytest_tfperf.machine.conditions import MATTERS
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.stats.prediction_interval import RUNS_TO_DECIDE, History, is_another_level
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json

KEPT_RUNS = 10
"""Latest runs that a history keeps: so many quiet ones, and as many busy ones."""
KNOWN = "it is recorded already"
CPU, DEVICE = "step_cpu_time", "device_time"
"""Times of a step that other load hardly moves."""
LOAD_MOVES = 1.2
"""
What other load moves the processor time of a step by, at most, either way.

Threads that spin while they wait take less of a busy machine, cold caches take more. Measured on
two cores with 0, 2 and 4 busy processes: from 16 % less (XLA on TensorFlow) to 16 % more (one
thread on one core). See docs/explanation/measuring.md.
"""
_LIKE_LOAD = 0.15
"""Difference of two shares of the cores within which loads are alike; half a core of four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """An entry of a timing file with new runs in it."""

    entry: Json | None
    """The entry; None if no run was added."""
    n_added: int = 0
    level: tuple[str, float, float] | None = None
    """Metric, its value before and now, where the history starts anew by it; else None."""
    left_out: tuple[tuple[int, str], ...] = ()
    """Place of each run that was not added, and the reason."""

    @property
    def what(self) -> str:
        """The change of the history, for people."""
        added = plural(self.n_added, "run")
        if self.level is None:
            return f"times: {added} added, {len(self.entry['runs']) if self.entry else 0} kept"
        metric, *values = self.level
        before, now = (format_quantity(seconds, SECONDS) for seconds in values)
        return (
            f"times: the history starts anew with {added}: {metric} was {before}, and is {now} now"
        )


def runs_of(entry: Json) -> list[Json]:
    """Return the runs that a step time is compared with: the quiet ones if they are enough."""
    timed = [run for run in entry["runs"] if "step_time" in run]
    quiet = [run for run in timed if not _is_busy(run)]
    return quiet if len(quiet) >= RUNS_TO_DECIDE else timed


def history_of(entry: Json, cores: int) -> History:
    """Return the step times in an entry of a machine with so many cores."""
    runs, anchor = runs_of(entry), entry["anchor"]
    is_anchored = "step_time" in anchor
    return History(
        runs=tuple(run["step_time"] for run in runs),
        least=tuple(least_s(run, cores) for run in runs) if any(map(_is_busy, runs)) else (),
        anchor=anchor.get("step_time"),
        least_anchor=least_s(anchor, cores) if is_anchored and _is_busy(anchor) else None,
        n_anchor=int(anchor.get("runs", 1)),
    )


def steady_history_of(entry: Json, metric: str, load: float | None) -> tuple[History, float]:
    """
    Return the processor or device times in an entry, and what load may have moved the new one by.

    `load` is the share of the cores that others had beside the new run; None if unknown.
    """
    runs, anchor = [run for run in entry["runs"] if run.get(metric)], entry["anchor"]
    # a few runs find only what is beyond OUTRIGHT, which covers what load moves
    is_moved = metric == CPU and len(runs) >= RUNS_TO_DECIDE
    moved, first = _moved(load, runs) if is_moved else 1.0, anchor.get(metric) or None
    if first is not None and is_moved and moved == 1:
        first *= _moved(load, [anchor])
    times = tuple(run[metric] for run in runs)
    return History(runs=times, anchor=first, n_anchor=int(anchor.get("runs", 1))), moved


def cores_of(machine: Mapping[str, Any]) -> int:
    """Return the number of cores of a machine class; those of a run file may be missing."""
    return int(machine.get("cores") or os.cpu_count() or 1)


def least_s(run: Mapping[str, Any], cores: int) -> float:
    """
    Return the least that the step of a run may have taken without others.

    A step waits for no core longer than others had cores meanwhile. Nor is it shorter than its
    processor time on all cores. Load moves both by `LOAD_MOVES`.
    """
    took = float(run["step_time"])
    if not _is_busy(run):
        return took
    bounds = (took * (1 - run["other_load"] * cores), run.get(CPU, 0.0) / cores)
    return float(max(min(max(bounds) / LOAD_MOVES, took), took * _LEAST_SHARE))


_LEAST_SHARE = 1e-3
"""Of a step's time, where nothing bounds what it would take alone; a machine is not busier."""


def _is_busy(run: Mapping[str, Any]) -> bool:
    return bool(run.get("other_load", 0.0) >= MATTERS)


def _moved(load: float | None, runs: Sequence[Json]) -> float:
    """Return 1 for a load like those of some runs, or between them."""
    loads = [run.get("other_load", 0.0) for run in runs]
    if load is None or not loads:
        return LOAD_MOVES
    is_like = min(loads) - _LIKE_LOAD <= load <= max(loads) + _LIKE_LOAD
    return 1.0 if is_like else LOAD_MOVES


def rounded(number: float) -> float | int:
    """Round to six significant digits, as stored values are; whole numbers stay if they can."""
    short, is_whole = float(f"{number:.6g}"), float(number).is_integer()
    return int(number) if is_whole and abs(number) <= LARGEST_INTEGER else short


def merge_runs(
    old: Json | None,
    new: Sequence[Json],
    workload: Mapping[str, Any],
    tolerance: float,
    cores: int,
) -> Merged:
    """
    Add runs to an entry, in the order in which they were made; runs already in it are left out.

    If the new runs are at another level (`is_another_level`), the history and its anchor start anew
    with them. An entry for another workload is replaced.
    """
    if old is None or old["workload"] != workload:
        old = {"workload": dict(workload), "anchor": {}, "runs": []}
    past, since = old["runs"], old.get("since", "")
    left_out = {place: _why_not(place, run, new, past, since) for place, run in enumerate(new)}
    fresh = sorted((run for place, run in enumerate(new) if left_out[place] is None), key=_created)
    runs, level = sorted([*past, *fresh], key=_created), None
    later = [run for run in fresh if not past or _created(run) >= _created(past[-1])]
    if later and (level := _other_level(later, old, tolerance, cores)):
        runs, since = later, _created(later[0])
    kept = _latest(runs)
    dropped = _OTHER_LEVEL if level else _too_old(kept)
    for place, why in left_out.items():
        if why is None and new[place] not in kept:
            left_out[place] = dropped
    reasons = tuple((place, why) for place, why in left_out.items() if why is not None)
    if len(reasons) == len(new):
        return Merged(entry=None, left_out=reasons)
    first = runs_of({"runs": runs})[:RUNS_TO_DECIDE]
    now_quiet = _is_busy(old["anchor"]) and not any(map(_is_busy, first))
    is_full = old["anchor"].get("runs", 1) >= RUNS_TO_DECIDE
    frozen = level is None and is_full and not now_quiet
    entry = {
        "workload": old["workload"],
        "anchor": old["anchor"] if frozen else middle(first),
        "runs": kept,
    }
    started = {"since": since} if since else {}
    return Merged(
        entry=entry | started, n_added=len(new) - len(reasons), level=level, left_out=reasons
    )


_OTHER_LEVEL = "older than the change of level that starts the history anew"


def _too_old(kept: Sequence[Json]) -> str:
    """Say since when runs are kept: a date to come is of a clock that was wrong."""
    since = _created(kept[0]) if kept else ""
    return f"not among the latest {KEPT_RUNS} runs, which are kept{since and f' since {since}'}"


def _why_not(
    place: int, run: Json, new: Sequence[Json], past: Sequence[Json], since: str
) -> str | None:
    if run in past or run in new[:place]:
        return KNOWN
    if _created(run) < since:
        return f"older than its history, which started anew at {since}"
    return None


def middle(runs: Sequence[Json]) -> Json:
    """Return the median of each metric over the runs, with the first run's commit and time."""
    names = dict.fromkeys(name for run in runs for name in run if name not in ("commit", "created"))
    medians = {
        name: rounded(statistics.median(run[name] for run in runs if name in run)) for name in names
    }
    return {
        **medians,
        "commit": runs[0].get("commit", ""),
        "created": _created(runs[0]),
        "runs": len(runs),
    }


def _other_level(
    later: Sequence[Json], old: Json, tolerance: float, cores: int
) -> tuple[str, float, float] | None:
    """Return metric, level before and now, if new runs are at another level; by the clock first."""
    timed, history = [run for run in later if "step_time" in run], history_of(old, cores)
    if not timed or not history.runs:
        return None
    times, least = [run["step_time"] for run in timed], [least_s(run, cores) for run in timed]
    if is_another_level(times, history, tolerance, least):
        return "step_time", *_level_before(history, statistics.median(times))
    computed = [run for run in timed if CPU in run]
    if (least == times and not history.least) or not computed:
        return None
    load = statistics.median(run.get("other_load", 0.0) for run in computed)
    history, moved = steady_history_of(old, CPU, load)
    times = [run[CPU] for run in computed]
    highest, lowest = [time * moved for time in times], [time / moved for time in times]
    if history.runs and is_another_level(highest, history, tolerance, lowest):
        return CPU, *_level_before(history, statistics.median(times))
    return None


def _level_before(history: History, now: float) -> tuple[float, float]:
    """Return the value before, by the latest runs or the anchor, and now."""
    before = [statistics.median(history.runs), *([history.anchor] if history.anchor else [])]
    return max(before, key=lambda seconds: abs(math.log(now / seconds))), now


def _latest(runs: Sequence[Json]) -> list[Json]:
    """Return the latest quiet runs and the latest busy ones, in their order."""
    of_kind: dict[bool, list[Json]] = {}
    for run in runs:
        of_kind.setdefault(_is_busy(run), []).append(run)
    kept = [run for kind in of_kind.values() for run in kind[-KEPT_RUNS:]]
    return [run for run in runs if run in kept]


def _created(run: Json) -> str:
    """Return when a run was made; empty for runs recorded by early versions."""
    return str(run.get("created", ""))
