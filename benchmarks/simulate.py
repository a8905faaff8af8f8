"""
How often verdicts are right where all is drawn: stored runs against a new one, and what tfperf doctor says turns can resolve.

    python benchmarks/simulate.py

Stored runs are log-normal; the new one is of the same code, or slowed down by what the decision says it can see. Then runs of which one in
twenty is 20 to 80 % slower for reasons outside of the code. Turns are normal or heavy-tailed (Student's t, 3 degrees of freedom), their
process pairs differ as pinned ones do; a measurement of them is a doctor's, its trials are tests slowed down by what that says it finds.
"""

import math
import statistics

import numpy as np

from pytest_tfperf.baseline.decision import PAIR_SHARE, PINNED_SPREAD, Rule, decide
from pytest_tfperf.baseline.history import RUNS_TO_DECIDE, History, stand
from pytest_tfperf.baseline.merge import KEPT_RUNS
from pytest_tfperf.baseline.resolution import needed_tolerance, noise_of, resolution
from pytest_tfperf.results import Verdict

TRIALS, RECORDED, DIFFER = 4_000, (5, 7, 12, 30), (0.002, 0.01, 0.03, 0.06, 0.145)
TURNS, MEASUREMENTS, TESTS, BUDGET_S, PAIR_S, NOISE = 160, 20, 200, 30, 0.15, 0.04


def history(seconds):
    """Of the runs that are kept, with the anchor, as an update leaves it."""
    return History(runs=tuple(seconds[-KEPT_RUNS:]), anchor=statistics.median(seconds[:RUNS_TO_DECIDE]), n_anchor=RUNS_TO_DECIDE)


def is_slower(new, past, tolerance):
    return stand(new, past, tolerance).verdict is Verdict.REGRESSION


def stored(random, n, differ, tolerance):
    """Shares of false alarms, and of slow-downs found that it says it can see."""
    alarms, found = 0, 0
    for *runs, new in np.exp(random.normal(0, differ, (TRIALS, n + 1))):
        past = history(runs)
        alarms += is_slower(new, past, tolerance)
        found += is_slower(new * (1 + stand(new, past, tolerance).smallest), past, tolerance)
    return alarms / TRIALS, found / TRIALS


def disturbed(random, n=10, differ=0.01):
    """The share of runs slowed down from outside that are false alarms."""
    alarms = 0
    for *runs, new in np.exp(random.normal(0, differ, (TRIALS, n + 1))):
        slowed = [run * random.uniform(1.2, 1.8) if random.random() < 0.05 else run for run in (*runs, new)]
        alarms += is_slower(slowed[-1], history(slowed[:-1]), 0.05)
    return alarms / TRIALS


def normal(random, n):
    return NOISE * random.standard_normal(n)


def heavy_tailed(random, n):
    return NOISE * random.standard_t(3, n)


def process_pair(random, draw, n, slower=0.0):
    """The log ratios of its turns."""
    return math.log1p(slower) + random.normal(0, PINNED_SPREAD) + draw(random, n)


def resolved(random, draw):
    """For one measurement: shares of the slow-downs found, and of the same code passed, of those that it says there are."""
    noise = noise_of([(math.exp(log), 1.0, True) for log in draw(random, TURNS)], TURNS * PAIR_S, PINNED_SPREAD)
    rule = Rule(tolerance=0.05, n_tests=1, spread=PINNED_SPREAD)
    slower, tolerance = resolution(noise, rule, BUDGET_S).smallest, needed_tolerance(noise, rule, BUDGET_S)
    lax, n = Rule(tolerance=tolerance, n_tests=1, spread=PINNED_SPREAD), math.floor(BUDGET_S * PAIR_SHARE / PAIR_S)
    found = [
        decide([list(process_pair(random, draw, n, slower)) for _ in range(2)], rule).verdict is Verdict.REGRESSION for _ in range(TESTS)
    ]
    passed = [decide([list(process_pair(random, draw, n))], lax).verdict in (Verdict.PASS, Verdict.IMPROVED) for _ in range(TESTS)]
    return np.mean(found), np.mean(passed)


def shares(values):
    return f"{np.mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def main():
    random = np.random.default_rng(0)
    for tolerance in (0.05, 0.001):
        rates = [stored(random, n, differ, tolerance) for n in RECORDED for differ in DIFFER]
        alarms, found = zip(*rates, strict=True)
        print(
            f"stored runs, tolerance {tolerance:.1%}: false alarms {shares(alarms)}; what it says it can see is found in {shares(found)}; "
            f"of {TRIALS:,} for each of {RECORDED} runs that differ by {DIFFER}"
        )
    print(f"one run in twenty disturbed from outside: false alarms {disturbed(random):.1%}")
    for draw in (normal, heavy_tailed):
        found, passed = zip(*(resolved(random, draw) for _ in range(MEASUREMENTS)), strict=True)
        print(f"what a doctor says of {draw.__name__} turns: slow-downs found {shares(found)}, same code passed {shares(passed)}; ", end="")
        print(f"{MEASUREMENTS} measurements of {TURNS} pairs, {TESTS} tests each")


if __name__ == "__main__":
    main()
