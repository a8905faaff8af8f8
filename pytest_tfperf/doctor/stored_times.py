"""The slow-down that stored times would show here, from runs as `--tfperf-update` records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.baseline.history import CPU, history_of, least_s, steady_history_of
from pytest_tfperf.checks.limits import DEFAULT_TOLERANCE
from pytest_tfperf.stats.prediction_interval import LEAST_RUN_SD, compare_to_history

_FIVE_RUNS = (-1, -1, 0, 1, 1)
"""Five runs whose standard deviation is 1: so many decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """What five stored runs would show of a time of the step."""

    metric: str
    run_sd: float
    """Standard deviation of its logarithm between processes, as it is assumed."""
    smallest: float
    """The slow-down found in 9 of 10 cases, as a share."""


def stored_changes(
    runs: Sequence[Mapping[str, float]], process_sd: float, cores: int
) -> list[StoredChange]:
    """
    Return what either time of a step would show after five recorded runs like these.

    `process_sd` is the standard deviation of the log ratio of two processes, as known before.
    """
    known = {
        name: [run[name] for run in runs if name in run]
        for name in ("step_time", CPU, "other_load")
    }
    if not known["step_time"]:
        return []
    # two processes say little of the spread, so it is not assumed to be less than known before
    least_sd = max(LEAST_RUN_SD, process_sd / math.sqrt(2))
    spread = {name: max(least_sd, _log_sd(known[name])) for name in ("step_time", CPU)}
    now = {name: statistics.median(values) for name, values in known.items() if values}
    recorded = [
        {
            name: value * (math.exp(place * spread[name]) if name in spread else 1)
            for name, value in now.items()
        }
        for place in _FIVE_RUNS
    ]
    entry = {"runs": recorded, "anchor": {}}
    clock = compare_to_history(
        now["step_time"], history_of(entry, cores), DEFAULT_TOLERANCE, least_s(now, cores)
    )
    found = [_change("step_time", spread, clock.minimum_detectable_change)]
    if CPU in now:
        history, moved = steady_history_of(entry, CPU, now.get("other_load"))
        computed = compare_to_history(now[CPU], history, DEFAULT_TOLERANCE, now[CPU] / moved)
        found.append(_change(CPU, spread, computed.minimum_detectable_change))
    return found


def _change(metric: str, spread: Mapping[str, float], smallest: float | None) -> StoredChange:
    assert smallest is not None, "five runs decide"
    return StoredChange(metric=metric, run_sd=spread[metric], smallest=smallest)


def _log_sd(values: Sequence[float]) -> float:
    """Return the standard deviation of the logarithms; 0 where there are no two values."""
    return statistics.stdev(map(math.log, values)) if len(values) > 1 else 0.0
