"""
Measure how often a paired run is right, from recorded turns of fresh process pairs.

    python benchmarks/paired.py replay DATA.jsonl.gz
    python benchmarks/paired.py turns DATA.jsonl.gz [DATA ...]

The decision is replayed over each recorded process pair as a coordinator makes it: at the planned sizes, in the share of the budget
that a process pair has, a pair of turns costing what it cost when it was recorded. A first and a second process pair are drawn
without replacement, in all ways that there are. In brackets are 95 % intervals; the trials of a rate are the process pairs.

`turns` counts the pairs of turns of the same code that differ by some factor, and replays the decision on few of them: all runs
of consecutive ones in each process pair.

A line of the data is a fresh process pair:
{"step": "matmul_0.3ms", "planted": 0.05, "pinned": true, "machine": {...}, "when": "...", "cost_s": 14.2, "continuous_b_s": 0.00031, "turns": [[seconds_a, seconds_b, a_first], ...]}
with the seconds of a step in the turns of both sides, of which b is the one that is slower by what is planted, what all turns took, and
the seconds of a step of b in its timed window, before the turns.
"""

import argparse
import gzip
import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.stats

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.sequential_test import (
    INTERIM_SIZES,
    PAIR_SHARE,
    PINNED_PROCESS_SD,
    SINGLE_RATIO_BOUND,
    UNPINNED_PROCESS_SD,
    StoppingRule,
    decide,
)
from pytest_tfperf.stats.signed_rank import estimate, ratio_interval

BUDGET_S = 30
FACTORS = (1.5, 2, SINGLE_RATIO_BOUND, 5)
FEW, FEW_RATIOS = (1, 2, 4, 7), (1.0, 2.0, 4.0, 10.0)
SUSPECTED = Verdict.REGRESSION  # what one process pair says; two make a regression
PASSED = (Verdict.PASS, Verdict.IMPROVED)
VIRTUAL_TESTS, VIRTUAL_RUNS = 200, 10_000
FOUND = (  # the true ratio, the tolerance, seconds of turns of both process pairs
    (1.05, 0.02, BUDGET_S),
    (1.03, 0.01, BUDGET_S),
    (1.10, 0.05, 10),
    (1.10, 0.02, BUDGET_S),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPair:
    """The log ratios b ÷ a of its turns, the seconds of a step, those that a pair of turns takes, and how b's are in turns ÷ before."""

    step: str
    planted: float
    pinned: bool
    machine: str
    when: str
    step_s: float
    cost_s: float
    in_turns: float
    logs: np.ndarray
    a_first: np.ndarray


def read(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [process_pair(json.loads(line)) for line in lines if line.strip()]


def process_pair(line):
    seconds = np.array([turn[:2] for turn in line["turns"]], np.float64)
    return ProcessPair(
        step=line["step"],
        planted=line["planted"],
        pinned=line["pinned"],
        machine=json.dumps(line["machine"], sort_keys=True),
        when=line["when"],
        step_s=float(np.median(seconds[:, 0])),
        cost_s=line["cost_s"] / len(seconds),
        in_turns=float(np.median(seconds[:, 1])) / line["continuous_b_s"],
        logs=np.log(seconds[:, 1] / seconds[:, 0]),
        a_first=np.array([bool(turn[2]) for turn in line["turns"]]),
    )


def by_kind(pairs):
    """Those of the same code on both sides, and those of which one is slowed down; a process pair alone says nothing of a rate."""
    kinds = ([pair for pair in pairs if bool(pair.planted) is slowed] for slowed in (False, True))
    return [kind if len(kind) > 1 else [] for kind in kinds]


def mean_ratio(pairs):
    return math.exp(statistics.fmean(math.log(estimate(pair.logs)) for pair in pairs))


def affordable(pair, budget_s):
    """Number of pairs of turns that the share of a process pair pays for."""
    return max(1, min(INTERIM_SIZES[-1], int(PAIR_SHARE * budget_s / pair.cost_s)))


def replayed(pairs, rule, budget_s, shifts=None):
    """Verdict of each process pair, and the seconds of turns until then."""
    moved = zip(pairs, shifts or [0.0] * len(pairs), strict=True)
    looks = [
        decide([pair.logs[: affordable(pair, budget_s)] + by], rule).pairs[0] for pair, by in moved
    ]
    return [(look.verdict, look.n * pair.cost_s) for look, pair in zip(looks, pairs, strict=True)]


def median_seconds(outcomes, wanted):
    """Until what is wanted is said; "never" where it is not in half of the cases."""
    seconds = statistics.median_high(
        [seconds if verdict in wanted else math.inf for verdict, seconds in outcomes]
    )
    return f"{seconds:.1f} s" if math.isfinite(seconds) else "never"


def binomial(k, n):
    """The 95 % interval of a rate (Clopper and Pearson 1934)."""
    interval = scipy.stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    return interval.low, interval.high


def regressions(pairs, verdicts):
    """
    The share of draws of two process pairs of a step in which both are suspected, and the interval of that rate; of several steps the means.

    Fresh process pairs of a step are independent, so the rate is the square of that of one. Steps differ in it, and the mean of
    squares is more than the square of the mean.
    """
    rates, intervals = [], []
    for step in dict.fromkeys(pair.step for pair in pairs):
        suspected = [
            verdict is SUSPECTED
            for pair, verdict in zip(pairs, verdicts, strict=True)
            if pair.step == step
        ]
        k, n = sum(suspected), len(suspected)
        rates.append(k * (k - 1) / (n * (n - 1)))
        intervals.append([end**2 for end in binomial(k, n)])
    return statistics.fmean(rates), [
        statistics.fmean(ends) for ends in zip(*intervals, strict=True)
    ]


def percent(*shares):
    return " to ".join(f"{100 * share:.3g}" for share in shares) + " %"


def said(outcomes):
    counts = Counter(
        "suspected" if verdict is SUSPECTED else verdict.value for verdict, _ in outcomes
    )
    return f"{len(outcomes)} process pairs: " + ", ".join(
        f"{n} {name}" for name, n in counts.most_common()
    )


def show_rule(rule):
    raised = (
        f", raised to {percent(rule.effective_tolerance)}"
        if rule.effective_tolerance > rule.tolerance
        else ""
    )
    return f"tolerance {percent(rule.tolerance)}{raised}"


def show_noise(name, pairs):
    """The spread between process pairs (the variance of the estimates less that of the turns, whose standard error is from the rank interval)."""
    if not pairs:
        return
    estimates = np.log([estimate(pair.logs) for pair in pairs])
    intervals = [ratio_interval(pair.logs, 0.95) for pair in pairs]
    turns_variance = np.mean(
        [(math.log(one.high / one.low) / (2 * 1.96)) ** 2 for one in intervals]
    )
    n, variance = len(pairs), np.var(estimates, ddof=1)
    ends = [variance * (n - 1) / scipy.stats.chi2.ppf(tail, n - 1) for tail in (0.975, 0.025)]
    spread, low, high = (math.sqrt(max(0.0, one - turns_variance)) for one in (variance, *ends))
    mean, error = estimates.mean(), scipy.stats.t.ppf(0.975, n - 1) * math.sqrt(variance / n)
    single = [np.std(pair.logs, ddof=1) for pair in pairs]
    next_one = [np.corrcoef(pair.logs[:-1], pair.logs[1:])[0, 1] for pair in pairs]
    print(
        f"  {name}: {n} process pairs of {statistics.median(len(pair.logs) for pair in pairs):.0f} pairs of turns",
        end="; ",
    )
    print(f"a pair of turns takes {1e3 * statistics.median(pair.cost_s for pair in pairs):.0f} ms")
    print(
        f"    ratio {math.exp(mean):.4f} ({math.exp(mean - error):.4f} to {math.exp(mean + error):.4f})",
        end="; ",
    )
    print(f"from {math.exp(estimates.min()):.4f} to {math.exp(estimates.max()):.4f}")
    print(
        f"    spread between process pairs, less that of their turns: sd {percent(spread)} ({percent(low, high)})",
        end="; ",
    )
    print(f"turns explain {percent(math.sqrt(turns_variance))}")
    print(
        f"    single log ratios: sd {percent(statistics.median(single))}, from {percent(min(single), max(single))}",
        end="; ",
    )
    print(f"correlation with the next one {statistics.median(next_one):.2f}", end="; ")
    print(
        f"the turn that is first takes {math.exp(statistics.median(map(first_turn, pairs)) / 2):.4f} times the other"
    )


def show_in_turns(pairs):
    """A step's time in turns ÷ that in the timed window of the same process, before."""
    if not pairs:
        return
    logs = np.log([pair.in_turns for pair in pairs])
    error = scipy.stats.t.ppf(0.975, len(logs) - 1) * scipy.stats.sem(logs)
    low, ratio, high = np.exp([logs.mean() - error, logs.mean(), logs.mean() + error])
    print(
        f"  step time in turns ÷ continuous: {ratio:.4f} ({low:.4f} to {high:.4f}) in {len(logs)} processes"
    )


def first_turn(pair):
    """Twice the log of how much slower the first turn of two is, whichever side has it."""
    return np.median(pair.logs[~pair.a_first]) - np.median(pair.logs[pair.a_first])


def show_same_code(pairs, spread):
    rule = StoppingRule(tolerance=0.02, n_tests=1, process_sd=spread)
    outcomes = replayed(pairs, rule, BUDGET_S)
    verdicts = [verdict for verdict, _ in outcomes]
    rate, interval = regressions(pairs, verdicts)
    passes = sum(verdict in PASSED for verdict in verdicts)
    print(
        f"  same code, {show_rule(rule)}, {BUDGET_S} s: false alarms {percent(rate)} ({percent(*interval)}); {said(outcomes)}"
    )
    print(
        f"    PASS {percent(passes / len(verdicts))} ({percent(*binomial(passes, len(verdicts)))}), median {median_seconds(outcomes, PASSED)}"
    )


def shift(pair, ratio, measured):
    """Log factor that makes a process pair stand for a ratio; 0 if that ratio was planted."""
    return (
        0.0
        if math.isclose(1 + pair.planted, ratio)
        else math.log(ratio / measured[pair.step, pair.planted])
    )


def show_found(name, pairs, measured, spread):
    """Print how often planted and scaled slow-downs are found."""
    for ratio, tolerance, budget_s in FOUND:
        rule = StoppingRule(tolerance=tolerance, n_tests=1, process_sd=spread)
        outcomes = replayed(pairs, rule, budget_s, [shift(pair, ratio, measured) for pair in pairs])
        rate, interval = regressions(pairs, [verdict for verdict, _ in outcomes])
        print(
            f"  {name}: +{percent(ratio - 1)} at {show_rule(rule)}, {budget_s} s: found {percent(rate)} ({percent(*interval)})",
            end="; ",
        )
        print(f"{said(outcomes)}; median until suspected {median_seconds(outcomes, [SUSPECTED])}")


def show_verdicts(same, planted, measured, spread):
    if same:
        show_same_code(same, spread)
    if planted:
        show_found("planted", planted, measured, spread)
    if same:
        show_found("same code, scaled", same, measured, spread)


def show_virtual_runs(steps, spread):
    """Runs of 200 tests of the same code; a test is a step, with a first and a second process pair of its own."""
    if not steps:
        return
    rule, random = (
        StoppingRule(tolerance=0.02, n_tests=VIRTUAL_TESTS, process_sd=spread),
        np.random.default_rng(0),
    )
    suspected = [
        np.array([verdict is SUSPECTED for verdict, _ in replayed(pairs, rule, BUDGET_S)])
        for pairs in steps
    ]
    alarms = np.zeros(VIRTUAL_RUNS, bool)
    for test in range(VIRTUAL_TESTS):
        flags = suspected[test % len(suspected)]
        first, second = (
            random.integers(len(flags), size=VIRTUAL_RUNS),
            random.integers(len(flags) - 1, size=VIRTUAL_RUNS),
        )
        alarms |= flags[first] & flags[second + (second >= first)]
    k, n = int(sum(map(sum, suspected))), sum(map(len, suspected))
    ends = [1 - (1 - end**2) ** VIRTUAL_TESTS for end in binomial(k, n)]
    print(
        f"{VIRTUAL_TESTS} tests of the same code, {show_rule(rule)}: any false alarm in {percent(alarms.mean())} of {VIRTUAL_RUNS:,} runs",
        end="; ",
    )
    print(f"{k} of {n} process pairs are suspected, which allows {percent(*ends)}")


def show_pairs(pairs, spread):
    """All of one kind of pinning, step by step and together."""
    steps = {
        step: by_kind([pair for pair in pairs if pair.step == step])
        for step in dict.fromkeys(pair.step for pair in pairs)
    }
    measured = {
        (step, kind[0].planted): mean_ratio(kind)
        for step, kinds in steps.items()
        for kind in kinds
        if kind
    }
    for step, (same, planted) in steps.items():
        print(
            f"\n{step}, {1e3 * statistics.median(pair.step_s for pair in pairs if pair.step == step):.3g} ms a step"
        )
        show_noise("same code", same)
        show_noise("planted", planted)
        show_in_turns(same + planted)
        show_verdicts(same, planted, measured, spread)
    print("\nall steps together")
    counted = [pair for kinds in steps.values() for kind in kinds for pair in kind]
    show_verdicts(*by_kind(counted), measured, spread)
    print(
        "  what was not planted: log ratios are shifted by that of the ratio ÷ the mean ratio measured",
        end=" (",
    )
    print(
        ", ".join(
            f"{step} +{percent(planted)} {ratio:.4f}" for (step, planted), ratio in measured.items()
        ),
        end=")\n",
    )
    short = sum(len(pair.logs) < affordable(pair, BUDGET_S) for pair in counted)
    if short:
        print(
            f"  {short} process pairs have fewer turns on record than {PAIR_SHARE * BUDGET_S:.0f} s pay for: all that they have was used"
        )
    show_virtual_runs([same for same, _ in steps.values() if same], spread)


def replay(arguments):
    recorded = read(arguments.data)
    print(
        f"{len(recorded)} process pairs, {min(pair.when for pair in recorded)} to {max(pair.when for pair in recorded)}"
    )
    print(*sorted({pair.machine for pair in recorded}), sep="\n")
    for pinned in sorted({pair.pinned for pair in recorded}, reverse=True):
        spread = (
            arguments.spread
            if arguments.spread is not None
            else PINNED_PROCESS_SD
            if pinned
            else UNPINNED_PROCESS_SD
        )
        print(f"\n{'pinned' if pinned else 'not pinned'}: a spread of {percent(spread)} is assumed")
        show_pairs([pair for pair in recorded if pair.pinned is pinned], spread)


def show_factors(pairs):
    """Print the number of pairs of turns of the same code that differ by more than a factor, in either direction."""
    differ = [np.exp(np.abs(pair.logs)) for pair in pairs]
    every, firsts = np.concatenate(differ), [one[0] for one in differ]
    print(
        f"{len(every):,} pairs of turns in {len(pairs)} process pairs: they differ by {every.max():.3g} times at most, the first of each by {max(firsts):.3g}"
    )
    for factor in FACTORS:
        n, n_pairs = int((every > factor).sum()), sum(bool((one > factor).any()) for one in differ)
        print(
            f"  by more than {factor:g} times: {n} ({percent(*binomial(n, len(every)))}), in {n_pairs} process pairs"
        )


def show_few(pairs, ratio):
    """Print verdicts on few turns at a true ratio; a regression takes two process pairs, so its rate is the square."""
    rule = StoppingRule(tolerance=0.0, n_tests=1, process_sd=PINNED_PROCESS_SD)
    for n in FEW:
        verdicts = Counter(
            decide([pair.logs[at : at + n] + math.log(ratio)], rule).pairs[0].verdict
            for pair in pairs
            for at in range(0, len(pair.logs) - n + 1, n)
        )
        total, k, faster = sum(verdicts.values()), verdicts[SUSPECTED], verdicts[Verdict.IMPROVED]
        both = [share**2 for share in (k / total, *binomial(k, total))]
        print(
            f"  {ratio:g} times as slow, {n} pairs of turns: REGRESSION {percent(both[0])} ({percent(*both[1:])}), IMPROVED {percent(faster / total)}; {total:,} trials"
        )


def turns(arguments):
    pairs = [pair for path in arguments.data for pair in read(path) if not pair.planted]
    for step in dict.fromkeys(pair.step for pair in pairs):
        print(f"\n{step}")
        show_factors([pair for pair in pairs if pair.step == step])
    print("\nall steps together")
    show_factors(pairs)
    for ratio in FEW_RATIOS:
        show_few(pairs, ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("replay", help="the decision on paired turns")
    command.add_argument(
        "data", type=Path, metavar="DATA", help="recorded turns, .jsonl or .jsonl.gz"
    )
    command.add_argument(
        "--spread",
        type=float,
        help="sd of the log ratio between process pairs, in place of the constants",
    )
    command.set_defaults(run=replay)
    command = commands.add_parser("turns", help="single pairs of turns, and decisions on few")
    command.add_argument(
        "data", type=Path, nargs="+", metavar="DATA", help="recorded turns, .jsonl or .jsonl.gz"
    )
    command.set_defaults(run=turns)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
