"""
Measure how often a paired run is right, from recorded turns of fresh process pairs.

    python benchmarks/paired.py replay DATA.jsonl.gz [DATA ...]
    python benchmarks/paired.py turns DATA.jsonl.gz [DATA ...]

`replay` makes the decision as a coordinator does: one process pair after the other, drawn without replacement, up to the analysis that
decides. A pair of turns costs what it cost when it was recorded; the start of processes is not in the seconds. Each file is replayed by
itself. In brackets are 95 % intervals, with the recorded process pairs as trials: draws of them are not independent.

Log ratios are shifted by the true ratio of a case less the mean of the recorded pairs of the same code, which is printed.

`turns` counts the pairs of turns of the same code that differ by some factor, and replays the decision on few of them: all runs
of consecutive ones in each process pair.

A line of the data is a fresh process pair:
{"step": "matmul_0.3ms", "planted": 0.05, "pinned": true, "machine": {...}, "when": "...", "cost_s": 14.2, "continuous_b_s": 0.00031, "turns": [[seconds_a, seconds_b, a_first], ...]}
with the seconds of a step in the turns of both sides, and in "cpu_turns" their processor time, of which b is the one that is slower by what is planted, what all turns took, and
the seconds of a step of b in its timed window, before the turns.
"""

import argparse
import gzip
import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.stats

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.process_spread import (
    PINNED_PROCESS_SD,
    UNPINNED_PROCESS_SD,
    ProcessSpread,
)
from pytest_tfperf.stats.sequential import (
    CPU_SHARE,
    SINGLE_RATIO_BOUND,
    TURN_SIZES,
    StoppingRule,
    decide,
    has_enough_turns,
    pair_estimate,
    planned_pairs,
)
from pytest_tfperf.stats.signed_rank import estimate, ratio_interval
from pytest_tfperf.turns.verdicts import Terms

CASES = (  # the true ratio, the tolerance, seconds of turns
    (1.0, 0.02, 30),
    (1.02, 0.02, 30),
    (1.01, 0.01, 30),
    (1.05, 0.02, 30),
    (1.03, 0.01, 30),
    (1.02, 0.01, 30),
    (1.02, 0.01, 60),
    (1.10, 0.05, 10),
    (2.0, 0.05, 30),
    (1.0, 0.05, 30),
    (1.0, 0.01, 30),
    (1.0, 0.05, 60),
    (1.05, 0.05, 60),
    (1.10, 0.05, 60),
    (1.25, 0.05, 60),
)
DRAWS = 2_000
FACTORS = (1.5, 2, SINGLE_RATIO_BOUND, 5)
FEW, FEW_RATIOS = (1, 2, 4, 5), (1.0, 2.0, 4.0, 10.0)
PASSED = (Verdict.PASS, Verdict.IMPROVED)
VIRTUAL_TESTS = 200


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
    cpu_logs: np.ndarray | None
    a_first: np.ndarray
    is_busy: bool


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
        cpu_logs=cpu_logs(line.get("cpu_turns")),
        a_first=np.array([bool(turn[2]) for turn in line["turns"]]),
        is_busy=bool(line.get("busy")),
    )


def cpu_logs(turns):
    """The log ratios of processor time, or None where a turn has none."""
    if not turns or not np.all(np.array(turns) > 0):
        return None
    return np.log(np.array([b / a for a, b in turns]))


def binomial(k, n):
    """The 95 % interval of a rate (Clopper and Pearson 1934)."""
    interval = scipy.stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    return interval.low, interval.high


def percent(*shares):
    return " to ".join(f"{100 * share:.3g}" for share in shares) + " %"


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


def turns_of(pair, rule, seconds):
    """The turns that a process pair has in its share of the time."""
    most = max(1, min(len(pair.logs), TURN_SIZES[-1], int(seconds / pair.cost_s)))
    sizes = [n for n in TURN_SIZES if n <= most and has_enough_turns(pair.logs[:n], rule)]
    return pair.logs[: sizes[0] if sizes else most].tolist()


def show_case(pairs, case, spread, n_tests=1):
    """Print the verdicts of process pairs that are drawn at random."""
    ratio, tolerance, budget_s = case
    n_pairs = planned_pairs(budget_s)
    if n_pairs > len(pairs):
        print(f"  +{percent(ratio - 1)} at {percent(tolerance)}, {budget_s} s: too few on record")
        return
    constant = ProcessSpread(sd=spread, source="")
    terms = Terms(ref="", n_tests=n_tests, constant=constant, budget_s=budget_s)
    random, counts, seconds, used = np.random.default_rng(0), Counter(), [], []
    turns = [turns_of(pair, terms.rule(tolerance), budget_s / n_pairs) for pair in pairs]
    estimates = [
        replace(pair_estimate(of_pair), is_busy=pair.is_busy)
        for pair, of_pair in zip(pairs, turns, strict=True)
    ]
    by_cpu = [
        None
        if pair.cpu_logs is None
        else replace(pair_estimate(pair.cpu_logs[: len(of_pair)].tolist()), is_busy=pair.is_busy)
        for pair, of_pair in zip(pairs, turns, strict=True)
    ]
    for _ in range(DRAWS):
        drawn = random.choice(len(pairs), n_pairs, replace=False)
        for n in range(1, n_pairs + 1):
            of_draw = [estimates[at] for at in drawn[:n]]
            decision = decide(of_draw, terms.rule(tolerance, of_draw), final=n == n_pairs)
            if decision.verdict is not Verdict.INCONCLUSIVE:
                break
        name = "PASS" if decision.verdict in PASSED else decision.verdict.value
        if decision.verdict is Verdict.INCONCLUSIVE and is_slower_by_cpu(
            [by_cpu[at] for at in drawn], terms, tolerance
        ):
            name = "REGRESSION by processor time"
        counts[name] += 1
        spent = zip(decision.pairs, drawn, strict=False)
        seconds.append(sum(one.n * pairs[at].cost_s for one, at in spent))
        used.append(len(decision.pairs))
    said = []
    for name, n in counts.most_common():
        of_pairs = binomial(round(len(pairs) * n / DRAWS), len(pairs))
        said.append(f"{name} {percent(n / DRAWS)} ({percent(*of_pairs)})")
    tests = f", {n_tests} tests" if n_tests > 1 else ""
    print(
        f"  +{percent(ratio - 1)} at {percent(tolerance)}, {budget_s} s{tests}: {', '.join(said)}; "
        f"median {statistics.median(seconds):.1f} s of turns, {statistics.fmean(used):.2f} process pairs"
    )


def is_slower_by_cpu(estimates, terms, tolerance):
    """Whether processor time is a REGRESSION, after the clock has ended without a verdict."""
    if any(one is None for one in estimates):
        return False
    rule = replace(terms.rule(tolerance, estimates), error_share=CPU_SHARE)
    return decide(estimates, rule, final=True).verdict is Verdict.REGRESSION


def shifted(pairs, ratio, mean, cpu_mean):
    return [
        replace(
            pair,
            logs=pair.logs + (math.log(ratio) - mean),
            cpu_logs=None
            if pair.cpu_logs is None
            else pair.cpu_logs + (math.log(ratio) - cpu_mean),
        )
        for pair in pairs
    ]


def show_step(step, pairs, spread):
    same = [pair for pair in pairs if not pair.planted]
    planted = [pair for pair in pairs if pair.planted]
    print(f"\n{step}, {1e3 * statistics.median(pair.step_s for pair in pairs):.3g} ms a step")
    show_noise("same code", same)
    show_noise("planted", planted)
    show_in_turns(pairs)
    if not same:
        return
    mean = statistics.fmean(math.log(estimate(pair.logs)) for pair in same)
    cpu = [pair.cpu_logs for pair in same if pair.cpu_logs is not None]
    cpu_mean = statistics.fmean(math.log(estimate(logs)) for logs in cpu) if cpu else 0.0
    print(f"  mean ratio of the same code {math.exp(mean):.4f}, which the cases leave out")
    for case in CASES:
        show_case(shifted(same, case[0], mean, cpu_mean), case, spread)
    show_case(shifted(same, 1.0, mean, cpu_mean), (1.0, 0.02, 30), spread, VIRTUAL_TESTS)


def replay(arguments):
    for path in arguments.data:
        recorded = read(path)
        print(
            f"{path.name}: {len(recorded)} process pairs, {min(pair.when for pair in recorded)} to {max(pair.when for pair in recorded)}"
        )
        print(*sorted({pair.machine for pair in recorded}), sep="\n")
        for pinned in sorted({pair.pinned for pair in recorded}, reverse=True):
            spread = arguments.spread
            if spread is None:
                spread = PINNED_PROCESS_SD if pinned else UNPINNED_PROCESS_SD
            print(
                f"\n{'pinned' if pinned else 'not pinned'}: a spread of {percent(spread)} is assumed"
            )
            kind = [pair for pair in recorded if pair.pinned is pinned]
            for step in dict.fromkeys(pair.step for pair in kind):
                show_step(step, [pair for pair in kind if pair.step == step], spread)


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
    rule = StoppingRule(tolerance=0.0, n_tests=1, process_sd=PINNED_PROCESS_SD, n_pairs=2)
    for n in FEW:
        decisions = [
            decide([pair_estimate((pair.logs[at : at + n] + math.log(ratio)).tolist())], rule)
            for pair in pairs
            for at in range(0, len(pair.logs) - n + 1, n)
        ]
        total, k = len(decisions), sum(decision.is_suspected for decision in decisions)
        faster = sum(decision.verdict is Verdict.IMPROVED for decision in decisions)
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
        "data", type=Path, nargs="+", metavar="DATA", help="recorded turns, .jsonl or .jsonl.gz"
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
