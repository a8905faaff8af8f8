"""
Simulate verdicts: stored runs against a new one, and the resolution that tfperf doctor states.

    python benchmarks/simulate.py

Stored runs are log-normal. The new run and its confirming second process have the same code, or are slowed down
by the minimum detectable change. A second case has one run in twenty that is 20 to 80 % slower for outside
reasons. Turns are normal or heavy-tailed (Student's t, 3 degrees of freedom), and their process pairs differ as
pinned ones do. Turns of a busy machine have both times: the clock's noise, and half of it for processor time, a part of it in both. Each
decides as in a paired run. A measurement is one of the doctor; its trials are tests slowed down by the change it states.
"""

import math
import statistics
from collections import Counter
from dataclasses import replace

import numpy as np

from pytest_tfperf.baseline.history import KEPT_RUNS
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.detectable_change import needed_tolerance, noise_of, resolution
from pytest_tfperf.stats.prediction_interval import RUNS_TO_DECIDE, History, compare_to_history
from pytest_tfperf.stats.process_spread import PINNED_PROCESS_SD
from pytest_tfperf.stats.sequential import (
    CPU_SHARE,
    StoppingRule,
    decide,
    pair_estimate,
    planned_pairs,
)

TRIALS, RECORDED, DIFFER = 4_000, (5, 7, 12, 30), (0.002, 0.01, 0.03, 0.06, 0.145)
BUSY_TURNS, BUSY_NOISE, BUSY_TESTS = 24, (0.04, 0.15, 0.35), 4_000
TURNS, MEASUREMENTS, TESTS, BUDGET_S, PAIR_S, NOISE = 160, 20, 200, 30, 0.15, 0.04


def history(seconds):
    """The history of the kept runs, with the anchor, as an update leaves it."""
    return History(
        runs=tuple(seconds[-KEPT_RUNS:]),
        anchor=statistics.median(seconds[:RUNS_TO_DECIDE]),
        n_anchor=RUNS_TO_DECIDE,
    )


def is_slower(new, past, tolerance):
    return compare_to_history(new, past, tolerance).verdict is Verdict.REGRESSION


def stored(random, n, differ, tolerance):
    """Shares of false alarms of one process and of two, and of detectable slow-downs that both find."""
    one, both, found = 0, 0, 0
    for *runs, first, second in np.exp(random.normal(0, differ, (TRIALS, n + 2))):
        past = history(runs)
        slower = 1 + compare_to_history(first, past, tolerance).minimum_detectable_change
        one += is_slower(first, past, tolerance)
        both += is_slower(first, past, tolerance) and is_slower(second, past, tolerance)
        found += is_slower(first * slower, past, tolerance) and is_slower(
            second * slower, past, tolerance
        )
    return one / TRIALS, both / TRIALS, found / TRIALS


def disturbed(random, n=10, differ=0.01):
    """Shares of false alarms, of one process and of two, if outside causes slow down some runs."""
    one, both = 0, 0
    for runs in np.exp(random.normal(0, differ, (TRIALS, n + 2))):
        *past, first, second = (
            run * random.uniform(1.2, 1.8) if random.random() < 0.05 else run for run in runs
        )
        one += is_slower(first, history(past), 0.05)
        both += is_slower(first, history(past), 0.05) and is_slower(second, history(past), 0.05)
    return one / TRIALS, both / TRIALS


def normal(random, n):
    return NOISE * random.standard_normal(n)


def heavy_tailed(random, n):
    return NOISE * random.standard_t(3, n)


def process_pair(random, draw, n, slower=0.0):
    """The log ratios of its turns."""
    return math.log1p(slower) + random.normal(0, PINNED_PROCESS_SD) + draw(random, n)


def decided(pairs, rule):
    """The verdict of the first analysis that decides, or the last."""
    for n in range(1, len(pairs)):
        verdict = decide(pairs[:n], rule).verdict
        if verdict is not Verdict.INCONCLUSIVE:
            return verdict
    return decide(pairs, rule, final=True).verdict


def resolved(random, draw):
    """Shares of the stated slow-downs found, and of the same code passed, for one measurement."""
    noise = noise_of(
        [(math.exp(log), 1.0, True) for log in draw(random, TURNS)],
        TURNS * PAIR_S,
        PINNED_PROCESS_SD,
    )
    n_pairs = planned_pairs(BUDGET_S)

    def rule_of(tolerance):
        return StoppingRule(
            tolerance=tolerance, n_tests=1, process_sd=PINNED_PROCESS_SD, n_pairs=n_pairs
        )

    def verdicts(rule, slower):
        n = math.floor(BUDGET_S / n_pairs / PAIR_S)
        return [
            decided(
                [
                    pair_estimate(process_pair(random, draw, n, slower).tolist())
                    for _ in range(n_pairs)
                ],
                rule,
            )
            for _ in range(TESTS)
        ]

    rule = rule_of(0.05)
    slower = resolution(noise, rule, BUDGET_S).minimum_detectable_change
    lax = rule_of(needed_tolerance(noise, rule, BUDGET_S))
    found = [verdict is Verdict.REGRESSION for verdict in verdicts(rule, slower)]
    passed = [verdict in (Verdict.PASS, Verdict.IMPROVED) for verdict in verdicts(lax, 0.0)]
    return np.mean(found), np.mean(passed)


def both_times(random, draw, noise, slower):
    """Shares of REGRESSION by the clock, and by processor time where the clock does not decide."""
    found = Counter()
    rule = StoppingRule(
        tolerance=0.05, n_tests=1, process_sd=PINNED_PROCESS_SD, n_pairs=planned_pairs(BUDGET_S)
    )

    def busy(middle, sd):
        return middle + draw(random, BUSY_TURNS) * sd / NOISE

    for _ in range(BUSY_TESTS):
        clock, works, verdict = [], [], Verdict.INCONCLUSIVE
        while verdict is Verdict.INCONCLUSIVE and len(clock) < rule.n_pairs:
            works.append(busy(math.log1p(slower) + random.normal(0, PINNED_PROCESS_SD), noise / 2))
            waits = busy(0.0, noise * math.sqrt(3) / 2)
            clock.append(pair_estimate((works[-1] + waits).tolist()))
            verdict = decide(clock, rule, final=len(clock) == rule.n_pairs).verdict
        found["the clock"] += verdict is Verdict.REGRESSION
        if verdict is Verdict.INCONCLUSIVE:
            cpu = [pair_estimate(work.tolist()) for work in works]
            decision = decide(cpu, replace(rule, error_share=CPU_SHARE), final=True)
            found["processor time"] += decision.verdict is Verdict.REGRESSION
    return {by: n / BUSY_TESTS for by, n in found.items()}


def shares(values):
    return f"{np.mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def main():
    random = np.random.default_rng(0)
    for tolerance in (0.05, 0.001):
        rates = [stored(random, n, differ, tolerance) for n in RECORDED for differ in DIFFER]
        one, both, found = zip(*rates, strict=True)
        print(
            f"stored runs, tolerance {tolerance:.1%}: false alarms {shares(both)}, of the first process alone {shares(one)}; "
            f"what it says it can see is found in {shares(found)}; of {TRIALS:,} for each of {RECORDED} runs that differ by {DIFFER}"
        )
    one, both = disturbed(random)
    print(
        f"one run in twenty disturbed from outside: false alarms {both:.1%}, of the first process alone {one:.1%}"
    )
    for draw in (normal, heavy_tailed):
        for noise in BUSY_NOISE:
            for slower in (0.0, 0.05, 0.1, 0.25):
                found = both_times(random, draw, noise, slower)
                said = ", ".join(f"{share:.2%} by {by}" for by, share in found.items())
                print(
                    f"both times, {draw.__name__} turns that differ by {noise:.0%}, {slower:.0%} slower at 5 %: REGRESSION {said}"
                )
        found, passed = zip(*(resolved(random, draw) for _ in range(MEASUREMENTS)), strict=True)
        print(
            f"what a doctor says of {draw.__name__} turns: slow-downs found {shares(found)}, same code passed {shares(passed)}; ",
            end="",
        )
        print(f"{MEASUREMENTS} measurements of {TURNS} pairs, {TESTS} tests each")


if __name__ == "__main__":
    main()
