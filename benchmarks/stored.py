"""
Measure how often one run against twelve stored ones is decided right, with pytest-benchmark beside it.

    python benchmarks/stored.py DATA.jsonl

The data are those of benchmarks/record_runs.py. Histories are twelve runs of the same code (ten are kept, with the
median of the first five as anchor). They are drawn without order, and also taken in their recorded order: twelve
runs, the next one, and the one after it as the confirming second process. Brackets hold 95 % intervals. Drawn
histories overlap, so the trials that count are the recorded runs.
"""

import argparse
import gzip
import json
import statistics
from pathlib import Path

import numpy as np
import scipy.stats

from pytest_tfperf.baseline.history import KEPT_RUNS
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.prediction_interval import RUNS_TO_DECIDE, History, compare_to_history

STORED, TOLERANCE, DRAWS = 12, 0.05, 5_000


def read(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def history(seconds):
    anchor = statistics.median(seconds[:RUNS_TO_DECIDE])
    return History(runs=tuple(seconds[-KEPT_RUNS:]), anchor=anchor, n_anchor=RUNS_TO_DECIDE)


def percent(share):
    return f"{100 * share:.3g} %"


def rate(hits, trials):
    """A share of trials, and its interval for n independent trials (Clopper and Pearson 1934)."""
    share = float(np.mean(hits))
    interval = scipy.stats.binomtest(round(share * trials), trials).proportion_ci(
        0.95, method="exact"
    )
    return f"{percent(share)} ({percent(interval.low)} to {percent(interval.high)})"


def is_regression(seconds, stored):
    """The verdict of a run and, if it looks slower, of a second process."""
    return all(
        compare_to_history(one, history(stored), TOLERANCE).verdict is Verdict.REGRESSION
        for one in seconds
    )


def drawn(same, slowed, random):
    """
    Flags of each draw: false alarm, false alarm of its first process, and found slow-downs.

    The slow-downs are the minimum detectable change, and the runs that were slowed down.
    """
    alarms, first, seen, found, smallest = [], [], [], [], []
    for _ in range(DRAWS):
        *stored, one, two = random.choice(same, STORED + 2, replace=False)
        alarms.append(is_regression((one, two), stored))
        first.append(is_regression((one,), stored))
        smallest.append(
            compare_to_history(one, history(stored), TOLERANCE).minimum_detectable_change
        )
        seen.append(is_regression(np.array((one, two)) * (1 + smallest[-1]), stored))
        if slowed:
            found.append(is_regression(random.choice(slowed, 2, replace=False), stored))
    return alarms, first, seen, found, smallest


def show_step(step, runs, random):
    same = [run["ours"][step] for run in runs if not run["planted"]]
    slowed = [run["ours"][step] for run in runs if run["planted"]]
    spread = statistics.stdev(np.log(same))
    print(
        f"\n{step}: {len(same)} runs of the same code, median {1e3 * statistics.median(same):.3g} ms, sd between runs {percent(spread)}",
        end="; ",
    )
    print(
        f"{len(slowed)} slowed down, {statistics.median(slowed) / statistics.median(same):.3f} times"
        if slowed
        else "none slowed down"
    )
    alarms, first, seen, found, smallest = drawn(same, slowed, random)
    print(
        f"  drawn: false alarms {rate(alarms, len(same))}, by the first process alone {rate(first, len(same))}"
    )
    print(
        f"  drawn: says it can see {percent(statistics.median(smallest))}, and finds it in {rate(seen, len(same))}"
    )
    if slowed:
        print(f"  drawn: runs slowed down found {rate(found, len(slowed))}")
    rows = [same[i : i + STORED + 2] for i in range(len(same) - STORED - 1)]
    in_a_row = [is_regression(row[STORED:], row[:STORED]) for row in rows]
    if in_a_row:
        print(f"  as they came: false alarms {rate(in_a_row, len(in_a_row))}")
    compared = [
        (run["planted"], step in run["alarms"]) for run in runs if run["alarms"] is not None
    ]
    theirs = [
        [alarm for planted, alarm in compared if bool(planted) is slower]
        for slower in (False, True)
    ]
    print(f"  pytest-benchmark, median:5%: false alarms {rate(theirs[0], len(theirs[0]))}", end="")
    print(
        f"; runs slowed down missed {rate(~np.array(theirs[1]), len(theirs[1]))}"
        if theirs[1]
        else ""
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    runs = read(parser.parse_args().data)
    print(
        f"{len(runs)} runs, {runs[0]['when']} to {runs[-1]['when']}, {json.dumps(runs[0]['machine'])}; tolerance {percent(TOLERANCE)}"
    )
    random = np.random.default_rng(0)
    for step in runs[0]["ours"]:
        show_step(step, runs, random)


if __name__ == "__main__":
    main()
