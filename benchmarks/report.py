"""
Measure pages: their size and time for many profiles, and what -o adds to `tfperf analyze`.

    python benchmarks/report.py RUN.json          # pages of 1, 3, 10 and 100 profiles, made of the run's tests
    python benchmarks/report.py --millions 3      # a trace of 3 million events, alternately with and without -o

`pytest --tfperf-report run.json` writes the run file. Times are medians of five.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import large_trace
from tabulate import tabulate

from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.report.run_file import read_run

REPEATS = 5


def seconds(action):
    """Time an action a few times."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def pages(path):
    """Print size and time of pages of many profiles."""
    run = read_run(path)
    tests = [
        replace(test, profiles=(profile,), key=f"{test.key}_{n}")
        for n, test in enumerate(run.tests)
        for profile in test.profiles
    ]
    rows = []
    for n_profiles in (1, 3, 10, 100):
        some = [
            replace(tests[n % len(tests)], key=f"{tests[n % len(tests)].key}_{n}")
            for n in range(n_profiles)
        ]
        many = replace(run, tests=tuple(some))
        size = len(render_html(many).encode())
        rows.append((n_profiles, size / 1000, seconds(lambda many=many: render_html(many))))
    print(tabulate(rows, ("profiles", "kB", "s"), floatfmt=("", ".0f", ".2f")))


def analyses(millions):
    """Print the time of `tfperf analyze` with and without a page, alternately."""
    with tempfile.TemporaryDirectory() as folder:
        trace, page = Path(folder) / "large.xplane.pb", Path(folder) / "page.html"
        large_trace.write_traces([trace], int(millions * 1e6))
        command = [sys.executable, "-m", "pytest_tfperf.cli.main", "analyze", str(trace)]
        times = {"without": [], "with": []}
        for _ in range(REPEATS):
            for name, more in (("without", []), ("with", ["-o", str(page)])):
                start = time.perf_counter()
                subprocess.run([*command, *more], stdout=subprocess.DEVNULL, check=True)
                times[name].append(time.perf_counter() - start)
        size = page.stat().st_size
    without, with_page = (statistics.median(times[name]) for name in ("without", "with"))
    print(
        f"{millions:g} million events: {without:.2f} s, with a page of {size / 1000:.0f} kB {with_page:.2f} s, "
        f"×{with_page / without:.3f}"
    )


def main():
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0].strip())
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN.json")
    parser.add_argument("--millions", type=float, metavar="N", help="events of the trace")
    options = parser.parse_args()
    if options.run:
        pages(options.run)
    if options.millions:
        analyses(options.millions)


if __name__ == "__main__":
    main()
