"""
Analyse damaged traces for a given time.

    python benchmarks/fuzz.py --minutes 10 [TRACE...]

Analyses mutants of traces (by default of those that the tests make). It prints each kind of fault once, with
the call that reproduces it: `found(mutant(Path(trace).read_bytes(), seed))` of tests/helpers/fuzz.py. The exit
status is 1 if there is any fault.
"""

import argparse
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
SLOWEST_S = 30  # of one analysis; what takes longer hangs
sys.path.insert(0, str(TESTS))


def fault(raw):
    """Return the kind of fault in a trace's analysis (the error and its line), or None."""
    from helpers.fuzz import found

    signal.alarm(SLOWEST_S)
    try:
        found(raw)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "pytest_tfperf" in frame.filename] or frames
        what = (
            str(error).partition(" is ")[0][:80]
            if isinstance(error, AssertionError)
            else str(error)[:80]
        )
        return type(error).__name__, what, f"{ours[-1].filename}:{ours[-1].lineno}: {ours[-1].line}"
    finally:
        signal.alarm(0)
    return None


def hangs(signum, frame):
    raise TimeoutError(f"the analysis takes more than {SLOWEST_S} s")


def main():
    from helpers.fuzz import mutant
    from helpers.made_traces import MADE

    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "traces",
        type=Path,
        nargs="*",
        metavar="TRACE",
        help="an .xplane.pb, or a folder: all below it",
    )
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument(
        "--seed", type=int, help="the first seed; drawn and printed where it is not given"
    )
    arguments = parser.parse_args()
    files = [
        file
        for path in arguments.traces
        for file in (sorted(path.rglob("*.pb")) if path.is_dir() else [path])
    ]
    traces = {str(file): file.read_bytes() for file in files} or MADE
    signal.signal(signal.SIGALRM, hangs)
    warnings.simplefilter("error")
    first = seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    kinds, n_mutants, end = {}, 0, time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < end:
        for name, raw in traces.items():
            kind = fault(mutant(raw, seed))
            n_mutants += 1
            if kind and kind not in kinds:
                print(
                    f"{kind[0]}: {kind[1]}\n  at {kind[2]}\n  mutant({name!r}, {seed})", flush=True
                )
            if kind:
                kinds[kind] = kinds.get(kind, 0) + 1
        seed += 1
    print(
        f"{n_mutants} mutants of {len(traces)} traces, seeds {first} to {seed - 1}: {len(kinds)} kinds of faults in {sum(kinds.values())}"
    )
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
