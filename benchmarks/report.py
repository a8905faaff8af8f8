"""
Measure pages: their size and time for many profiles, and what -o adds to `tfperf analyze`.

    python benchmarks/report.py RUN.json          # pages of 1, 3, 10 and 100 profiles, made of the run's tests,
                                                  # as they are and with a history of ten runs each
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
from pytest_tfperf.results import Check, Verdict

REPEATS = 5


def seconds(action):
    """Time an action a few times."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def with_history(test):
    """Return a test of one profile with ten recorded runs, the last five of them 10 % slower."""
    (profile,) = test.profiles
    now = profile.metrics["step_time"].number or 0.01
    runs = [now / 1.1 * (1 + n / 200) for n in range(5)] + [now * (1 + n / 200) for n in range(5)]
    before = statistics.geometric_mean(runs)
    history = Check(
        profile=profile.name,
        metric="step_time",
        kind="baseline",
        verdict=Verdict.PASS,
        wanted="at most 5 %",
        sentence="step_time is 5.3 % slower than the baseline",
        detail={
            "before": before,
            "after": now,
            "ratio": now / before,
            "low": 0.95 * now / before,
            "high": 1.05 * now / before,
            "tolerance": 0.05,
            "runs": runs,
            "commits": [f"{7919 ** (n + 3) % 16**12:012x}" for n in range(10)],
            "anchor": statistics.median(runs[:5]),
        },
    )
    return replace(test, checks=(*test.checks, history))


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
        row = [n_profiles]
        for kind in (some, list(map(with_history, some))):
            many = replace(run, tests=tuple(kind))
            size = len(render_html(many).encode())
            row += [size / 1000, seconds(lambda many=many: render_html(many))]
        rows.append(row)
    heads = ("profiles", "kB", "s", "kB with histories", "s")
    print(tabulate(rows, heads, floatfmt=("", ".0f", ".2f", ".0f", ".2f")))


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
