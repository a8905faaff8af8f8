"""
Give damaged files to all that reads files of others.

    python benchmarks/fuzz.py                                         # a minute of each kind
    python benchmarks/fuzz.py runs baselines --mutants 10000          # of each

Kinds are those of `TARGETS` in tests/helpers/fuzz_targets.py, which say what must hold; the files that are damaged are in
tests/data/fuzz. It prints each kind of fault once, with the name and the seed that reproduce it. The exit status is 1 if
there is any fault.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
SLOWEST_S = 60  # of one mutant; what takes longer hangs
sys.path.insert(0, str(TESTS))


def hangs(signum, frame):
    raise TimeoutError(f"a mutant takes more than {SLOWEST_S} s")


def ends(arguments):
    """Return a function that says whether a number of mutants is enough."""
    end = time.monotonic() + 60 * arguments.minutes
    if arguments.mutants is None:
        return lambda n: time.monotonic() >= end
    return lambda n: n >= arguments.mutants


def run(name, target, seed, enough):
    """Print the faults of a target once each; return the numbers of mutants, of faults and of their kinds."""
    names, kinds, n = list(target.seeds), {}, 0
    while not enough(n):
        chosen = (names[n % len(names)], seed + n)
        signal.alarm(SLOWEST_S)
        for _, text in target.faults([chosen]):
            kind = re.sub(r"[\d'\"]+|mutant\S*", "", text)[:160]
            if kind not in kinds:
                print(f"{name} {chosen}: {text[:2000]}", flush=True)
            kinds[kind] = kinds.get(kind, 0) + 1
        signal.alarm(0)
        n += 1
    print(
        f"{name}: {n:,} mutants, {target.n_read:,} of them read, {sum(kinds.values())} faults",
        flush=True,
    )
    return n, len(kinds)


def main():
    from helpers.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", choices=[*TARGETS, []], help=f"{', '.join(TARGETS)}"
    )
    parser.add_argument("--minutes", type=float, default=1, help="of each kind")
    parser.add_argument("--mutants", type=int, help="of each kind, instead of minutes")
    parser.add_argument("--seed", type=int, help="the first one; drawn and printed by default")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    signal.signal(signal.SIGALRM, hangs)
    warnings.simplefilter("error")
    os.environ["COLUMNS"] = "100"
    n_mutants = n_kinds = 0
    for kind in arguments.kinds or TARGETS:
        with tempfile.TemporaryDirectory(prefix="tfperf-fuzz-") as folder:
            taken, kinds = run(kind, TARGETS[kind](folder), seed, ends(arguments))
        n_mutants, n_kinds = n_mutants + taken, n_kinds + kinds
    print(f"{n_mutants:,} mutants from seed {seed}: {n_kinds} kinds of faults")
    return 1 if n_kinds else 0


if __name__ == "__main__":
    sys.exit(main())
