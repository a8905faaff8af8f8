"""The history of step times in a timing file: its latest ten runs, and its anchor."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.json_file import LARGEST_INTEGER
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.stats.prediction_interval import RUNS_TO_DECIDE, History, is_another_level
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json

KEPT_RUNS = 10
KNOWN = "it is recorded already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """An entry of a timing file with new runs in it."""

    entry: Json | None
    """The entry; None if no run was added."""
    n_added: int = 0
    """Number of runs that were added."""
    level: tuple[float, float] | None = None
    """Step time before and now, where the history starts anew; else None."""
    left_out: tuple[tuple[int, str], ...] = ()
    """Place of each run that was not added, and the reason."""

    @property
    def what(self) -> str:
        """The change of the history, for people."""
        added = plural(self.n_added, "run")
        if self.level is None:
            return f"times: {added} added, {len(self.entry['runs']) if self.entry else 0} kept"
        before, now = (format_quantity(seconds, SECONDS) for seconds in self.level)
        return (
            f"times: the history starts anew with {added}: step_time was {before}, and is {now} now"
        )


def history_of(entry: Json) -> History:
    """Return the step times in an entry."""
    return History(
        runs=_step_times(entry["runs"]),
        anchor=entry["anchor"].get("step_time"),
        n_anchor=int(entry["anchor"].get("runs", 1)),
    )


def commits_of(entry: Json) -> tuple[str, ...]:
    """Return the commit of each run with a step time; empty for a run outside git."""
    return tuple(str(run.get("commit", "")) for run in entry["runs"] if "step_time" in run)


def rounded(number: float) -> float | int:
    """Round to six significant digits, as stored values are; whole numbers stay if they can."""
    short, is_whole = float(f"{number:.6g}"), float(number).is_integer()
    return int(number) if is_whole and abs(number) <= LARGEST_INTEGER else short


def merge_runs(
    old: Json | None, new: Sequence[Json], workload: Mapping[str, Any], tolerance: float
) -> Merged:
    """
    Add runs to an entry, in the order in which they were made; runs already in it are left out.

    If the new runs are at another level (`is_another_level`), the history and its anchor start anew
    with them. An entry for another workload is replaced.

    Args:
        old: The entry of a timing file: `workload`, `anchor`, `runs`, and `since` where it started
            anew.
        new: Runs as they are stored: metrics, `commit`, `created`.
        workload: The workload of the new runs.
        tolerance: The slow-down that the test tolerates.
    """
    if old is None or old["workload"] != workload:
        old = {"workload": dict(workload), "anchor": {}, "runs": []}
    past, since = old["runs"], old.get("since", "")
    left_out = {place: _why_not(place, run, new, past, since) for place, run in enumerate(new)}
    fresh = sorted((run for place, run in enumerate(new) if left_out[place] is None), key=_created)
    runs, level = sorted([*past, *fresh], key=_created), None
    later = [run for run in fresh if not past or _created(run) >= _created(past[-1])]
    history = history_of(old)
    if history.runs and later and is_another_level(_step_times(later), history, tolerance):
        level = _level_before(history, statistics.median(_step_times(later)))
        runs, since = later, _created(later[0])
    kept = runs[-KEPT_RUNS:]
    dropped = _OTHER_LEVEL if level else _too_old(kept)
    for place, why in left_out.items():
        if why is None and new[place] not in kept:
            left_out[place] = dropped
    reasons = tuple((place, why) for place, why in left_out.items() if why is not None)
    if len(reasons) == len(new):
        return Merged(entry=None, left_out=reasons)
    frozen = level is None and old["anchor"].get("runs", 1) >= RUNS_TO_DECIDE
    entry = {
        "workload": old["workload"],
        "anchor": old["anchor"] if frozen else middle(runs[:RUNS_TO_DECIDE]),
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


def _level_before(history: History, now: float) -> tuple[float, float]:
    """Return the step time before, by the latest runs or the anchor, and now."""
    before = [statistics.median(history.runs), *([history.anchor] if history.anchor else [])]
    return max(before, key=lambda seconds: abs(math.log(now / seconds))), now


def _step_times(runs: Sequence[Json]) -> tuple[float, ...]:
    return tuple(run["step_time"] for run in runs if "step_time" in run)


def _created(run: Json) -> str:
    """Return when a run was made; empty for runs recorded by early versions."""
    return str(run.get("created", ""))
