"""
Measure which remedies make two processes of the same code more alike.

    python benchmarks/remedies.py [STEP] [ROUNDS] [SECONDS] [REMEDY …]

A round runs a pair of fresh processes under each remedy, or those named, in random order, with SECONDS of turns. Shown for each remedy:

    ratio      mean ratio of the pairs, ± its standard error; 1 is true
    pairs      those with turns enough for a standard error
    processes  standard deviation of the ratio between pairs less what the turns explain, with its 95 % interval
    turns      median standard error of a pair's ratio from its turns
    start      seconds from the start of a pair to its end, less its turns
"""

import math
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import scipy.stats
from record_turns import SUITE, one_pair, pytest_run

from pytest_tfperf.machine.cores import pinnable_cores
from pytest_tfperf.stats.sequential import pair_estimate
from pytest_tfperf.turns.cleanup import Cleanup

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A way to start processes."""

    prefix: str = ""
    """Command that starts Python."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables."""
    padding: int = 0
    """Most bytes of a further variable, whose length is random."""
    is_pinned: bool = True
    """False if processes run on any core."""
    has_idle_task: bool = False
    """True if an idle task keeps the core awake, as in a paired run."""


REMEDIES = {
    "pinned to one core": Remedy(),
    "an idle task": Remedy(has_idle_task=True),
    "no ASLR": Remedy(prefix="setarch -R"),
    "environment of random size": Remedy(padding=4096),
    "huge pages": Remedy(environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    "warm-up of 5 s": Remedy(environment={"WARM_UP_S": "5"}),
    "nice -10": Remedy(prefix="nice -n -10"),
    "any core": Remedy(is_pinned=False),
}


def started_by(run, remedy, folder):
    """Return the run as the remedy starts it."""
    environment = {**run.environment, **remedy.environment}
    if remedy.padding:
        environment["PADDING"] = "x" * random.randrange(remedy.padding)
    python = folder / f"python-{run.label}"
    python.write_text(f'#!/bin/sh\nexec {remedy.prefix} {sys.executable} "$@"\n')
    python.chmod(0o755)
    without = () if remedy.has_idle_task else ("-p", "without_idle_task")
    arguments = [*run.arguments, *without]
    return replace(run, environment=environment, python=str(python), arguments=arguments)


def pair_of(remedy, step, seconds, copy, cleanup):
    """Return a pair's estimate, and the seconds that were not spent on turns."""
    cores = pinnable_cores() if remedy.is_pinned else []
    runs = tuple(
        started_by(pytest_run(label, root, 0.0, cores[1:]), remedy, cleanup.folder)
        for label, root in (("b", SUITE), ("a", copy))
    )
    begin = time.monotonic()
    turns, _, _ = one_pair(step, seconds, runs, cores[:1], cleanup)
    rest_s = time.monotonic() - begin - turns.spent_s
    return pair_estimate([math.log(b / a) for b, a, _ in turns.pairs]), rest_s


def shown(name, pairs):
    """Return the line of a remedy."""
    pairs = [(pair, rest_s) for pair, rest_s in pairs if pair.error is not None]
    if len(pairs) < 2:
        return f"{name:28} too few turns: give more SECONDS"
    logs = [math.log(pair.ratio) for pair, _ in pairs]
    errors = [pair.error for pair, _ in pairs]
    total, degrees = statistics.variance(logs), len(logs) - 1
    of_turns = statistics.mean(error**2 for error in errors)
    low, high = (
        degrees * total / scipy.stats.chi2.ppf(level, degrees)
        for level in ((1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2)
    )
    of_processes, low, high = (
        100 * math.sqrt(max(0.0, variance - of_turns)) for variance in (total, low, high)
    )
    mean_error = 100 * math.sqrt(total / len(logs))
    return (
        f"{name:28} {len(pairs)} pairs  ratio {math.exp(statistics.mean(logs)):.4f} ±{mean_error:.2f} %"
        f"  processes {of_processes:.2f} % ({low:.2f} to {high:.2f})"
        f"  turns {100 * statistics.median(errors):.2f} %"
        f"  start {statistics.median(rest for _, rest in pairs):.1f} s"
    )


def main():
    step = sys.argv[1] if len(sys.argv) > 1 else "convolution_5ms"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5.0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    found = {name: [] for name in sys.argv[4:] or REMEDIES}
    cleanup = Cleanup()
    try:
        copy = Path(shutil.copytree(SUITE, cleanup.folder / "files"))
        for n in range(rounds):
            for name in random.sample(list(found), len(found)):
                found[name].append(pair_of(REMEDIES[name], step, seconds, copy, cleanup))
            print(f"{n + 1} of {rounds} rounds", file=sys.stderr, flush=True)
    finally:
        cleanup.close()
    for name, pairs in found.items():
        print(shown(name, pairs))


if __name__ == "__main__":
    main()
