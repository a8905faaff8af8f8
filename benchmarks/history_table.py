"""
Measure the processor time of `tfperf history` on a large store, and of the change points in it.

    python benchmarks/history_table.py                     # 10,000 runs of 20 tests
    python benchmarks/history_table.py --against REV       # and with the package of a commit, on the same store

It fills a store in a temporary folder: runs of one machine class with a step time a test, all different. Noise is 2 %. One test in two has ten changes of
level: six lasting ones of 3 to 10 %, and two regressions of 6 % that are mended 50 runs later. The command runs in a new process each,
first without the index of the user's cache, and then with it. It prints user and system seconds of that process.
"""

import argparse
import contextlib
import os
import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

NOISE, LASTING, BUMPS, BUMP_RUNS, BUMP = 0.02, 6, 2, 50, 1.06
COMMAND = ("history", "--project", "demo", "--branch", "main", "--store")


def series(chance, n_runs, changes):
    """Step times of a test in seconds."""
    level = [0.1] * n_runs
    if changes:
        for _ in range(LASTING):
            place, factor = (
                chance.randrange(n_runs),
                1 + chance.choice((-1, 1)) * chance.uniform(0.03, 0.1),
            )
            level[place:] = [one * factor for one in level[place:]]
        for _ in range(BUMPS):
            place = chance.randrange(max(n_runs - BUMP_RUNS, 1))
            level[place : place + BUMP_RUNS] = [
                one * BUMP for one in level[place : place + BUMP_RUNS]
            ]
    return [one * max(chance.gauss(1, NOISE), 0.5) for one in level]


def fill(folder, n_runs, n_tests):
    """Store the runs."""
    from helpers.builders import LAPTOP, profile, record_of
    from helpers.histories import run_at

    from pytest_tfperf.run_history.opening import open_store
    from pytest_tfperf.run_history.rows import rows_of

    store, chance = open_store(folder), random.Random(0)
    tests = [
        record_of(profile(step_time=0.1), key=f"test_{n:02}", environment=LAPTOP)
        for n in range(n_tests)
    ]
    form = rows_of(run_at(0, tests=tests), "demo")
    ((machine, rows),) = form.rows.items()
    rows = [row for row in rows if row.metric == "step_time"]
    values = [series(chance, n_runs, n % 2 == 0) for n in range(n_tests)]
    for n in range(n_runs):
        created, commit, run = (
            datetime(2026, 1, 1) + timedelta(minutes=30 * n),
            f"{n:012x}",
            f"{n:032x}",
        )
        of_run = {"created": created, "commit": commit, "run": run}
        some = [replace(row, value=one[n], **of_run) for row, one in zip(rows, values, strict=True)]
        store.append(replace(form, rows={machine: tuple(some)}, **of_run))


def measured(package, *arguments, cache):
    """Processor time in seconds of a command of the package in a folder, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": cache}
    command = [sys.executable, "-m", "pytest_tfperf.cli.main", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=cache
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stdout


@contextlib.contextmanager
def package_of(commit):
    """A work tree of a commit."""
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    with tempfile.TemporaryDirectory(prefix="tfperf-against-") as folder:
        subprocess.run(
            [*git, "add", "--detach", f"{folder}/tree", commit], check=True, capture_output=True
        )
        try:
            yield f"{folder}/tree"
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/tree"], check=True)


def show(name, package, store, times):
    with tempfile.TemporaryDirectory(prefix="tfperf-cache-") as cache:
        first, _ = measured(package, *COMMAND, store, cache=cache)
        later = [measured(package, *COMMAND, store, cache=cache) for _ in range(times)]
        version, _ = measured(package, "--version", cache=cache)
    changed = sum("since" in line for line in later[0][1].splitlines())
    seconds = [one for one, _ in later]
    print(
        f"{name}: {first:.1f} s first, {min(seconds):.2f} to {max(seconds):.2f} s later, "
        f"{version:.2f} s of it to start; {changed} tests with a change of level",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=20)
    parser.add_argument("--times", type=int, default=3, help="later commands")
    parser.add_argument("--against", metavar="COMMIT", help="measure the package of a commit too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfperf-table-") as folder:
        store = f"{folder}/store"
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        fill(store, arguments.runs, arguments.tests)
        print(
            f"{arguments.runs:,} runs of {arguments.tests} tests; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        show("this tree", REPOSITORY, store, arguments.times)
        if arguments.against:
            with package_of(arguments.against) as package:
                show(arguments.against, package, store, 1)


if __name__ == "__main__":
    main()
