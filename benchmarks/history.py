"""
Measure a team's history: queries, writers at once, and killed writers.

    python benchmarks/history.py                        # 10,000 runs of 100 rows, 200 writers, 50 kills
    python benchmarks/history.py --runs 1000 --writers 20 --kills 10

It fills a store in a temporary folder, and times queries in a new process each, so that nothing is in its memory. Files are in the
page cache of the machine. The exit status is 1 if a run is lost, stored twice or in part.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

DISTINCT = 500  # runs
QUERIES = {
    "one test on one machine class (--tfperf-baseline)": (
        "Selection(project='demo', machine_class={machine!r}, file='test_model.py', scope='machine',"
        " branch='main', usable=True)"
    ),
    "step times of all tests (tfperf history)": (
        "Selection(project='demo', branch='main', metrics=('step_time',), columns=COLUMNS)"
    ),
}
SELECT = "SELECT test, count(*), median(value) FROM runs WHERE metric = 'step_time' GROUP BY test"
READ = """
import sys, time
from pytest_tfperf.cli.trends import COLUMNS
from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection
start = time.perf_counter()
store = open_store(sys.argv[1])
found = {call}
print(time.perf_counter() - start, len(found))
"""
WRITE = """
import sys
from helpers.histories import run_at, store_of
from pytest_tfperf.stores.history import open_store
store = open_store(sys.argv[1])
n = 0
while n < int(sys.argv[3]) or int(sys.argv[3]) < 0:
    run = run_at(n % 1440, 0.1 + n * 1e-6, commit=f"{int(sys.argv[2]):08x}{n:04x}")
    store_of(run, store=store)
    print(run.commit, flush=True)
    n += 1
"""


def fill(folder, n_runs):
    """
    Store runs of five machine classes with 100 rows each; return a class.

    Only the first 500 have their own content, and others are copies of their objects: a query reads them all.
    """
    from dataclasses import replace
    from datetime import datetime, timedelta

    from helpers.builders import LAPTOP, profile, record_of
    from helpers.histories import run_at

    from pytest_tfperf.baseline.store import machine_slug
    from pytest_tfperf.stores.history import open_store
    from pytest_tfperf.stores.rows import rows_of

    store, chance = open_store(folder), random.Random(0)
    start = datetime(2026, 1, 1)
    for n in range(min(n_runs, DISTINCT)):
        machine = {**LAPTOP["machine"], "cores": 4 + n % 5}
        tests = [
            record_of(
                profile(step_time=0.1 * chance.gauss(1, 0.01), retraces=0, input_bound=0.02),
                key=f"test_{key}",
                environment={**LAPTOP, "machine": machine},
            )
            for key in range(3)
        ]
        rows = rows_of(run_at(0, commit=f"{n:012x}", tests=tests), "demo")
        created = start + timedelta(minutes=30 * n)
        parts = {
            name: tuple(replace(row, created=created) for row in part[:100])
            for name, part in rows.rows.items()
        }
        store.append(replace(rows, created=created, rows=parts))
    originals = list(Path(folder).rglob("*.*"))
    for n in range(1, n_runs // DISTINCT):
        for path in originals:
            # a run of another id, whose name tells its time and commit as that of any run
            begin, _, run = path.name.rpartition("-")
            shutil.copy(path, path.with_name(f"{begin}-{n:06x}{run[6:]}"))
    return machine_slug({**LAPTOP["machine"], "cores": 4})


def asked(folder, call):
    """Seconds of a call in a new process, and the number of its rows."""
    command = [sys.executable, "-c", READ.format(call=call), folder]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, n_rows = output.stdout.split()
    return float(seconds), int(n_rows)


def show_query(name, folder, call, n=5):
    """Print the seconds of a query."""
    seconds, numbers = zip(*(asked(folder, call) for _ in range(n)), strict=True)
    print(f"{min(seconds):.2f} to {max(seconds):.2f} s  {name}: {numbers[0]:,} rows", flush=True)


def writer(folder, number, n):
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", WRITE, folder, str(number), str(n)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def lost_and_broken(folder, said):
    """Numbers of runs that were said to be stored and are not, are there twice, or are in part."""
    from pytest_tfperf.stores.history import open_store
    from pytest_tfperf.stores.rows import Selection

    store = open_store(folder)
    commits = [row.commit for row in store.rows(Selection(metrics=("step_time",)))]
    return len(said - set(commits)), len(commits) - len(set(commits)), len(store.unread)


def at_once(folder, n_writers, n_each=3):
    """Let writers store runs at once; return what is lost, twice, in part, and how many there are."""
    writers = [writer(folder, number, n_each) for number in range(n_writers)]
    said = {commit for one in writers for commit in one.communicate()[0].split()}
    assert all(one.returncode == 0 for one in writers)
    return (*lost_and_broken(folder, said), len(said))


def killed(folder, n_kills):
    """Kill writers at random moments; return as `at_once`."""
    said, chance = set(), random.Random(1)
    for number in range(n_kills):
        one = writer(folder, number, -1)
        said.add(one.stdout.readline().strip())
        time.sleep(chance.uniform(0, 0.2))
        one.send_signal(signal.SIGKILL)
        said |= set(one.communicate()[0].split())
    said.discard("")
    # the last line of a killed process may be cut
    return (*lost_and_broken(folder, {commit for commit in said if len(commit) == 12}), len(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfperf-history-") as folder:
        machine = fill(f"{folder}/store", arguments.runs)
        print(f"{arguments.runs:,} runs of 100 rows; load {os.getloadavg()[0]:.1f}", flush=True)
        for name, selection in QUERIES.items():
            call = f"store.rows({selection.format(machine=machine)})"
            show_query(name, f"{folder}/store", call)
        show_query("SQL over all rows", f"{folder}/store", f"store.sql({SELECT!r}, 'demo').rows")
        bad = 0
        for name, found in (
            (f"{arguments.writers} writers at once", at_once(f"{folder}/b", arguments.writers)),
            (f"{arguments.kills} kills -9", killed(f"{folder}/c", arguments.kills)),
        ):
            lost, twice, broken, n = found
            bad += lost + twice + broken
            print(f"{name}: {n:,} runs, {lost} lost, {twice} twice, {broken} in part")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
